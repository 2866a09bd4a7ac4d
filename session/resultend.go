package session

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

// recordRead takes what the stream answered.
func (r *QueryResult) recordRead(batch arrow.RecordBatch, err error) bool {
	r.mu.Lock()
	r.mu.reading = false
	cause, interrupted := r.mu.cause, r.mu.ended
	if err == nil && !interrupted {
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
	}
	var o outcome
	switch {
	case eof.Reached(err):
		r.call.failureReported = interrupted
	case interrupted && r.call.mode == finishWhenLeft && err == nil:
		r.call.failureReported = true
		o.unread = r.stream
	case interrupted && r.call.mode != finishWhenLeft:
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

// endAfterPanic ends the result after a read that has panicked, or ended its goroutine.
func (r *QueryResult) endAfterPanic() {
	r.mu.Lock()
	r.mu.reading, r.mu.ended = false, true
	r.mu.Unlock()
	r.call.endRPC()
	r.stream.Close()
	r.setErr(r.call.finish(outcome{interruptedBy: errCallbackExited}))
}

// interrupt ends the result from outside its reader. A read under way is cut
// and ends it itself, or is left where the statement is not to be cancelled.
func (r *QueryResult) interrupt(cause error) {
	reading, first := r.markEnded(cause)
	if first {
		r.finishInterrupted(cause, reading)
	}
}

// markEnded moves the result to ended, unless it is.
func (r *QueryResult) markEnded(cause error) (reading, moved bool) {
	r.mu.Lock()
	if r.mu.ended {
		r.mu.Unlock()
		return false, false
	}
	r.mu.ended = true
	r.mu.cause = cause
	r.mu.err = r.call.wrapError(&backend.Error{Stage: backend.StageFetch, Fault: backend.FaultContext, Err: cause})
	unread := r.mu.first
	r.mu.first = nil
	reading = r.mu.reading
	r.mu.Unlock()
	if unread != nil {
		unread.Release()
	}
	return reading, true
}

func (r *QueryResult) finishInterrupted(cause error, reading bool) {
	c := r.call
	switch {
	case reading && c.mode == finishWhenLeft: // read does it
	case reading:
		c.endRPC()
	case c.mode == finishWhenLeft:
		c.failureReported = true
		_ = c.finish(outcome{unread: r.stream})
	default:
		c.endRPC()
		r.stream.Close()
		r.setErr(c.finish(outcome{interruptedBy: cause}))
	}
}

// setErr has Err answer what the end of the call came to, if it failed.
func (r *QueryResult) setErr(err error) {
	if err != nil {
		r.mu.Lock()
		r.mu.err = err
		r.mu.Unlock()
	}
}

// releaseUnread ends the result because its reader wants no more of it.
func (r *QueryResult) releaseUnread() {
	if _, first := r.markEnded(errReleasedEarly); first {
		_ = r.call.finish(outcome{unread: r.stream, readerReleased: true})
	}
}
