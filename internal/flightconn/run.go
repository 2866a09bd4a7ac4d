package flightconn

import (
	"context"
	"errors"
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
// callerErr and Conn.Lost tell.
//
// info is nil for calls of Open and Close. sends is used by any goroutine; the
// rest does not change after begin.
type rpcCall struct {
	conn   *Conn
	op     string
	sends  sendTracker
	info   *callInfo
	cancel context.CancelFunc

	// callerErr tells how the caller's context ended, and callerDeadline when
	// it will. The RPCs run on a context of their own.
	callerErr      func() error
	callerDeadline func() (time.Time, bool)
}

// begin starts a call. It fails, with nothing sent, when the transport has ended or
// a header cannot be sent. The caller must call end.
//
// The error is a *backend.Error, ready for the caller. headers are the call's
// own; they go with each of its RPCs, also with those to other locations that
// get credentials.
func (c *Conn) begin(ctx context.Context, op string, headers metadata.MD) (context.Context, *rpcCall, error) {
	r := &rpcCall{conn: c, op: op, callerErr: ctx.Err, callerDeadline: ctx.Deadline}
	if err := c.cfg().checkCallHeaders(headers); err != nil {
		return nil, nil, r.usageError("headers: %w", err)
	}
	r.info, r.sends.trips = &callInfo{headers: headers}, &c.trips
	ctx, r.cancel = context.WithCancel(withCallInfo(ctx, r.info))
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

// rpcContext makes ctx that of the next RPC. Each RPC needs one of its own.
func (r *rpcCall) rpcContext(ctx context.Context) context.Context { return r.sends.track(ctx) }

// statementContext is rpcContext for a DoGet or DoPut. While the server has not
// ended such an RPC, it may be at work on the statement.
func (r *rpcCall) statementContext(ctx context.Context) context.Context {
	return r.sends.trackStatement(ctx)
}

// usageError is the caller's own fault, found before anything was sent. The
// connection is as good as before.
func (r *rpcCall) usageError(format string, args ...any) error {
	return &backend.Error{
		Op: r.op, Stage: backend.StageArgument, Fault: backend.FaultUsage, Target: r.conn.target(),
		Unsent: r.sends.nothingSent(), Err: fmt.Errorf(format, args...),
	}
}

// lostError is the failure of a call whose transport has ended. cause is what
// the call itself has heard, nil if nothing was sent.
func (r *rpcCall) lostError(stage backend.Stage, cause error) error {
	return &backend.Error{
		Op: r.op, Stage: stage, Fault: backend.FaultTransport, Target: r.conn.target(), Unsent: r.sends.nothingSent(),
		Err: LostError(r.conn.Lost(), cause),
	}
}

// callerEndedErr tells how the caller's context ended, or nil. A server that is
// told a deadline enforces it too and may be first, so an end that is due
// within the skew of two clocks' timers counts. byDeadline says that something
// has failed with DEADLINE_EXCEEDED: only that may come before its time.
func (r *rpcCall) callerEndedErr(byDeadline bool) error {
	if err := r.callerContextErr(); err != nil {
		return err
	}
	if byDeadline && ctxerr.IsDue(r.callerDeadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// callerContextErr is not nil once the caller's context has ended, or its deadline is
// reached and only its timer is late.
func (r *rpcCall) callerContextErr() error {
	if err := r.callerErr(); err != nil {
		return err
	}
	if at, ok := r.callerDeadline(); ok && time.Until(at) <= 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// LostError is backend.ErrSessionLost with the reason for which a connection
// ended, and what the call heard of it. A call's RPCs are cancelled when the
// connection ends: that is no cause, and must not pass for the caller's doing.
func LostError(reason, cause error) error {
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		cause = nil
	}
	return &lostError{reason, cause}
}

// lostError shows the reason and the cause, where there are any, and leads to
// both and to backend.ErrSessionLost.
type lostError struct{ reason, cause error }

func (e *lostError) Error() string {
	s := backend.ErrSessionLost.Error()
	if e.reason != nil {
		s += ": " + e.reason.Error()
	}
	if e.cause != nil {
		s += " (" + e.cause.Error() + ")"
	}
	return s
}

func (e *lostError) Unwrap() []error {
	out := []error{backend.ErrSessionLost}
	for _, err := range []error{e.reason, e.cause} {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// errMalformed begins the errors of replies that break the protocol. What the
// server does next cannot be known, so they put the connection in doubt.
var errMalformed = errors.New("malformed reply")

// malformed makes an error that errMalformed is found in. The fault is
// FaultUnknown by it (wrapError).
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errMalformed, fmt.Errorf(format, args...))
}
