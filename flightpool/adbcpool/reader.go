package adbcpool

import (
	"context"
	"sync/atomic"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/driverapi"
)

// reader is the result of an execution, whose errors are ADBC's. It owns the
// result: the statement's Close and a new text leave it alone. What ends it
// before its last row is its last Release, the statement's next execution, or
// the end of the connection.
//
// INVARIANT: Next is false before the last row only if Err is not nil, or after
// the last Release.
type reader struct {
	*flightpool.QueryResult
	conn            *connection
	stop            context.CancelFunc // ends the context that the statement runs on
	refs            atomic.Int64
	ended           bool                        // nothing more will be read
	endErr          error                       // why it ended before it was read to the end, or nil
	preparedToClose []*flightpool.PreparedQuery // what its statement was prepared as, to be closed at the end
}

var _ array.RecordReader = (*reader)(nil)

func newReader(conn *connection, result *flightpool.QueryResult, stop context.CancelFunc) *reader {
	r := &reader{QueryResult: result, conn: conn, stop: stop}
	r.refs.Store(1)
	return r
}

// Next is part of array.RecordReader.
func (r *reader) Next() bool {
	if r.endErr != nil {
		return false
	}
	if r.QueryResult.Next() {
		return true
	}
	r.endWithoutContext()
	return false
}

// Err is part of array.RecordReader.
func (r *reader) Err() error {
	if r.endErr != nil {
		return r.endErr
	}
	return toADBC(r.QueryResult.Err())
}

// Retain is part of array.RecordReader.
func (r *reader) Retain() { r.refs.Add(1) }

// Release is part of array.RecordReader. The last one ends the result.
func (r *reader) Release() {
	if r.refs.Add(-1) == 0 {
		r.QueryResult.Release()
		r.endWithoutContext()
	}
}

// endWithoutContext is end for calls that have no context.
func (r *reader) endWithoutContext() {
	ctx, stop := driverapi.OwnContext(r.conn.baseCtx)
	defer stop()
	r.end(ctx)
}

// end closes what a statement has left with its reader.
func (r *reader) end(ctx context.Context) {
	r.ended = true
	r.stop()
	for _, q := range r.preparedToClose {
		_ = r.conn.closePrepared(ctx, q) // the connection's Close tries again
	}
	r.preparedToClose = nil
}

var errExecutedAgain = newADBCError(adbc.StatusInvalidState, "the statement was executed again before this result was read to its end")

// endForNextExecution ends the result for the statement's next execution, within that one's
// context: of a change it reads the rest, for which the server may let it wait.
func (r *reader) endForNextExecution(ctx context.Context) {
	if r == nil || r.ended {
		return
	}
	defer context.AfterFunc(ctx, r.stop)()
	err := r.Close()
	if r.Schema().NumFields() > 0 { // else there was nothing to read
		r.endErr = errExecutedAgain
	}
	if err != nil {
		r.endErr = toADBC(err)
	}
	r.end(ctx)
}
