package dsql

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// rows release their connection when they end.
type rows struct {
	pgx.Rows
	conn *Conn
}

func (r *rows) Close() {
	r.Rows.Close()
	r.conn.Release()
}

func (r *rows) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.Close()
	}
	return more
}

func (r *rows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close()
	}
	return err
}

func (r *rows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.Close()
	}
	return values, err
}

// row releases its connection by Scan, even by one that panics.
type row struct {
	pgx.Row
	conn *Conn
}

func (r *row) Scan(dest ...any) error {
	defer r.conn.Release()
	return r.Row.Scan(dest...)
}

// batch releases its connection by Close, unless it began a transaction, which
// then does.
type batch struct {
	pgx.BatchResults
	conn *Conn
	tx   *tx // nil: none was begun
}

func newBatch(results pgx.BatchResults, conn *Conn) *batch {
	b := &batch{BatchResults: results, conn: conn}
	if t := results.Tx(); t != nil {
		b.tx = &tx{Tx: t, conn: conn}
	}
	return b
}

func (b *batch) Close() error {
	if b.tx == nil {
		defer b.conn.Release()
	}
	return b.BatchResults.Close()
}

func (b *batch) Tx() pgx.Tx {
	if b.tx == nil {
		return nil
	}
	return b.tx
}

// failed are the rows, or the row, of a query that did not begin.
type failed struct{ err error }

func (failed) Close()                                       {}
func (f failed) Err() error                                 { return f.err }
func (failed) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (failed) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (failed) Next() bool                                   { return false }
func (f failed) Scan(...any) error                          { return f.err }
func (f failed) Values() ([]any, error)                     { return nil, f.err }
func (failed) RawValues() [][]byte                          { return nil }
func (failed) Conn() *pgx.Conn                              { return nil }
func (failed) TypeMap() *pgtype.Map                         { return nil }
