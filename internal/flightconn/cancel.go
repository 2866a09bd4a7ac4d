package flightconn

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/internal/effect"
)

const (
	// cancelStepTimeout bounds one request to cancel. Servers answer it from
	// memory or not at all. What a server answers later counts as unanswered,
	// which costs the connection.
	cancelStepTimeout = 2 * time.Second

	// controlIdle is how long the control channel keeps its transport. The next
	// request after that dials again.
	controlIdle = 5 * time.Minute
)

var (
	_ backend.ConcurrentQuerier = (*Conn)(nil)
	_ backend.QueryRepeater     = (*Conn)(nil)
)

// CancelSteps is part of backend.Conn. A statement that has no FlightInfo yet,
// or is an update, is named by unnamed: servers that stop whatever the
// session runs do not look at it, the others do not find it.
//
// The standard action comes first, then its predecessor, which is all that some
// servers have, then Config.CancelActions. Those that the server is known to
// lack are left out; a step that finds this out while it runs is Unsupported,
// and the chain goes on. The name of op is read when a step runs, since the
// server may have told it meanwhile.
//
// All of them go over a control channel (Endpoint.control) with the identity of
// the connection first. On its own transport they could queue behind the result
// that is to be stopped.
func (c *Conn) CancelSteps(op *backend.Operation) []cancel.Step {
	capabilities := &c.endpoint.capabilities
	steps := make([]cancel.Step, 0, 2+len(c.cfg().CancelActions))
	add := func(name string, l *capability, do cancelRequest) {
		if l.isMissing() {
			return
		}
		steps = append(steps, cancel.Step{Name: name, Timeout: cancelStepTimeout, Do: func(ctx context.Context) (cancel.Outcome, error) {
			info, ok := op.Name().(*Info)
			if !ok {
				info = unnamed
			}
			return c.requestCancel(ctx, l, info, do)
		}})
	}
	add(flight.CancelFlightInfoActionType, &capabilities.cancelInfo, c.cancelFlightInfo)
	add(flightsql.CancelQueryActionType, &capabilities.cancelQuery, c.cancelQuery)
	for _, name := range c.cfg().CancelActions {
		add(name, capabilities.forAction(name), func(ctx context.Context, client pb.FlightServiceClient, info *Info) (cancel.Outcome, error) {
			var ticket []byte
			if first, err := info.first(); err == nil {
				ticket = first.ticketBody()
			}
			_, err := doAction(ctx, client, name, ticket)
			return cancel.Requested, err
		})
	}
	return steps
}

// unnamed is the FlightInfo of a statement that has none. It has a descriptor, of an empty command: Arrow's libraries for
// C++ and Java cannot decode one without ("Client sent UNKNOWN descriptor type"), and refuse the request before the server
// that is made with them, such as GizmoSQL, has seen it.
var unnamed = &Info{encoded: submessage(fieldInfoDescriptor, protowire.AppendVarint(protowire.AppendTag(nil, fieldDescriptorType, protowire.VarintType), uint64(pb.FlightDescriptor_CMD)))}

// StatementOrder is part of backend.ConcurrentQuerier. All connections of the
// endpoint share what one of them has found out.
func (c *Conn) StatementOrder() *backend.StatementOrder { return &c.endpoint.capabilities.order }

// QueryConcurrently is part of backend.ConcurrentQuerier: each call has RPCs of
// its own. The RPCs are left out of RoundTrips, which is to tell of the call
// beside it.
func (c *Conn) QueryConcurrently(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	return c.query(ctx, sql, call, true)
}

// RoundTrips is part of backend.ConcurrentQuerier. Both only grow. RPCs of Open
// and Close, of control channels and of QueryConcurrently are not among them.
func (c *Conn) RoundTrips() (begun, answered int64) {
	return c.trips.begun.Load(), c.trips.answered.Load()
}

// requestCancel makes one request to cancel, over the control channel. Where the answer
// is that there is no such statement, it makes it again over the connection's own
// transport: one address may lead to several servers, and only there the session's own
// answers.
//
// l is what is known of the action on this server, and do makes the request. An
// endpoint that was closed, or a client that cannot be made, has sent nothing:
// Failed.
func (c *Conn) requestCancel(ctx context.Context, l *capability, info *Info, do cancelRequest) (cancel.Outcome, error) {
	cc, done, err := c.endpoint.control(c.transport.peer())
	if err != nil {
		return cancel.Failed, err
	}
	defer done()
	outcome, err := c.requestCancelOver(ctx, pb.NewFlightServiceClient(&channel{cc: cc, id: c.id}), l, info, do)
	if status.Code(err) == codes.NotFound && info.Len() > 0 {
		return c.requestCancelOver(ctx, c.flight, l, info, do)
	}
	return outcome, err
}

