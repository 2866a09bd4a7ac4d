package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/flightpool/flightpool/internal/badconn"
)

// Begin is there for the driver.Conn interface; database/sql calls BeginTx.
func (l *borrowedConn) Begin() (driver.Tx, error) {
	return nil, errors.New("sqlconn: Begin without a context is not supported")
}

func (l *borrowedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	within, call := l.startTrace(ctx, "Begin", "") // which the transaction is no part of
	limited, stop := l.withQueryTimeout(within)
	if stop != nil {
		defer stop()
	}
	tx, err := boundedValue(limited, l.conn, true, func(context.Context) (driver.Tx, error) {
		return catchPanic(l.conn, func() (driver.Tx, error) {
			return afterUnended(limited, l, func() (driver.Tx, error) { return l.begin(within, opts) }) // drivers keep the context for COMMIT
		})
	})
	call.finish(err)
	if err != nil {
		l.recordBegin(err)
		return nil, l.recordError(limited, err)
	}
	began := &borrowedTx{ctx, tx, l}
	l.openTx.Add(1)
	l.txCtx = ctx
	l.endable.add(began)
	return began, nil
}

var errNoTxOptions = errors.New("sqlconn: the driver does not support transaction options")

func (l *borrowedConn) begin(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	b, ok := l.conn.raw.(driver.ConnBeginTx)
	switch {
	case ok:
		return b.BeginTx(ctx, opts)
	case opts.ReadOnly || opts.Isolation != 0:
		return nil, errNoTxOptions
	}
	return l.conn.raw.Begin() //nolint:staticcheck // drivers without BeginTx have nothing else
}

// borrowedTx wraps a transaction. Drivers end one without a context, for as long as
// that takes: the wait for it ends with that of BeginTx, and after the time of a statement.
type borrowedTx struct {
	ctx context.Context //nolint:containedctx // of BeginTx
	tx  driver.Tx
	l   *borrowedConn
}

func (t *borrowedTx) Commit() error {
	return t.end(t.ctx, true, "Commit", func() error {
		if err := t.l.endUnended(t.ctx, t); err != nil {
			return err
		}
		return t.tx.Commit()
	})
}

// Rollback is also called when the context has ended: it has killTimeout then.
func (t *borrowedTx) Rollback() error {
	if t.ctx.Err() == nil {
		return t.end(t.ctx, true, "Rollback", t.tx.Rollback)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), killTimeout)
	defer cancel()
	return t.end(ctx, false, "Rollback", t.tx.Rollback)
}

func (t *borrowedTx) end(ctx context.Context, ofBorrower bool, op string, run func() error) (err error) {
	ctx, call := t.l.startTrace(ctx, op, "")
	defer func() { call.finish(err) }()
	ctx, stop := t.l.withQueryTimeout(ctx)
	if stop != nil {
		defer stop()
	}
	_, err = boundedValue(ctx, t.l.conn, ofBorrower, func(context.Context) (struct{}, error) {
		return struct{}{}, catchPanicError(t.l.conn, run)
	})
	if t.ctx.Err() != nil {
		ctx = t.ctx // whose end the driver may have closed the connection for
	}
	t.l.openTx.Add(-1)
	t.l.txCtx = nil
	t.l.endable.remove(t)
	t.l.recordEnd(err)
	recorded := t.l.recordError(ctx, err)
	if t.l.conn.abandonedCall.Load() != nil {
		return fmt.Errorf("sqlconn: %s was not answered in time, whether it was carried out is not known: %w", strings.ToUpper(op), recorded)
	}
	return recorded
}

// statementContext is withQueryTimeout for a statement, ended by the end of the open transaction's context as well.
// database/sql rolls back a transaction whose context has ended, but waits for its statement before, of which
// tx.Exec has no context.
func (l *borrowedConn) statementContext(ctx context.Context) (limited context.Context, stop context.CancelFunc) {
	of := l.txCtx
	if of == nil || of.Done() == nil {
		return l.withQueryTimeout(ctx)
	}
	bound, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(of, func() { cancel(endOf(of)) })
	limited, inner := l.withQueryTimeout(bound)
	return limited, func() {
		unhook()
		cancel(nil)
		if inner != nil {
			inner()
		}
	}
}

// withCause is err, with why the context has ended that it tells of: drivers tell that it has been cancelled, also where the
// deadline of the transaction has done that.
func withCause(ctx context.Context, err error) error {
	if err == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, badconn.Hide(cause))
	}
	return err
}
