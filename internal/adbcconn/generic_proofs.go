package adbcconn

import (
	"cmp"
	"context"
	"fmt"

	"github.com/apache/arrow-adbc/go/adbc"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// The Flight SQL driver may dial again without an error, and some servers run and
// commit statements of transactions unknown to them. A prepared statement belongs to
// its session: a server refuses to close, and to run, a handle that it does not know.
// So a successful Close of a handle proves that everything since its Prepare went to
// one session. Close runs nothing, and works in a transaction that has failed.
//
// A watched transaction has two such handles, prepared before it begins: firstProof
// and currentProof. What has to be known of the session is asked between the two and the
// begin (BeginProven). Every statement of it is prepared first, then currentProof is
// closed, then the statement runs by its handle, which becomes currentProof. If the
// driver dials again before the close, the close fails; if after it, no session knows
// the handle. firstProof is closed when the transaction has ended, and proves that it
// ended in the session in which it began.
//
// Servers that number handles from 1 in each session are safe, too: the only handle
// that an unnoticed session can have is the one just prepared there. If it has the
// number of currentProof, it is the one that is closed, and cannot run.
//
// An update outside of transactions that must run in the session which its Call.Prove
// recognises is prepared in the same way, and runs by its handle.

// errSessionReplaced says that the driver has dialled again, to a session that does
// not know the transaction. Nothing of the call took effect.
var errSessionReplaced = fmt.Errorf("%w: the driver has made another connection, and the transaction is gone with the last", backend.ErrSessionLost)

// errTxEndUnknown says that the driver has dialled again right before, or after,
// the end of a transaction.
var errTxEndUnknown = fmt.Errorf("%w: the driver has made another connection, before or after the end of the transaction", backend.ErrSessionLost)

// beginProofs prepares the proofs of a transaction that is about to begin.
// Servers without prepared statements cannot be watched; one that has closed a proof
// has them, whatever it, or a proxy, says later. The caller holds
// driverLock. An error leaves those that were prepared, which endProofs closes.
func (c *GenericConn) beginProofs(ctx context.Context) error {
	if !c.isFlightSQL {
		return nil
	}
	if err := c.endProofs(errSessionReplaced); err != nil { // of a transaction before which the session was not recognised
		return err
	}
	for _, w := range []*adbc.Statement{&c.currentProof, &c.firstProof} {
		stmt, err := c.prepare(ctx, c.cfg.ProbeSQL, backend.Call{})
		if e, ok := adbcError(err); ok && faultOf(e) == backend.FaultUnsupported && !c.proofs.Load() {
			return nil
		}
		if err != nil {
			return err
		}
		*w = stmt
	}
	return c.checkMark(ctx)
}

// isProvenTx reports whether call is of a watched transaction. Its statements
// must go by prepareInTx. The caller holds driverLock.
func (c *GenericConn) isProvenTx(call backend.Call) bool { return call.Tx != "" && c.firstProof != nil }

// prepareInTx prepares a statement in the session of the transaction, or fails. The
// statement is the next currentProof: it must not be closed. The caller holds
// driverLock.
//
// Once a statement of the transaction was refused there is no currentProof, and
// nothing but the end of the transaction is accepted.
func (c *GenericConn) prepareInTx(ctx context.Context, sql string, call backend.Call) (adbc.Statement, error) {
	if isSeveral(sql) {
		return nil, adbc.Error{Code: adbc.StatusNotImplemented, Msg: "several statements in one text, inside a transaction of this driver"}
	}
	if c.currentProof == nil {
		return nil, adbc.Error{Code: adbc.StatusInvalidState, Msg: "a statement of the transaction has failed: it can only be rolled back"}
	}
	stmt, err := c.prepare(ctx, sql, call)
	if err != nil {
		return nil, c.verifyAfterRefusal(err)
	}
	if err := c.rotateProof(stmt); err != nil {
		c.currentProof = nil // it proves nothing: the session may be another one
		_ = stmt.Close()
		return nil, err
	}
	return stmt, nil
}

// rotateProof closes currentProof and puts next in its place. It fails when the
// server does not know currentProof any more, and the connection is lost then.
// The caller holds driverLock.
func (c *GenericConn) rotateProof(next adbc.Statement) error {
	last := c.currentProof
	c.currentProof = next
	return c.closeProof(last, errSessionReplaced)
}

// closeProof closes a handle that the session should know. Where the server
// says that it does not, the connection is lost for the given reason. Any other
// failure is returned as it is, and says nothing of the session. A nil handle
// proves nothing and is no error.
func (c *GenericConn) closeProof(handle adbc.Statement, reason error) error {
	if handle == nil {
		return nil
	}
	err := handle.Close()
	e, ok := adbcError(err)
	switch {
	case err == nil:
		c.proofs.Store(true)
		return nil
	case ok && faultOf(e) == backend.FaultUnsupported && !c.proofs.Load(): // handles are never closed there
		return nil
	case ok && faultOf(e) == backend.FaultStatement:
		err = fmt.Errorf("%w (%w)", reason, err)
		c.markLost(err)
	}
	return err
}

// verifyAfterRefusal finds out whether a refusal, in a watched transaction,
// means that the session was replaced. After it there is no currentProof. The
// caller holds driverLock. A nil err, and a failure that is not the
// statement's, is returned as it is.
func (c *GenericConn) verifyAfterRefusal(err error) error {
	e, ok := adbcError(err)
	if c.currentProof == nil || !ok || faultOf(e) != backend.FaultStatement {
		return err
	}
	if replacedErr := c.rotateProof(nil); replacedErr != nil {
		return replacedErr
	}
	return err
}

// endProofs closes the handles of a transaction that has ended, or has not begun.
// Its error says that the session has been replaced since they were prepared. The
// caller holds driverLock.
func (c *GenericConn) endProofs(reason error) error {
	current, first := c.currentProof, c.firstProof
	c.currentProof, c.firstProof = nil, nil
	err := c.closeProof(current, reason)
	if err != nil {
		return err // firstProof has gone with it
	}
	return c.closeProof(first, reason)
}

// isSeveral reports whether a text is several statements, of which there are servers that run the first
// ones while they prepare.
func isSeveral(sql string) bool { return len(sqlscan.Parse(sql).Statements) > 1 }

// mustProve reports whether an update runs only in the session that call.Prove recognises.
func (c *GenericConn) mustProve(call backend.Call) bool { return call.Prove != nil && c.isFlightSQL }

// prepareProven prepares a statement in the session that call.Prove recognises, or fails; refused
// says that the server has refused to prepare it, in that session or right behind it.
func (t *driverCall) prepareProven(sql string, call backend.Call) (stmt adbc.Statement, refused bool, err error) {
	if refused, err = t.beginProof(call); err != nil {
		return nil, refused, err
	}
	got, err := runInDriver(t, backend.StagePrepare, func(ctx context.Context) (preparation, error) {
		return t.conn.prepareBehindProof(ctx, sql, call)
	}, func(late preparation) {
		if late.stmt != nil {
			_ = late.stmt.Close()
		}
	})
	if err == nil && got.refusal != nil {
		err = t.wrapError(backend.StagePrepare, got.refusal)
		return nil, backend.FaultIn(err).KeepsConn(), err
	}
	return got.stmt, false, err
}

// beginProof prepares a proof outside of transactions, before call.Prove recognises the session;
// what is prepared next closes it. That is done by the close, since to ask for the own proof
// behind a statement could run that: in another session it may have its number. refused says
// that the server takes no proof, in a session that was recognised.
func (t *driverCall) beginProof(call backend.Call) (refused bool, err error) {
	c := t.conn
	noProof := doInDriver(t, backend.StageProbe, func(ctx context.Context) (err error) {
		if err = c.endProofs(errSessionReplaced); err == nil { // of one before that was left
			c.currentProof, err = c.prepare(ctx, c.cfg.ProbeSQL, backend.Call{})
		}
		return err
	})
	if call.Prove != nil && (noProof == nil || backend.FaultIn(noProof).KeepsConn()) { // another session may have refused it
		err = call.Prove(t.ctx)
		refused = noProof != nil && err == nil
	}
	if err = cmp.Or(err, noProof); err != nil {
		_ = doInDriver(t, backend.StageClose, func(context.Context) error { return c.endProofs(errSessionReplaced) }) // or the next call does
	}
	return refused, err
}

// preparation is a statement, or why there is none, in the session of the proof before it.
type preparation struct {
	stmt    adbc.Statement
	refusal error
}

// prepareBehindProof prepares a statement and closes the proof that was prepared before it. The
// caller holds driverLock.
//
// INVARIANT: what the closing of the proof fails with, by whatever answer, is no refusal of the statement: the session
// may be another one.
func (c *GenericConn) prepareBehindProof(ctx context.Context, sql string, call backend.Call) (preparation, error) {
	stmt, refusal := c.prepare(ctx, sql, call)
	if replaced := c.endProofs(errSessionReplaced); replaced != nil {
		if refusal == nil {
			_ = stmt.Close()
		}
		return preparation{}, replaced
	}
	return preparation{stmt, refusal}, nil
}

// toRunProven is toRun for an update: see mustProve. Several statements in one text, of which
// servers run the first ones while they prepare, and what the server refuses to prepare, are
// not tied to their session, which has been recognised right before.
func (t *driverCall) toRunProven(sql string, call backend.Call) (toExecute, error) {
	c := t.conn
	if !c.mustProve(call) || isSeveral(sql) {
		return c.toRun(sql, call), nil
	}
	stmt, refused, err := t.prepareProven(sql, call)
	switch {
	case err == nil:
		return func(context.Context) (adbc.Statement, func(), error) {
			c.currentProof = stmt // which tells from a refusal of its own that the session is another one
			return stmt, func() { _ = c.endProofs(errSessionReplaced) }, nil
		}, nil
	case refused:
		return c.toRun(sql, call), nil
	default:
		return nil, err
	}
}