// cancelRequest makes one RPC that asks a server to cancel.
type cancelRequest func(context.Context, pb.FlightServiceClient, *Info) (cancel.Outcome, error)

// requestCancelOver makes a request by client and judges the answer.
//
// INVARIANT: a request that may have left and was not answered is Unanswered,
// never Failed: it may still stop whatever the session runs next. An answer has
// trailers: gRPC gives a stream that was reset a status, too. A page of HTTP is none.
func (c *Conn) requestCancelOver(ctx context.Context, client pb.FlightServiceClient, l *capability, info *Info, do cancelRequest) (outcome cancel.Outcome, err error) {
	var s sendTracker
	err = l.try(func(refusal error) bool { return c.confirmedByControl(ctx, client, refusal) }, func() (err error) {
		outcome, err = do(&trackedRPC{Context: ctx, tracker: &s, carriesStatement: true}, client, info)
		return err
	})
	switch {
	case err == nil:
		return outcome, nil
	case effect.IsPage(err):
		return cancel.Unanswered, err
	case isUnsupported(err):
		return cancel.Unsupported, err
	case s.nothingSent(), !s.statementRunning() && isReply(err):
		return cancel.Failed, err
	default:
		return cancel.Unanswered, err
	}
}

// confirmedByControl is rpcCall.confirmedBeside over the control channel.
func (c *Conn) confirmedByControl(ctx context.Context, client pb.FlightServiceClient, err error) bool {
	ctx, stop := context.WithTimeout(ctx, harmlessTimeout)
	defer stop()
	r := &rpcCall{conn: c, op: "Cancel"}
	desc, packing := r.descriptor(&pb.CommandGetSqlInfo{Info: []uint32{uint32(flightsql.SqlInfoFlightSqlServerName)}})
	if packing != nil {
		return false
	}
	_, other := client.GetFlightInfo(ctx, desc)
	return confirms(ctx, other, err)
}

// isReply tells an answer of the server, such as an error, from the lack of
// one. UNAVAILABLE and a context's end may come from this side, or from a
// proxy, and say nothing of whether the server has acted.
func isReply(err error) bool {
	s, ok := status.FromError(err)
	if !ok {
		return false
	}
	fault := backend.FaultOf(s.Code(), s.Message())
	return fault != backend.FaultTransport && fault != backend.FaultContext
}

// cancelFlightInfo asks by the standard action. The server's word decides:
// CANCELLED confirms that the statement has ended, CANCELLING that it is going
// to. NOT_CANCELLABLE, and a reply without a status, is Failed: the server has
// answered, and nothing was stopped.
func (c *Conn) cancelFlightInfo(ctx context.Context, client pb.FlightServiceClient, info *Info) (cancel.Outcome, error) {
	var reply pb.CancelFlightInfoResult
	err := c.encodedAction(ctx, client, flight.CancelFlightInfoActionType, submessage(fieldCancelInfo, info.encoded), &reply)
	if status.Code(err) == codes.NotFound && client == c.flight && info.Len() > 0 && !info.renewed.Load() {
		return cancel.Confirmed, nil // it had this name alone, and its own server knows it no more
	}
	return outcomeOf(reply.GetStatus()), err
}

// outcomeOf is what a status of the server means. Beside an error it does not count.
func outcomeOf(s pb.CancelStatus) cancel.Outcome {
	switch s {
	case pb.CancelStatus_CANCEL_STATUS_CANCELLED:
		return cancel.Confirmed
	case pb.CancelStatus_CANCEL_STATUS_CANCELLING:
		return cancel.Requested
	default:
		return cancel.Failed
	}
}

// cancelQuery asks by the action that CancelFlightInfo has replaced. NOT_FOUND
// is a failure here, like any other refusal.
func (c *Conn) cancelQuery(ctx context.Context, client pb.FlightServiceClient, info *Info) (cancel.Outcome, error) {
	var reply pb.ActionCancelQueryResult                    //nolint:staticcheck // deprecated, but all that some servers have
	req := &pb.ActionCancelQueryRequest{Info: info.encoded} //nolint:staticcheck // likewise
	err := c.sqlAction(ctx, client, flightsql.CancelQueryActionType, req, &reply)
	return outcomeOf(pb.CancelStatus(reply.GetResult())), err // the same numbers
}
