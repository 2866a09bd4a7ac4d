package dsql

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/usedup"
)

// tx is a transaction that knows when its commit's outcome is not known, that
// ends without its connection when its context has ended, and that may release
// its connection when it ends.
type tx struct {
	pgx.Tx
	conn         *Conn
	releaseOnEnd bool
	// INVARIANT: once ended is set, nothing is run on the connection, which may be
	// another borrower's.
	ended atomic.Bool
	// commits counts the calls of Commit that have not said that nothing is stored.
	commits atomic.Int32

	used *usedup.Sources // of CopyFrom, of all runs of InTx; nil of Begin
}

var errNested = errors.New("dsql: a transaction cannot begin within a transaction")

// inTx says whether a transaction is open. The server would take a second BEGIN for
// the first, and the COMMIT of the inner transaction for that of the outer.
func (c *Conn) inTx() bool { return !c.conn.IsClosed() && c.conn.PgConn().TxStatus() != 'I' }

// begin begins a transaction on a connection.
func (c *Conn) begin(ctx context.Context, opts pgx.TxOptions, releases bool) (pgx.Tx, error) {
	if c.loan.ended.Load() {
		return nil, ErrReleased
	}
	if c.inTx() {
		return nil, errNested
	}
	t := &tx{conn: c, releaseOnEnd: releases}
	err := c.loan.Value().runUncancelled(ctx, func(ctx context.Context) (err error) {
		t.Tx, err = c.conn.BeginTx(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// hasEnded says whether the transaction has ended, by itself or, which has rolled it
// back, with its loan.
func (t *tx) hasEnded() bool { return t.ended.Load() || t.conn.loan.ended.Load() }

// markEnded ends the transaction. It returns false when it was over before.
func (t *tx) markEnded() bool { return !t.ended.Swap(true) && !t.conn.loan.ended.Load() }

func (t *tx) release() {
	if t.releaseOnEnd {
		t.conn.Release()
	}
}

// Commit does not send anything when ctx has ended before: the transaction is
// rolled back then.
func (t *tx) Commit(ctx context.Context) (err error) {
	t.commits.Add(1)
	defer func() {
		if err != nil && !errors.Is(err, ErrCommitUnknown) {
			t.commits.Add(-1)
		}
	}()
	if !t.markEnded() {
		return pgx.ErrTxClosed
	}
	defer t.release()
	if ctx.Err() != nil {
		return t.rollBackDetached(ctxerr.Of(ctx))
	}
	return t.rollBackIfOpen(t.conn.loan.Value().commit(ctx, t.Tx.Commit))
}

// Rollback also works when ctx has ended.
func (t *tx) Rollback(ctx context.Context) error {
	if !t.markEnded() {
		return pgx.ErrTxClosed
	}
	defer t.release()
	if ctx.Err() != nil {
		return t.rollBackDetached(nil)
	}
	return t.rollBackIfOpen(t.conn.loan.Value().runUncancelled(ctx, t.Tx.Rollback))
}

// rollBackIfOpen makes sure that a transaction whose COMMIT or ROLLBACK failed, maybe
// before it was sent, is over: what follows on the connection would be a part of it.
// One that was closed before, or never began, has nothing to do with what is open.
func (t *tx) rollBackIfOpen(err error) error {
	if err == nil || errors.Is(err, pgx.ErrTxClosed) || t.conn.conn.IsClosed() || t.conn.conn.PgConn().TxStatus() == 'I' {
		return err
	}
	return cmp.Or(t.rollBackDetached(err), err)
}

// rollBackDetached rolls back on a context of its own, and returns err if that works.
// Where the connection is released, that rolls back, and the caller does not wait for
// it. A connection on which it cannot be done is cut.
func (t *tx) rollBackDetached(err error) error {
	if t.releaseOnEnd {
		return err
	}
	l := t.conn.loan
	if failed := l.cluster.withCloseTimeout(l.Value().repair); failed != nil {
		l.Value().abort()
		return failed
	}
	return err
}

func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) {
	if t.hasEnded() {
		return nil, pgx.ErrTxClosed
	}
	return t.Tx.Begin(ctx)
}

func (t *tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.hasEnded() {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return t.conn.Exec(ctx, sql, args...)
}

func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.hasEnded() {
		return failedRows{pgx.ErrTxClosed}, pgx.ErrTxClosed
	}
	return t.conn.Query(ctx, sql, args...)
}

func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.hasEnded() {
		return failedRows{pgx.ErrTxClosed}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.hasEnded() {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	return t.conn.SendBatch(ctx, b)
}

func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if t.hasEnded() {
		return 0, pgx.ErrTxClosed
	}
	if t.used == nil {
		return t.conn.CopyFrom(ctx, table, columns, source)
	}
	once := &onceSource{CopyFromSource: source, before: t.used.Before(source)}
	n, err := t.conn.CopyFrom(ctx, table, columns, once)
	if once.taken.Load() {
		t.used.Took(source, err == nil)
	}
	return n, err
}

func (t *tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if t.hasEnded() {
		return nil, pgx.ErrTxClosed
	}
	return runOnLoan(ctx, t.conn.loan, func() (*pgconn.StatementDescription, error) { return t.Tx.Prepare(ctx, name, sql) })
}
