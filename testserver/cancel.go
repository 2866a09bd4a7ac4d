package testserver

import (
	"context"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func (h *handlers) CancelFlightInfo(ctx context.Context, r *flight.CancelFlightInfoRequest) (flight.CancelFlightInfoResult, error) {
	answer, err := h.cancel(ctx, r.GetInfo())
	return flight.CancelFlightInfoResult{Status: answer}, err
}

// CancelQuery is the older form of CancelFlightInfo. Without it the library
// would answer for it by CancelFlightInfo.
func (h *handlers) CancelQuery(ctx context.Context, r flightsql.ActionCancelQueryRequest) (flightsql.CancelResult, error) {
	answer, err := h.cancel(ctx, r.GetInfo())
	return flightsql.CancelResult(answer), err // the enumerations agree
}

// customCancel is an action of Profile.CancelActions.
func (h *handlers) customCancel(ctx context.Context, _ *flight.Action, stream flight.FlightService_DoActionServer) error {
	c := callOf(ctx)
	stopped, err := h.cancelSession(c)
	h.recordCancel(c, stopped, flight.CancelStatusCancelled.String(), err)
	if err != nil {
		return err
	}
	return stream.Send(&flight.Result{Body: []byte("CANCELLED")})
}

func (h *handlers) cancel(ctx context.Context, info *flight.FlightInfo) (answer flight.CancelStatus, err error) {
	c := callOf(ctx)
	var stopped int
	switch {
	case h.srv.profile.SessionWideCancel && info.GetFlightDescriptor().GetType() == flight.DescriptorUNKNOWN:
		err = status.Error(codes.InvalidArgument, "Client sent UNKNOWN descriptor type")
	case h.srv.profile.SessionWideCancel:
		answer = flight.CancelStatusCancelled
		stopped, err = h.cancelSession(c)
	default:
		stopped, answer, err = h.cancelTicket(ctx, info)
	}
	h.recordCancel(c, stopped, answer.String(), err)
	return answer, err
}

// cancelSession stops whatever the caller's session runs now, and does not
// wait for its end: it can hit a statement that began after the call was sent.
func (h *handlers) cancelSession(c *call) (session int, err error) {
	sess := h.srv.sessions.find(c.sessionKey)
	if sess == nil || !sess.interruptRunning() {
		return 0, status.Error(codes.InvalidArgument, "No active SQL statement to cancel.")
	}
	return sess.id, nil
}

// interruptRunning stops the statement that holds the session's engineLock.
func (s *session) interruptRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.executions) == 0 {
		return s.mu.queued > 0 // for which there is nothing to stop yet
	}
	s.mu.executions[0].cancel(errInterrupted)
	return true
}

// cancelTicket stops the query that a ticket of info started, and waits for
// its end, or drops the ticket if it was not redeemed.
func (h *handlers) cancelTicket(ctx context.Context, info *flight.FlightInfo) (session int, answer flight.CancelStatus, err error) {
	found := false
	for _, e := range info.GetEndpoint() {
		id := ticketID(e.GetTicket().GetTicket())
		if id == "" {
			continue
		}
		found = h.srv.tickets.drop(id) || found
		defer h.closeCancelled(id)
		sess, x := h.srv.sessions.findExecution(id)
		if x == nil {
			continue
		}
		x.cancel(errInterrupted)
		select {
		case <-x.done:
			session, found = sess.id, true
		case <-ctx.Done():
			return sess.id, flight.CancelStatusCancelling, nil
		}
	}
	if !found {
		return 0, flight.CancelStatusUnspecified, status.Error(codes.NotFound, "no such query is known")
	}
	return session, flight.CancelStatusCancelled, nil
}

func (s *sessions) findExecution(ticket string) (*session, *execution) {
	for _, sess := range s.all() {
		sess.mu.Lock()
		for _, x := range sess.mu.executions {
			if x.ticket == ticket {
				sess.mu.Unlock()
				return sess, x
			}
		}
		sess.mu.Unlock()
	}
	return nil, nil
}

// ticketID is the id of the ticket that this server made, or "".
func ticketID(raw []byte) string {
	var packed anypb.Any
	var t pb.TicketStatementQuery
	if proto.Unmarshal(raw, &packed) != nil || packed.UnmarshalTo(&t) != nil {
		return ""
	}
	id, _, _ := strings.Cut(string(t.GetStatementHandle()), "/")
	return id
}

func (h *handlers) recordCancel(c *call, session int, answer string, err error) {
	if err != nil {
		answer = status.Code(err).String()
	}
	h.srv.ledger.cancel(Cancel{Action: string(c.rpc), Peer: c.conn.peer, Identity: c.sessionKey, Session: session, Answer: answer})
}

// RenewFlightEndpoint keeps a ticket that is known, as all of them are kept
// until they are redeemed.
func (h *handlers) RenewFlightEndpoint(_ context.Context, r *flight.RenewFlightEndpointRequest) (*flight.FlightEndpoint, error) {
	if h.srv.tickets.sqlOf([]byte(ticketID(r.GetEndpoint().GetTicket().GetTicket()))) == "" {
		return nil, status.Error(codes.NotFound, "ticket is unknown, redeemed or expired")
	}
	return r.GetEndpoint(), nil
}
