package session

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// await runs a step of the call on the pool's context. It waits no longer than
// the caller's context and its handle allow: present is false when the caller
// has left the step, and late is given then what came of it. A panic or Goexit
// in the step, which is one of the caller's callbacks, ends the call and goes
// on in the caller.
func await[T any](c *call, step func(ctx context.Context) (T, error), late func(T, error)) (v T, present bool, err error) {
	step = checked(c, step)
	if !c.apart {
		returned := false
		defer func() {
			if !returned {
				_ = c.finish(outcome{cut: errCallback})
			}
		}()
		v, err = step(c.rpc)
		returned = true
		return v, true, err
	}
	var a callback.Attempt[T]
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(func() (T, error) { return step(c.rpc) })
	}()
	select {
	case <-done:
	case <-c.left:
		c.callerLeft = true
		c.s.goOnBehind()
		c.s.policy.run(func() {
			switch {
			case !c.seeOut(done):
				_ = c.finish(outcome{err: &Error{Stage: StageExecute, Fault: FaultSession, Err: errStuck}})
			case !a.Returned:
				_ = c.finish(outcome{cut: errCallback})
			default:
				late(a.Value, a.Err)
			}
		})
		return v, false, c.leftError()
	}
	if a.Returned {
		return a.Value, true, a.Err
	}
	_ = c.finish(outcome{cut: errCallback})
	a.Resume()
	return v, true, nil
}

// checked is the step with what has to hold before anything of it is sent, and
// after it was answered.
func checked[T any](c *call, step func(ctx context.Context) (T, error)) func(ctx context.Context) (T, error) {
	c.sent = time.Now()
	return func(ctx context.Context) (v T, err error) {
		if c.ready != nil {
			if err := c.ready(ctx); err != nil {
				return v, err
			}
			c.sent = time.Now()
		}
		if v, err = step(ctx); err == nil {
			err = c.s.answeredElsewhere()
		}
		return v, err
	}
}

var errStuck = fmt.Errorf("%w: a callback or reader of the caller does not return", ErrSessionLost)

// seeOut waits behind the caller for the step to return. It reports false when
// the step does not, although its RPC has ended: it is held up by a callback of
// the caller's.
func (c *call) seeOut(done <-chan struct{}) bool {
	switch c.mode {
	case toItsEnd:
		<-done
		return true
	case brief:
		timer := time.AfterFunc(c.s.policy.budget(), c.endRPC)
		defer timer.Stop()
		<-done
		return true
	default:
		c.s.learnOrder(c, done)
		c.endRPC()
	}
	timer := time.NewTimer(c.s.policy.grace())
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// leftError is the error of a call whose caller has left it.
func (c *call) leftError() *Error {
	cause := ctxerr.Of(c.ctx)
	if cause == nil {
		cause = c.cause()
	}
	err := cause
	if c.ctx.Err() != nil {
		err = status.FromContextError(context.Canceled).Err() // as the RPC itself says once it is ended
		if w, ok := c.s.conn.(ContextErrorWrapper); ok {
			err = w.WrapContextError(err)
		}
	}
	if c.mode != cutShort {
		err = fmt.Errorf("left to finish on the server: %w", err)
	}
	stage := StageExecute
	if c.work.Name() != nil {
		stage = StageFetch
	}
	return c.fail(&Error{Stage: stage, Fault: FaultContext, Err: err})
}

// perform runs the call's one step and finishes the call. judge says what the
// answer means; when the caller has left, it is called behind it, with present
// false.
func perform[T any](c *call, step func(ctx context.Context) (T, error), judge func(v T, present bool, err error) outcome) (T, error) {
	v, present, err := await(c, step, func(v T, err error) { _ = c.finish(judge(v, false, err)) })
	if present {
		err = c.finish(judge(v, true, err))
	}
	if err != nil {
		var none T
		return none, err
	}
	return v, nil
}

// plainly is the judgement of steps whose answer means what it says.
func plainly[T any](_ T, _ bool, err error) outcome { return outcome{err: err} }

// do is perform for steps that have no value.
func do(c *call, step func(ctx context.Context) error, judge func(present bool, err error) outcome) error {
	_, err := perform(c, func(ctx context.Context) (struct{}, error) { return struct{}{}, step(ctx) },
		func(_ struct{}, present bool, err error) outcome { return judge(present, err) })
	return err
}

// errorOnly is plainly for do.
func errorOnly(_ bool, err error) outcome { return outcome{err: err} }
