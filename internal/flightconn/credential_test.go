package flightconn

import (
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// TestNoErrorRepeatsTheCredential has a server whose refusals do.
func TestNoErrorRepeatsTheCredential(t *testing.T) {
	refuse := func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		return status.Errorf(codes.Unauthenticated, "%s (me, hunter2hunter2) is refused", md.Get("authorization")[0])
	}
	f := &fake{
		handshake: func(s pb.FlightService_HandshakeServer) error { return refuse(s.Context()) },
		info:      func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) { return nil, refuse(ctx) },
		action:    func(_ *pb.Action, s pb.FlightService_DoActionServer) error { return refuse(s.Context()) },
	}
	for name, change := range map[string]func(*Config){
		"bearer": func(cfg *Config) { cfg.Authorization = bearer("Bearer hunter2hunter2") },
		"header": func(cfg *Config) { cfg.Authorization = bearer(basicAuth("me", "hunter2hunter2")) },
		"basic":  func(cfg *Config) { cfg.Basic = &UserPass{"me", "hunter2hunter2"} },
		"bare":   func(cfg *Config) { cfg.Authorization = bearer("hunter2hunter2") },
		"user":   func(cfg *Config) { cfg.Basic = &UserPass{"hunter2hunter2", ""} },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, f, func(b *bubble) {
				_, err := b.endpoint.Open(b.Context())
				require.ErrorContains(b, err, "[secret]) is refused")
				for err := range everyError(err) {
					require.NotContains(b, fmt.Sprintf("%v %+v %#v", err, err, err), "hunter2hunter2")
					require.NotContains(b, fmt.Sprint(err), strings.TrimPrefix(basicAuth("me", "hunter2hunter2"), "Basic "))
				}
				require.Equal(b, codes.Unauthenticated, status.Code(err))
			}, change)
		})
	}
}

// everyError is an error and each one that it leads to.
func everyError(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		var walk func(error) bool
		walk = func(err error) bool {
			if !yield(err) {
				return false
			}
			switch e := err.(type) { //nolint:errorlint // it walks the tree itself
			case interface{ Unwrap() error }:
				return e.Unwrap() == nil || walk(e.Unwrap())
			case interface{ Unwrap() []error }:
				return !slices.ContainsFunc(e.Unwrap(), func(one error) bool { return !walk(one) })
			}
			return true
		}
		walk(err)
	}
}

// TestAConnectionKeepsTheCredentialItWasOpenedWith has a source that gives
// another token each time.
func TestAConnectionKeepsTheCredentialItWasOpenedWith(t *testing.T) {
	var shown []string
	f := &fake{info: func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		shown = append(shown, md.Get("authorization")[0])
		return nil, status.Error(codes.NotFound, "nothing here")
	}}
	n := 0
	inBubble(t, f, func(b *bubble) {
		one, two := b.open(), b.open()
		for _, c := range []*Conn{one, two, one} {
			require.NoError(b, c.Ping(b.Context()))
		}
		require.Equal(b, []string{"1", "2", "1", "2", "1"}, shown)
		require.Equal(b, time.Now().Add(time.Hour), one.ExpiresAt())
		require.Equal(b, time.Now().Add(2*time.Hour), two.ExpiresAt())
	}, func(cfg *Config) {
		cfg.Authorization = func(context.Context, string) (Credential, error) {
			n++
			return Credential{Header: fmt.Sprint(n), Expires: time.Now().Add(time.Duration(n) * time.Hour)}, nil
		}
	})
}

