package flightconn

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// sent counts the RPCs of one call that may have reached the server, and those
// that carry a statement's rows or parameters and of which it has not told the end.
type sent struct {
	rpcs, open atomic.Int64
	trips      *roundTrips // in which they count; may be nil
}

// roundTrips counts the RPCs of a connection.
type roundTrips struct {
	begun    atomic.Int64
	answered atomic.Int64 // those of which an answer has begun to come, or none will
}

// sentRPC is one RPC of a call.
type sentRPC struct {
	call    *sent
	out     atomic.Bool
	told    atomic.Bool // counted as answered
	carries bool
	state   atomic.Int32 // of one that carries
}

// The states of an RPC that carries rows or parameters. The server's answer may be
// heard of before the sending.
const (
	rpcUnsent int32 = iota
	rpcOpen
	rpcEnded // by the server
)

type sentKey struct{}

// watch makes ctx the context of one RPC whose sending is counted.
func (s *sent) watch(ctx context.Context) context.Context {
	return s.begin(ctx, &sentRPC{call: s})
}

// watchStatement is watch for an RPC that carries a statement's rows or parameters.
func (s *sent) watchStatement(ctx context.Context) context.Context {
	return s.begin(ctx, &sentRPC{call: s, carries: true})
}

func (s *sent) begin(ctx context.Context, rpc *sentRPC) context.Context {
	if s.trips != nil {
		s.trips.begun.Add(1)
	}
	return context.WithValue(ctx, sentKey{}, rpc)
}

// running reports whether the server may be at work on a statement of the call:
// it has not told the end of an RPC, which this side may have ended meanwhile.
func (s *sent) running() bool { return s.open.Load() > 0 }

// nothing reports whether no RPC of the call reached the server.
func (s *sent) nothing() bool { return s.rpcs.Load() == 0 }

// sentWatcher tells the RPCs that were handed to a transport from those that
// were not.
//
// gRPC makes a transparent attempt only if the server cannot have processed
// the one before: it never left, or a GOAWAY or REFUSED_STREAM disowned it.
// So its beginning takes back what the first attempt counted.
type sentWatcher struct{}

func (sentWatcher) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (sentWatcher) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (sentWatcher) HandleConn(context.Context, stats.ConnStats)                       {}

func (sentWatcher) HandleRPC(ctx context.Context, s stats.RPCStats) {
	rpc, ok := ctx.Value(sentKey{}).(*sentRPC)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.Begin:
		if s.IsTransparentRetryAttempt && rpc.out.Swap(false) {
			rpc.call.rpcs.Add(-1)
		}
		rpc.enter(rpcUnsent)
	case *stats.OutHeader:
		if !rpc.out.Swap(true) {
			rpc.call.rpcs.Add(1)
		}
		if rpc.carries && rpc.state.CompareAndSwap(rpcUnsent, rpcOpen) {
			rpc.call.open.Add(1)
		}
	case *stats.InHeader, *stats.End:
		rpc.answered()
	case *stats.InTrailer:
		rpc.answered()
		rpc.enter(rpcEnded)
	}
}

func (r *sentRPC) answered() {
	if trips := r.call.trips; trips != nil && !r.told.Swap(true) {
		trips.answered.Add(1)
	}
}

// enter takes an RPC to a state in which the server is not at work on it.
func (r *sentRPC) enter(state int32) {
	if r.carries && r.state.Swap(state) == rpcOpen {
		r.call.open.Add(-1)
	}
}
