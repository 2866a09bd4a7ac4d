package flightconn

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestConfigReportsEveryFaultAtOnce(t *testing.T) {
	_, err := NewEndpoint(Config{
		Network: "udp", DialTimeout: -1, MaxMessage: -1, RequestLimit: 17, CancelActions: []string{""},
		Basic: &UserPass{}, Authorization: bearer(""),
	})
	for _, field := range []string{"Network", "Address", "DialTimeout", "MaxMessage", "RequestLimit", "CancelActions", "Authorization"} {
		require.ErrorContains(t, err, field+": ")
	}
	_, err = NewEndpoint(Config{Address: "no-port"})
	require.ErrorContains(t, err, "Address")
}

func TestOpenAcceptsAServerThatRefusesTheProbeItself(t *testing.T) {
	for _, code := range []codes.Code{codes.OK, codes.Unimplemented, codes.NotFound, codes.InvalidArgument, codes.Internal} {
		f := &fake{info: func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			return &pb.FlightInfo{}, status.Error(code, "no such information")
		}}
		inBubble(t, f, func(b *bubble) {
			c := b.open()
			if err := c.Ping(b.Context()); code == codes.Internal {
				require.Equal(b, backend.FaultStatement, backend.FaultIn(err), "it may be that no session can be made any more")
			} else {
				require.NoError(b, err)
			}
			require.NoError(b, c.Lost())
		})
	}
}

func TestOpenFailsWithWhatTheServerSaid(t *testing.T) {
	for code, want := range map[codes.Code]struct {
		fault backend.Fault
		stage backend.Stage
	}{
		codes.Unauthenticated:   {backend.FaultAuth, backend.StageAuth},
		codes.PermissionDenied:  {backend.FaultAuth, backend.StageAuth},
		codes.ResourceExhausted: {backend.FaultLimit, backend.StageProbe},
		codes.Unavailable:       {backend.FaultTransport, backend.StageProbe},
	} {
		f := &fake{info: func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			return nil, status.Error(code, "said the server [28P01]")
		}}
		inBubble(t, f, func(b *bubble) {
			_, err := b.endpoint.Open(b.Context())
			e := failure(b, err)
			require.Equal(b, "28P01", e.SQLState)
			require.Equal(b, want.fault, e.Fault, code)
			require.Equal(b, want.stage, e.Stage, code)
			require.ErrorContains(b, err, "said the server")
			require.Equal(b, code, status.Code(err), "the chain reaches the status")
			synctest.Wait()
			require.Empty(b, b.listener.Conns(), "a failed open leaves no transport")
		})
	}
}

func TestOpenOfADeadServerFailsAtOnceAndUnsent(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		require.NoError(b, b.listener.Close())
		began := time.Now()
		_, err := b.endpoint.Open(b.Context())
		e := failure(b, err)
		require.Zero(b, time.Since(began))
		require.Equal(b, backend.StageDial, e.Stage)
		require.Equal(b, backend.FaultTransport, e.Fault)
		require.True(b, e.Unsent)
		require.True(b, backend.SafeToRetry(err))
	})
}

// TestOpenReachesTheSocketsOwnError needs a real socket.
func TestOpenReachesTheSocketsOwnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	e, err := NewEndpoint(Config{Address: addr})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	_, err = e.Open(t.Context())
	var op *net.OpError
	require.ErrorAs(t, err, &op)
}

func TestOpenOfASilentServerEndsWithTheCallersContext(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		b.endpoint.cfg.Dialer = func(context.Context, string) (net.Conn, error) {
			mine, _ := net.Pipe() // nobody ever reads
			return mine, nil
		}
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := b.endpoint.Open(ctx)
		require.Equal(b, time.Second, time.Since(began))
		require.Equal(b, backend.FaultContext, failure(b, err).Fault)
		require.ErrorIs(b, err, context.DeadlineExceeded)
	})
}

func TestEachConnectionHasATransportACredentialAndCookiesOfItsOwn(t *testing.T) {
	var mu sync.Mutex
	handshakes := 0
	seen := map[string]string{} // token -> cookie
	f := &fake{}
	f.handshake = func(s pb.FlightService_HandshakeServer) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		if md.Get("authorization")[0] != "Basic dTpwPw==" { // padded, "u:p?"
			return status.Error(codes.Unauthenticated, "wrong password")
		}
		mu.Lock()
		handshakes++
		token := "Bearer " + strings.Repeat("x", handshakes)
		mu.Unlock()
		s.SetTrailer(metadata.Pairs("authorization", token))
		return nil
	}
	f.info = func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		token := md.Get("authorization")[0]
		mu.Lock()
		defer mu.Unlock()
		if cookie := md.Get("cookie"); len(cookie) > 0 {
			seen[token] = cookie[0]
		}
		_ = grpc.SetTrailer(ctx, metadata.Pairs("set-cookie", "id=of-"+token[7:]))
		return nil, status.Error(codes.NotFound, "nothing")
	}
	inBubble(t, f, func(b *bubble) {
		for range 3 {
			c := b.open()
			require.NoError(b, c.Ping(b.Context()))
		}
		require.Equal(b, map[string]string{"Bearer x": "id=of-x", "Bearer xx": "id=of-xx", "Bearer xxx": "id=of-xxx"}, seen)
		require.Len(b, b.listener.Conns(), 3)
	}, func(cfg *Config) { cfg.Basic = &UserPass{"u", "p?"} })
}