// TestATokenThatTheServerRenewsIsTheConnectionsFromThenOn has a server that
// gives another token with each reply and takes none but the last.
func TestATokenThatTheServerRenewsIsTheConnectionsFromThenOn(t *testing.T) {
	for name, header := range map[string]bool{"header": true, "trailer": false} {
		tokens := map[string]string{} // of each connection, by the part of its token that stays
		next := 0
		f := &fake{}
		renew := func(ctx context.Context, set func(metadata.MD)) error {
			md, _ := metadata.FromIncomingContext(ctx)
			var conn, serial string
			if n, _ := fmt.Sscanf(md.Get("authorization")[0], "Bearer %s %s", &conn, &serial); n != 2 || tokens[conn] != serial {
				return status.Error(codes.Unauthenticated, "Must use the original session; is the client echoing the authentication token properly?")
			}
			next++
			tokens[conn] = fmt.Sprint(next)
			set(metadata.Pairs("authorization", fmt.Sprintf("Bearer %s %d", conn, next)))
			return nil
		}
		f.handshake = func(s pb.FlightService_HandshakeServer) error {
			next++
			conn := fmt.Sprint("c", next)
			tokens[conn] = "0"
			return s.SendHeader(metadata.Pairs("authorization", "Bearer "+conn+" 0"))
		}
		f.info = func(ctx context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			if err := renew(ctx, func(md metadata.MD) {
				if header {
					_ = grpc.SetHeader(ctx, md)
				} else {
					_ = grpc.SetTrailer(ctx, md)
				}
			}); err != nil {
				return nil, err
			}
			return infoOf(answer(int64Schema, "0"))(ctx, d)
		}
		f.get = func(k *pb.Ticket, s pb.FlightService_DoGetServer) error {
			if err := renew(s.Context(), func(md metadata.MD) {
				if header {
					_ = s.SetHeader(md)
				} else {
					s.SetTrailer(md)
				}
			}); err != nil {
				return err
			}
			return byTicket(k, s)
		}
		inBubble(t, f, func(b *bubble) {
			one, two := b.open(), b.open()
			for _, c := range []*Conn{one, two, one, one, two} {
				s, err := c.Query(b.Context(), "q", backend.Call{})
				require.NoError(b, err, name)
				require.Equal(b, upTo(10), values(b, s))
				require.NoError(b, c.Lost(), "the session is the same")
			}
		}, func(cfg *Config) { cfg.Basic = &UserPass{"u", "p"} })
	}
}

func TestTheServersOwnTokenTellsItsExpiry(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	jwt := func(claims string) string {
		return "Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".sig"
	}
	for header, want := range map[string]time.Time{
		jwt(fmt.Sprintf(`{"exp":%d}`, now.Add(time.Hour).Unix())):     now.Add(time.Hour),
		jwt(fmt.Sprintf(`{"exp":%d.5e0}`, now.Add(time.Hour).Unix())): now.Add(time.Hour),
		jwt(fmt.Sprintf(`{"exp":%d}`, now.Add(-time.Hour).Unix())):    {},
		jwt(`{"exp":214748364700}`):                                   time.Unix(214748364700, 0), jwt(`{"exp":214748364701}`): {},
		jwt(`{"exp":"soon"}`): {}, jwt(`{"exp":1e300}`): {}, jwt(`{"exp":99999999999,"exp":"soon"}`): {}, jwt(`{"exp":-1e300}`): {}, jwt(`{"exp":-1}`): {}, jwt(`{}`): {}, jwt(`no`): {},
		"Bearer a.b": {}, "Bearer ..": {}, "Bearer a.!.c": {}, "": {}, "Basic dTpw": {},
	} {
		require.True(t, want.Equal(JWTExpiry(header)), "%s: %v", header, JWTExpiry(header))
	}
}

// TestATokenInAReplyTellsTheConnectionsExpiry has a server that takes a password once, as
// those of Arrow's Java and C++ libraries do, and is presented the token of its answer then.
func TestATokenInAReplyTellsTheConnectionsExpiry(t *testing.T) {
	token := ""
	f := &fake{info: func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		_ = grpc.SetHeader(ctx, metadata.Pairs("authorization", token))
		return nil, status.Error(codes.NotFound, "nothing here")
	}}
	source := Credential{Header: basicAuth("u", "p")}
	inBubble(t, f, func(b *bubble) {
		soon, later := time.Now().Add(5*time.Minute), time.Now().Add(time.Hour)
		jwt := "Bearer e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, soon.Unix())) + ".sig"
		for _, source.Expires = range []time.Time{{}, later} {
			token = jwt
			require.Equal(b, soon, b.open().ExpiresAt())
			token = "Bearer says nothing"
			require.Equal(b, source.Expires, b.open().ExpiresAt())
		}
	}, func(cfg *Config) {
		cfg.Authorization = func(context.Context, string) (Credential, error) { return source, nil }
	})
}

