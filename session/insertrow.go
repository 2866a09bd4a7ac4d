package session

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// insertsAsQuery reports whether an INSERT is sent as a query, for which its parameters are bound by themselves. A server
// that stores those of an update as they are (runsToPrepare) runs the text then, as it is written: with the defaults of the columns that it does
// not name, its expressions, conflicts and casts, in the session's schema, which it leaves. It binds a single row, and not values of each type.
//
// INVARIANT: no server that may run a query twice is sent an INSERT so, but one that is known to run those alone that it
// takes for queries, by their first word.
func (s *SessionHandle) insertsAsQuery(ctx context.Context, c *call, stmt backend.Prepared, rows arrow.RecordBatch) (bool, error) {
	script := c.script.Statements[0]
	if script.InsertInto == "" || script.Rows != sqlscan.RowsNone || rows == nil || rows.NumRows() != 1 || !isCounted(backend.TxID(handleOf(stmt))) {
		return false, nil
	}
	told := stmt.ParameterSchema()
	if storedElsewhere(script.InsertInto, c.insert) != nil {
		told = nil // of another table
	}
	for i, column := range rows.Columns() {
		var as arrow.DataType
		if told != nil && i < told.NumFields() {
			as = told.Field(i).Type
		}
		if !isBindable(column.DataType(), as) {
			return false, nil
		}
	}
	how, err := s.learnPreparing(ctx)
	return how == runsToPrepare, err
}

// isBindable reports whether SwanLake binds values of the type as they are. A time it binds as a timestamp without a zone, which
// becomes what it was where the column, by what the server has told, is of its type.
func isBindable(t, told arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.TimestampType:
		return t.TimeZone == "" && t.Unit != arrow.Nanosecond && isTimestamp(told)
	case *arrow.Date32Type, *arrow.Time64Type:
		return arrow.TypeEqual(t, told)
	case *arrow.NullType, *arrow.BooleanType, *arrow.StringType, *arrow.LargeStringType, *arrow.BinaryType, *arrow.LargeBinaryType, *arrow.Float32Type, *arrow.Float64Type:
		return true
	default:
		return arrow.IsInteger(t.ID())
	}
}

// isTimestamp reports whether the type is that of timestamps without a zone.
func isTimestamp(t arrow.DataType) bool {
	timestamp, is := t.(*arrow.TimestampType)
	return is && timestamp.TimeZone == ""
}

// insertAsQuery sends it, once. What fails of its rows, of which it has none, is a failure of the change.
func (s *SessionHandle) insertAsQuery(ctx context.Context, c *call, stmt backend.Prepared, row arrow.RecordBatch) (int64, error) {
	s.stayed(c.insert)
	stream, err := stmt.Query(ctx, row, c.backendCall)
	if err != nil {
		return 0, ofExecution(err)
	}
	defer stream.Close() // also where a read panics
	for err == nil {
		_, err = stream.Next()
	}
	if !eof.Reached(err) {
		return 0, ofExecution(err)
	}
	if n, told := stream.RowsAffected(); told {
		return n, nil
	}
	return -1, nil
}

// ofExecution is the failure of a change that was sent as a query, in a copy.
func ofExecution(err error) error {
	var e *backend.Error
	if !errors.As(err, &e) || e.Stage != backend.StageFetch {
		return err
	}
	executed := *e
	executed.Stage = backend.StageExecute
	return &executed
}

// stayed takes note that an INSERT, which may be nil, leaves the session where it is: it is not sent, or as a query.
func (s *SessionHandle) stayed(in *insertion) {
	if in != nil {
		s.setMayHaveMoved(in.movedBefore)
	}
}
