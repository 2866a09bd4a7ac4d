package dsql

import (
	"context"
	"errors"

	"github.com/flightpool/flightpool/internal/ctxerr"
)

// sqlTx is a transaction for database/sql, whose calls have no context: they have
// that of BeginTx, which database/sql has looked at before.
type sqlTx struct{ commit, rollback func() error }

// Commit commits.
func (t *sqlTx) Commit() error { return t.commit() }

// Rollback rolls back.
func (t *sqlTx) Rollback() error { return t.rollback() }

var errEndedTx = errors.New("dsql: the context of the transaction has ended, and it is about to be rolled back")

// checkTx refuses what follows a transaction whose context has ended. database/sql rolls it back on a
// goroutine of its own, and has told its borrower before that it is over: what is sent until then would be
// a part of it.
func (c *SQLConn) checkTx() error {
	if c.openTx > 0 && c.txCtx.Err() != nil {
		return errEndedTx
	}
	return nil
}

// bindContext is ctx, ended by the end of the open transaction's as well, until stop. database/sql rolls back a
// transaction whose context has ended, but waits for its statement before, of which tx.Exec has no context.
func (c *SQLConn) bindContext(ctx context.Context) (bound context.Context, stop func()) {
	if c.openTx == 0 || c.txCtx.Done() == nil {
		return ctx, func() {}
	}
	of := c.txCtx
	bound, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(of, func() { cancel(ctxerr.Of(of)) })
	return bound, func() { unhook(); cancel(nil) }
}
