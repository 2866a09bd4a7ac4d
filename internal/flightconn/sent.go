package flightconn

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// sent counts the RPCs of one call that may have reached the server.
type sent struct{ rpcs atomic.Int64 }

// sentRPC is one RPC of a call.
type sentRPC struct {
	call *sent
	out  atomic.Bool
}

type sentKey struct{}

// watch makes ctx the context of one RPC whose sending is counted.
func (s *sent) watch(ctx context.Context) context.Context {
	return context.WithValue(ctx, sentKey{}, &sentRPC{call: s})
}

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
	case *stats.OutHeader:
		if !rpc.out.Swap(true) {
			rpc.call.rpcs.Add(1)
		}
	}
}
