package flightpool

import (
	"context"
	"iter"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/rowscan"
	"github.com/flightpool/flightpool/session"
)

// Querier is what runs statements: a pool, on any free connection, a SessionHandle,
// on its own and within its transaction, or a Tx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (*QueryResult, error)
	QueryRow(ctx context.Context, sql string, args ...any) *Row
	Update(ctx context.Context, sql string, args ...any) (UpdateResult, error)
	Execute(ctx context.Context, sql string, args ...any) (*QueryResult, error)
	Ingest(ctx context.Context, table string, rows array.RecordReader, opts IngestOptions) (int64, error)
}

var (
	_ Querier = (*FlightSQLPool)(nil)
	_ Querier = (*SessionHandle)(nil)
	_ Querier = (*Tx)(nil)
)

type (
	// Row is the first row of a query, for Row.Scan.
	Row = session.Row
	// Decimal is an exact decimal number.
	Decimal = rowscan.Decimal
)

// ErrNoRows says that a query has no row where one was asked for. It is found as
// sql.ErrNoRows too.
var ErrNoRows = rowscan.ErrNoRows

// ParseDecimal reads a decimal number exactly: see rowscan.ParseDecimal.
func ParseDecimal(s string) (Decimal, error) { return rowscan.ParseDecimal(s) }

// Rows iterates the rows of what a query has returned as values of type T: a struct
// with a field for each column that is wanted, a map[string]any of all columns, or any
// other type for a result of one column:
//
//	for flight, err := range flightpool.Rows[Flight](pool.Query(ctx, "SELECT * FROM flights")) {
//
// It releases the result at the end of the loop, however that comes. An error, also
// that of the query, is the last pair. See rowscan.Rows for how values arrive.
func Rows[T any](result *QueryResult, err error) iter.Seq2[T, error] {
	if err != nil {
		return func(yield func(T, error) bool) {
			var none T
			yield(none, err)
		}
	}
	return rowscan.Rows[T](result)
}

// CollectRows reads all rows of what a query has returned, as Rows does:
//
//	flights, err := flightpool.CollectRows[Flight](pool.Query(ctx, "SELECT * FROM flights WHERE origin = ?", "BER"))
//
// Where it fails it returns no rows. The result is released.
func CollectRows[T any](result *QueryResult, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return rowscan.Collect[T](result)
}

// CollectOneRow is CollectRows for the first row. It passes over the others, and its
// error is ErrNoRows where there is none.
func CollectOneRow[T any](result *QueryResult, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return rowscan.CollectOne[T](result)
}
