package session

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// awaitStep runs a step of the call on the pool's context. It waits no longer than
// the caller's context and its handle allow: inTime is false when the caller has
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
				_ = c.finish(outcome{interruptedBy: errCallbackExited})
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
		c.failureReported = true
		c.s.markEnding()
		c.s.policy.goInBackground(func() {
			switch {
			case !c.awaitLeftStep(a.Done):
				_ = c.finish(outcome{err: &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultSession, Err: errCallbackStuck}})
			case !a.Returned:
				_ = c.finish(outcome{interruptedBy: errCallbackExited})
			default:
				late(a.Value, a.Err)
			}
		})
		return v, false, c.callerLeftError()
	}
	if a.Returned {
		return a.Value, true, a.Err
	}
	_ = c.finish(outcome{interruptedBy: errCallbackExited})
	a.Resume()
	return v, true, nil
}

// withChecks is the step with what has to hold before anything of it is sent, and after
// it was answered. The last of it is for servers that put another session in the place
// of one that has gone: an answer from there is worth nothing where the handle had
// something to lose. A failure is the caller's to know in any case.
func withChecks[T any](c *call, step func(ctx context.Context) (T, error)) func(ctx context.Context) (T, error) {
	c.startedAt = time.Now()
	return func(ctx context.Context) (v T, err error) {
		if c.beforeSend != nil {
			if err := c.beforeSend(ctx); err != nil {
				return v, err
			}
			c.startedAt = time.Now()
		}
		if v, err = step(ctx); err == nil {
			err = c.s.answeredByOtherSession()
		}
		return v, err
	}
}

var errCallbackStuck = fmt.Errorf("%w: a callback or reader of the caller does not return", backend.ErrSessionLost)

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
	default:
		c.s.learnOrder(c, done)
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
	if c.mode != cancelWhenLeft {
		err = fmt.Errorf("left to finish on the server: %w", err)
	}
	stage := backend.StageExecute
	if c.operation.Name() != nil {
		stage = backend.StageFetch
	}
	return c.wrapError(&backend.Error{Stage: stage, Fault: backend.FaultContext, Err: err})
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
