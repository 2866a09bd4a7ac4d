package dsql

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// tx is a transaction that knows when its commit's outcome is not known, that
// ends without its connection when its context has ended, and that may release
// its connection when it ends.
type tx struct {
	pgx.Tx
	on       *Conn
	releases bool
	// INVARIANT: from ended on nothing is run on the connection, which may be
	// another borrower's.
	ended atomic.Bool
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
	t := &tx{on: c, releases: releases}
	err := c.loan.Value().control(ctx, func(ctx context.Context) (err error) {
		t.Tx, err = c.conn.BeginTx(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// over says whether the transaction has ended, by itself or, which has rolled it
// back, with its loan.
func (t *tx) over() bool { return t.ended.Load() || t.on.loan.ended.Load() }

// end ends the transaction. It returns false when it was over before.
func (t *tx) end() bool { return !t.ended.Swap(true) && !t.on.loan.ended.Load() }

func (t *tx) release() {
	if t.releases {
		t.on.Release()
	}
}

// Commit does not send anything when ctx has ended before: the transaction is
// rolled back then.
func (t *tx) Commit(ctx context.Context) error {
	if !t.end() {
		return pgx.ErrTxClosed
	}
	defer t.release()
	if ctx.Err() != nil {
		return endedBy(ctx, t.abandon(context.Cause(ctx)))
	}
	return t.sure(t.on.loan.Value().commit(ctx, t.Tx.Commit))
}

// Rollback also works when ctx has ended.
func (t *tx) Rollback(ctx context.Context) error {
	if !t.end() {
		return pgx.ErrTxClosed
	}
	defer t.release()
	if ctx.Err() != nil {
		return t.abandon(nil)
	}
	return t.sure(t.on.loan.Value().control(ctx, t.Tx.Rollback))
}

// sure makes sure that a transaction whose COMMIT or ROLLBACK failed, maybe before
// it was sent, is over: what follows on the connection would be a part of it. One
// that was closed before, or never began, has nothing to do with what is open.
func (t *tx) sure(err error) error {
	if err == nil || errors.Is(err, pgx.ErrTxClosed) || t.on.conn.IsClosed() || t.on.conn.PgConn().TxStatus() == 'I' {
		return err
	}
	return cmp.Or(t.abandon(err), err)
}

// abandon rolls back on a context of its own, and returns err if that works. Where
// the connection is released, that rolls back, and the caller does not wait for
// it. A connection on which it cannot be done is cut.
func (t *tx) abandon(err error) error {
	if t.releases {
		return err
	}
	l := t.on.loan
	if failed := l.cluster.bounded(l.Value().repair); failed != nil {
		l.Value().sever()
		return failed
	}
	return err
}

func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) {
	if t.over() {
		return nil, pgx.ErrTxClosed
	}
	return t.Tx.Begin(ctx)
}

func (t *tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.over() {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return t.on.Exec(ctx, sql, args...)
}

func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.over() {
		return failed{pgx.ErrTxClosed}, pgx.ErrTxClosed
	}
	return t.on.Query(ctx, sql, args...)
}

func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.over() {
		return failed{pgx.ErrTxClosed}
	}
	return t.on.QueryRow(ctx, sql, args...)
}

func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.over() {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	return t.on.SendBatch(ctx, b)
}

func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if t.over() {
		return 0, pgx.ErrTxClosed
	}
	return t.on.CopyFrom(ctx, table, columns, source)
}

func (t *tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if t.over() {
		return nil, pgx.ErrTxClosed
	}
	return exec(ctx, t.on.loan, func() (*pgconn.StatementDescription, error) { return t.Tx.Prepare(ctx, name, sql) })
}