// TestATokenOfALaterReplyThatEndsIsInDoubt has a server that renews its token with its replies,
// of which the pool has asked when the first one ends.
func TestATokenOfALaterReplyThatEndsIsInDoubt(t *testing.T) {
	jwtUntil := func(seconds int64) string {
		return "Bearer e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, seconds)) + ".sig"
	}
	jwt := func(life time.Duration) string { return jwtUntil(time.Now().Add(life).Unix()) }
	token := ""
	f := &fake{info: func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		_ = grpc.SetHeader(ctx, metadata.Pairs("authorization", token))
		return nil, status.Error(codes.NotFound, "nothing here")
	}}
	inBubble(t, f, func(b *bubble) {
		token = jwt(time.Hour)
		c := b.open()
		require.False(b, c.CredentialInDoubt())
		token = jwt(time.Minute)
		require.NoError(b, c.Ping(b.Context()))
		require.False(b, c.CredentialInDoubt())
		time.Sleep(time.Minute)
		require.True(b, c.CredentialInDoubt())
		token = jwt(time.Minute)
		require.NoError(b, c.Ping(b.Context()))
		require.False(b, c.CredentialInDoubt())
		time.Sleep(time.Minute)
		token = "Bearer says nothing"
		require.NoError(b, c.Ping(b.Context()))
		require.False(b, c.CredentialInDoubt())
		refused := c.id.credential().Header
		c.endpoint.rejectedAuthorization.Store(&refused)
		require.True(b, c.CredentialInDoubt())
		require.NoError(b, c.Ping(b.Context())) // it was refused for something else
		require.False(b, c.CredentialInDoubt())
		token = jwtUntil(9999999999) // which is more nanoseconds than there is room for
		require.NoError(b, c.Ping(b.Context()))
		require.False(b, c.CredentialInDoubt())
	}, func(cfg *Config) {
		cfg.Authorization = func(context.Context, string) (Credential, error) { return Credential{Header: "Bearer first"}, nil }
	})
}

// TestASessionCookieThatChangesEndsTheEpoch has a server that makes a new
// session behind a connection's back.
func TestASessionCookieThatChangesEndsTheEpoch(t *testing.T) {
	j := &jarServer{}
	committed := 0
	f := &fake{info: j.info}
	f.action = func(a *pb.Action, s pb.FlightService_DoActionServer) error {
		if a.GetType() == "EndTransaction" {
			committed++
			_ = s.SetHeader(metadata.Pairs("set-cookie", j.set))
			return s.Send(&pb.Result{})
		}
		return status.Error(codes.Unimplemented, "no")
	}
	inBubble(t, f, func(b *bubble) {
		for _, change := range []string{"arrow_flight_session_id=2; Path=/", "arrow_flight_session_id=; Max-Age=0", "JSESSIONID=x"} {
			j.set = "JSESSIONID=1"
			c := b.open()
			j.ping(b, c, "arrow_flight_session_id=1; Path=/")
			j.ping(b, c, "arrow_flight_session_id=1; Path=/; HttpOnly")
			j.ping(b, c, "AWSALB=whatever")
			j.ping(b, c, "AWSALB=changes")
			require.NoError(b, c.Lost())
			j.ping(b, c, change)
			require.ErrorIs(b, c.Lost(), backend.ErrSessionReplaced)
			_, err := c.Update(b.Context(), "u", backend.Call{})
			require.ErrorIs(b, err, backend.ErrSessionLost)
			require.True(b, failure(b, err).Unsent)

			j.set = ""
			c = b.open()
			j.ping(b, c, "arrow_flight_session_id=1; Path=/")
			j.set = "arrow_flight_session_id=3"
			err = c.EndTx(b.Context(), "tx", true)
			require.ErrorIs(b, err, backend.ErrSessionLost, "the answer is that of a session which never had the transaction")
			require.False(b, failure(b, err).Unsent, "%v", err)
		}
		require.Equal(b, 3, committed)
	})
}

