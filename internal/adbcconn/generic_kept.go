package adbcconn

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"

	"github.com/flightpool/flightpool/backend"
)

// sessionMark is a prepared statement that answers with a number which nobody else knows. It
// recognises the session of the statements that their owners have prepared outside of transactions, and
// not closed: servers that number handles from 1 in each session would otherwise run what was prepared in
// one session in place of what was prepared in the one before.
//
// INVARIANT: while such a statement is open, whatever else is prepared and not closed at
// once is of the session of its mark, or the connection is lost. A server whose session was
// replaced unseen then knows no handle that one of ours could be taken for. The mark answers
// for the session before each statement that is to be kept, between a proof (currentProof) that
// is prepared before and closed behind the two; and before each transaction.
//
// INVARIANT: what was prepared in a transaction runs by its handle in that alone: servers may refuse it
// elsewhere, and the mark does not answer for it. Outside it is prepared again.
//
// INVARIANT: nothing is kept on a server that does not tell the proof from the mark behind it (tellApart).
//
// INVARIANT: on a server that has closed a proof nothing is kept without one, nor without a mark where it has taken one.
//
// The mark itself is never asked behind a statement that may be of another session: it could have
// that one's number, and would run it. Where the server refuses to prepare one, it answers for nothing.
type sessionMark struct {
	stmt    adbc.Statement
	nonce   string
	refused bool
	taken   bool // the server has taken one, be it that it was dropped
}

// errPreparedLost says that the driver has dialled again, to a session that does not know the
// prepared statements of the last.
var errPreparedLost = fmt.Errorf("%w: the prepared statements are gone with the last", errSessionReplaced)

// prepareToKeep prepares p for a call, for its owner to close.
func (t *driverCall) prepareToKeep(p *genericPrepared, call backend.Call) error {
	c := t.conn
	if c.isFlightSQL && call.Tx == "" {
		if call.Prove != nil && isSeveral(p.sql) {
			return t.wrapError(backend.StagePrepare, adbc.Error{Code: adbc.StatusNotImplemented, Msg: "several statements in one text, in a session that Config.OnConnect has prepared, of this driver"})
		}
		takesProofs := call.Prove != nil || c.proofs.Load() // else one that is refused may show that the server takes none
		if _, err := t.beginProof(call); err != nil && (takesProofs || !backend.FaultIn(err).KeepsConn()) {
			return err
		}
	}
	_, err := runInDriver(t, backend.StagePrepare, func(ctx context.Context) (*genericPrepared, error) { return p, c.keep(ctx, p, call) },
		func(p *genericPrepared) { _ = p.closeStatement() })
	return err
}

// leaveTx prepares p again where it was prepared in a transaction, for a call outside of any.
func (p *genericPrepared) leaveTx(t *driverCall, call backend.Call) error {
	if !t.conn.isFlightSQL || p.call.Tx == "" || call.Tx != "" {
		return nil
	}
	outside := p.call
	outside.Tx, outside.Prove = "", call.Prove
	return t.prepareToKeep(p, outside)
}

// keep prepares p. Outside of transactions a proof was prepared before, where the server takes one.
// The caller holds driverLock.
func (c *GenericConn) keep(ctx context.Context, p *genericPrepared, call backend.Call) error {
	var stmt adbc.Statement
	var err error
	switch {
	case c.isProvenTx(call):
		stmt, err = c.keepInTx(ctx, p.sql, call)
	case c.currentProof != nil:
		stmt, err = c.keepMarked(ctx, p.sql, call)
	default: // no driver of Flight SQL's, or a server that takes no proof
		stmt, err = c.prepare(ctx, p.sql, call)
	}
	if err != nil {
		return err
	}
	if p.stmt != nil { // of a transaction that has ended
		_ = p.stmt.Close()
	} else if err := p.describe(ctx, stmt); err != nil {
		_ = stmt.Close()
		return err
	}
	p.stmt, p.call, p.boundForQuery, c.prepared[p] = stmt, call, false, struct{}{}
	return nil
}

// keepMarked is keep outside of transactions.
func (c *GenericConn) keepMarked(ctx context.Context, sql string, call backend.Call) (adbc.Statement, error) {
	c.dropMark() // of statements that are gone
	if err := c.ensureMark(ctx); err != nil {
		return nil, cmp.Or(c.endProofs(errSessionReplaced), err)
	}
	got, err := c.prepareBehindProof(ctx, sql, call)
	if err = cmp.Or(err, got.refusal); err != nil {
		c.dropMark()
	}
	return got.stmt, err
}

// keepInTx is keep inside a watched transaction. The statement cannot be a proof, since its owner may close
// it at any time: others are prepared for that, before it and behind.
func (c *GenericConn) keepInTx(ctx context.Context, sql string, call backend.Call) (adbc.Statement, error) {
	if _, err := c.prepareInTx(ctx, c.cfg.ProbeSQL, call); err != nil {
		return nil, err
	}
	stmt, err := c.prepare(ctx, sql, call)
	if err != nil {
		return nil, c.verifyAfterRefusal(err)
	}
	if _, err := c.prepareInTx(ctx, c.cfg.ProbeSQL, call); err != nil {
		_ = stmt.Close()
		return nil, err
	}
	return stmt, nil
}

