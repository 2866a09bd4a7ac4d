package session

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/sqlscan"
)

// call is one use of the connection, from begin to end. For a query it lasts
// until its result has ended.
type call struct {
	s       *SessionHandle
	op      string
	script  sqlscan.Script  // what the statement does; empty for control calls
	ctx     context.Context //nolint:containedctx // the caller's: its end starts the cancel chain
	rpc     context.Context //nolint:containedctx // the pool's own: every RPC of the call runs on it
	endRPC  context.CancelFunc
	release []func() // undo begin's hooks, run once at end
	work    *Operation
	info    Call

	// statement says that the call runs one, whose failure spoils an open
	// transaction.
	statement bool

	// uncut says that the RPC is left to run to its end when ctx ends.
	uncut bool

	// result is set once the call has turned into a stream.
	result atomic.Pointer[QueryResult]

	// delivered says that a batch has reached the caller.
	delivered bool
}

// newCall makes the contexts of a call. The caller's deadline is passed on to
// the server, a little late, so that the call is cut from this side first.
func (s *SessionHandle) newCall(ctx context.Context, op string, opts QueryOptions, uncut bool) *call {
	c := &call{s: s, op: op, work: &Operation{}, uncut: uncut || opts.NoCancel}
	timeout := opts.Timeout
	if timeout == 0 {
		timeout = s.policy.QueryTimeout
	}
	c.ctx = ctx
	if timeout > 0 {
		var stop context.CancelFunc
		c.ctx, stop = context.WithTimeout(ctx, timeout)
		c.release = append(c.release, stop)
	}
	c.rpc, c.endRPC = context.WithCancel(context.WithoutCancel(ctx))
	c.info = Call{Headers: opts.Headers, Op: c.work}
	if opts.Progress != nil {
		c.info.Progress = func(fraction float64, known bool) {
			if c.ctx.Err() == nil {
				opts.Progress(fraction, known)
			}
		}
	}
	if at, ok := c.ctx.Deadline(); ok && !c.uncut {
		var stop context.CancelFunc
		c.rpc, stop = context.WithDeadline(c.rpc, at.Add(s.policy.grace()))
		c.release = append(c.release, stop)
	}
	unhook := context.AfterFunc(c.ctx, c.cut)
	c.release = append(c.release, func() { unhook() })
	return c
}

// cut ends the call's RPCs, unless it is uncut, because the caller's context
// has ended.
func (c *call) cut() {
	if !c.uncut {
		c.endRPC()
	}
	if r := c.result.Load(); r != nil {
		r.interrupt(c.ctx.Err())
	}
}

// do runs one step of a call on the pool's context. The caller waits for
// nothing longer than its own context: an uncut step goes on behind it, and
// late is given what came of it.
func do[T any](c *call, step func(ctx context.Context) (T, error), late func(T, error)) (T, error) {
	if !c.uncut {
		return step(c.rpc)
	}
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	c.s.policy.run(func() {
		v, err := step(c.rpc)
		done <- answer{v, err}
	})
	select {
	case a := <-done:
		return a.v, a.err
	case <-c.ctx.Done():
	}
	c.s.becomeCancelling()
	c.s.policy.run(func() {
		timer := time.AfterFunc(c.s.policy.budget(), c.endRPC)
		a := <-done
		timer.Stop()
		late(a.v, a.err)
	})
	var none T
	return none, &leftBehind{cause: c.ctx.Err()}
}

// leftBehind is the error of an uncut step whose caller has gone. The step's
// late function ends the call.
type leftBehind struct{ cause error }

func (e *leftBehind) Error() string { return "left to finish on the server: " + e.cause.Error() }
func (e *leftBehind) Unwrap() error { return e.cause }

// fail makes the call's error out of a backend's.
func (c *call) fail(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Err: err, Fault: FaultUnknown, Stage: StageExecute}
	} else {
		copied := *e
		e = &copied
	}
	e.Op = c.op
	if e.Target == "" {
		e.Target = c.s.policy.Target
	}
	e.Read = c.script.ReadOnly() && !c.delivered
	if cause := c.ctx.Err(); cause != nil && e.Fault != FaultStatement && e.Fault != FaultUsage {
		e.Ctx = cause
		if e.Fault == FaultUnknown {
			e.Fault = FaultContext
		}
	}
	return e
}

// end closes the call: the handle learns what became of the connection, and
// the caller's error comes back. It is called exactly once, when no RPC of the
// call is under way on this side.
func (c *call) end(err error) error {
	var left *leftBehind
	if errors.As(err, &left) {
		e := c.fail(&Error{Stage: StageExecute, Fault: FaultContext, Err: err})
		return e // the late function ends the call
	}
	c.close()
	if err == nil {
		c.s.answered(c)
		return nil
	}
	e := c.fail(err)
	c.s.failed(c, e)
	return e
}

// endEarly closes a call whose stream was given up before its end: nobody
// knows what the server is doing.
func (c *call) endEarly(cause error) error {
	c.close()
	e := c.fail(&Error{Stage: StageFetch, Fault: FaultContext, Err: cause})
	c.s.failed(c, e)
	return e
}

func (c *call) close() {
	c.endRPC()
	for _, f := range c.release {
		f()
	}
}
