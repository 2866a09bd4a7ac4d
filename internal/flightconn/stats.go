package flightconn

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// errUntracked is why a transport ends that an untracked RPC was given to.
var errUntracked = errors.New("DialOptions: an interceptor has given an RPC a context that is not made of the one it was given itself, has begun one after it has returned, or has sent one again")

// errRefusedChange is why a transport of gRPC's client ends that would send a change again.
var errRefusedChange = errors.New("the server, or a proxy before it, has refused a call that it may have carried out")

// sendStatsHandler tells the RPCs that were handed to a transport from those that
// were not.
//
// gRPC makes a transparent attempt only if the server cannot have processed
// the one before: it never left, or a GOAWAY or REFUSED_STREAM disowned it.
// So its beginning takes back what the first attempt counted, and what came with it.
//
// end closes the client that an interceptor of the user's has given an RPC to whose
// context it has replaced, or that it begins late or again.
// So does one that gRPC's client begins again though it may have changed something. reason is what
// the transport ends with.
type sendStatsHandler struct{ end func(reason error) }

// TagRPC is part of stats.Handler. It comes before anything of the RPC is sent.
//
// INVARIANT: no RPC of Flight is sent that is not tracked: it would count as unsent, so that
// a change is repeated and a commit told to have failed. None is sent twice, which is that, too.
func (h sendStatsHandler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if !strings.HasPrefix(info.FullMethodName, servicePrefix) {
		return ctx
	}
	rpc := trackedIn(ctx)
	if rpc != nil {
		rpc.tracker.attempts.Add(1) // before the look at returned, which is set before a look at attempts
		rpc.begun.Store(true)
	}
	if rpc == nil || rpc.returned.Load() {
		h.end(errUntracked)
	}
	return ctx
}
func (sendStatsHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}
func (sendStatsHandler) HandleConn(context.Context, stats.ConnStats) {}

// HandleRPC is part of stats.Handler. Begin comes for each attempt, OutHeader
// when an attempt is given to a transport, InHeader and InTrailer with the
// server's answer, and End however the RPC ends.
//
// Only InTrailer says that the server has ended a statement: an End without it
// is this side's doing, or that of the transport. A stream that was reset has none, though
// gRPC gives it a status, which may be any.
func (h sendStatsHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	rpc := trackedIn(ctx)
	if rpc == nil {
		return
	}
	switch s := s.(type) {
	case *stats.Begin:
		rpc.countBegin()
		beside := rpc.open.Add(1) > 1
		switch {
		case s.IsTransparentRetryAttempt && rpc.sendCounted.Load() && !rpc.BelievesRefusal() && !rpc.ended.Load().isOfGoAway():
			h.end(errRefusedChange)
		case s.IsTransparentRetryAttempt:
			rpc.Disowned()
		case rpc.sendCounted.Load(), beside: // which is sent, or may be
			h.end(errUntracked)
		}
	case *stats.OutHeader:
		rpc.Sent()
	case *stats.OutPayload:
		rpc.messageSent.Store(true)
	case *stats.InHeader:
		rpc.Header(s.Header)
	case *stats.InTrailer:
		rpc.Trailer(s.Trailer)
	case *stats.End:
		rpc.open.Add(-1)
		rpc.End(s.Error)
	}
}

// callOptions are those of an RPC. On a client that others share, one that may change something is not sent again: gRPC's
// client repeats nothing of which it has not kept the messages. The transport of a connection ends in place of that
// (errRefusedChange), of which its session knows.
func (ch *channel) callOptions(rpc *trackedRPC, opts []grpc.CallOption) []grpc.CallOption {
	if ch.owner != nil || rpc.BelievesRefusal() {
		return opts
	}
	return append(opts[:len(opts):len(opts)], grpc.MaxRetryRPCBufferSize(0))
}
