package flightconn

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// rpcCall is one call of backend.Conn under way, with all its RPCs: its context, what
// it sent, and how its failure reads.
//
// It begins with begin and ends with end. A call that returns a stream lasts as
// long as that. Its RPCs run on one context, which ends with the caller's, with
// end, and when the connection is closed: which of them it was is what
// caller and Conn.Lost tell.
//
// sends is used by any goroutine; the rest does not change after begin, but for
// info.needsSession, mayChange, changesSeveral and bound, which are set before the statement is planned.
type rpcCall struct {
	conn   *Conn
	op     string
	sends  sendTracker
	info   callInfo
	cancel context.CancelFunc
	caller contextEnd // of the caller's context; the RPCs run on one of their own

	mayChange, changesSeveral bool // see backend.Call

	// bound says that parameters were bound before the statement is executed. Some servers use them up with
	// that, and run it with NULLs a second time (SwanLake).
	bound bool
}

// contextEnd tells of a context how it ended, and when it will.
type contextEnd interface {
	Err() error
	Deadline() (deadline time.Time, ok bool)
}

// begin starts a call. It fails, with nothing sent, when the transport has ended or
// a header cannot be sent. The caller must call end.
//
// The error is a *backend.Error, ready for the caller. headers are the call's
// own; they go with each of its RPCs, also with those to other locations that
// get credentials.
func (c *Conn) begin(ctx context.Context, op string, headers metadata.MD) (context.Context, *rpcCall, error) {
	r := &rpcCall{conn: c, op: op, caller: ctx}
	if err := c.cfg().checkCallHeaders(headers); err != nil {
		return nil, nil, r.usageError("headers: %w", err)
	}
	r.info.headers, r.sends.trips = headers, &c.trips
	ctx, r.cancel = context.WithCancel(ctx)
	if !c.addCall(r) {
		r.cancel()
		return nil, nil, r.lostError(backend.StageNone, nil)
	}
	return ctx, r, nil
}

// end releases what the call holds and ends its RPCs. It may be called more
// than once, and from any goroutine.
func (r *rpcCall) end() {
	r.cancel()
	r.conn.removeCall(r)
}

// addCall admits a call unless the transport has ended. The look at Lost and
// the entry are one step under the lock, so that close, which sets the one and
// then takes the map, cuts every call that it did not refuse.
func (c *Conn) addCall(r *rpcCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport.Lost() != nil { // closed, too
		return false
	}
	if c.mu.running == nil {
		c.mu.running = map[*rpcCall]struct{}{}
	}
	c.mu.running[r] = struct{}{}
	return true
}

// removeCall is the other half of addCall. It does nothing for a call that
// close has taken.
func (c *Conn) removeCall(r *rpcCall) {
	c.mu.Lock()
	delete(c.mu.running, r)
	c.mu.Unlock()
}

// rpcContext makes ctx that of the next RPC, an action. Each RPC needs one of its own.
func (r *rpcCall) rpcContext(ctx context.Context) context.Context {
	return &trackedRPC{Context: ctx, tracker: &r.sends, info: &r.info, mayChange: true}
}

// statementContext is rpcContext for a GetFlightInfo, PollFlightInfo, DoGet or DoPut.
// While the server has not ended such an RPC, it may be at work on the statement.
func (r *rpcCall) statementContext(ctx context.Context) *trackedRPC {
	return &trackedRPC{Context: ctx, tracker: &r.sends, info: &r.info, carriesStatement: true, mayChange: r.runsOnce()}
}

// runsOnce reports whether the statement may not be executed a second time by the same call.
func (r *rpcCall) runsOnce() bool { return r.mayChange || r.bound }

// newError is a failure of the call, with what has been sent so far.
func (r *rpcCall) newError(stage backend.Stage, fault backend.Fault, err error) *backend.Error {
	return &backend.Error{Op: r.op, Stage: stage, Fault: fault, Target: r.conn.target(), Unsent: r.sends.nothingSent(), Err: err}
}

// usageError is the caller's own fault, found before anything was sent. The
// connection is as good as before.
func (r *rpcCall) usageError(format string, args ...any) error {
	return r.newError(backend.StageArgument, backend.FaultUsage, fmt.Errorf(format, args...))
}

// lostError is the failure of a call whose transport has ended. cause is what
// the call itself has heard, nil if nothing was sent.
func (r *rpcCall) lostError(stage backend.Stage, cause error) error {
	return r.newError(stage, backend.FaultTransport, LostError(r.conn.Lost(), cause))
}

// callerEndedErr is how the caller's context has ended, or nil. byDeadline says that
// something has failed with DEADLINE_EXCEEDED.
func (r *rpcCall) callerEndedErr(byDeadline bool) error {
	return ctxerr.Ended(r.callerContextErr, r.caller.Deadline, byDeadline)
}

// callerContextErr is not nil once the caller's context has ended, or its deadline is
// reached and only its timer is late.
func (r *rpcCall) callerContextErr() error {
	if err := r.caller.Err(); err != nil {
		return err
	}
	if at, ok := r.caller.Deadline(); ok && time.Until(at) <= 0 {
		return context.DeadlineExceeded
	}
	return nil
}
