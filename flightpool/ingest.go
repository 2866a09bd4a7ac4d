package flightpool

import (
	"context"
	"iter"
	"reflect"

	"github.com/flightpool/flightpool/internal/bind"
	"github.com/flightpool/flightpool/internal/callback"
)

// IngestRows loads structs into a table in bulk, through a pool, a SessionHandle or a
// Tx, and returns how many were stored, or -1 when the server does not tell:
//
//	n, err := flightpool.IngestRows(ctx, tx, "flights", slices.Values(flights), flightpool.IngestOptions{})
//
// A field goes to the column that its tag `arrow:"name"` (or `db:"name"`) names, or else to that of its
// name in small letters with underscores: FlightNo to flight_no. `arrow:"-"` leaves it
// out, and the fields of an embedded struct count as those of T. Values go as those of
// QueryOptions.Args; a column has one type, that of its first value which is not NULL in
// the first batch. Where that has none it is the field's, as of a pointer or a
// sql.NullInt64, and text where the field tells none: an any, or a type of others' with a
// Value method. A later value of another type cannot be sent. A
// time.Time is an instant in UTC, in microseconds, whatever the column: servers refuse it
// for dates and times of day, as DuckDB does, or convert it, GizmoSQL for a column without a zone
// to the clock of the session's TimeZone. Texts they read. A time.Duration is refused for GizmoSQL, which
// would take its nanoseconds for seconds.
//
// A column of Decimals is an exact decimal. It has as many digits behind the point as the
// value of the first batch that has most (18 where there is none), and 38 in all, or 76
// where those values need more. A later value that it does not hold exactly cannot be
// sent. Within lists Decimals go as texts, as fields that are strings do, which the server
// converts where the table has decimals.
//
// The rows are read in a goroutine of its own, as they are sent, in batches of about 1
// MiB. A row that cannot be sent ends the call with an error that names row, from 0, and
// field; a panic of rows ends it and goes on in the caller. What was sent before, if
// anything was, may be stored then, unless q is a Tx, which can then be rolled back only.
// When ctx ends, the call does, also while rows does not return.
func IngestRows[T any](ctx context.Context, q Querier, table string, rows iter.Seq[T], opts IngestOptions) (int64, error) {
	if rows == nil {
		return 0, badArgument("IngestRows", "", "rows are nil")
	}
	next, stop := iter.Pull(rows)
	reader, err := bind.RowsOf(reflect.TypeFor[T](), func() (reflect.Value, bool) {
		row, ok := next()
		return reflect.ValueOf(row), ok
	}, stop)
	if err != nil {
		stop()
		return 0, badArgument("IngestRows", "", "%w", err)
	}
	defer func() { // asks rows to end, where the call has not
		end, inTime := callback.Within(ctx, 0, callback.NoValue(func() error { reader.Release(); return nil }), nil, nil)
		if inTime {
			end.Resume()
		}
	}()
	return q.Ingest(ctx, table, reader, opts)
}
