package adbcconn

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"

	"github.com/apache/arrow-adbc/go/adbc"

	"github.com/flightpool/flightpool/backend"
)

// sessionMark is a prepared statement that answers with a number which nobody else knows. It
// recognises the session of the statements that their owners have not closed: servers that
// number handles from 1 in each session would otherwise run what was prepared in one session
// in place of what was prepared in the one before.
//
// INVARIANT: while a statement in prepared is open, whatever else is prepared and not closed at
// once is of the session of its mark, or the connection is lost. A server whose session was
// replaced unseen then knows no handle that one of ours could be taken for. The mark answers
// for the session before each statement that is to be kept, between a proof (currentProof) that
// is prepared before and closed behind the two; and before each transaction.
//
// The mark itself is never asked behind a statement that may be of another session: it could have
// that one's number, and would run it.
type sessionMark struct {
	stmt  adbc.Statement
	nonce string
}

// errPreparedLost says that the driver has dialled again, to a session that does not know the
// prepared statements of the last.
var errPreparedLost = fmt.Errorf("%w: the prepared statements are gone with the last", errSessionReplaced)

// keep prepares p, for its owner to close. Outside of transactions a proof was prepared before,
// where the server takes one. The caller holds driverLock.
func (c *GenericConn) keep(ctx context.Context, p *genericPrepared) (err error) {
	defer func() {
		if err == nil {
			c.prepared[p] = struct{}{}
		}
		c.dropMark()
	}()
	switch {
	case c.isProvenTx(p.call):
		p.stmt, err = c.keepInTx(ctx, p.sql, p.call)
	case c.currentProof != nil:
		if err = c.ensureMark(ctx, p.call); err != nil {
			return cmp.Or(c.endProofs(errSessionReplaced), err)
		}
		p.stmt, err = c.prepareBehindProof(ctx, p.sql, p.call)
	default: // no driver of Flight SQL's, or a server that takes no proof
		p.stmt, err = c.prepare(ctx, p.sql, p.call)
	}
	return err
}

// keepInTx is keep inside a watched transaction, in whose session the mark is. The statement
// cannot be a proof, since its owner may close it at any time: others are prepared for that, before
// and behind whatever is to stay open, so that it is the only handle between two proofs.
func (c *GenericConn) keepInTx(ctx context.Context, sql string, call backend.Call) (stmt adbc.Statement, err error) {
	c.dropMark()
	rotate := func() error {
		_, err := c.prepareInTx(ctx, c.cfg.ProbeSQL, call)
		return err
	}
	if err := rotate(); err != nil {
		return nil, err
	}
	if c.mark.stmt == nil {
		if err := c.makeMark(ctx, call); err != nil {
			return nil, c.verifyAfterRefusal(err)
		}
		if err := rotate(); err != nil {
			return nil, err
		}
	}
	if stmt, err = c.prepare(ctx, sql, call); err != nil {
		return nil, c.verifyAfterRefusal(err)
	}
	if err := rotate(); err != nil {
		_ = stmt.Close()
		return nil, err
	}
	return stmt, nil
}

// ensureMark makes the mark for the first statement, and checks it for others.
func (c *GenericConn) ensureMark(ctx context.Context, call backend.Call) error {
	c.dropMark() // of statements that are gone
	if c.mark.stmt == nil {
		return c.makeMark(ctx, call)
	}
	return c.checkMark(ctx)
}

// makeMark prepares the mark of the first statement that is kept.
func (c *GenericConn) makeMark(ctx context.Context, call backend.Call) error {
	nonce := rand.Text()
	stmt, err := c.prepare(ctx, "SELECT '"+nonce+"'", backend.Call{Tx: call.Tx})
	if err == nil {
		c.mark = sessionMark{stmt, nonce}
	}
	return err
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
func (c *GenericConn) readMark(ctx context.Context) (answer string, err error) {
	rows, err := c.execute(ctx, func(context.Context) (adbc.Statement, func(), error) { return c.mark.stmt, func() {}, nil }, backend.Call{})
	if err != nil {
		return "", err
	}
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

// dropMark closes the mark once no statement is kept: the session may be replaced then. How
// that ends is of no importance. The caller holds driverLock.
func (c *GenericConn) dropMark() {
	if mark := c.mark.stmt; mark != nil && len(c.prepared) == 0 {
		c.mark = sessionMark{}
		_ = mark.Close()
	}
}
