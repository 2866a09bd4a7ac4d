package flightconn

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/internal/grpcconn"
)

// sendTracker counts the RPCs of one call that may have reached the server, and those
// that carry a statement, its rows or its parameters and of which it has not told the end.
//
// It answers two questions about a call that has failed: may it be repeated
// (nothingSent), and must something be stopped on the server
// (statementRunning). Both are told by the transport (grpcconn.Observer), or by gRPC's
// statistics handler where gRPC's client is the transport: an error alone does not say
// on which side of the wire it was made.
//
// Its zero value is ready, and it is safe for use by any goroutine. It may be
// asked at any time; the answers are final once all RPCs of the call have
// ended.
type sendTracker struct {
	count, unendedStatements atomic.Int64
	attempts                 atomic.Int64 // of which gRPC has not told the end
	trips                    *roundTrips  // in which they count; may be nil
}

// roundTrips counts the RPCs of a connection. The session compares them to see
// whether a call is in a round trip that is not answered, or between two
// (Conn.RoundTrips).
type roundTrips struct {
	begun    atomic.Int64
	answered atomic.Int64 // those of which an answer has begun to come, or none will
}

// trackedRPC is the context of one RPC of a call, in which the transport and the
// channel find it. Each counter is moved once, by whoever swaps its mark, since events
// of one RPC may come from several goroutines.
type trackedRPC struct {
	context.Context  //nolint:containedctx // it is one, with a value more
	tracker          *sendTracker
	info             *callInfo // of its call; nil: none
	owner            *Conn     // on whose transport it is; nil: on nobody's
	authorization    string    // of a handshake, in place of the credential
	sendCounted      atomic.Bool
	beginCounted     atomic.Bool // counted as begun
	answerCounted    atomic.Bool // counted as answered
	carriesStatement bool
	mayChange        bool         // something, or what the server has for us, such as bound parameters
	state            atomic.Int32 // of one that carries
	begun            atomic.Bool
	messageSent      atomic.Bool  // a message of it is gRPC's, which the server may have acted on
	open             atomic.Int32 // attempts of gRPC's that have begun and not ended
	trailed          atomic.Bool  // the server has ended it
	ended            atomic.Pointer[rpcEnd]
	returned         atomic.Bool // what has called the interceptors goes on without it
	sending          atomic.Bool // a message of a stream is being sent

	mu struct {
		sync.Mutex
		header    metadata.MD // that have come and were not taken
		unlearned metadata.MD // of which the connection has nothing yet
	}
}

// The states of an RPC that carries a statement. The server's answer may be heard of
// before the sending.
const (
	rpcUnsent int32 = iota
	rpcOpen
	rpcEnded // by the server
)

type trackedRPCKey struct{}

// track returns the RPC that ctx is the context of. Where nobody counts it, it is tracked
// for its headers and trailers alone.
func track(ctx context.Context) (context.Context, *trackedRPC) {
	rpc := trackedIn(ctx)
	if rpc == nil {
		rpc = &trackedRPC{Context: ctx, tracker: &sendTracker{}}
		ctx = rpc
	}
	return ctx, rpc
}

// trackedIn is the RPC that ctx is the context of, nil for none.
func trackedIn(ctx context.Context) *trackedRPC {
	rpc, _ := ctx.Value(trackedRPCKey{}).(*trackedRPC)
	return rpc
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

// nothingSent reports whether no RPC of the call reached the server, nor will: an
// interceptor may have returned before the RPC that it has begun.
func (s *sendTracker) nothingSent() bool { return s.count.Load() == 0 && s.attempts.Load() == 0 }

// rpcEnd is how gRPC has ended an RPC. Without an error it is also how gRPC's client tells of a
// stream that it finds ended when it sends a message, whatever its status is.
type rpcEnd struct {
	err     error
	sending bool // a message was being sent
}

// isWell reports whether the server has told no failure.
func (e *rpcEnd) isWell() bool { return e.err == nil && !e.sending }

// isOfGoAway reports whether gRPC's client has told that the server takes no RPC any more. What it finds when
// it sends it does not tell.
func (e *rpcEnd) isOfGoAway() bool {
	return e != nil && e.err != nil && !strings.Contains(e.err.Error(), "RST_STREAM")
}

var _ grpcconn.Observer = (*trackedRPC)(nil)

// Begin is part of grpcconn.Observer.
func (r *trackedRPC) Begin() {
	r.tracker.attempts.Add(1)
	r.begun.Store(true)
	r.countBegin()
}

// Sent is part of grpcconn.Observer.
func (r *trackedRPC) Sent() {
	if !r.sendCounted.Swap(true) {
		r.tracker.count.Add(1)
	}
	if r.carriesStatement && r.state.CompareAndSwap(rpcUnsent, rpcOpen) {
		r.tracker.unendedStatements.Add(1)
	}
}

// BelievesRefusal is part of grpcconn.Observer.
//
// INVARIANT: what may change something is not sent a second time, and does not count as unsent, for a
// REFUSED_STREAM: HAProxy says it whenever a server closes its connection before it answers, also
// behind what the server has done by then. Nor is a statement with parameters, which may be used up.
func (r *trackedRPC) BelievesRefusal() bool { return !r.mayChange }

// Disowned is part of grpcconn.Observer. It takes back what the sending has counted, and what
// came with it, which is of nobody.
func (r *trackedRPC) Disowned() {
	r.setHeader(nil)
	r.trailed.Store(false)
	r.ended.Store(nil)
	if r.sendCounted.Swap(false) {
		r.tracker.count.Add(-1)
	}
	r.setState(rpcUnsent)
}

// Header is part of grpcconn.Observer.
func (r *trackedRPC) Header(md metadata.MD) {
	r.setHeader(md)
	if r.owner != nil && r.owner.transport.grpc == nil { // which may send the RPC again
		r.learn(nil)
	}
	r.countAnswer()
}

// Trailer is part of grpcconn.Observer.
func (r *trackedRPC) Trailer(md metadata.MD) {
	r.learn(md)
	r.trailed.Store(true)
	r.countAnswer()
	r.setState(rpcEnded)
}

// End is part of grpcconn.Observer.
func (r *trackedRPC) End(err error) {
	r.ended.Store(&rpcEnd{err, r.sending.Load()})
	r.countAnswer()
	r.tracker.attempts.Add(-1)
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

// setHeader keeps the headers that have come. gRPC tells of them before it delivers the first
// message.
func (r *trackedRPC) setHeader(md metadata.MD) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.header, r.mu.unlearned = md, md
}

// takeHeader returns the headers that have come since it was called last.
func (r *trackedRPC) takeHeader() (header metadata.MD) {
	r.mu.Lock()
	defer r.mu.Unlock()
	header, r.mu.header = r.mu.header, nil
	return header
}
