package flightconn

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/eof"
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
// the server has told of the parameters says whether it goes to a number. For a list, a struct and the like it is
// no value that the database reads, and a column of texts stores it. Whoever executes a prepared statement on the connection asks it before.
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
	case hasPrinted(params.Schema()):
		why = "a list, a struct, an interval or a value of one of Arrow's extension types among the parameters for a text of its own: write it into the statement, or send a plain value"
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