func TestTheMetadataOfTheCallersContextReplacesNothing(t *testing.T) {
	var got metadata.MD
	f := &fake{info: func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		got, _ = metadata.FromIncomingContext(ctx)
		_ = grpc.SetHeader(ctx, metadata.Pairs("set-cookie", "jar=mine"))
		return nil, status.Error(codes.NotFound, "no")
	}}
	inBubble(t, f, func(b *bubble) {
		foreign := metadata.NewOutgoingContext(b.Context(), metadata.Pairs("authorization", "Bearer foreign", "cookie", "jar=foreign",
			"x-api-key", "foreign", "x-session", "foreign", "proxy-authorization", "foreign", "traceparent", "kept"))
		opened, err := b.endpoint.Open(foreign)
		require.NoError(b, err)
		b.Cleanup(func() { _ = opened.Close() })
		for _, call := range []func() error{
			func() error { return opened.Ping(foreign) },
			func() error { _, err := opened.Query(foreign, "q", backend.Call{}); return err },
		} {
			_ = call()
			require.Equal(b, []string{"Bearer b"}, got.Get("authorization"))
			require.Equal(b, []string{"jar=mine"}, got.Get("cookie"))
			require.Equal(b, []string{"mine"}, got.Get("x-api-key"))
			require.Len(b, got.Get("x-session"), 1)
			require.NotEqual(b, []string{"foreign"}, got.Get("x-session"))
			require.Empty(b, got.Get("proxy-authorization"))
			require.Equal(b, []string{"kept"}, got.Get("traceparent"))
		}
		got = nil
		for _, name := range []string{"Authorization", "cookie", "X-Session"} {
			_, err := opened.Query(b.Context(), "q", backend.Call{Headers: metadata.MD{name: {"x"}}})
			require.Equal(b, backend.FaultUsage, failure(b, err).Fault, name)
			require.Nil(b, got, "nothing is sent")
		}
	}, func(cfg *Config) {
		cfg.Authorization = bearer("Bearer b")
		cfg.Headers, cfg.SessionHeader = metadata.MD{"X-Api-Key": {"mine"}}, "X-Session"
	})
}

// TestARefusedCredentialIsRefusedBeforeAnythingRan tells the refusal of a
// call's first RPC from one in its middle.
func TestARefusedCredentialIsRefusedBeforeAnythingRan(t *testing.T) {
	refuse := false
	f := &fake{}
	f.info = func(ctx context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		return infoOf(answer(int64Schema, "0"))(ctx, d)
	}
	f.get = func(*pb.Ticket, pb.FlightService_DoGetServer) error {
		return status.Error(codes.Unauthenticated, "expired")
	}
	f.put = func(pb.FlightService_DoPutServer) error { return status.Error(codes.Unauthenticated, "expired") }
	rejected := ""
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		refuse = true
		_, err := c.Update(b.Context(), "u", backend.Call{})
		require.Equal(b, backend.FaultAuth, failure(b, err).Fault)
		require.True(b, backend.SafeToRetry(err), "%v", err)
		_, err = c.Query(b.Context(), "q", backend.Call{})
		require.Equal(b, backend.FaultAuth, failure(b, err).Fault)
		require.False(b, backend.SafeToRetry(err), "it was planned, and some servers run what they plan")
		_ = b.open()
		require.Equal(b, "Bearer b", rejected, "the source is told at the next open")
	}, func(cfg *Config) {
		cfg.Authorization = func(_ context.Context, r string) (Credential, error) {
			if refuse {
				rejected = r
			}
			return Credential{Header: "Bearer b"}, nil
		}
	})
}
