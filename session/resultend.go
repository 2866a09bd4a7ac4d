package session

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/internal/eof"
)

// endRead takes what the stream answered.
func (r *QueryResult) endRead(batch arrow.RecordBatch, err error) bool {
	r.mu.Lock()
	r.mu.reading = false
	cause, interrupted := r.mu.cause, r.mu.ended
	if err == nil && !interrupted {
		r.mu.Unlock()
		r.cur = batch
		return true
	}
	r.mu.ended = true
	r.mu.Unlock()
	if batch != nil {
		batch.Release()
	}
	if eof.Reached(err) && !interrupted {
		r.affected, r.counted = r.stream.RowsAffected()
	}
	var o outcome
	switch {
	case eof.Reached(err):
		r.call.callerLeft = interrupted
	case interrupted && r.call.mode == toItsEnd && err == nil:
		r.call.callerLeft = true
		o.rest = r.stream
	case interrupted && r.call.mode != toItsEnd:
		o.cut = cause
	default:
		o.err = err
	}
	if o.rest == nil {
		r.stream.Close()
	}
	r.failed(r.call.finish(o))
	return false
}

// breakOff ends the result after a read that has panicked, or ended its goroutine.
func (r *QueryResult) breakOff() {
	r.mu.Lock()
	r.mu.reading, r.mu.ended = false, true
	r.mu.Unlock()
	r.call.endRPC()
	r.stream.Close()
	r.failed(r.call.finish(outcome{cut: errCallback}))
}

// interrupt ends the result from outside its reader. A read under way is cut
// and ends it itself, or is left where the statement is not to be cancelled.
func (r *QueryResult) interrupt(cause error) {
	reading, first := r.endWith(cause)
	if first {
		r.finishUnread(cause, reading)
	}
}

// endWith moves the result to ended, unless it is.
func (r *QueryResult) endWith(cause error) (reading, moved bool) {
	r.mu.Lock()
	if r.mu.ended {
		r.mu.Unlock()
		return false, false
	}
	r.mu.ended = true
	r.mu.cause = cause
	r.mu.err = r.call.fail(&Error{Stage: StageFetch, Fault: FaultContext, Err: cause})
	unread := r.mu.first
	r.mu.first = nil
	reading = r.mu.reading
	r.mu.Unlock()
	if unread != nil {
		unread.Release()
	}
	return reading, true
}

func (r *QueryResult) finishUnread(cause error, reading bool) {
	c := r.call
	switch {
	case reading && c.mode == toItsEnd: // read does it
	case reading:
		c.endRPC()
	case c.mode == toItsEnd:
		c.callerLeft = true
		_ = c.finish(outcome{rest: r.stream})
	default:
		c.endRPC()
		r.stream.Close()
		r.failed(c.finish(outcome{cut: cause}))
	}
}

// failed has Err answer what the end of the call came to, if it failed.
func (r *QueryResult) failed(err error) {
	if err != nil {
		r.mu.Lock()
		r.mu.err = err
		r.mu.Unlock()
	}
}

// letGo ends the result because its reader wants no more of it.
func (r *QueryResult) letGo() {
	if _, first := r.endWith(errLetGo); first {
		_ = r.call.finish(outcome{rest: r.stream, letGo: true})
	}
}
