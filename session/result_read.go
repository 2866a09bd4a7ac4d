package session

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/rowscan"
)

// resultWithoutRows is the result of a statement without rows.
func resultWithoutRows(u UpdateResult) *QueryResult {
	r := &QueryResult{schema: arrow.NewSchema(nil, nil), affected: u.RowsAffected, affectedKnown: u.RowsAffected >= 0}
	r.refs.Store(1)
	r.mu.ended = true
	return r
}

// firstBatch reads the first batch of a result. Where the server has taken a read for a command, and tells how many rows it
// has changed, nobody gets the rows: SwanLake drops those of a text that it prepares, unless the parser in front of its
// database knows that it has any, and of SHOW DATABASES.
func (c *call) firstBatch(stream backend.Stream) (arrow.RecordBatch, error) {
	first, err := stream.Next()
	if _, counted := stream.RowsAffected(); counted && eof.Reached(err) && stream.Schema().NumFields() == 0 && c.script.ReadOnly() { // which has rows, whatever it is
		return nil, &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultUnsupported, Err: errRowsDropped}
	}
	return first, err
}

var errRowsDropped = errors.New("the server has taken the text for a command and dropped its rows: write it otherwise, or, where it has parameters, these into the text")

// errTwoReaders ends a result: one stream is read by one goroutine at a time.
var errTwoReaders = fmt.Errorf("%w: two goroutines read one result", backend.ErrBusy)

// dropBatch releases the batch once, also where two goroutines use the result.
func (r *QueryResult) dropBatch() {
	r.mu.Lock()
	batch := r.batch
	r.batch = nil
	r.mu.Unlock()
	if batch != nil {
		batch.Release()
	}
}

// Close ends the result, whatever references there are, and returns Err. Where
// the statement may change something it reads the rest of the rows before, since
// the server may store the change, or refuse it, only at their end. It is
// idempotent, and the reader's to call, as Next and Release are.
func (r *QueryResult) Close() error {
	if r == nil {
		return nil
	}
	if r.call != nil && r.call.mayChange() && !r.isClosed() {
		for r.Next() {
			continue
		}
	}
	return r.end()
}

func (r *QueryResult) end() error {
	r.mu.Lock()
	r.mu.closed = true
	r.mu.Unlock()
	r.releaseUnread()
	r.dropBatch()
	return r.Err()
}

// markEnded moves the result to ended, unless it is. Err answers the interruption from
// then on. Whoever moves it must see to it that the call is finished, or that a read
// under way does so.
func (r *QueryResult) markEnded(cause error) (reading, moved bool) {
	var ended error
	if cause != errReleasedEarly { //nolint:errorlint // as in Err, which tells nothing of a release
		ended = r.call.isolatedContextError() // without the lock, and on whatever goroutine this comes
	}
	r.mu.Lock()
	if r.mu.ended {
		r.mu.Unlock()
		return false, false
	}
	r.mu.ended = true
	r.mu.cause = cause
	r.mu.err = r.call.wrapErrorWith(&backend.Error{Stage: backend.StageFetch, Fault: backend.FaultContext, Err: cause}, func() error { return ended })
	unread := r.mu.first
	r.mu.first = nil
	reading = r.mu.reading
	r.mu.Unlock()
	if unread != nil {
		unread.Release()
	}
	return reading, true
}

// checkReadable fails where the result was released or closed before: what is asked
// for its rows then must not take it for one that has none.
func (r *QueryResult) checkReadable() error {
	if !r.isClosed() {
		return nil
	}
	if err := r.Err(); err != nil {
		return err
	}
	return readClosedError()
}

func (r *QueryResult) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.closed
}

// readClosedError is that of whoever asks a result for rows that was released or closed. A reader
// of rows as Ingest's, or a writer of a file, would take it for one that has no more.
func readClosedError() error {
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
		unhook := context.AfterFunc(ctx, func() { r.call.interrupt(endOf(ctx)) })
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
	schema := r.schema
	if len(batches) > 0 { // of the very types of its columns: Arrow panics at some that are only equal
		schema = batches[0].Schema()
	}
	return array.NewTableFromRecords(schema, batches), nil
}

// Row is the first row of a query.
type Row struct {
	result *QueryResult
	err    error
}

// NewRow is the first row of what a query has returned.
func NewRow(result *QueryResult, err error) *Row { return &Row{result, err} }

// Scan sets what dest points to, one for each column, to the row's values, and ends the
// query: see rowscan.ScanOne. Its error is that of the query, if it has failed, of a
// change also after its first row, and rowscan.ErrNoRows where there is no row. A second
// call fails.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	return rowscan.ScanOne(r.result, dest...)
}

// Rows is rowscan.Rows under its older name.
//
// Deprecated: use rowscan.Rows.
func Rows[T any](r *QueryResult) iter.Seq2[T, error] { return rowscan.Rows[T](r) }
