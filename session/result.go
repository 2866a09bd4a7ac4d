package session

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/rowscan"
)

// QueryResult streams the rows of a statement. It implements
// array.RecordReader and is read by one goroutine.
//
// The connection is held until the result has ended: at its last batch, on an
// error, on Release of the last reference, on Close or when the context of the
// query ends, whichever comes first. A result that is released or closed before
// its end is read on in the background for at most 100 ms and 1 MiB (inside a
// transaction 250 ms, or CancelPolicy.Grace, and 32 MiB); if it has not ended
// by then, its statement is cancelled on the server. Outside of a transaction a
// statement that may change something is read on to its end instead, or to the
// deadline of its context; Close does that before it returns. An open transaction
// survives that unless the server says otherwise; later calls then answer
// ErrTxAborted and why.
//
// INVARIANT: the call of a result is finished exactly once, by whoever moves it to
// ended, and never while a read is under way.
//
// What mu does not guard belongs to the reader, and to whoever ends the result then.
type QueryResult struct {
	refs           atomic.Int64
	schema         *arrow.Schema
	call           *call // nil for a result without rows
	stream         backend.Stream
	batch          arrow.RecordBatch
	affected       int64
	affectedKnown  bool
	closedByReader bool // released or closed by its reader

	mu struct {
		sync.Mutex
		first   arrow.RecordBatch // fetched by the query, not yet read
		reading bool              // Next is inside the stream
		ended   bool
		cause   error // what ended it while a read was under way
		err     error // what Err answers
	}
}

var _ array.RecordReader = (*QueryResult)(nil)

// newResult takes over the call.
func newResult(c *call, stream backend.Stream, first arrow.RecordBatch, firstErr error) *QueryResult {
	r := &QueryResult{schema: stream.Schema(), call: c, stream: stream}
	r.refs.Store(1)
	r.mu.first = first
	if eof.Reached(firstErr) {
		r.recordRead(nil, firstErr)
		return r
	}
	if cause := c.attachResult(r); cause != nil { // it came before the result could hear of it
		r.interrupt(cause)
	}
	return r
}

// resultWithoutRows is the result of a statement without rows.
func resultWithoutRows(u UpdateResult) *QueryResult {
	r := &QueryResult{schema: arrow.NewSchema(nil, nil), affected: u.RowsAffected, affectedKnown: u.RowsAffected >= 0}
	r.refs.Store(1)
	r.mu.ended = true
	return r
}

// Schema is never nil; a statement without rows has no fields.
func (r *QueryResult) Schema() *arrow.Schema { return r.schema }

// RowsAffected is how many rows a change touched. It is false for queries and
// where the server does not tell.
func (r *QueryResult) RowsAffected() (int64, bool) { return r.affected, r.affectedKnown }

// Next fetches the next batch. It is false at the end and on an error; Err
// tells which.
func (r *QueryResult) Next() bool {
	if r.batch != nil {
		r.batch.Release()
		r.batch = nil
	}
	first, ok := r.startRead()
	if !ok {
		return false
	}
	if first != nil {
		r.batch = first
		return true
	}
	batch, inTime, err := r.read()
	if !inTime {
		return false
	}
	return r.recordRead(batch, err)
}

// RecordBatch is the batch that Next fetched. It is valid until the following
// Next or the last Release; retain it to keep it longer.
func (r *QueryResult) RecordBatch() arrow.RecordBatch { return r.batch }

// Record is RecordBatch under its older name.
//
// Deprecated: use RecordBatch.
func (r *QueryResult) Record() arrow.RecordBatch { return r.batch }

// Err is what ended the result, or nil at its regular end. When the context
// ended it, errors.Is finds the context's error.
func (r *QueryResult) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(r.mu.cause, errReleasedEarly) {
		return nil // released early by the reader: not an error
	}
	return r.mu.err
}

// Retain adds a reference.
func (r *QueryResult) Retain() { r.refs.Add(1) }

// Release drops a reference; the last one ends the result. Where the statement
// may change something, use Close or read to the end: nobody is told of a failure
// after a Release.
func (r *QueryResult) Release() {
	if r.refs.Add(-1) == 0 {
		_ = r.end()
	}
}

// Close ends the result, whatever references there are, and returns Err. Where
// the statement may change something it reads the rest of the rows before, since
// the server may store the change, or refuse it, only at their end. It is
// idempotent, and the reader's to call, as Next and Release are.
func (r *QueryResult) Close() error {
	if r.call != nil && r.call.mayChange() {
		for r.Next() {
			continue
		}
	}
	return r.end()
}

func (r *QueryResult) end() error {
	r.closedByReader = true
	r.releaseUnread()
	if r.batch != nil {
		r.batch.Release()
		r.batch = nil
	}
	return r.Err()
}

// checkReadable fails where the result was released or closed before: what is asked
// for its rows then must not take it for one that has none.
func (r *QueryResult) checkReadable() error {
	if !r.closedByReader {
		return nil
	}
	if err := r.Err(); err != nil {
		return err
	}
	e := usageError(fmt.Errorf("the result was released or closed before: %w", backend.ErrHandleClosed))
	e.Op = "Result"
	return e
}

// Batches iterates the batches and releases the result at the end of the loop,
// however that comes. Each batch is valid until the next turn. An error is the
// last pair: ErrHandleClosed where the result was released or closed before.
func (r *QueryResult) Batches() iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		defer r.Release()
		if err := r.checkReadable(); err != nil {
			yield(nil, err)
			return
		}
		for r.Next() {
			if !yield(r.RecordBatch(), nil) {
				return
			}
		}
		if err := r.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// ReadAll reads what is left into a table, which the caller must release, and
// releases the result. ErrHandleClosed says that it was released or closed
// before.
func (r *QueryResult) ReadAll(ctx context.Context) (arrow.Table, error) {
	defer r.Release()
	if err := r.checkReadable(); err != nil {
		return nil, err
	}
	if r.call != nil {
		unhook := context.AfterFunc(ctx, func() { r.call.interrupt(ctxerr.Of(ctx)) })
		defer unhook()
	}
	var batches []arrow.RecordBatch
	defer func() {
		for _, b := range batches {
			b.Release()
		}
	}()
	for r.Next() {
		b := r.RecordBatch()
		b.Retain()
		batches = append(batches, b)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return array.NewTableFromRecords(r.schema, batches), nil
}

// Rows is rowscan.Rows under its older name.
//
// Deprecated: use rowscan.Rows.
func Rows[T any](r *QueryResult) iter.Seq2[T, error] { return rowscan.Rows[T](r) }