// ensureMark makes the mark for the first statement, and checks it for others.
func (c *GenericConn) ensureMark(ctx context.Context) error {
	if c.mark.stmt != nil || c.mark.refused {
		return c.checkMark(ctx)
	}
	refused := func(err error) bool {
		e, isADBC := adbcError(err)
		return isADBC && faultOf(e).KeepsConn() && !c.mark.taken
	}
	err := c.makeMark(ctx)
	if refused(err) { // once, that may be a failure of the server's own
		err = c.makeMark(ctx)
	}
	if refused(err) {
		c.mark.refused = true
		return nil
	}
	if err != nil {
		return err
	}
	return c.tellApart(ctx)
}

// errNotToldApart is of servers that give prepared statements no handles, which the driver does not tell, and run by any what the
// session was sent last.
var errNotToldApart = adbc.Error{
	Code: adbc.StatusNotImplemented,
	Msg:  "the server runs another prepared statement than the one that is named: it gives them no handles, or has just replaced the session",
}

// tellApart finds out, once for all connections, whether the server's handles name one statement each: the proof that was prepared before
// the mark must not answer as that does. The caller holds driverLock.
func (c *GenericConn) tellApart(ctx context.Context) error {
	if c.cfg.ToldApart.Load() {
		return nil
	}
	reader, err := c.runQuery(ctx, c.currentProof, backend.Call{})
	var answer string
	if err == nil {
		rows := c.trackRows(reader, func() {})
		answer, err = firstValue(ctx, rows)
	}
	e, isADBC := adbcError(err)
	switch {
	case err == nil && answer == c.mark.nonce:
		_ = c.mark.stmt.Close()
		c.mark = sessionMark{}
		return errNotToldApart
	case err == nil:
		c.cfg.ToldApart.Store(true)
	case !isADBC || !faultOf(e).KeepsConn(): // else it does not execute that, and nothing is known
		return err
	}
	return nil
}

// makeMark prepares the mark of the first statement that is kept.
func (c *GenericConn) makeMark(ctx context.Context) error {
	nonce := rand.Text()
	stmt, err := c.prepare(ctx, markSQL(c.cfg.ProbeSQL, nonce), backend.Call{})
	if err == nil {
		c.mark = sessionMark{stmt: stmt, nonce: nonce, taken: true}
	}
	return err
}

// markSQL has a nonce in the place of the 1 of SELECT 1 or VALUES 1: servers that are probed by the latter take no SELECT without
// a FROM.
func markSQL(probe, nonce string) string {
	verb, ok := strings.CutSuffix(probe, " 1")
	if !ok || strings.ContainsAny(verb, " \t\r\n") {
		verb = "SELECT"
	}
	return verb + " '" + nonce + "'"
}

// checkMark loses the connection if the session is not the one of the statements that are kept.
// Nothing was sent to another session that it could have run. The caller holds driverLock.
func (c *GenericConn) checkMark(ctx context.Context) error {
	if c.mark.stmt == nil {
		return nil
	}
	answer, err := c.readMark(ctx)
	e, isADBC := adbcError(err)
	switch {
	case err == nil && answer == c.mark.nonce:
		return nil
	case err != nil && (!isADBC || faultOf(e) != backend.FaultStatement):
		return err
	case err != nil:
		err = fmt.Errorf("%w (%w)", errPreparedLost, err)
	default:
		err = errPreparedLost
	}
	c.markLost(err)
	return err
}

// readMark reads the mark's result to its end and returns the first value.
func (c *GenericConn) readMark(ctx context.Context) (string, error) {
	rows, err := c.execute(ctx, func(context.Context) (adbc.Statement, func(), error) { return c.mark.stmt, func() {}, nil }, backend.Call{})
	if err != nil {
		return "", err
	}
	return firstValue(ctx, rows)
}

// firstValue reads rows to their end, and lets go of them.
func firstValue(ctx context.Context, rows *genericRows) (answer string, err error) {
	defer rows.release()
	for {
		more, err := hasNext(ctx, rows.reader)
		if !more {
			return answer, err
		}
		if batch := rows.reader.RecordBatch(); answer == "" && batch.NumRows() > 0 && batch.NumCols() > 0 {
			answer = batch.Column(0).ValueStr(0)
		}
	}
}

// dropMark closes the mark once no statement needs it: the session may be replaced then. How
// that ends is of no importance. The caller holds driverLock.
func (c *GenericConn) dropMark() {
	for p := range c.prepared {
		if p.call.Tx == "" {
			return
		}
	}
	mark := c.mark.stmt
	c.mark = sessionMark{taken: c.mark.taken} // one that was refused is asked for again: the server may have failed
	if mark != nil {
		_ = mark.Close()
	}
}
