package adbcpool

import (
	"context"
	"database/sql/driver"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/session"
)

// rows is driver.Rows over a result.
type rows struct {
	conn   *sqlConn
	result *flightpool.QueryResult
	cut    context.CancelFunc // ends the result's context
	batch  arrow.RecordBatch  // the current one, or nil
	row    int                // of batch, to be read next
}

var (
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeScanType         = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*rows)(nil)
)

// query runs a query and wraps its rows.
func (c *sqlConn) query(ctx context.Context, run func(ctx context.Context) (*flightpool.QueryResult, error)) (driver.Rows, error) {
	ctx, cut := context.WithCancel(ctx)
	result, err := run(ctx)
	if err != nil {
		cut()
		return nil, c.fail(err)
	}
	return &rows{conn: c, result: result, cut: cut}, nil
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

// linger is how long Close waits for the end of a result of which all rows
// that have come were read.
const linger = 50 * time.Millisecond

// Close is part of driver.Rows. A result that is given up is cancelled on the
// server, which costs round trips. QueryRow gives up every result after its
// first row, so the end, which mostly comes with it, gets a chance first.
func (r *rows) Close() error {
	if r.batch != nil && r.row >= int(r.batch.NumRows()) {
		timer := time.AfterFunc(linger, r.cut)
		r.result.Next()
		timer.Stop()
	}
	r.result.Release()
	r.cut()
	return nil
}

// Next is part of driver.Rows.
func (r *rows) Next(dest []driver.Value) error {
	for r.batch == nil || r.row >= int(r.batch.NumRows()) {
		if !r.result.Next() {
			if err := r.result.Err(); err != nil {
				return r.conn.failRead(err)
			}
			return io.EOF
		}
		r.batch, r.row = r.result.RecordBatch(), 0
	}
	for i := range dest {
		dest[i] = sqlValue(session.Value(r.batch.Column(i), r.row))
	}
	r.row++
	return nil
}

// failRead is fail for a result that has begun: no other connection will do.
func (c *sqlConn) failRead(err error) error {
	_ = c.fail(err) // it notes the loss
	return err
}

// sqlValue makes a value one of the driver interface's, where that has one.
// Strings leave Arrow's memory.
func sqlValue(v any) driver.Value {
	switch v := v.(type) {
	case string:
		return strings.Clone(v)
	case int8, int16, int32, uint8, uint16, uint32:
		return toInt64(v)
	case float32:
		return float64(v)
	case session.Decimal:
		return v.String() // exact, and what Scan makes any number of
	case []any:
		for i := range v {
			v[i] = sqlValue(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = sqlValue(v[key])
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
	switch id := r.columnType(i).ID(); {
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
