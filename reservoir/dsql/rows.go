package dsql

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

var errRowsClosed = errors.New("dsql: the rows are closed")

// rows are pgx's, with ErrLost, and release their connection when they end, if
// they have one to release.
type rows struct {
	pgx.Rows
	mapper errorMapper
	conn   *Conn
	// INVARIANT: once closed, the connection is not looked at: it may be another
	// borrower's, also for pgx's own rows. err and fields are what was known before.
	closed bool
	err    error
	fields []pgconn.FieldDescription
}

// Close also releases the connection when a tracer of the user's panics.
func (r *rows) Close() {
	if r.closed {
		return
	}
	r.closed = true
	defer func() {
		if r.err = r.mapper.mapError(r.Rows.Err()); r.err == nil { // else there may be none
			r.fields = slices.Clone(r.Rows.FieldDescriptions())
		}
		if r.conn != nil {
			r.conn.Release()
		}
	}()
	r.Rows.Close()
}

func (r *rows) FieldDescriptions() []pgconn.FieldDescription {
	if r.closed {
		return r.fields
	}
	return r.Rows.FieldDescriptions()
}

func (r *rows) Err() error {
	if r.closed {
		return r.err
	}
	return r.mapper.mapError(r.Rows.Err())
}

func (r *rows) Next() (more bool) {
	defer func() {
		if !more { // also when a tracer panics
			r.Close()
		}
	}()
	return r.Rows.Next()
}

func (r *rows) Scan(dest ...any) error {
	if r.closed {
		return errRowsClosed
	}
	return r.mapRowError(r.Rows.Scan(dest...))
}

func (r *rows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	return values, r.mapRowError(err)
}

// mapRowError maps the error of a row, which ends the rows.
func (r *rows) mapRowError(err error) error {
	if err == nil || r.closed {
		return err
	}
	err = r.mapper.mapError(err)
	r.Close()
	return err
}

// row is pgx's, with ErrLost, and releases its connection by Scan, even by one
// that panics, if it has one to release.
type row struct {
	pgx.Row
	mapper errorMapper
	conn   *Conn
	// INVARIANT: once scanned, the connection is not looked at, as with rows.
	scanned bool
}

func (r *row) Scan(dest ...any) error {
	if r.scanned {
		return errRowsClosed
	}
	r.scanned = true
	if r.conn != nil {
		defer r.conn.Release()
	}
	return r.mapper.mapError(r.Row.Scan(dest...))
}

var errBatchClosed = errors.New("dsql: the batch is closed")

// batch is pgx's, with ErrLost, and releases its connection by Close, if it has
// one to release and did not begin a transaction, which then does.
type batch struct {
	pgx.BatchResults
	mapper errorMapper
	conn   *Conn
	tx     *tx // nil: none was begun
	// INVARIANT: once closed, neither the connection nor pgx's results are looked
	// at: they write to the caches of a connection, and their rows read what its
	// next borrower is answered. err is what Close returned.
	closed bool
	err    error
	// endRows ends the rows that were given out last, so that they do the same.
	endRows func()
}

// newBatch wraps results. release says that they release their connection.
func newBatch(results pgx.BatchResults, w errorMapper, on *Conn, release bool) *batch {
	b := &batch{BatchResults: results, mapper: w, endRows: func() {}}
	if release {
		b.conn = on
	}
	if t := results.Tx(); t != nil {
		b.tx = &tx{Tx: t, conn: on, releaseOnEnd: release}
	}
	return b
}

// endPrevious ends what was given out last.
func (b *batch) endPrevious() error {
	if b.closed {
		return errBatchClosed
	}
	b.endRows()
	b.endRows = func() {}
	return nil
}

func (b *batch) Exec() (pgconn.CommandTag, error) {
	if err := b.endPrevious(); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := b.BatchResults.Exec()
	return tag, b.mapper.mapError(err)
}

func (b *batch) Query() (pgx.Rows, error) {
	if err := b.endPrevious(); err != nil {
		return failedRows{err}, err
	}
	inner, err := b.BatchResults.Query()
	r := &rows{Rows: inner, mapper: b.mapper}
	b.endRows = r.Close
	return r, b.mapper.mapError(err)
}

func (b *batch) QueryRow() pgx.Row {
	if err := b.endPrevious(); err != nil {
		return failedRows{err}
	}
	r := &row{Row: b.BatchResults.QueryRow(), mapper: b.mapper}
	b.endRows = func() { r.scanned = true }
	return r
}

func (b *batch) Close() error {
	if b.closed {
		return b.err
	}
	if b.tx == nil && b.conn != nil {
		defer b.conn.Release()
	}
	defer func() { b.closed = true }()
	b.err = errBatchClosed // if a function of the user's panics
	b.endRows()
	b.err = b.mapper.mapError(b.BatchResults.Close())
	return b.err
}

func (b *batch) Tx() pgx.Tx {
	if b.tx == nil {
		return nil
	}
	return b.tx
}

// failedRows are the rows, or the row, of a query that did not begin.
type failedRows struct{ err error }

func (failedRows) Close()                                       {}
func (f failedRows) Err() error                                 { return f.err }
func (failedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (failedRows) Next() bool                                   { return false }
func (f failedRows) Scan(...any) error                          { return f.err }
func (f failedRows) Values() ([]any, error)                     { return nil, f.err }
func (failedRows) RawValues() [][]byte                          { return nil }
func (failedRows) Conn() *pgx.Conn                              { return nil }
func (failedRows) TypeMap() *pgtype.Map                         { return nil }
