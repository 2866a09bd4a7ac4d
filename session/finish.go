package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/effect"
)

// outcome is what came of a call, as far as this side knows. The zero outcome is
// success: the server has answered and is done. An error goes before an interruption:
// if the server's answer has come, it counts.
type outcome struct {
	err error // what the call failed with

	// interruptedBy is why the RPC was ended before the server had answered, so that
	// nobody knows what the server is doing.
	interruptedBy error

	// unread are rows that nobody will read.
	unread backend.Stream

	// readerReleased says that the reader ended the result by its own choice, and was
	// told no failure. A read that was released early need not abort its transaction:
	// see mayKeepTx.
	readerReleased bool
}

// finish ends the call: the handle learns what became of the connection, and the
// caller's error comes back. What is left to do on the server, such as the rows that
// nobody reads and the call's own prepared statement, is done behind the caller, and
// the handle serves no other call meanwhile. The caller's error says what is known
// already. What fails later, behind the caller, aborts an open transaction or costs the
// connection, and reaches it so.
func (c *call) finish(o outcome) error {
	if o.unread == nil {
		c.keepStatement(o)
	}
	if o.unread == nil && c.ownStatement() == nil {
		return c.end(o)
	}
	e := func() *backend.Error {
		defer c.goBehindCaller(func() { c.endInBackground(o) }) // also if the caller's context panics
		return c.outcomeError(o)
	}()
	if !c.hasResult() { // else the reader of the rows has them before the end
		c.endTrace(o, e)
	}
	if e != nil {
		return e
	}
	return nil
}

// end tells the handle. No RPC of the call is under way any more. From here on the
// connection is idle, lost or being cancelled behind the caller, and the handle belongs
// to the next call. The context of the caller is asked for its error, which is code of
// the caller's and may panic: the handle learns of the end of the call all the same.
func (c *call) end(o outcome) error {
	c.endRPC()
	defer func() { // until then the end of the caller's context is seen
		for _, f := range c.onEnd {
			c.runCallersHook(f)
		}
	}()
	e, known := (*backend.Error)(nil), false
	defer func() {
		if !known { // a method of the caller's context has ended the goroutine
			e = &backend.Error{Op: c.op, Stage: backend.StageFetch, Fault: backend.FaultContext, Err: errCallbackExited}
			o = outcome{interruptedBy: errCallbackExited}
			defer c.notifyEnd(o, e)
			c.s.recordCallEnd(c, o, e)
		}
	}()
	e = c.outcomeError(o)
	known = true
	defer c.notifyEnd(o, e) // also when a hook of the connection's return ends the goroutine
	c.s.recordCallEnd(c, o, e)
	if e == nil {
		return nil
	}
	return e
}

// finishExited ends a call whose step has panicked or ended its goroutine. What one that
// is no statement has done is not known, and no cancel finds it out: a transaction may be
// open of which nobody has the id, or its COMMIT under way. That costs the session.
func (c *call) finishExited() {
	if !c.isStatement() {
		why := errCallbackExited
		if c.leftMeans != nil {
			why = fmt.Errorf("%w: %w", c.leftMeans, why)
		}
		c.s.markLost(why)
	}
	_ = c.finish(outcome{interruptedBy: errCallbackExited})
}

// outcomeError is what the caller is told of the outcome, or nil.
func (c *call) outcomeError(o outcome) *backend.Error {
	switch {
	case o.err != nil:
		return c.wrapError(o.err)
	case o.interruptedBy != nil:
		return c.wrapError(&backend.Error{Stage: backend.StageFetch, Fault: backend.FaultContext, Err: o.interruptedBy})
	default:
		return nil
	}
}

// mayChange reports whether the call, which has a result, may change something. A
// catalogue call and a read are never worth waiting for.
func (c *call) mayChange() bool { return !c.script.ReadOnly() }

// Why calls are ended before the server has answered, where no context says so.
var (
	errReleasedEarly  = errors.New("result released before its end")
	errCallbackExited = errors.New("a callback or reader of the caller panicked or ended its goroutine")
)

// recordCallEnd takes note of a call that has ended in e, or well if e is nil, and
// starts the cancel chain where nobody knows what the server is doing. The first case
// that fits decides: what is lost is not cancelled, and what may still run is cancelled
// before anything else is sent, a ROLLBACK or a probe among it.
func (s *SessionHandle) recordCallEnd(c *call, o outcome, e *backend.Error) {
	began, lost := c.startedAt(), error(nil)
	if e != nil {
		lost = s.conn.Lost()
	}
	s.mu.Lock()
	if e != nil && lost == nil && !c.isStatement() {
		lost = s.mu.lost // see finishExited
	}
	s.recordSideEffects(c, e)
	if stray := c.strayTxOf(e); s.mu.tx.phase == txNone || stray == anyTx && s.mu.proof.acceptsUnknownTx() {
		s.mu.strayTx = max(s.mu.strayTx, stray)
	}
	s.recordTxOutcome(c, o, e)
	s.mu.dropKept = s.mu.dropKept || e != nil && s.policy.Statements != nil && mayLeaveHandle(e)
	switch {
	case e == nil:
		s.mu.proof.recordUnproven(began)
	case lost != nil || e.Fault == backend.FaultTransport || e.Fault == backend.FaultSession:
		if lost == nil {
			lost = e.Err
		}
		s.mu.lost = lost
		e.Err = lostError(e.Err)
	case !e.Unsent && (e.Fault == backend.FaultContext || e.Running):
		if e.Fault == backend.FaultAuth {
			s.mu.discardReason = e
		}
		tx := s.mu.tx
		s.mu.dropKept = s.policy.Statements != nil // a Prepare that was cut may have left a handle that nobody knows
		s.mu.Unlock()
		s.startCancel(c, tx)
		return
	case e.Fault == backend.FaultAuth:
		s.mu.discardReason = e
	case e.Fault == backend.FaultStatement && s.mu.tx.phase == txNone && refusesAll(e):
		s.mu.discardReason = e
	case !e.Fault.KeepsConn() && !e.Unsent:
		s.mu.needsProbe = true
	}
	s.mu.Unlock()
	s.becomeIdle(c)
}

