package session

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/eof"
)

// ownersCode is what may panic in an RPC that nobody waits for, on a goroutine of ours.
const ownersCode = "an interceptor or driver of the pool's owner"

var errCallbackStuck = fmt.Errorf("%w: a callback or reader of the caller does not return", backend.ErrSessionLost)

// leaveStep lets the caller go, and gives what the step comes to, to late.
func leaveStep[T any](c *call, a *callback.Call[T], late func(T, error)) error {
	c.failureReported = true
	c.goBehindCaller(func() {
		switch {
		case !c.awaitLeftStep(a.Done):
			_ = c.finish(outcome{err: &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultSession, Err: errCallbackStuck}})
		case !a.Returned:
			c.finishExited()
		default:
			late(a.Value, a.Err)
		}
	})
	return c.tellLeaver()
}

// beginStep notes that something of the step may be sent from now on. Of a call that is cancelled in the end nothing is
// sent once its caller has left: a transaction may have been told that nothing was.
func (c *call) beginStep() error {
	c.stepBegun.Store(true) // first, so that changeUnderWay, which is asked behind the caller, misses nothing
	select {
	case <-c.callerGone:
		if c.mode.cancels() {
			c.stepBegun.Store(false)
			return &backend.Error{Stage: backend.StageArgument, Fault: backend.FaultContext, Unsent: true, Err: c.cause()}
		}
	default:
	}
	return nil
}

// awaitLeftStep waits in the background for the step to return. It reports false when
// the step does not, although its RPC has ended: a callback of the caller's blocks. The
// RPC of a COMMIT, or with NoCancel, may take for ever; the owner's Close ends it by
// closing the connection. Otherwise the end of the RPC brings a backend back at once;
// only a callback or reader of the caller's, which no context ends, can still hold the
// step. That costs the session, since its goroutine may call the connection at any time
// later.
func (c *call) awaitLeftStep(done <-chan struct{}) bool {
	switch c.mode {
	case finishWhenLeft:
		<-done
		return true
	case finishWithinBudget:
		timer := time.AfterFunc(c.s.policy.budget(), c.endRPC)
		defer timer.Stop()
		<-done
		return true
	case cancelAfterBudget:
		budget, stop := context.WithTimeout(c.s.policy.OwnerContext, c.s.policy.budget()) // with the owner ends the connection
		defer stop()
		select {
		case <-done:
			return true
		case <-budget.Done():
		}
		c.endRPC()
	default:
		_ = callback.Isolate(ownersCode, func() error { c.s.learnOrder(c, done); return nil })
		c.endRPC()
	}
	return callback.EndsWithin(done, c.s.policy.grace())
}

// callerLeftError is the error of a call whose caller has left it. The server has not
// answered yet, so the error is what the RPC would have failed with if it had been
// ended. Where the server has named the operation, its rows were being awaited.
func (c *call) callerLeftError() *backend.Error {
	cause := ctxerr.Of(c.ctx)
	if cause == nil {
		cause = c.cause()
	}
	err := cause
	if c.ctx.Err() != nil {
		err = status.FromContextError(context.Canceled).Err() // as the RPC itself says once it is ended
		if w, ok := c.s.conn.(backend.ContextErrorWrapper); ok {
			err = w.WrapContextError(err)
		}
	}
	if !c.mode.cancels() {
		err = fmt.Errorf("left to finish on the server: %w", err)
	}
	stage := backend.StageExecute
	if c.operation.Name() != nil && !c.asUpdate {
		stage = backend.StageFetch
	}
	e := c.wrapError(&backend.Error{Stage: stage, Fault: backend.FaultContext, Err: err})
	if c.leftMeans != nil {
		return withCause(e, c.leftMeans)
	}
	return e
}

// endInBackground is end after completeOnServer. A panic or Goexit while unread rows
// are drained is caught here, since the caller has already returned. Allocators and
// drivers are the user's code, and a panic on this goroutine would end the process. The
// stream is closed, the statement is kept for the handle's Close, and the server is
// asked to cancel, since nobody knows how far it is.
func (c *call) endInBackground(o outcome) {
	var a callback.Attempt[outcome]
	defer func() {
		if !a.Returned {
			if o.unread != nil {
				o.unread.Close()
			}
			if stmt := c.ownStatement(); stmt != nil {
				c.s.registerUnclosed(stmt)
			}
			a.Value = outcome{interruptedBy: errCallbackExited}
		}
		_ = c.end(a.Value)
	}()
	a.Run(func() (outcome, error) { return c.completeOnServer(o), nil })
}