func TestHandshakeTakesATokenFromThePayloadOrKeepsThePassword(t *testing.T) {
	for name, test := range map[string]struct {
		handshake func(pb.FlightService_HandshakeServer) error
		want      string
	}{
		"header": {func(s pb.FlightService_HandshakeServer) error {
			_ = s.SendHeader(metadata.Pairs("authorization", "Bearer header"))
			return s.Send(&pb.HandshakeResponse{Payload: []byte("payload")})
		}, "Bearer header"},
		"payload": {func(s pb.FlightService_HandshakeServer) error {
			return s.Send(&pb.HandshakeResponse{Payload: []byte("payload")})
		}, "Bearer payload"},
		"unprintable payload": {func(s pb.FlightService_HandshakeServer) error {
			return s.Send(&pb.HandshakeResponse{Payload: []byte("\x01\x02")})
		}, "Basic dTpw"},
		"empty": {func(pb.FlightService_HandshakeServer) error { return nil }, "Basic dTpw"},
		"none":  {nil, "Basic dTpw"},
	} {
		authorization := ""
		f := &fake{handshake: test.handshake}
		f.info = func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			authorization = md.Get("authorization")[0]
			return &pb.FlightInfo{}, nil
		}
		inBubble(t, f, func(b *bubble) {
			b.open()
			require.Equal(b, test.want, authorization, name)
		}, func(cfg *Config) { cfg.Basic = &UserPass{"u", "p"} })
	}
}

func TestWrongPasswordFailsAtOnce(t *testing.T) {
	f := &fake{handshake: func(pb.FlightService_HandshakeServer) error {
		return status.Error(codes.Unauthenticated, "wrong password")
	}}
	inBubble(t, f, func(b *bubble) {
		began := time.Now()
		_, err := b.endpoint.Open(b.Context())
		require.Zero(b, time.Since(began))
		e := failure(b, err)
		require.Equal(b, backend.FaultAuth, e.Fault)
		require.Equal(b, backend.StageAuth, e.Stage)
		require.False(b, backend.SafeToRetry(err))
	}, func(cfg *Config) { cfg.Basic = &UserPass{"u", "p"} })
}

func TestARefusedTokenIsFetchedAnewAndTheOpenTriedOnceMore(t *testing.T) {
	f := &fake{}
	f.info = func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if md.Get("authorization")[0] != "Bearer new" {
			return nil, status.Error(codes.Unauthenticated, "expired")
		}
		return &pb.FlightInfo{}, nil
	}
	fresh := "Bearer new"
	source := func(_ context.Context, rejected string) (Credential, error) {
		if rejected == "Bearer old" {
			return Credential{Header: fresh}, nil
		}
		return Credential{Header: "Bearer old"}, nil
	}
	with := func(cfg *Config) { cfg.Authorization = source }
	inBubble(t, f, func(b *bubble) {
		b.open()
		require.EqualValues(b, 2, f.plans.Load())
	}, with)

	fresh = "Bearer old"
	f.plans.Store(0)
	inBubble(t, f, func(b *bubble) {
		_, err := b.endpoint.Open(b.Context())
		require.Equal(b, backend.FaultAuth, failure(b, err).Fault)
		require.EqualValues(b, 2, f.plans.Load(), "once more, and no more")
	}, with)
}

func TestASourceThatFailsSendsNothing(t *testing.T) {
	broken := errors.New("vault is sealed")
	inBubble(t, &fake{}, func(b *bubble) {
		_, err := b.endpoint.Open(b.Context())
		require.ErrorIs(b, err, broken)
		e := failure(b, err)
		require.Equal(b, backend.FaultAuth, e.Fault)
		require.True(b, e.Unsent)
	}, func(cfg *Config) {
		cfg.Authorization = func(context.Context, string) (Credential, error) { return Credential{}, broken }
	})
}

func TestHeadersOfACallWinOverTheCredentialAndTheConfiguration(t *testing.T) {
	var got metadata.MD
	f := &fake{info: func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		got, _ = metadata.FromIncomingContext(ctx)
		return nil, status.Error(codes.InvalidArgument, "no")
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		_, err := c.Query(metadata.AppendToOutgoingContext(b.Context(), "traceparent", "t"), "q",
			backend.Call{Headers: metadata.MD{"X-Database": {"mine"}}})
		require.Error(b, err)
		require.Equal(b, []string{"mine"}, got.Get("x-database"))
		require.Equal(b, []string{"yes"}, got.Get("x-other"))
		require.Equal(b, []string{"t"}, got.Get("traceparent"))
		require.Equal(b, []string{"Bearer b"}, got.Get("authorization"))
	}, func(cfg *Config) {
		cfg.Headers = metadata.Pairs("x-database", "default", "x-other", "yes", "authorization", "ignored")
		cfg.Authorization = bearer("Bearer b")
	})
}

func TestAThousandConnectionsLeaveNothingBehind(t *testing.T) {
	f := &fake{info: infoOf(answer(int64Schema, "a"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error { return sendBatches(s, 2) }
	inBubble(t, f, func(b *bubble) {
		goroutines := runtime.NumGoroutine()
		for i := range 1000 {
			c, err := b.endpoint.Open(b.Context())
			require.NoError(b, err)
			s, err := c.Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			if i%2 == 0 { // every other result is left half read
				_, err = s.Next()
				require.NoError(b, err)
			} else {
				for err == nil {
					_, err = s.Next()
				}
				require.ErrorIs(b, err, io.EOF)
			}
			s.Close()
			require.NoError(b, c.Close())
		}
		synctest.Wait()
		require.Empty(b, b.listener.Conns())
		// The count is the whole process's, the runtime's helpers included; the
		// bubble's end finds a single goroutine of ours that is left.
		require.Less(b, runtime.NumGoroutine(), goroutines+100)
	})
}
