package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// call is one use of the connection, from begin to finish. For a query it lasts
// until its result has ended. Package documentation has its states.
//
// INVARIANT: finish is called exactly once, when no RPC of the call is under
// way in the caller's goroutine.
//
// What mu does not guard is written by newCall, or by the one goroutine that runs the
// call: the caller's, or the one that goes on when the caller has left. interrupt runs
// beside it. It reads what newCall has written, what mu guards and, where there is a
// result, what was there when attachResult was called.
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

	// ownGoroutine says that the step runs in a goroutine of its own, because the caller
	// must be able to leave it. Where it is false, the end of rpc has to bring the step
	// back, which a backend does within 50 ms.
	ownGoroutine bool

	// callsUserCode says that the step calls code of the caller's. Such code may take
	// any time between two round trips, so that a probe beside it tells nothing of the
	// server: see learnOrder.
	callsUserCode bool

	// statement says that the call runs one, whose failure aborts an open transaction.
	// manyExecutions says that it may run more than once. serverMayExecute says that the
	// server may run one of its own in the transaction, whose failure aborts it, too.
	statement, manyExecutions, serverMayExecute bool

	preparesSteps atomic.Bool // it prepares what servers run as several statements, and may run while they prepare it

	// askedForRows says that the caller has named the route of a query, whatever the text has. asUpdate says that
	// it is made for its effect, which a text that looks like a read may have by a function of the user's.
	askedForRows, asUpdate bool

	// oneBatch says of an ingestion that the backend has sent one batch of its rows at most,
	// in one part, and that no table was dropped for it.
	oneBatch atomic.Bool

	// sendsHeaders says that headers go with it. Where no statements are kept, those of the context are not looked at.
	sendsHeaders bool

	// hasParams says that it has parameters. insert is what it may do to the session,
	// once the step has begun. Both are of interest since some servers load an INSERT
	// with parameters in bulk, and leave the session elsewhere: see beforeInsert.
	hasParams   bool
	insert      *insertion
	loadsInBulk atomic.Bool    // it may be an INSERT of which that holds: see mayBeTriedAgain
	query       *PreparedQuery // of which it is an execution, or nil

	// beforeSend is run before the step, in its place: what must hold before anything of
	// the call is sent. An error of it ends the call with nothing of the step sent. It
	// makes round trips of its own, on the same context as the step.
	beforeSend func(ctx context.Context) error
	checking   atomic.Bool // it runs, or has not returned
	stepBegun  atomic.Bool // it has found nothing, and something of the step may be sent

	// afterStep lets go of what the step reads. It is called when the step returns, which
	// may be after the end of the call: see awaitLeftStep.
	afterStep func()

	// delivered says that a batch has reached the caller. A read that has delivered one
	// is not safe to repeat any more.
	delivered bool

	// probeWait is how a probe beside the call has waited for its statement.
	probeWait probeWait

	// failureReported says that the caller was told a failure before the call's end. If
	// the server then reports success, an open transaction is aborted all the same, and
	// a COMMIT is ErrCommitUnknown: the caller has been told something else.
	failureReported bool

	trace     *Trace // the call as tracers see it, nil without any
	quiet     bool   // see QueryOptions
	answer    error  // what the caller is told although the call has ended well
	leftMeans error  // what it means, besides, that the caller has left

	behindCaller atomic.Bool // what is done now is done on a goroutine of ours, or of whoever closes the handle

	callerGone chan struct{} // closed once the caller waits no longer

	mu struct {
		sync.Mutex
		cause            error // why the call was interrupted; the first counts
		callerGoneClosed bool  // callerGone is closed
		result           *QueryResult

		// startedAt is when the step began, which is before anything of it was sent. The
		// proof of the session is as old as that: a server counts the idle time of a
		// session from the start of a statement.
		startedAt time.Time
		prepared  backend.Prepared // a statement of the call's own, which ends with it
		kept      *keptStatement   // the same, to be kept if the call ends well: see Statements
	}
}