// completeOnServer does what is left to do on the server, and returns what is known
// then. It runs in the background, while the handle is ending. The rows go first, since
// they are the statement's. A statement whose RPC may be running is not closed here,
// since the cancel comes before.
func (c *call) completeOnServer(o outcome) outcome {
	if o.unread != nil {
		ended, err := c.drainUnread(o)
		o.unread.Close()
		switch {
		case err != nil:
			o.err, o.readerReleased = err, false
		case !ended:
			o.interruptedBy = errReleasedEarly
		}
	}
	c.keepStatement(o)
	stmt := c.ownStatement()
	if stmt == nil || c.s.conn.Lost() != nil {
		return o
	}
	if e := c.outcomeError(o); e != nil && (e.Running || !e.Fault.KeepsConn()) {
		c.s.registerUnclosed(stmt) // closed with the handle, once the session is free
		return o
	}
	ctx, stop := c.s.policy.closeContext()
	defer stop()
	if err := stmt.Close(ctx); err != nil {
		c.s.markDiscard(fmt.Errorf("close prepared statement: %w", err))
	}
	return o
}

// Limits for draining a result that its reader released early, before its read-only
// statement is cancelled. Most such results are nearly complete, and draining costs less
// than a cancel, which may abort a transaction.
const (
	drainBytes   = 1 << 20
	drainTime    = 100 * time.Millisecond
	drainBytesTx = 32 << 20
)

// drainUnread reads rows that nobody wants, within the bounds above, and reports
// whether the result has ended. A call that is not to be cancelled is read to
// its end, however far that is, and so is a change outside of a transaction: the
// server may store it only then, and who let its rows go is told no failure; but for the
// deadline of its context, of which the RPC knows by itself where it does not go on behind that. In
// a transaction the failure is told by its Commit.
func (c *call) drainUnread(o outcome) (ended bool, err error) {
	whole := c.mode == finishWhenLeft || o.readerReleased && c.mayChange() && c.s.txState().phase == txNone
	bytes, limit := int64(drainBytes), drainTime
	if tx := c.s.txState(); tx.phase == txOpen {
		bytes, limit = drainBytesTx, max(limit, c.s.policy.grace())
		if c.s.acceptsUnknownTx() {
			// No statement can tell there whether the transaction has
			// outlived a cancel.
			limit = max(limit, c.s.policy.budget())
		}
	}
	if c.mode == cancelAfterBudget && !o.readerReleased || !c.answerShowsEnd() && len(c.s.conn.CancelSteps(c.operation)) == 0 {
		// Nothing would show there that a cancel has worked.
		bytes, limit = math.MaxInt64, max(limit, c.s.policy.budget())
	}
	bounded := !whole
	if whole && c.mode == cancelAfterBudget {
		var at time.Time
		if at, bounded = c.ctx.Deadline(); bounded {
			limit = time.Until(at) + c.s.policy.budget()
		}
	}
	if bounded {
		timer := time.AfterFunc(limit, c.endRPC)
		defer timer.Stop()
	}
	for {
		batch, err := o.unread.Next()
		switch {
		case eof.Reached(err):
			return true, nil
		case err != nil && c.rpc.Err() != nil && backend.FaultIn(err) == backend.FaultContext:
			return false, nil
		case err != nil:
			return false, err
		}
		if bytes -= sizeOf(batch); bytes < 0 && !whole {
			c.endRPC()
			return false, nil
		}
	}
}

// sizeOf is about how many bytes of buffers the batch holds. It bounds the work of
// reading on.
func sizeOf(batch arrow.RecordBatch) int64 {
	bytes := uint64(0)
	for _, column := range batch.Columns() {
		bytes += column.Data().SizeInBytes()
	}
	return int64(min(bytes, math.MaxInt64)) //nolint:gosec // it fits now
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

// finishInterrupted finishes the call of a result that its interrupter has moved to
// ended. A stream is closed and read by one goroutine at a time: with a read under way
// only the RPC is ended, which brings the read back.
func (r *QueryResult) finishInterrupted(cause error, reading bool) {
	c := r.call
	switch {
	case reading && c.mode.readsOn(): // read does it
	case reading:
		c.endRPC()
	case c.mode.readsOn():
		c.failureReported = true
		_ = c.finish(outcome{unread: r.stream})
	default:
		c.behindCaller.Store(true) // who closes the handle is none
		c.endRPC()
		r.stream.Close()
		r.setErr(c.finish(outcome{interruptedBy: cause}))
	}
}
