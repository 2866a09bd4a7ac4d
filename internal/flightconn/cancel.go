package flightconn

import (
	"context"
	"net"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/session"
)

const (
	// cancelStepTimeout bounds one request to cancel. Servers answer it from
	// memory or not at all.
	cancelStepTimeout = 2 * time.Second

	// controlIdle is how long the control channel keeps its transport.
	controlIdle = 5 * time.Minute
)

var (
	_ session.OrderLearner  = (*Conn)(nil)
	_ session.QueryRepeater = (*Conn)(nil)
)

// CancelSteps is part of session.Conn. A statement that has no FlightInfo yet,
// or is an update, is named by an empty one: servers that stop whatever the
// session runs do not look at it, the others do not find it.
func (c *Conn) CancelSteps(op *session.Operation) []cancel.Step {
	support := &c.endpoint.support
	steps := make([]cancel.Step, 0, 2+len(c.cfg().CancelActions))
	add := func(name string, l *learned, do func(context.Context, pb.FlightServiceClient, *Info) (cancel.Outcome, error)) {
		if l.isRefused() {
			return
		}
		steps = append(steps, cancel.Step{Name: name, Timeout: cancelStepTimeout, Do: func(ctx context.Context) (cancel.Outcome, error) {
			info, ok := op.Name().(*Info)
			if !ok {
				info = &Info{}
			}
			return c.stop(ctx, l, info, do)
		}})
	}
	add(flight.CancelFlightInfoActionType, &support.cancelInfo, c.cancelFlightInfo)
	add(flightsql.CancelQueryActionType, &support.cancelQuery, c.cancelQuery)
	for _, name := range c.cfg().CancelActions {
		add(name, support.action(name), func(ctx context.Context, client pb.FlightServiceClient, info *Info) (cancel.Outcome, error) {
			var ticket []byte
			if first, err := info.first(); err == nil {
				ticket = first.ticket.GetTicket()
			}
			_, err := doAction(ctx, client, name, ticket)
			return cancel.Requested, err
		})
	}
	return steps
}

// StatementOrder is part of session.OrderLearner.
func (c *Conn) StatementOrder() *session.StatementOrder { return &c.endpoint.support.order }

// QueryBeside is part of session.OrderLearner: each call has RPCs of its own.
func (c *Conn) QueryBeside(ctx context.Context, sql string, call session.Call) (session.Stream, error) {
	return c.Query(ctx, sql, call)
}

// stop makes one request to cancel over the control channel and judges the
// answer.
//
// INVARIANT: a request that may have left and was not answered is Unanswered,
// never Failed: it may still stop whatever the session runs next.
func (c *Conn) stop(ctx context.Context, l *learned, info *Info,
	do func(context.Context, pb.FlightServiceClient, *Info) (cancel.Outcome, error),
) (cancel.Outcome, error) {
	cc, err := c.endpoint.control(c.epoch.peer())
	if err != nil {
		return cancel.Failed, err
	}
	var s sent
	outcome, err := do(s.watch(ctx), pb.NewFlightServiceClient(&channel{cc: cc, id: c.id}), info)
	switch {
	case err == nil:
		return outcome, nil
	case unsupported(err):
		l.refuse()
		return cancel.Unsupported, err
	case s.nothing(), replied(err):
		return cancel.Failed, err
	default:
		return cancel.Unanswered, err
	}
}

// replied tells an error that the server answered with from the lack of an
// answer.
func replied(err error) bool {
	s, ok := status.FromError(err)
	if !ok {
		return false
	}
	fault := session.FaultOf(s.Code(), s.Message())
	return fault != session.FaultTransport && fault != session.FaultContext
}

func (c *Conn) cancelFlightInfo(ctx context.Context, client pb.FlightServiceClient, info *Info) (cancel.Outcome, error) {
	var reply pb.CancelFlightInfoResult
	err := c.encodedAction(ctx, client, flight.CancelFlightInfoActionType, submessage(fieldCancelInfo, info.encoded), &reply)
	if status.Code(err) == codes.NotFound && info.Len() > 0 {
		return cancel.Confirmed, nil // it had a name, and the server knows it no more
	}
	if err != nil {
		return cancel.Failed, err
	}
	switch reply.GetStatus() {
	case pb.CancelStatus_CANCEL_STATUS_CANCELLED:
		return cancel.Confirmed, nil
	case pb.CancelStatus_CANCEL_STATUS_CANCELLING:
		return cancel.Requested, nil
	default:
		return cancel.Failed, nil
	}
}

func (c *Conn) cancelQuery(ctx context.Context, client pb.FlightServiceClient, info *Info) (cancel.Outcome, error) {
	var reply pb.ActionCancelQueryResult                    //nolint:staticcheck // deprecated, but all that some servers have
	req := &pb.ActionCancelQueryRequest{Info: info.encoded} //nolint:staticcheck // likewise
	err := c.sqlAction(ctx, client, flightsql.CancelQueryActionType, req, &reply)
	if err != nil {
		return cancel.Failed, err
	}
	switch reply.GetResult() {
	case pb.ActionCancelQueryResult_CANCEL_RESULT_CANCELLED:
		return cancel.Confirmed, nil
	case pb.ActionCancelQueryResult_CANCEL_RESULT_CANCELLING:
		return cancel.Requested, nil
	default:
		return cancel.Failed, nil
	}
}

// control returns the channel for requests that must not queue behind what
// they are to stop. It leads to peer, where the session is, or to the server's
// own address if that is empty: a name may have several addresses, and another
// server would not find what is to be stopped. It is dialled when it is first
// used, and again as needed: it holds no session, each RPC presents that of
// its connection.
func (e *Endpoint) control(peer string) (*client, error) {
	e.mu.Lock()
	cc, closed := e.mu.control[peer], e.mu.closed
	e.mu.Unlock()
	if cc != nil || closed {
		return cc, closedErr(closed)
	}
	dialer := func(ctx context.Context) (net.Conn, error) {
		if peer != "" {
			ctx, stop := context.WithTimeout(ctx, e.cfg.DialTimeout)
			defer stop()
			return e.cfg.dialDirect(ctx, e.cfg.Network, peer, nil)
		}
		return e.cfg.dial(ctx, e.cfg.Network, e.cfg.Address, nil)
	}
	opts := append([]grpc.DialOption{grpc.WithIdleTimeout(controlIdle)}, e.cfg.DialOptions...)
	fresh, err := e.cfg.newClient(e.cfg.Address, e.cfg.TLS, dialer, opts...)
	if err != nil {
		return nil, err
	}
	cc, unused, err := e.keepControl(peer, fresh)
	for _, u := range unused {
		_ = u.Close()
	}
	return cc, err
}

// manyControls is how many control channels are kept without looking whether
// they are used: servers that move leave theirs behind.
const manyControls = 16

// keepControl keeps fresh unless another goroutine was first, and returns what
// is to be closed.
func (e *Endpoint) keepControl(peer string, fresh *client) (cc *client, unused []*client, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	cc = e.mu.control[peer]
	switch {
	case e.mu.closed:
		return nil, []*client{fresh}, errClosed
	case cc != nil:
		return cc, []*client{fresh}, nil
	}
	if len(e.mu.control) >= manyControls {
		for at, old := range e.mu.control {
			if old.GetState() == connectivity.Idle {
				delete(e.mu.control, at)
				unused = append(unused, old)
			}
		}
	}
	if e.mu.control == nil {
		e.mu.control = map[string]*client{}
	}
	e.mu.control[peer] = fresh
	return fresh, unused, nil
}

func closedErr(closed bool) error {
	if closed {
		return errClosed
	}
	return nil
}
