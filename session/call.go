package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// callMode says what becomes of a call's RPC when the caller's context ends.
type callMode uint8

const (
	cancelWhenLeft     callMode = iota // it is ended, and the statement cancelled on the server
	finishWithinBudget                 // it goes on in the background, for the cancel budget at most
	finishWhenLeft                     // it goes on in the background until it has ended
)

// call is one use of the connection, from begin to finish. For a query it lasts
// until its result has ended. Package documentation has its states.
//
// INVARIANT: finish is called exactly once, when no RPC of the call is under
// way in the caller's goroutine.
type call struct {
	s           *SessionHandle
	op          string
	mode        callMode
	script      sqlscan.Script  // what the statement does; empty for control calls
	ctx         context.Context //nolint:containedctx // the caller's: its end interrupts the call
	rpc         context.Context //nolint:containedctx // the pool's own: every RPC of the call runs on it
	endRPC      context.CancelFunc
	onEnd       []func() // undo what begin and the call itself have set up, once, at the end
	operation   *backend.Operation
	backendCall backend.Call

	// ownGoroutine says that the step runs in a goroutine of its own, because the
	// caller must be able to leave it.
	ownGoroutine bool

	// callsUserCode says that the step calls code of the caller's.
	callsUserCode bool

	// statement says that the call runs one, whose failure aborts an open transaction.
	// manyExecutions says that it may run more than once. serverMayExecute says that the
	// server may run one of its own in the transaction, whose failure aborts it, too.
	statement, manyExecutions, serverMayExecute bool

	// hasParams says that it has parameters. insert is what it may do to the session,
	// once the step has begun.
	hasParams bool
	insert    *insertion

	// beforeSend is run before the step, in its place: what must hold before
	// anything of the call is sent.
	beforeSend func(ctx context.Context) error

	// startedAt is when the step began, which is before anything of it was sent.
	startedAt time.Time

	// delivered says that a batch has reached the caller.
	delivered bool

	// probeWait is how a probe beside the call has waited for its statement.
	probeWait probeWait

	// failureReported says that the caller was told a failure before the call's end.
	failureReported bool

	callerGone chan struct{} // closed once the caller waits no longer

	mu struct {
		sync.Mutex
		cause            error // why the call was interrupted; the first counts
		callerGoneClosed bool  // callerGone is closed
		result           *QueryResult
		prepared         backend.Prepared // a statement of the call's own, which ends with it
	}
}

// newCall makes a call that can be interrupted.
func (s *SessionHandle) newCall(ctx context.Context, op string, opts QueryOptions, mode callMode) *call {
	if opts.NoCancel && mode == cancelWhenLeft {
		mode = finishWhenLeft
	}
	c := &call{s: s, op: op, mode: mode, ctx: ctx, operation: &backend.Operation{}, callerGone: make(chan struct{})}
	ends := ctx.Done() != nil || s.timeout(opts) > 0
	c.ownGoroutine = mode != cancelWhenLeft || opts.ownGoroutine || opts.Progress != nil || (ends && s.mustLearnOrder())
	c.callsUserCode = opts.ownGoroutine || opts.Progress != nil
	c.rpc, c.endRPC = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

func (s *SessionHandle) timeout(opts QueryOptions) time.Duration {
	if opts.Timeout == 0 {
		return s.policy.QueryTimeout
	}
	return opts.Timeout
}

// bindContext ties the call to its caller's context. The deadline is passed on to the
// server, a little late, so that the call is cut from this side first.
func (c *call) bindContext(opts QueryOptions) {
	if timeout := c.s.timeout(opts); timeout > 0 {
		var stop context.CancelFunc
		c.ctx, stop = context.WithTimeout(c.ctx, timeout)
		c.onEnd = append(c.onEnd, stop)
	}
	c.backendCall = backend.Call{Headers: opts.Headers, Op: c.operation}
	if opts.Progress != nil {
		c.backendCall.Progress = func(fraction float64, known bool) {
			if c.ctx.Err() == nil {
				opts.Progress(fraction, known)
			}
		}
	}
	if at, ok := c.ctx.Deadline(); ok && c.mode == cancelWhenLeft {
		var stop context.CancelFunc
		c.rpc, stop = context.WithDeadline(c.rpc, at.Add(c.s.policy.grace()))
		c.onEnd = append(c.onEnd, stop)
	}
	unhook := context.AfterFunc(c.ctx, func() { c.interrupt(ctxerr.Of(c.ctx)) })
	c.onEnd = append(c.onEnd, func() { unhook() })
}

// retainParams holds the parameters until the call has ended, which may be after the
// caller has released them.
func (c *call) retainParams(params arrow.RecordBatch) {
	if params != nil {
		params.Retain()
		c.onEnd = append(c.onEnd, params.Release)
		c.manyExecutions, c.hasParams = params.NumRows() > 1, true
	}
}

// interrupt has the call end, or go on in the background, because the caller's
// context has ended or its handle was closed. Any goroutine may call it, at any
// time. The closing of the handle ends only what is cut short: a caller goes on
// waiting for its commit.
func (c *call) interrupt(cause error) {
	c.mu.Lock()
	if c.mu.cause == nil {
		c.mu.cause = cause
	}
	r := c.mu.result
	c.mu.Unlock()
	if r != nil { // first, so that a reader who leaves finds out why
		r.interrupt(cause)
	}
	if r == nil && c.mode != cancelWhenLeft && errors.Is(cause, backend.ErrHandleClosed) {
		return
	}
	c.mu.Lock()
	if !c.mu.callerGoneClosed {
		c.mu.callerGoneClosed = true
		close(c.callerGone)
	}
	c.mu.Unlock()
	if r == nil && !c.ownGoroutine {
		c.endRPC()
	}
}

// cause is why the call was interrupted, or nil.
func (c *call) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.cause
}

// attachResult makes the call that of a result, which interrupt reaches from now
// on. It returns the cause of an interruption that came before.
func (c *call) attachResult(r *QueryResult) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.result = r
	return c.mu.cause
}

// setOwnStatement takes a prepared statement that ends with the call.
func (c *call) setOwnStatement(stmt backend.Prepared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.prepared = stmt
}

func (c *call) ownStatement() backend.Prepared {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.prepared
}

// wrapError makes the call's error out of a backend's.
func (c *call) wrapError(err error) *backend.Error {
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
	e.Read = c.script.ReadOnly() && !c.delivered
	if e.Fault == backend.FaultStatement || e.Fault == backend.FaultUsage {
		return e
	}
	if ended := ctxerr.Of(c.ctx); ended != nil {
		e.Ctx = ended
		if e.Fault == backend.FaultUnknown {
			e.Fault = backend.FaultContext
		}
	} else if cause := c.cause(); e.Fault == backend.FaultContext && cause != nil && !errors.Is(e.Err, cause) {
		e.Err = fmt.Errorf("%w: %w", cause, e.Err)
	}
	return e
}
