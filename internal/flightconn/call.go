package flightconn

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

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

// rpcContext makes ctx that of the next RPC. Each RPC needs one of its own.
func (r *rpcCall) rpcContext(ctx context.Context) context.Context { return r.sends.track(ctx) }

// statementContext is rpcContext for a DoGet or DoPut. While the server has not
// ended such an RPC, it may be at work on the statement.
func (r *rpcCall) statementContext(ctx context.Context) context.Context {
	return r.sends.trackStatement(ctx)
}

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
	return ctxerr.Ended(r.callerContextErr, r.callerDeadline, byDeadline)
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

// sendTracker counts the RPCs of one call that may have reached the server, and those
// that carry a statement's rows or parameters and of which it has not told the end.
//
// It answers two questions about a call that has failed: may it be repeated
// (nothingSent), and must something be stopped on the server
// (statementRunning). Both are told by gRPC's stats handler, which sees an RPC
// leave where the caller of the RPC does not: an error alone does not say on
// which side of the wire it was made.
//
// Its zero value is ready, and it is safe for use by any goroutine. It may be
// asked at any time; the answers are final once all RPCs of the call have
// ended.
type sendTracker struct {
	count, unendedStatements atomic.Int64
	trips                    *roundTrips // in which they count; may be nil
}

// roundTrips counts the RPCs of a connection. The session compares them to see
// whether a call is in a round trip that is not answered, or between two
// (Conn.RoundTrips).
type roundTrips struct {
	begun    atomic.Int64
	answered atomic.Int64 // those of which an answer has begun to come, or none will
}

// trackedRPC is the context of one RPC of a call, in which the stats handler finds it.
// Each counter is moved once, by whoever swaps its mark, since events
// of one RPC may come from several goroutines.
type trackedRPC struct {
	context.Context  //nolint:containedctx // it is one, with a value more
	tracker          *sendTracker
	sendCounted      atomic.Bool
	beginCounted     atomic.Bool // counted as begun
	answerCounted    atomic.Bool // counted as answered
	carriesStatement bool
	state            atomic.Int32 // of one that carries
}

// The states of an RPC that carries rows or parameters. The server's answer may be
// heard of before the sending.
const (
	rpcUnsent int32 = iota
	rpcOpen
	rpcEnded // by the server
)

type trackedRPCKey struct{}

// track makes ctx the context of one RPC whose sending is counted.
func (s *sendTracker) track(ctx context.Context) context.Context {
	return &trackedRPC{Context: ctx, tracker: s}
}

// trackStatement is track for an RPC that carries a statement's rows or
// parameters.
func (s *sendTracker) trackStatement(ctx context.Context) context.Context {
	return &trackedRPC{Context: ctx, tracker: s, carriesStatement: true}
}

// Value is part of context.Context.
func (r *trackedRPC) Value(key any) any {
	if _, ok := key.(trackedRPCKey); ok {
		return r
	}
	return r.Context.Value(key)
}

// statementRunning reports whether the server may be at work on a statement of the call:
// it has not told the end of an RPC, which this side may have ended meanwhile.
func (s *sendTracker) statementRunning() bool { return s.unendedStatements.Load() > 0 }

// nothingSent reports whether no RPC of the call reached the server.
func (s *sendTracker) nothingSent() bool { return s.count.Load() == 0 }

// sendStatsHandler tells the RPCs that were handed to a transport from those that
// were not.
//
// gRPC makes a transparent attempt only if the server cannot have processed
// the one before: it never left, or a GOAWAY or REFUSED_STREAM disowned it.
// So its beginning takes back what the first attempt counted.
type sendStatsHandler struct{}

func (sendStatsHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (sendStatsHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}
func (sendStatsHandler) HandleConn(context.Context, stats.ConnStats) {}

// HandleRPC is part of stats.Handler. Begin comes for each attempt, OutHeader
// when an attempt is given to a transport, InHeader and InTrailer with the
// server's answer, and End however the RPC ends.
//
// Only InTrailer says that the server has ended a statement: an End without it
// is this side's doing, or that of the transport.
func (sendStatsHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	rpc, ok := ctx.Value(trackedRPCKey{}).(*trackedRPC)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.Begin:
		rpc.countBegin()
		if s.IsTransparentRetryAttempt && rpc.sendCounted.Swap(false) {
			rpc.tracker.count.Add(-1)
		}
		rpc.setState(rpcUnsent)
	case *stats.OutHeader:
		if !rpc.sendCounted.Swap(true) {
			rpc.tracker.count.Add(1)
		}
		if rpc.carriesStatement && rpc.state.CompareAndSwap(rpcUnsent, rpcOpen) {
			rpc.tracker.unendedStatements.Add(1)
		}
	case *stats.InHeader, *stats.End:
		rpc.countAnswer()
	case *stats.InTrailer:
		rpc.countAnswer()
		rpc.setState(rpcEnded)
	}
}

// countBegin counts the RPC as begun, once for all its attempts. What gRPC refuses
// before it begins, such as metadata that cannot be sent, does not count.
//
// INVARIANT: an RPC that counts as begun counts as answered in the end.
func (r *trackedRPC) countBegin() {
	if trips := r.tracker.trips; trips != nil && !r.beginCounted.Swap(true) {
		trips.begun.Add(1)
	}
}

// countAnswer counts the RPC as answered, once. One that failed without an
// answer counts too: none will come.
func (r *trackedRPC) countAnswer() {
	if trips := r.tracker.trips; trips != nil && !r.answerCounted.Swap(true) {
		trips.answered.Add(1)
	}
}

// setState takes an RPC to a state in which the server is not at work on it.
func (r *trackedRPC) setState(state int32) {
	if r.carriesStatement && r.state.Swap(state) == rpcOpen {
		r.tracker.unendedStatements.Add(-1)
	}
}
