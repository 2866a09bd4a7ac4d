package dsql

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Conn is a connection on loan from a Pool. One goroutine at a time may use
// it, until Release.
type Conn struct {
	conn *pgx.Conn
	loan *loan
}

// Conn is the connection itself. It must not be used after Release.
func (c *Conn) Conn() *pgx.Conn { return c.conn }

// Release gives the connection back; it is closed unless it is open, idle and
// outside a transaction. A second Release does nothing.
func (c *Conn) Release() { c.loan.end(nil) }

// Discard gives the connection back to be closed. After Release it does nothing.
func (c *Conn) Discard(reason error) { c.loan.end(reason) }

// Exec is pgx.Conn's, with ErrLost where pgx would claim that nothing was sent.
func (c *Conn) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return exec(c.conn, func() (pgconn.CommandTag, error) { return c.conn.Exec(ctx, sql, args...) })
}

// Query is pgx.Conn's, with ErrLost as Exec.
func (c *Conn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return c.query(ctx, nil, sql, args...)
}

// query runs a query. Its rows release what they end with, if that is not nil.
func (c *Conn) query(ctx context.Context, release *Conn, sql string, args ...any) (pgx.Rows, error) {
	w := watching(c.conn)
	r, err := c.conn.Query(ctx, sql, args...)
	return &rows{Rows: r, watch: w, conn: release}, w.judge(err)
}

// QueryRow is pgx.Conn's, with ErrLost as Exec.
func (c *Conn) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	w := watching(c.conn)
	return &row{Row: c.conn.QueryRow(ctx, sql, args...), watch: w}
}

// SendBatch is pgx.Conn's, with ErrLost as Exec.
func (c *Conn) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	w := watching(c.conn)
	return newBatch(c.conn.SendBatch(ctx, b), w, nil)
}

// CopyFrom is pgx.Conn's, with ErrLost as Exec.
func (c *Conn) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	return exec(c.conn, func() (int64, error) { return c.conn.CopyFrom(ctx, table, columns, source) })
}

// Begin begins a transaction with the default options.
func (c *Conn) Begin(ctx context.Context) (pgx.Tx, error) { return c.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx is pgx.Conn's, with ErrCommitUnknown from Commit.
func (c *Conn) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	t, err := c.conn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &tx{Tx: t}, nil
}

// Ping proves that the connection works.
func (c *Conn) Ping(ctx context.Context) error { return c.conn.Ping(ctx) }
