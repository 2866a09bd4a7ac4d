package flightconn

import (
	"context"
	"testing"
	"time"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/cancel"
)

func operation() *backend.Operation {
	op := &backend.Operation{}
	info, err := newInfo(marshal(answer(nil, "the ticket")))
	if err != nil {
		panic(err)
	}
	op.SetName(info)
	return op
}

// do runs the steps as a chain would and returns what each achieved.
func do(ctx context.Context, c *Conn, op *backend.Operation) map[string]cancel.Outcome {
	out := map[string]cancel.Outcome{}
	for _, s := range (cancel.Chain{Steps: c.CancelSteps(op)}).Run(ctx).Steps {
		out[s.Name] = s.Outcome
	}
	return out
}

func TestCancelGoesOverAnotherTransportWithTheSameIdentity(t *testing.T) {
	var from, to string
	var cookie, token []string
	f := &fake{}
	f.info = func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		p, _ := peer.FromContext(ctx)
		from = p.Addr.String()
		_ = sendCookie(ctx)
		return nil, status.Error(codes.NotFound, "")
	}
	f.action = func(a *pb.Action, s pb.FlightService_DoActionServer) error {
		if a.GetType() != "CancelFlightInfo" {
			return status.Error(codes.Unimplemented, a.GetType())
		}
		p, _ := peer.FromContext(s.Context())
		md, _ := metadata.FromIncomingContext(s.Context())
		to, cookie, token = p.Addr.String(), md.Get("cookie"), md.Get("authorization")
		var req pb.CancelFlightInfoRequest
		if err := unmarshal(a.GetBody(), &req); err != nil {
			return err
		}
		if string(req.GetInfo().GetEndpoint()[0].GetTicket().GetTicket()) != "the ticket" {
			return status.Error(codes.NotFound, "another statement")
		}
		return s.Send(&pb.Result{Body: marshal(&pb.CancelFlightInfoResult{Status: pb.CancelStatus_CANCEL_STATUS_CANCELLED})})
	}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		require.Equal(b, 1, b.listener.Accepted(), "the control channel is dialled when it is needed")
		require.Equal(b, map[string]cancel.Outcome{"CancelFlightInfo": cancel.Confirmed}, do(b.Context(), c, operation()))
		require.Equal(b, 2, b.listener.Accepted())
		require.NotEqual(b, from, to)
		require.Equal(b, []string{"session=1"}, cookie)
		require.Equal(b, []string{"Bearer b"}, token)
	}, func(cfg *Config) {
		cfg.Authorization = bearer("Bearer b")
	})
}

// Arrow's libraries for C++ and Java refuse a FlightInfo whose descriptor is of no type before the server sees the request.
func TestACancelOfAStatementWithoutANameCanBeDecodedEverywhere(t *testing.T) {
	asked := map[string]pb.FlightDescriptor_DescriptorType{}
	f := &fake{action: func(a *pb.Action, _ pb.FlightService_DoActionServer) error {
		var info pb.FlightInfo
		switch a.GetType() {
		case "CancelFlightInfo":
			var req pb.CancelFlightInfoRequest
			if err := unmarshal(a.GetBody(), &req); err != nil {
				return err
			}
			info.FlightDescriptor = req.GetInfo().GetFlightDescriptor()
		case "CancelQuery":
			var req pb.ActionCancelQueryRequest //nolint:staticcheck // deprecated, but all that some servers have
			if err := unpack(a.GetBody(), &req); err != nil {
				return err
			}
			if err := unmarshal(req.GetInfo(), &info); err != nil {
				return err
			}
		}
		asked[a.GetType()] = info.GetFlightDescriptor().GetType()
		return status.Error(codes.InvalidArgument, "No active SQL statement to cancel.")
	}}
	inBubble(t, f, func(b *bubble) {
		require.Equal(b, map[string]cancel.Outcome{"CancelFlightInfo": cancel.Failed, "CancelQuery": cancel.Failed}, do(b.Context(), b.open(), &backend.Operation{}))
		require.Equal(b, map[string]pb.FlightDescriptor_DescriptorType{"CancelFlightInfo": pb.FlightDescriptor_CMD, "CancelQuery": pb.FlightDescriptor_CMD}, asked)
	})
}

