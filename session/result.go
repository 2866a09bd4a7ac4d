package session

import (
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/eof"
)

// QueryResult streams the rows of a statement. It implements
// array.RecordReader and is read by one goroutine: a second ends it.
//
// The connection is held until the result has ended: at its last batch, on an
// error, on Release of the last reference, on Close or when the context of the
// query ends, whichever comes first. A result that is released or closed before
// its end is read on in the background for at most 100 ms and 1 MiB (inside a
// transaction 250 ms, or CancelPolicy.Grace, and 32 MiB); if it has not ended
// by then, its statement is cancelled on the server. It is read on for CancelPolicy.Budget, and
// however many bytes, where nothing would show that a cancel has worked: on a server that has
// no request for it and has not shown how its sessions run their statements (SwanLake, Dremio), where
// a result that is longer costs its connection, so that a query is better given a LIMIT (on SwanLake, once
// it is known, also where its context ends it); and for as long
// in a transaction of a server that does not know its transactions. Outside of a transaction a
// statement that may change something is read on to its end instead, or to the
// deadline of its context (and for CancelPolicy.Budget behind that, on SwanLake once it is known); Close does that before it returns. An open transaction
// survives that unless the server says otherwise; later calls then answer
// ErrTxAborted and why.
//
// INVARIANT: the call of a result is finished exactly once, by whoever moves it to
// ended, and never while a read is under way.
//
// What mu does not guard belongs to the reader, and to whoever ends the result then.
type QueryResult struct {
	refs          atomic.Int64
	schema        *arrow.Schema
	call          *call // nil for a result without rows
	stream        backend.Stream
	batch         arrow.RecordBatch
	affected      int64
	affectedKnown bool

	mu struct {
		sync.Mutex
		first   arrow.RecordBatch // fetched by the query, not yet read
		reading bool              // Next is inside the stream
		ended   bool
		closed  bool  // released or closed by its reader
		readOn  bool  // more was asked of it then
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

// Schema is never nil; a statement without rows has no fields.
func (r *QueryResult) Schema() *arrow.Schema { return r.schema }

// RowsAffected is how many rows a change touched. It is false for queries and
// where the server does not tell.
func (r *QueryResult) RowsAffected() (int64, bool) { return r.affected, r.affectedKnown }

// Next fetches the next batch. It is false at the end and on an error; Err
// tells which: ErrHandleClosed where the result was released or closed before. The batch
// of before is released: what is to stay needs Retain, and
// texts and slices of it, which share its memory, a copy. That memory is received into
// again; in a build with the race detector it is overwritten at once, so that what was
// kept too long shows.
func (r *QueryResult) Next() bool {
	r.dropBatch()
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
	err := r.mu.err
	if r.mu.cause == errReleasedEarly { //nolint:errorlint // the cause of a context may wrap another's
		err = nil // released early by the reader: not an error
	}
	if err == nil && r.mu.readOn {
		return readClosedError()
	}
	return err
}

// Retain adds a reference.
func (r *QueryResult) Retain() { r.refs.Add(1) }

// Release drops a reference; the last one ends the result. Where the statement
// may change something, use Close or read to the end: nobody is told of a failure
// after a Release.
//
// A nil result, which a failed call returns, has nothing to release or close: whoever
// defers that before looking at the error sees the error.
func (r *QueryResult) Release() {
	if r != nil && r.refs.Add(-1) == 0 {
		_ = r.end()
	}
}

// startRead gives out the batch that the query fetched, or leave to read.
func (r *QueryResult) startRead() (first arrow.RecordBatch, ok bool) {
	r.mu.Lock()
	if r.mu.reading && !r.mu.ended {
		r.mu.Unlock()
		r.interrupt(errTwoReaders)
		return nil, false
	}
	defer r.mu.Unlock()
	if r.mu.ended {
		r.mu.readOn = r.mu.closed
		return nil, false
	}
	if first = r.mu.first; first != nil {
		r.mu.first = nil
		r.call.delivered = true
		r.call.trace.delivered(first)
		return first, true
	}
	r.mu.reading = true
	return nil, true
}

// read reads one batch, which is the caller's until the next Next, whatever
// ends the stream meanwhile. Where the statement is left to its end, the reader
// can leave without it: inTime is false then, and the rest is read behind it. A
// panic or Goexit, which an allocator or driver of the caller's may cause, ends the
// result and goes on in the reader.
func (r *QueryResult) read() (batch arrow.RecordBatch, inTime bool, err error) {
	next := func() (arrow.RecordBatch, error) {
		batch, err := r.stream.Next()
		if err != nil && !eof.Reached(err) {
			return nil, err
		}
		if otherSession := r.call.s.answeredByOtherSession(); otherSession != nil {
			return nil, otherSession
		}
		if err == nil {
			batch.Retain()
		}
		return batch, err
	}
	if !r.call.mode.readsOn() {
		returned := false
		defer func() {
			if !returned {
				r.endAfterPanic()
			}
		}()
		batch, err = next()
		returned = true
		return batch, true, err
	}
	a := callback.Go(next)
	select {
	case <-a.Done:
		if !a.Returned {
			r.endAfterPanic()
			a.Resume()
		}
		return a.Value, true, a.Err
	case <-r.call.callerGone:
	}
	r.call.goBehindCaller(func() {
		switch {
		case !r.call.awaitLeftStep(a.Done):
			_ = r.call.finish(outcome{err: &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultSession, Err: errCallbackStuck}})
		case !a.Returned:
			r.endAfterPanic()
		default:
			_ = r.recordRead(a.Value, a.Err)
		}
	})
	return nil, false, nil
}

// recordRead takes what the stream answered, and reports whether that is a batch for
// the reader. Anything else ends the result, and with it the call: the regular end, an
// error, or an interruption that came during the read and left the ending to it.
//
// An end that came although the result was interrupted is a success on the server of
// which its reader has been told a failure. A batch that comes to a call which is left
// to its end has more behind it, which finish reads. Otherwise an interruption has
// ended the RPC, and what the stream answers says nothing of the server.
func (r *QueryResult) recordRead(batch arrow.RecordBatch, err error) bool {
	r.mu.Lock()
	r.mu.reading = false
	r.mu.readOn = r.mu.closed
	cause, interrupted := r.mu.cause, r.mu.ended
	if err == nil && !interrupted {
		r.call.trace.delivered(batch)
		r.mu.Unlock()
		r.batch = batch
		return true
	}
	r.mu.ended = true
	r.mu.Unlock()
	if batch != nil {
		batch.Release()
	}
	if eof.Reached(err) && !interrupted {
		r.affected, r.affectedKnown = r.stream.RowsAffected()
		r.call.trace.affected(r.affected, r.affectedKnown)
	}
	var o outcome
	switch {
	case eof.Reached(err):
		r.call.failureReported = interrupted
	case err == nil && r.call.mode.readsOn():
		r.call.failureReported = true
		o.unread = r.stream
	case interrupted && !r.call.mode.readsOn():
		o.interruptedBy = cause
	default:
		o.err = err
	}
	if o.unread == nil {
		r.stream.Close()
	}
	r.setErr(r.call.finish(o))
	return false
}

// setErr has Err answer what the end of the call came to, if it failed.
func (r *QueryResult) setErr(err error) {
	if err != nil {
		r.mu.Lock()
		r.mu.err = err
		r.mu.Unlock()
	}
}

// releaseUnread ends the result because its reader wants no more of it. What the server
// says of the rest is told to nobody, but aborts an open transaction if it is a
// failure. Beside a Next, which another goroutine must not call, it only interrupts.
func (r *QueryResult) releaseUnread() {
	switch reading, first := r.markEnded(errReleasedEarly); {
	case reading:
		r.finishInterrupted(errReleasedEarly, reading)
	case first:
		_ = r.call.finish(outcome{unread: r.stream, readerReleased: true})
	}
}
