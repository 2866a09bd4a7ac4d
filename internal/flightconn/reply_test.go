package flightconn

import (
	"context"
	"net/http"
	"testing"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// What every RPC brings is presented by the next one of the connection, and of no other:
// cookies and tokens of headers and of trailers, of answers and of refusals.
func TestWhatEveryReplyBringsIsPresentedByTheNextCall(t *testing.T) {
	var rpc string // that brings something
	var refuse, headers bool
	reply := func(ctx context.Context, this string) error {
		if this != rpc {
			return nil
		}
		if headers {
			_ = grpc.SendHeader(ctx, metadata.Pairs("set-cookie", "h="+this, "authorization", "Bearer h"))
		}
		_ = grpc.SetTrailer(ctx, metadata.Pairs("set-cookie", "t="+this, "authorization", "Bearer t"))
		if refuse {
			return status.Error(codes.InvalidArgument, "no")
		}
		return nil
	}
	var got metadata.MD
	f := &fake{
		info: func(ctx context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			return answer(int64Schema, "a"), reply(ctx, "GetFlightInfo")
		},
		poll: func(ctx context.Context, d *pb.FlightDescriptor) (*pb.PollInfo, error) {
			return &pb.PollInfo{Info: answer(int64Schema, "a")}, reply(ctx, "PollFlightInfo")
		},
		get: func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
			if rpc != "DoGet" || !refuse {
				if err := sendBatches(s, 2); err != nil {
					return err
				}
			}
			return reply(s.Context(), "DoGet")
		},
		put: func(s pb.FlightService_DoPutServer) error {
			got, _ = metadata.FromIncomingContext(s.Context())
			return reply(s.Context(), "DoPut")
		},
		action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error {
			if err := reply(s.Context(), "DoAction"); err != nil {
				return err
			}
			return s.Send(&pb.Result{Body: pack(&pb.ActionBeginTransactionResult{TransactionId: []byte("tx")})})
		},
	}
	calls := map[string]func(b *bubble, c *Conn) error{
		"GetFlightInfo": func(b *bubble, c *Conn) error { return readQuery(b, c, backend.Call{}) },
		"PollFlightInfo": func(b *bubble, c *Conn) error {
			return readQuery(b, c, backend.Call{Progress: func(float64, bool) {}})
		},
		"DoGet": func(b *bubble, c *Conn) error { return readQuery(b, c, backend.Call{}) },
		"DoPut": func(b *bubble, c *Conn) error {
			_, err := c.Update(b.Context(), "u", backend.Call{})
			return err
		},
		"DoAction": func(b *bubble, c *Conn) error { _, err := c.Begin(b.Context()); return err },
	}
	for name, call := range calls {
		for kind, how := range map[string]struct{ refuse, headers bool }{
			"answer": {false, true}, "refusal": {true, true}, "refusal of trailers alone": {true, false},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				rpc = ""
				inBubble(t, f, func(b *bubble) {
					c, other := b.open(), b.open()
					c.endpoint.capabilities.txIDs.Store(txIDsIgnored)
					rpc, refuse, headers = name, how.refuse, how.headers
					err := call(b, c)
					require.Equal(b, how.refuse, err != nil, "%v", err)
					rpc = ""
					_, err = c.Update(b.Context(), "u", backend.Call{})
					require.NoError(b, err)
					want := []string{"t=" + name}
					if how.headers && (name != "DoGet" || how.refuse) { // rows have sent their headers
						want = []string{"h=" + name, "t=" + name}
					}
					require.ElementsMatch(b, want, cookiesOf(got))
					require.Equal(b, []string{"Bearer t"}, got.Get("authorization"))
					_, err = other.Update(b.Context(), "u", backend.Call{})
					require.NoError(b, err)
					require.Empty(b, got.Get("cookie"))
					require.Equal(b, []string{"Bearer 0"}, got.Get("authorization"))
				}, func(cfg *Config) { cfg.Authorization = bearer("Bearer 0") })
			})
		}
	}
}

// readQuery reads a query to its end.
func readQuery(b *bubble, c *Conn, call backend.Call) error {
	s, err := c.Query(b.Context(), "q", call)
	if err != nil {
		return err
	}
	values(b, s)
	return nil
}

// cookiesOf are the cookies of a request, one by one.
func cookiesOf(md metadata.MD) (cookies []string) {
	for _, line := range md.Get("cookie") {
		for _, c := range (&http.Request{Header: http.Header{"Cookie": {line}}}).Cookies() {
			cookies = append(cookies, c.Name+"="+c.Value)
		}
	}
	return cookies
}
