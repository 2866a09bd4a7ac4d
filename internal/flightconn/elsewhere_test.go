package flightconn

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

// TestARefusalThatIsNotOfTheStatementEndsNoSearch has a location that does not look at the ticket: it was shown no
// credential, or a proxy is before it.
func TestARefusalThatIsNotOfTheStatementEndsNoSearch(t *testing.T) {
	page := status.Error(codes.PermissionDenied, "unexpected HTTP status code received from server: 403 (Forbidden)")
	for name, tc := range map[string]struct {
		answer error
		shown  bool // credentials go there
		call   backend.Call
		tried  int
	}{
		"no credential":                 {status.Error(codes.PermissionDenied, "who are you?"), false, backend.Call{}, 2},
		"a credential":                  {status.Error(codes.PermissionDenied, "not yours"), true, backend.Call{}, 1},
		"a statement that fails":        {status.Error(codes.InvalidArgument, "no such column"), false, backend.Call{}, 1},
		"a page":                        {page, true, backend.Call{}, 2},
		"a change without a credential": {status.Error(codes.PermissionDenied, "who are you?"), false, backend.Call{MayChange: true}, 1},
		"a change, and a page":          {page, true, backend.Call{MayChange: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			tried := 0
			f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://elsewhere:2", "")), get: func(k *pb.Ticket, s pb.FlightService_DoGetServer) error {
				tried++
				return byTicket(k, s)
			}}
			inBubble(t, f, func(b *bubble) {
				b.net.serve(b, "elsewhere:2", &fake{get: func(*pb.Ticket, pb.FlightService_DoGetServer) error {
					tried++
					return tc.answer
				}})
				s, err := b.open().Query(b.Context(), "q", tc.call)
				require.Equal(b, tc.tried, tried)
				if tc.tried == 1 {
					require.Equal(b, backend.FaultStatement, failure(b, err).Fault)
					return
				}
				require.NoError(b, err)
				require.Equal(b, upTo(10), values(b, s))
			}, func(cfg *Config) {
				cfg.Locations = func(*url.URL) (allow, sendCredentials bool) { return true, tc.shown }
			})
		})
	}
}

// TestAServerThatNamesItsOwnAddressIsAskedWithTheCredential has a server that is reached by its name, calls itself by its
// address, and answers nobody without a credential: Doris and StarRocks are such.
func TestAServerThatNamesItsOwnAddressIsAskedWithTheCredential(t *testing.T) {
	const itself = "10.0.0.1:1"
	f := &fake{info: infoOf(at(answer(int64Schema, "0", "1"), "grpc+tcp://"+itself)), get: func(k *pb.Ticket, s pb.FlightService_DoGetServer) error {
		if md, _ := metadata.FromIncomingContext(s.Context()); len(md.Get("authorization")) == 0 {
			return status.Error(codes.Unauthenticated, "who are you?")
		}
		return byTicket(k, s)
	}}
	inBubble(t, f, func(b *bubble) {
		b.net[itself] = b.net[here]
		c := b.open()
		_, err := c.Query(b.Context(), "q", backend.Call{})
		require.ErrorContains(b, err, "credentials do not go to other hosts", "it is another's for all that is known")
		c.transport.mu.Lock()
		c.transport.mu.peer = itself
		c.transport.mu.Unlock()
		s, err := c.Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		require.Equal(b, upTo(20), values(b, s))
	}, func(cfg *Config) { cfg.Authorization = bearer("Bearer s3cret") })
}

// TestALocationMayCarryOutTheDeadline has a location whose timer is before the caller's.
func TestALocationMayCarryOutTheDeadline(t *testing.T) {
	late := status.Error(codes.DeadlineExceeded, "time is up")
	for name, rows := range map[string]int{"before the schema": 0, "after rows": 3} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://elsewhere:2"))}, func(b *bubble) {
				b.net.serve(b, "elsewhere:2", &fake{get: func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
					if rows > 0 {
						if err := sendBatches(s, rows); err != nil {
							return err
						}
					}
					time.Sleep(time.Second - 50*time.Millisecond)
					return late
				}})
				for _, limit := range []time.Duration{time.Second, 10 * time.Second} {
					ctx, stop := context.WithTimeout(b.Context(), limit)
					defer stop()
					s, err := b.open().Query(ctx, "q", backend.Call{})
					for err == nil {
						_, err = s.Next()
					}
					e := failure(b, err)
					if limit == time.Second {
						require.Equal(b, backend.FaultContext, e.Fault)
						require.ErrorIs(b, err, context.DeadlineExceeded)
						continue
					}
					require.Equal(b, backend.FaultStatement, e.Fault, "it was the location's own limit")
					require.NotErrorIs(b, err, context.DeadlineExceeded)
				}
			})
		})
	}
}