// recordSideEffects records what a statement that was sent leaves behind. A single statement
// that the server has refused left a setting at most, and all of it where the answer
// leaves open whether it is a refusal; a procedure or a script may have
// done something before it failed, such as to begin a transaction of its own,
// in which the session is then. The lock is held.
func (s *SessionHandle) recordSideEffects(c *call, e *backend.Error) {
	if c.script.Empty() || e == nil && c.script.PlainRead() || e != nil && e.Unsent {
		return
	}
	if e != nil && c.failedWhole(e) {
		if meaningOf(effect.Statement, e) == effect.Refused {
			s.mu.sideEffects.addRefused(c.script, s.policy.OnReturn.mode != resetAuto)
		} else {
			s.mu.sideEffects.add(c.script, false, s.mu.tx.phase != txNone)
		}
		return
	}
	if e != nil && (e.Fault == backend.FaultStatement && !c.script.Atomic() || e.Fault == backend.FaultUnsupported && c.script.RunsInSteps()) {
		s.mu.needsProbe = true
	}
	s.mu.sideEffects.add(c.script, e == nil, s.mu.tx.phase != txNone)
	s.mu.sideEffects.failedIngest = s.mu.sideEffects.failedIngest || e != nil && c.op == opIngest && s.mu.tx.phase == txNone
}

// awaitStep runs a step of the call on the pool's context. It waits no longer than
// the caller's context, its handle and its owner allow: inTime is false when the caller has
// left the step, and late is called then with the result. A panic or Goexit in the
// step, which is one of the caller's callbacks, ends the call and goes on in the
// caller.
//
// The caller of awaitStep finishes the call if inTime is true, and late does if it is
// false: from then on awaitStep and the background share nothing but the call. late
// runs on a goroutine of the owner's, which waits for it when it closes.
//
// A step on the caller's own goroutine needs no select: interrupt ends its RPC. A panic
// there passes through awaitStep by itself once the call is finished.
func awaitStep[T any](c *call, step func(ctx context.Context) (T, error), late func(T, error)) (v T, inTime bool, err error) {
	step = withChecks(c, step)
	if !c.ownGoroutine {
		returned := false
		defer func() {
			if !returned {
				c.finishExited()
			}
		}()
		v, err = step(c.rpc)
		returned = true
		return v, true, err
	}
	a := callback.Go(func() (T, error) { return step(c.rpc) })
	select {
	case <-a.Done:
	case <-c.callerGone:
		return v, false, leaveStep(c, a, late)
	case <-c.s.policy.OwnerContext.Done(): // and with it the connection: only a callback can hold the step
		timer := time.NewTimer(c.s.policy.grace())
		defer timer.Stop()
		select {
		case <-a.Done:
		case <-c.callerGone:
			return v, false, leaveStep(c, a, late)
		case <-timer.C:
			return v, true, &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultSession, Err: errCallbackStuck}
		}
	}
	if a.Returned {
		return a.Value, true, a.Err
	}
	c.finishExited()
	a.Resume()
	return v, true, nil
}

// withChecks is the step with what has to hold before anything of it is sent, and after
// it was answered. The last of it is for servers that put another session in the place
// of one that has gone: an answer from there is worth nothing where the handle had
// something to lose. A failure is the caller's to know in any case.
func withChecks[T any](c *call, step func(ctx context.Context) (T, error)) func(ctx context.Context) (T, error) {
	c.setStarted()
	return func(ctx context.Context) (v T, err error) {
		if c.afterStep != nil {
			defer c.afterStep()
		}
		if c.beforeSend != nil {
			if err := c.runChecks(ctx); err != nil {
				return v, err
			}
			c.setStarted()
		}
		if err := c.beginStep(); err != nil {
			return v, err
		}
		if v, err = step(ctx); err == nil {
			err = c.s.answeredByOtherSession()
		}
		return v, err
	}
}

// runStep runs the call's one step and finishes the call. toOutcome says what the
// answer means; when the caller has left, it is called in the background, with inTime
// false. It changes what the handle knows of transactions and prepared statements
// before the call is finished, so that the next call finds it changed.
func runStep[T any](c *call, step func(ctx context.Context) (T, error), toOutcome func(v T, inTime bool, err error) outcome) (T, error) {
	v, inTime, err := awaitStep(c, step, func(v T, err error) { _ = c.finish(toOutcome(v, false, err)) })
	if inTime {
		err = c.finish(toOutcome(v, true, err))
	}
	if err != nil {
		var none T
		return none, err
	}
	return v, nil
}

// valueOutcome is the toOutcome of steps whose answer means what it says.
func valueOutcome[T any](_ T, _ bool, err error) outcome { return outcome{err: err} }

// runStepWithoutValue is runStep for steps that have no value.
func runStepWithoutValue(c *call, step func(ctx context.Context) error, toOutcome func(inTime bool, err error) outcome) error {
	_, err := runStep(c, func(ctx context.Context) (struct{}, error) { return struct{}{}, step(ctx) },
		func(_ struct{}, inTime bool, err error) outcome { return toOutcome(inTime, err) })
	return err
}

// errorOutcome is valueOutcome for runStepWithoutValue.
func errorOutcome(_ bool, err error) outcome { return outcome{err: err} }
