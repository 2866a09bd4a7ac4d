package sqldriver

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/badconn"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/driverapi"
)

// Begin is part of driver.Conn.
//
// Deprecated: database/sql calls BeginTx.
func (c *conn) Begin() (driver.Tx, error) { return c.BeginTx(c.baseCtx, driver.TxOptions{}) }

// BeginTx is part of driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if opts.Isolation != 0 || opts.ReadOnly {
		return nil, driverapi.BadArgument("BeginTx", errors.New("isolation levels and read-only transactions are not known to Flight SQL"))
	}
	if err := c.beginCall(ctx, "BeginTx"); err != nil {
		return nil, err
	}
	if err := containError("BeginTx", func() error { return c.handle.BeginTransaction(ctx) }); err != nil {
		return nil, c.toDriverError(err)
	}
	c.tx = &tx{c, ctx}
	return c.tx, nil
}

// tx is a driver.Tx.
type tx struct {
	conn *conn
	ctx  context.Context //nolint:containedctx // the transaction's, as database/sql understands BeginTx
}

// Commit is part of driver.Tx. When the transaction's context ends before the
// server has answered, errors.Is finds flightpool.ErrCommitUnknown.
func (t *tx) Commit() error {
	t.conn.tx, t.conn.lastCtx = nil, t.ctx
	err := commitContained(func() error { return t.conn.handle.Commit(t.ctx) })
	t.conn.unended.Record(err)
	return badconn.Hide(err) // never a reason to try the commit elsewhere
}

// Rollback is part of driver.Tx. It goes out although the transaction's context has ended,
// behind the caller then: a deferred Rollback is as late as the context's end.
func (t *tx) Rollback() error {
	c := t.conn
	c.tx, c.lastCtx = nil, t.ctx
	if t.ctx.Err() == nil {
		return t.rollBack(t.ctx)
	}
	done := make(chan struct{})
	c.rolledBack = done
	go func() {
		defer close(done)
		_ = callback.Isolate(ownersCode, func() error {
			return t.rollBack(context.WithoutCancel(t.ctx)) // the next statement rolls back what is left
		})
	}()
	return badconn.Hide(ctxerr.Of(t.ctx))
}

// rollBack ends the transaction. When ctx ends meanwhile, the session is left to roll back
// by itself.
func (t *tx) rollBack(ctx context.Context) error {
	own, stop := driverapi.OwnContext(t.conn.baseCtx)
	defer stop()
	both, cancel := context.WithCancelCause(own)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(ctxerr.Of(ctx)) })()
	err := containError("Rollback", func() error { return t.conn.handle.Rollback(both) })
	t.conn.unended.Record(err)
	if errors.Is(err, flightpool.ErrSessionLost) && t.conn.handle.RollbackOpen(context.WithoutCancel(both)) == nil {
		return nil // the server has nothing left to undo, and has not left the transaction before
	}
	return badconn.Hide(err)
}

// awaitRollback waits for a rollback that goes on behind its caller. Until then nothing else
// may be asked of the session.
func (c *conn) awaitRollback(ctx context.Context, op string) error {
	select {
	case <-c.rolledBack:
	default:
		if c.rolledBack == nil {
			return nil
		}
		select {
		case <-c.rolledBack:
		case <-ctx.Done():
			return unsentError(ctx, op, "the rollback of the last transaction is still under way")
		}
	}
	c.rolledBack = nil
	return nil
}
