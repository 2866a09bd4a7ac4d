package flightconn

import (
	"context"
	"time"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/internal/backoff"
)

// Servers answer a poll when there is something to tell. One that answers at
// once and has nothing to tell is asked less and less often.
const (
	minPollInterval = 50 * time.Millisecond
	maxPollInterval = time.Second
)

// planWithProgress asks for the FlightInfo of a query: by PollFlightInfo if the call
// wants to hear of its progress and the server has that for such a command.
//
// kind is the name of the command's message: a server may have the call for
// queries and not for catalogue calls, so each kind is learned by itself. A
// server that lacks it costs one round trip, once for the endpoint. opts go
// with GetFlightInfo alone.
func (r *rpcCall) planWithProgress(ctx context.Context, desc *pb.FlightDescriptor, kind string, call backend.Call, opts ...grpc.CallOption) (*Info, error) {
	polls := r.conn.endpoint.capabilities.forAction("PollFlightInfo " + kind)
	if call.Progress != nil && !polls.isMissing() {
		info, err := r.poll(ctx, desc, call)
		if !isUnsupported(err) {
			return info, err
		}
		other, otherErr := r.getFlightInfo(ctx, desc, opts...)
		if !sameStatus(otherErr, err) { // else the server may refuse everything for a while
			polls.markMissing()
		}
		return other, otherErr
	}
	return r.getFlightInfo(ctx, desc, opts...)
}

// poll asks until the FlightInfo is complete. Only the first answer may be
// that the server cannot do it: by the second the query runs.
//
// INVARIANT: polls are at least minPollInterval apart, and maxPollInterval while
// nothing changes, whatever the server answers; ctx ends them.
//
// The server says by the absence of a descriptor that the query is planned.
// Until then each answer has the descriptor of the next poll, and perhaps a
// FlightInfo with the endpoints so far, by which the query can be cancelled.
// Progress is told after each answer, and 1 at the end.
func (r *rpcCall) poll(ctx context.Context, desc *pb.FlightDescriptor, call backend.Call) (*Info, error) {
	interval := minPollInterval
	last, endpoints := -1.0, 0
	for first := true; ; first = false {
		asked := time.Now()
		info, reply, err := r.pollFlightInfo(ctx, desc)
		if err != nil {
			if !first && isUnsupported(err) {
				err = malformed("a poll was answered, the next is refused: %v", err) // not wrapped: it would pass for the first
			}
			return nil, err
		}
		n := 0
		if info != nil {
			n = info.Len()
			call.Op.SetName(info)
		}
		if desc = reply.GetFlightDescriptor(); desc == nil {
			if info == nil {
				return nil, malformed("a complete query without a FlightInfo")
			}
			call.Progress(1, true)
			return info, nil
		}
		fraction, known := reply.GetProgress(), reply.Progress != nil
		if !(fraction >= 0 && fraction <= 1) { // not a number included
			fraction, known = 0, false
		}
		call.Progress(fraction, known)
		if fraction != last || n != endpoints {
			last, endpoints, interval = fraction, n, minPollInterval
		} else {
			interval = min(2*interval, maxPollInterval)
		}
		if err := backoff.Sleep(ctx, interval-time.Since(asked)); err != nil {
			return nil, err
		}
	}
}

// pollFlightInfo makes one poll. The FlightInfo of its answer stays encoded and
// is nil if there is none.
func (r *rpcCall) pollFlightInfo(ctx context.Context, desc *pb.FlightDescriptor) (*Info, *pb.PollInfo, error) {
	encoded, err := r.invokeEncoded(ctx, "PollFlightInfo", desc)
	if err != nil {
		return nil, nil, err
	}
	var info, others []byte
	var has bool
	for rest := encoded; len(rest) > 0; {
		num, value, n := consumeBytesField(rest) // gRPC has seen that all of them are well formed
		if num == fieldPollInfo {
			info = append(info, value...) // of a message that comes in parts the parts count as one
			has = true
		} else {
			others = append(others, rest[:n]...)
		}
		rest = rest[n:]
	}
	reply := &pb.PollInfo{}
	if err := proto.Unmarshal(others, reply); err != nil {
		return nil, nil, malformed("PollInfo: %w", err)
	}
	if !has {
		return nil, reply, nil
	}
	in, err := newInfo(info)
	return in, reply, err
}