func TestTheAnswerToACancelBecomesItsOutcome(t *testing.T) {
	for answer, want := range map[pb.CancelStatus]cancel.Outcome{
		pb.CancelStatus_CANCEL_STATUS_CANCELLED:       cancel.Confirmed,
		pb.CancelStatus_CANCEL_STATUS_CANCELLING:      cancel.Requested,
		pb.CancelStatus_CANCEL_STATUS_NOT_CANCELLABLE: cancel.Failed,
		pb.CancelStatus_CANCEL_STATUS_UNSPECIFIED:     cancel.Failed,
	} {
		f := &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
			if a.GetType() == "CancelFlightInfo" {
				return s.Send(&pb.Result{Body: marshal(&pb.CancelFlightInfoResult{Status: answer})})
			}
			reply := &pb.ActionCancelQueryResult{} //nolint:staticcheck // deprecated, but all that some servers have
			reply.Result = pb.ActionCancelQueryResult_CancelResult(answer)
			return s.Send(&pb.Result{Body: pack(reply)})
		}}
		inBubble(t, f, func(b *bubble) {
			for name, got := range do(b.Context(), b.open(), operation()) {
				require.Equal(b, want, got, "%s: %s", name, answer)
			}
		})
	}
}

func TestWaysThatTheServerLacksAreTriedOnceForTheEndpoint(t *testing.T) {
	tried := map[string]int{}
	f := &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
		tried[a.GetType()]++
		switch a.GetType() {
		case "CancelFlightInfo":
			return status.Error(codes.InvalidArgument, "do_action: The defined request is invalid: CancelFlightInfo")
		case "CancelQuery":
			return status.Error(codes.Unimplemented, "not here")
		case "kill":
			return s.Send(&pb.Result{Body: []byte("ok")})
		}
		return status.Error(codes.InvalidArgument, "No active SQL statement to cancel.")
	}}
	inBubble(t, f, func(b *bubble) {
		first, second := b.open(), b.open()
		require.Equal(b, map[string]cancel.Outcome{
			"CancelFlightInfo": cancel.Unsupported, "CancelQuery": cancel.Unsupported,
			"stop": cancel.Failed, "kill": cancel.Requested,
		}, do(b.Context(), first, operation()))
		require.Equal(b, map[string]cancel.Outcome{"stop": cancel.Failed, "kill": cancel.Requested},
			do(b.Context(), second, nil), "an idle session's complaint is not a lack")
		require.Equal(b, map[string]int{"CancelFlightInfo": 2, "CancelQuery": 2, "stop": 2, "kill": 2}, tried, "a lack is refused twice")
	}, func(cfg *Config) { cfg.CancelActions = []string{"stop", "kill"} })
}

// A page of HTTP in place of the answer to a cancel does not say that the server has not begun it: it may stop
// what the session runs next.
func TestAPageIsNoAnswerToACancel(t *testing.T) {
	for code, text := range map[codes.Code]string{
		codes.Unimplemented:    "unexpected HTTP status code received from server: 404 (Not Found); transport: received unexpected content-type \"text/html\"",
		codes.PermissionDenied: "transport: the server has answered with HTTP status 403 and content type \"text/html\": it speaks no gRPC there",
	} {
		f := &fake{action: func(*pb.Action, pb.FlightService_DoActionServer) error { return status.Error(code, text) }}
		inBubble(t, f, func(b *bubble) {
			require.Equal(b, map[string]cancel.Outcome{"CancelFlightInfo": cancel.Unanswered, "CancelQuery": cancel.Unanswered}, do(b.Context(), b.open(), operation()), text)
		})
	}
}