// newCall makes a call that can be interrupted. It does not touch the handle.
//
// The values of ctx, such as those of a tracer, go with the RPCs; its end does not. A
// goroutine for the step costs time on every call, so it is spent only where the caller
// must be able to leave a step whose RPC goes on: by its mode, for the sake of the
// caller's own code, or to probe the session beside the statement while the order is to
// be learned.
func (s *SessionHandle) newCall(ctx context.Context, op string, opts QueryOptions, mode callMode) *call {
	if opts.NoCancel && mode.cancels() {
		mode = finishWhenLeft
	}
	c := &call{s: s, op: op, mode: mode, ctx: ctx, operation: &backend.Operation{}, callerGone: make(chan struct{}), askedForRows: opts.Route == RouteQuery, asUpdate: opts.asUpdate}
	ends := ctx.Done() != nil || s.timeout(opts) > 0
	c.ownGoroutine = mode != cancelWhenLeft || opts.ownGoroutine || opts.Progress != nil || (ends && s.mustLearnOrder())
	c.callsUserCode = opts.ownGoroutine || opts.Progress != nil
	c.rpc, c.endRPC = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

// timeout is what bounds the call besides its context: what is left of the time of a call that
// its pool has begun, or else the owner's default where the options name none. Zero or less is none.
func (s *SessionHandle) timeout(opts QueryOptions) time.Duration {
	switch {
	case !s.deadline.IsZero():
		return max(time.Until(s.deadline), 1)
	case opts.Timeout == 0:
		return s.policy.QueryTimeout
	default:
		return opts.Timeout
	}
}

// bindContext ties the call to its caller's context. The deadline is passed on to the
// server, a little late, so that the call is cut from this side first. Only a call that
// is cut carries the deadline: the server would end a COMMIT by it. The deadline's
// lateness lets interrupt run first, so that the error says whose time was over, and
// the chain of the cancel starts with an RPC that this side has ended.
//
// The context may have ended already; then interrupt runs at once, in a goroutine of
// its own.
func (c *call) bindContext(opts QueryOptions) {
	if timeout := c.s.timeout(opts); timeout > 0 {
		var stop context.CancelFunc
		c.ctx, stop = context.WithTimeout(c.ctx, timeout)
		c.onEnd = append(c.onEnd, stop)
	}
	c.backendCall = backend.Call{Op: c.operation}
	c.sendsHeaders = len(opts.Headers) > 0 || c.s.policy.Statements != nil && sendsHeaders(c.ctx)
	if len(opts.Headers) > 0 { // they are read behind the caller too, who may change them
		c.backendCall.Headers = opts.Headers.Copy()
	}
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
	if c.ctx.Done() != nil {
		unhook := context.AfterFunc(c.ctx, func() { c.interrupt(endOf(c.ctx)) })
		c.onEnd = append(c.onEnd, func() { unhook() })
	}
}

// runCallersCode runs code of the caller's, such as a method of its context or reader, between begin and the step. A
// panic or Goexit in it ends the call, of which nothing was sent, and goes on in the caller.
func (c *call) runCallersCode(f func()) {
	returned := false
	defer func() {
		if !returned {
			_ = c.finish(outcome{err: &backend.Error{Stage: backend.StageArgument, Fault: backend.FaultUsage, Unsent: true, Err: errCallbackExited}})
		}
	}()
	f()
	returned = true
}

// notifyEnd tells the owner of the call's end, in e, or well if e is nil. Every call that
// has begun comes here once, outside of all locks, when the session is free again or is
// being cancelled.
func (c *call) notifyEnd(o outcome, e *backend.Error) {
	defer c.endTrace(o, e)
	if f, began := c.s.policy.Observe.Ended, c.startedAt(); f != nil && !began.IsZero() {
		f(time.Since(began))
	}
	if f := c.s.policy.Observe.Answered; f != nil && e == nil {
		f()
	}
}

// interrupt has the call end, or go on in the background, because the caller's context
// has ended or its handle was closed. Any goroutine may call it, at any time. The
// closing of the handle ends only what is cut short: a caller goes on waiting for its
// commit. A result ends its own RPC, or leaves it, since only it knows whether a read
// is under way. A step in a goroutine of its own is ended by awaitLeftStep, after the
// probe that must see it running. Where the caller waits in the step itself, interrupt
// ends the RPC.
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
	if r == nil && !c.mode.cancels() && cause == backend.ErrHandleClosed { //nolint:errorlint // the cause of a context may wrap it
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

// setStarted notes that the step begins now. One that does not return may still do so when
// the call has ended without it: see errCallbackStuck.
func (c *call) setStarted() {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.startedAt = now
}

func (c *call) startedAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.startedAt
}

// cause is why the call was interrupted, or nil.
func (c *call) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.cause
}

// attachResult makes the call that of a result, which interrupt reaches from now on. It
// returns the cause of an interruption that came before. In one section with the
// reading of the cause: an interruption finds the result or is found.
func (c *call) attachResult(r *QueryResult) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.result = r
	return c.mu.cause
}

// hasResult reports whether the server has answered with rows.
func (c *call) hasResult() bool { return c.attachedResult() != nil }

// setOwnStatement takes a prepared statement that ends with the call: finish closes it,
// behind the caller. It is called on the goroutine of the step, which may end after its
// caller has left.
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

// goBehindCaller runs the end of the call, or what comes before it, where no caller waits for it.
func (c *call) goBehindCaller(f func()) {
	c.s.markEnding()
	c.behindCaller.Store(true)
	c.s.policy.goInBackground(f)
}
