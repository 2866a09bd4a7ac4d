package dsql

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Conn is a connection borrowed from a Pool. One goroutine at a time may use
// it, until Release; from then on its calls fail with ErrReleased, and those of a
// transaction that was open with pgx.ErrTxClosed.
//
// When the context of a call ends, the server is asked to cancel the statement,
// and the call returns with its answer, after CancelGrace at the latest: the
// connection is lost then.
type Conn struct {
	conn *pgx.Conn
	loan *loan
}

// Conn is the connection itself. It must not be used after Release: it may be
// another borrower's then, which nothing here can see.
func (c *Conn) Conn() *pgx.Conn { return c.conn }

// Release gives the connection back. A transaction that is open is rolled back
// first, for which Release does not wait; a connection that is lost, or busy with
// a result, is closed. A second Release does nothing.
func (c *Conn) Release() { c.loan.end(nil) }

// Discard gives the connection back to be closed. After Release it does nothing.
func (c *Conn) Discard(reason error) { c.loan.end(reason) }

// handOver runs do, whose result releases the connection in the end. Where there is
// none, because do fails or a function of the user's in it panics, it is released
// at once.
func (c *Conn) handOver(do func() bool) {
	handed := false
	defer func() {
		if !handed {
			c.Release()
		}
	}()
	handed = do()
}

// Exec is pgx.Conn's, with ErrLost where pgx would claim that nothing was sent.
func (c *Conn) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return runOnLoan(ctx, c.loan, func() (pgconn.CommandTag, error) { return c.conn.Exec(ctx, sql, args...) })
}

// Query is pgx.Conn's, with ErrLost as Exec.
func (c *Conn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return c.query(ctx, nil, sql, args...)
}

// query runs a query. Its rows release what they end with, if that is not nil.
func (c *Conn) query(ctx context.Context, release *Conn, sql string, args ...any) (pgx.Rows, error) {
	w, err := c.loan.beginCall(ctx)
	if err != nil {
		return failedRows{err}, err
	}
	r, err := c.conn.Query(ctx, sql, args...)
	return &rows{Rows: r, mapper: w, conn: release}, w.mapError(err)
}

// QueryRow is pgx.Conn's, with ErrLost as Exec.
func (c *Conn) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return c.queryRow(ctx, nil, sql, args...)
}

// queryRow runs a query for a row, whose Scan releases release, if that is not
// nil.
func (c *Conn) queryRow(ctx context.Context, release *Conn, sql string, args ...any) pgx.Row {
	w, err := c.loan.beginCall(ctx)
	if err != nil {
		return &row{Row: failedRows{err}, mapper: w, conn: release}
	}
	return &row{Row: c.conn.QueryRow(ctx, sql, args...), mapper: w, conn: release}
}

// SendBatch is pgx.Conn's, with ErrLost as Exec.
func (c *Conn) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return c.sendBatch(ctx, b, false)
}

// sendBatch sends a batch, unless it begins a transaction within one.
func (c *Conn) sendBatch(ctx context.Context, b *pgx.Batch, release bool) pgx.BatchResults {
	w, err := c.loan.beginCall(ctx)
	if err == nil && c.inTx() && pgx.FailedBatchResults(b, errNested).Tx() != nil {
		err = errNested
	}
	if err != nil {
		return newBatch(pgx.FailedBatchResults(b, err), w, c, release)
	}
	return newBatch(c.conn.SendBatch(ctx, b), w, c, release)
}

// CopyFrom is pgx.Conn's, with ErrLost as Exec. source is called on a goroutine of
// its own, one call at a time. When it panics, nothing is copied, and CopyFrom
// panics with the same value. When ctx ends, nothing is copied, and CopyFrom
// waits for the call of source that is under way, but no longer than CancelGrace.
// pgx encodes the values on a goroutine of its own: a driver.Valuer among them
// that panics ends the process.
func (c *Conn) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	return runOnLoan(ctx, c.loan, func() (int64, error) {
		f := newCopySource(ctx, source)
		defer f.end(c.loan.Value().cancelGrace)
		return c.conn.CopyFrom(ctx, table, columns, f)
	})
}

// Begin begins a transaction with the default options. Within one it is refused.
func (c *Conn) Begin(ctx context.Context) (pgx.Tx, error) { return c.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx is pgx.Conn's, with ErrCommitUnknown from Commit. Its Rollback works
// when ctx has ended, too.
func (c *Conn) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	return c.begin(ctx, opts, false)
}

// Ping proves that the connection works.
func (c *Conn) Ping(ctx context.Context) error {
	_, err := runOnLoan(ctx, c.loan, func() (struct{}, error) { return struct{}{}, c.conn.Ping(ctx) })
	return err
}
