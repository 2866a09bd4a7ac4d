package sqldriver

import (
	"context"
	"database/sql/driver"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/badconn"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/rowscan"
)

// rows is driver.Rows over a result.
type rows struct {
	conn   *conn // nil once they are closed
	result *flightpool.QueryResult
	batch  arrow.RecordBatch   // the current one, or nil
	values []func(row int) any // of each column of a batch of many rows, else empty
	row    int                 // of batch, to be read next
	ended  bool                // there is nothing left to read
	stop   func()              // lets go of the context that the statement runs on
}

var (
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeScanType         = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*rows)(nil)
)

// query runs a text or a prepared statement and wraps its rows.
func (c *conn) query(ctx context.Context, args []driver.NamedValue, run runFunc) (driver.Rows, error) {
	if err := c.beginCall(ctx, "Query"); err != nil {
		return nil, err
	}
	opts := flightpool.QueryOptions{Route: routeOf(ctx), Args: valuesOf(args)}
	ctx, stop := c.tx.bindContext(ctx)
	result, err := contain("Query", func() (*flightpool.QueryResult, error) { return run(ctx, opts) })
	if err != nil {
		stop()
		return nil, c.toDriverError(err)
	}
	c.openRows++
	return &rows{conn: c, result: result, stop: stop}, nil
}

// bindContext is ctx, ended by the end of the transaction's as well: database/sql rolls
// back a transaction whose context has ended, and closes its rows, but waits for
// its statement before, of which tx.Exec has no context.
func (t *tx) bindContext(ctx context.Context) (context.Context, func()) {
	if t == nil || t.ctx.Done() == nil {
		return ctx, func() {}
	}
	both, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(t.ctx, func() { cancel(ctxerr.Of(t.ctx)) })
	return both, func() { unhook(); cancel(nil) }
}

// Columns is part of driver.Rows.
func (r *rows) Columns() []string {
	fields := r.result.Schema().Fields()
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

// Close is part of driver.Rows. What only reads is stopped. What may change
// something is read to its end, since the server may store the change only
// then: sql.Row.Scan reads one row of an INSERT with RETURNING, closes, and
// takes the error of Close for that of the statement.
func (r *rows) Close() error {
	var err error
	if c := r.conn; c != nil {
		err = containError("Close", r.result.Close)
		c.openRows--
		r.conn = nil
	}
	r.stop()
	if r.ended {
		return nil
	}
	r.ended = true
	return badconn.Hide(err) // no other connection will do
}

// Next is part of driver.Rows.
func (r *rows) Next(dest []driver.Value) error {
	for r.batch == nil || r.row >= int(r.batch.NumRows()) {
		if !r.result.Next() {
			r.ended = true
			if err := r.result.Err(); err != nil {
				return badconn.Hide(err) // no other connection will do
			}
			return io.EOF
		}
		r.begin(r.result.RecordBatch())
	}
	for i := range dest {
		if i < len(r.values) {
			dest[i] = sqlValue(r.values[i](r.row))
		} else {
			dest[i] = sqlValue(rowscan.Value(r.batch.Column(i), r.row))
		}
	}
	r.row++
	return nil
}

// manyRows is how many rows of a batch are worth a rowscan.Column for each column: making
// one costs as much as some values do without.
const manyRows = 8

// begin has the first row of batch read next.
func (r *rows) begin(batch arrow.RecordBatch) {
	r.batch, r.row, r.values = batch, 0, r.values[:0]
	if batch.NumRows() < manyRows {
		return
	}
	for _, col := range batch.Columns() {
		r.values = append(r.values, rowscan.Column(col))
	}
}

// sqlValue makes a value one of the driver interface's: an int64, float64, bool,
// []byte, string or time.Time. Durations and times of day are nanoseconds, and
// what an int64 cannot hold is text, from which Scan makes any number exactly.
// Lists, structs and maps, for which that interface has nothing, are slices and
// maps of such values.
func sqlValue(v any) driver.Value {
	switch v := v.(type) {
	case int8:
		return int64(v)
	case int16:
		return int64(v)
	case int32:
		return int64(v)
	case uint8:
		return int64(v)
	case uint16:
		return int64(v)
	case uint32:
		return int64(v)
	case uint64:
		if v > math.MaxInt64 {
			return strconv.FormatUint(v, 10)
		}
		return int64(v)
	case float32:
		return float64(v)
	case time.Duration:
		return int64(v)
	case rowscan.Decimal:
		return v.String()
	case []any:
		for i := range v {
			v[i] = sqlValue(v[i])
		}
	case map[string]any:
		for key, value := range v {
			v[key] = sqlValue(value)
		}
	}
	return v
}

func (r *rows) columnType(i int) arrow.DataType { return r.result.Schema().Field(i).Type }

// ColumnTypeDatabaseTypeName is part of driver.RowsColumnTypeDatabaseTypeName:
// the name of the Arrow type.
func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	return strings.ToUpper(r.columnType(i).Name())
}

// ColumnTypeNullable is part of driver.RowsColumnTypeNullable.
func (r *rows) ColumnTypeNullable(i int) (nullable, ok bool) {
	return r.result.Schema().Field(i).Nullable, true
}

// ColumnTypePrecisionScale is part of driver.RowsColumnTypePrecisionScale.
func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if t, isDecimal := r.columnType(i).(arrow.DecimalType); isDecimal {
		return int64(t.GetPrecision()), int64(t.GetScale()), true
	}
	return 0, 0, false
}

// ColumnTypeScanType is part of driver.RowsColumnTypeScanType.
func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	switch id := valueType(r.columnType(i)).ID(); {
	case id == arrow.BOOL:
		return reflect.TypeFor[bool]()
	case id == arrow.UINT64:
		return reflect.TypeFor[uint64]()
	case arrow.IsInteger(id):
		return reflect.TypeFor[int64]()
	case arrow.IsFloating(id):
		return reflect.TypeFor[float64]()
	case arrow.IsDecimal(id):
		return reflect.TypeFor[string]()
	case id == arrow.STRING, id == arrow.LARGE_STRING, id == arrow.STRING_VIEW:
		return reflect.TypeFor[string]()
	case id == arrow.BINARY, id == arrow.LARGE_BINARY, id == arrow.BINARY_VIEW, id == arrow.FIXED_SIZE_BINARY:
		return reflect.TypeFor[[]byte]()
	case id == arrow.DATE32, id == arrow.DATE64, id == arrow.TIMESTAMP:
		return reflect.TypeFor[time.Time]()
	case id == arrow.TIME32, id == arrow.TIME64, id == arrow.DURATION:
		return reflect.TypeFor[time.Duration]()
	default:
		return reflect.TypeFor[any]()
	}
}

// valueType is the type of the values that a column of t stands for.
func valueType(t arrow.DataType) arrow.DataType {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return valueType(t.ValueType)
	case *arrow.RunEndEncodedType:
		return valueType(t.Encoded())
	default:
		return t
	}
}