// TestOneRefusalTeachesNoLack: a server, or a proxy before it, may refuse what it has,
// once or everything for a while. Sessions are closed and statements cancelled all the
// same afterwards.
func TestOneRefusalTeachesNoLack(t *testing.T) {
	for name, times := range map[string]int{"once": 1, "everything": 3} {
		t.Run(name, func(t *testing.T) {
			refusals, tried := 0, map[string]int{}
			refuse := func() error {
				if refusals > 0 {
					refusals--
					return status.Error(codes.Unimplemented, "not here")
				}
				return nil
			}
			f := &fake{
				action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
					tried[a.GetType()]++
					if err := refuse(); err != nil {
						return err
					}
					return s.Send(&pb.Result{})
				},
				info: func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) {
					return answer(int64Schema), refuse()
				},
			}
			inBubble(t, f, func(b *bubble) {
				first, second, third := b.open(), b.open(), b.open()
				for _, c := range []*Conn{first, second} {
					refusals = times
					do(b.Context(), c, operation())
				}
				require.Len(b, third.CancelSteps(operation()), 2, "%v", tried)
				for _, c := range []*Conn{first, second, third} {
					refusals = times
					_ = c.Close()
				}
				require.False(b, third.endpoint.capabilities.closeSession.isMissing())
			})
		})
	}
}

func TestACancelWithoutAnAnswerIsTold(t *testing.T) {
	f := &fake{action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error {
		return silence(s.Context())
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		began := time.Now()
		require.Equal(b, map[string]cancel.Outcome{"CancelFlightInfo": cancel.Unanswered, "CancelQuery": cancel.Unanswered},
			do(b.Context(), c, operation()))
		require.Equal(b, 2*cancelStepTimeout, time.Since(began))

		b.listener.Conns()[1].Cut() // the control channel's
		go func() {
			time.Sleep(time.Second)
			for _, conn := range b.listener.Conns() {
				conn.Cut()
			}
		}()
		outcome, err := c.CancelSteps(operation())[0].Do(b.Context())
		require.Error(b, err)
		require.Equal(b, cancel.Unanswered, outcome, "cut while it was on its way")

		require.NoError(b, b.listener.Close())
		outcome, err = c.CancelSteps(operation())[0].Do(b.Context())
		require.Error(b, err)
		require.Equal(b, cancel.Failed, outcome, "it never left")
	})
}

func TestACookieThatComesWithAStreamIsPresentedByTheNext(t *testing.T) {
	var cookies []string
	f := &fake{put: func(s pb.FlightService_DoPutServer) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		cookies = md.Get("cookie")
		s.SetTrailer(metadata.Pairs("set-cookie", "late=1"))
		return nil
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		for range 2 {
			_, err := c.Update(b.Context(), "u", backend.Call{})
			require.NoError(b, err)
		}
		require.Equal(b, []string{"late=1"}, cookies)
		_, err := b.open().Update(b.Context(), "u", backend.Call{})
		require.NoError(b, err)
		require.Empty(b, cookies, "another connection has its own")
	})
}

// A server's own action is told which statement by its first ticket; one that
// has none yet, by no ticket.
func TestAServersOwnActionGetsTheTicketOfTheStatement(t *testing.T) {
	var tickets []string
	f := &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
		if a.GetType() == "stop" {
			tickets = append(tickets, string(a.GetBody()))
			return s.Send(&pb.Result{})
		}
		return status.Error(codes.Unimplemented, a.GetType())
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		for _, op := range []*backend.Operation{operation(), new(backend.Operation)} {
			require.Equal(b, cancel.Requested, do(b.Context(), c, op)["stop"])
		}
		require.Equal(b, []string{"the ticket", ""}, tickets)
	}, func(cfg *Config) { cfg.CancelActions = []string{"stop", "halt", "end"} })
}

// That a server does not know a statement confirms the end of one that it has
// named, and of no other.
func TestNotFoundConfirmsTheEndOfWhatHadAName(t *testing.T) {
	f := &fake{action: func(a *pb.Action, _ pb.FlightService_DoActionServer) error {
		if a.GetType() == "CancelFlightInfo" {
			return status.Error(codes.NotFound, "no such query")
		}
		return status.Error(codes.Unimplemented, a.GetType())
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		require.Equal(b, cancel.Confirmed, do(b.Context(), c, operation())["CancelFlightInfo"])
		require.Equal(b, cancel.Failed, do(b.Context(), c, new(backend.Operation))["CancelFlightInfo"])
	})
}
