package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// wrapError makes the call's error out of a backend's, in a copy, since a backend may
// keep and return the same error again. An error without a type is of a fault that
// nobody knows.
//
// What the server has said of the statement stays its answer, although the caller's
// context may have ended meanwhile. Every other failure reports that end too: most
// probably it is what has brought the failure about, and a fault that is unknown is
// taken for it.
func (c *call) wrapError(err error) *backend.Error { return c.wrapErrorWith(err, c.contextError) }

// wrapErrorWith is wrapError with the caller's context as it is told by contextError.
func (c *call) wrapErrorWith(err error, contextError func() error) *backend.Error {
	var e *backend.Error
	if !errors.As(err, &e) {
		e = &backend.Error{Err: err, Fault: backend.FaultUnknown, Stage: backend.StageExecute}
	} else {
		copied := *e
		e = &copied
	}
	e.Op = c.op
	if e.Target == "" {
		e.Target = c.s.policy.Target
	}
	if e.Fault == backend.FaultAuth && c.stepBegun.Load() && c.mayBeHalfDone(e) {
		e.Unsent = false // the credential may have ended, or was refused by what the server asks, after the first part
	}
	e.Read = c.script.ReadOnly() && !c.delivered && !c.asUpdate
	e.Partial = c.mayBePartlyStored(e)
	if e.Fault == backend.FaultStatement || e.Fault == backend.FaultUsage {
		return e
	}
	if ended := contextError(); ended != nil {
		e.Ctx = ended
		if e.Fault == backend.FaultUnknown {
			e.Fault = backend.FaultContext
		}
	} else if cause := c.cause(); e.Fault == backend.FaultContext && cause != nil && !errors.Is(e.Err, cause) {
		e.Err = fmt.Errorf("%w: %w", cause, e.Err)
	}
	return e
}

// contextError is how the caller's context has ended, or nil. To ask is code of the caller's: a panic
// in it goes on in the caller, but behind the caller it would end the process, and says nothing.
func (c *call) contextError() error {
	if !c.behindCaller.Load() {
		return ctxerr.Of(c.ctx)
	}
	return c.isolatedContextError()
}

// isolatedContextError is contextError where the caller may not be who asks.
func (c *call) isolatedContextError() error { return isolatedErrorOf(c.ctx) }

func isolatedErrorOf(ctx context.Context) error {
	return askIsolated(contextWait, func() error { return ctxerr.Of(ctx) }).Value
}

// contextWait is how long a context of the caller's that does not answer is waited for, where others need the session: much longer
// than one takes that does, also on a busy machine.
const contextWait = 5 * time.Second

// askIsolated is what f comes to, which asks a context of the caller's. One that does not answer within limit has not returned,
// and goes on by itself.
func askIsolated[T any](limit time.Duration, f func() T) (a callback.Attempt[T]) {
	asked := callback.Go(func() (T, error) { return f(), nil })
	if callback.EndsWithin(asked.Done, limit) {
		a = asked.Attempt
	}
	return a
}

// endOf is how a context that has ended has, as far as it can be asked: it may be another request's again, and
// say that it has not.
func endOf(ctx context.Context) error { return cmp.Or(isolatedErrorOf(ctx), context.Canceled) }

// runCallersHook takes off what the call has set up. It may ask the caller's context once more, as package context does to forget
// a context that was made of it.
func (c *call) runCallersHook(f func()) {
	if !c.behindCaller.Load() {
		f()
		return
	}
	askIsolated(contextWait, func() struct{} { f(); return struct{}{} })
}

// valuesBehind is a context behind its caller: a value that it panics for, or does not give within wait, is not there, and it is not
// asked for others.
type valuesBehind struct {
	context.Context //nolint:containedctx // it is one
	wait            time.Duration
	isSilent        atomic.Bool
}

func (v *valuesBehind) Value(key any) any {
	if v.isSilent.Load() {
		return nil
	}
	a := askIsolated(v.wait, func() any { return v.Context.Value(key) })
	if !a.Returned {
		v.isSilent.Store(true)
	}
	return a.Value
}
