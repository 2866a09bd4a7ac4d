package session

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/eof"
)

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
// It may stand anywhere in the stream, so that the statement is cancelled. reading
// falls, so that a Release in a deferred function of the reader finds the result ended.
func (r *QueryResult) endAfterPanic() {
	r.mu.Lock()
	r.mu.reading, r.mu.ended = false, true
	r.mu.Unlock()
	r.call.endRPC()
	r.stream.Close()
	r.setErr(r.call.finish(outcome{interruptedBy: errCallbackExited}))
}

// interrupt ends the result from outside its reader. A read under way is cut and ends
// it itself, or is left where the statement is not to be cancelled. It may come any
// number of times from any goroutine; the first to move the result to ended acts.
func (r *QueryResult) interrupt(cause error) {
	reading, first := r.markEnded(cause)
	if first {
		r.finishInterrupted(cause, reading)
	}
}

// markEnded moves the result to ended, unless it is. Err answers the interruption from
// then on. Whoever moves it must see to it that the call is finished, or that a read
// under way does so.
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

// finishInterrupted finishes the call of a result that its interrupter has moved to
// ended. A stream is closed and read by one goroutine at a time: with a read under way
// only the RPC is ended, which brings the read back.
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

// releaseUnread ends the result because its reader wants no more of it. What the server
// says of the rest is told to nobody, but aborts an open transaction if it is a
// failure.
func (r *QueryResult) releaseUnread() {
	if _, first := r.markEnded(errReleasedEarly); first {
		_ = r.call.finish(outcome{unread: r.stream, readerReleased: true})
	}
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
	if r.call.mode != finishWhenLeft {
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
	r.call.s.markEnding()
	r.call.s.policy.goInBackground(func() {
		<-a.Done
		if !a.Returned {
			r.endAfterPanic()
			return
		}
		_ = r.recordRead(a.Value, a.Err)
	})
	return nil, false, nil
}

// startRead gives out the batch that the query fetched, or leave to read.
func (r *QueryResult) startRead() (first arrow.RecordBatch, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.ended {
		return nil, false
	}
	if first = r.mu.first; first != nil {
		r.mu.first = nil
		r.call.delivered = true
		return first, true
	}
	r.mu.reading = true
	return nil, true
}
