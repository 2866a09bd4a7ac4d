package flightconn

import (
	"context"
	"errors"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/internal/ipcwrite"
)

// Values of capabilities.nulls: what the server makes of a parameter that is NULL.
const (
	nullsUnknown int32 = iota
	nullsKept
	nullsLost // it takes another value for it
)

// Who takes a NULL for the text null, and by which query that is seen: it gives the parameter back.
const (
	nullsLoser = "gizmosql"
	nullsSQL   = "SELECT CAST(? AS VARCHAR)"
)

// CheckNulls refuses parameters with a NULL where the server takes another value for it. GizmoSQL binds each value as its
// text, and for a NULL the text null: a column of texts stores that, and a condition finds it, without an error. For a value of a
// dictionary that text is the whole dictionary, and for a duration its number, which is one of seconds then, whatever its unit: what
// the server has told of the parameters says whether it goes to a number. Whoever executes a prepared statement on the connection asks it before.
//
// Only a server of that name is asked, once per endpoint, before the first of these. Where the answer is missing,
// the parameters are sent, and the next one asks again.
func (c *Conn) CheckNulls(ctx context.Context, params arrow.RecordBatch, told *arrow.Schema, call backend.Call) error {
	known := &c.endpoint.capabilities.nulls
	if params == nil || known.Load() == nullsKept {
		return nil
	}
	why := ""
	switch {
	case hasNull(params):
		why = "a NULL among the parameters for the text null: write NULL into the statement instead"
	case hasDictionary(params.Schema()):
		why = "a value of a dictionary among the parameters for a text of the whole dictionary: send the value itself"
	case hasDuration(params.Schema(), told):
		why = "a duration among the parameters for one of seconds, whatever its unit, and months for minutes: send a text, such as what its String method gives"
	default:
		return nil
	}
	if loses, err := c.losesNulls(ctx, call); !loses {
		return err
	}
	r := &rpcCall{conn: c, op: "Bind", caller: ctx}
	return r.usageError("this server takes %s", why)
}

// storedAsText are the types of which GizmoSQL on DuckDB, by its source, stores what Arrow's C++ library prints of a value: of one in a
// dictionary all of the dictionary, of bytes a text of the same. So it does of a duration (isMisreadDuration).
var storedAsText = []arrow.Type{
	arrow.DICTIONARY, arrow.RUN_END_ENCODED, arrow.DENSE_UNION, arrow.SPARSE_UNION, arrow.LIST_VIEW, arrow.LARGE_LIST_VIEW,
	arrow.BINARY_VIEW, arrow.FIXED_SIZE_BINARY, arrow.FLOAT16, arrow.INTERVAL_MONTHS, arrow.INTERVAL_DAY_TIME, arrow.INTERVAL_MONTH_DAY_NANO,
}

// CheckRows refuses rows of an ingestion of which the server stores and confirms other values. It is the one of CheckNulls.
func (c *Conn) CheckRows(ctx context.Context, schema *arrow.Schema, call backend.Call) error {
	at := slices.IndexFunc(schema.Fields(), func(f arrow.Field) bool {
		return ipcwrite.Contains(f.Type, func(t arrow.DataType) bool {
			return slices.Contains(storedAsText, t.ID()) || isMisreadDuration(t)
		})
	})
	if at < 0 {
		return nil
	}
	if loses, err := c.losesNulls(ctx, call); !loses {
		return err
	}
	r := &rpcCall{conn: c, op: "Ingest", caller: ctx}
	f := schema.Field(at)
	return r.usageError("rows: column %q is %v, for which this server stores a text of its own, or what that reads as: send plain values or texts, as a query gives by CAST(… AS VARCHAR)", f.Name, f.Type)
}

// losesNulls reports whether the server takes another value for a NULL among the parameters.
func (c *Conn) losesNulls(ctx context.Context, call backend.Call) (bool, error) {
	known := &c.endpoint.capabilities.nulls
	if known.Load() == nullsUnknown {
		made, err := c.askNulls(ctx, call)
		if err != nil && (ctx.Err() != nil || !backend.FaultIn(err).KeepsConn()) {
			return false, err
		} else if err == nil {
			known.Store(made)
		}
	}
	return known.Load() == nullsLost, nil
}

// askNulls has the server give a NULL back.
func (c *Conn) askNulls(ctx context.Context, call backend.Call) (int32, error) {
	name, err := c.sqlInfo(ctx, flightsql.SqlInfoFlightSqlServerName)
	code := status.Code(err)
	lacks := code == codes.Unimplemented || code == codes.NotFound || code == codes.InvalidArgument
	if lacks && backend.FaultIn(err).KeepsConn() && !effect.IsPage(err) || errors.Is(err, errMalformed) {
		return nullsKept, nil // it has no name, or none that can be read: GizmoSQL has
	}
	if err != nil || name != nullsLoser {
		return nullsKept, err
	}
	call = backend.Call{Tx: call.Tx, Headers: call.Headers}
	stmt, err := c.Prepare(ctx, nullsSQL, call)
	if err != nil {
		return nullsUnknown, err
	}
	defer func() { _ = stmt.Close(ctx) }() // of no use to anybody else
	column := array.NewStringBuilder(memory.DefaultAllocator)
	defer column.Release()
	column.AppendNull()
	value := column.NewArray()
	defer value.Release()
	row := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "1", Type: value.DataType(), Nullable: true}}, nil), []arrow.Array{value}, 1)
	defer row.Release()
	stream, err := stmt.(*prepared).query(ctx, row, call)
	if err != nil {
		return nullsUnknown, err
	}
	defer stream.Close()
	made := nullsUnknown
	for {
		batch, err := stream.Next()
		if eof.Reached(err) {
			return made, nil
		} else if err != nil {
			return nullsUnknown, err
		}
		if batch.NumRows() > 0 && batch.NumCols() > 0 {
			made = nullsKept
			if text, ok := batch.Column(0).(array.StringLike); ok && text.IsValid(0) { // GizmoSQL on SQLite has a union
				made = nullsLost
			}
		}
	}
}

// hasNull reports whether a value of the rows is NULL.
func hasNull(rows arrow.RecordBatch) bool {
	for _, column := range rows.Columns() {
		if column.NullN() > 0 || column.DataType().ID() == arrow.NULL && column.Len() > 0 {
			return true
		}
	}
	return false
}

// hasDictionary reports whether a column of the rows is encoded by one.
func hasDictionary(schema *arrow.Schema) bool {
	for i := range schema.NumFields() {
		if isDictionary(schema.Field(i).Type) {
			return true
		}
	}
	return false
}

// isMisreadDuration reports whether a type is one of durations whose number GizmoSQL on DuckDB would take for one of seconds, as it does in the text
// of any, 1.5 s in nanoseconds for 47 years, or one of months, whose M it takes for minutes.
func isMisreadDuration(t arrow.DataType) bool {
	d, ok := t.(*arrow.DurationType)
	return ok && d.Unit != arrow.Second || t.ID() == arrow.INTERVAL_MONTHS
}

// hasDuration reports whether there is such a duration among the parameters, but where the server has told that it wants a number.
func hasDuration(schema, told *arrow.Schema) bool {
	for i := range schema.NumFields() {
		if !ipcwrite.Contains(schema.Field(i).Type, isMisreadDuration) {
			continue
		}
		if told == nil || i >= told.NumFields() {
			return true
		}
		if id := told.Field(i).Type.ID(); !arrow.IsInteger(id) && !arrow.IsFloating(id) && !arrow.IsDecimal(id) {
			return true
		}
	}
	return false
}
