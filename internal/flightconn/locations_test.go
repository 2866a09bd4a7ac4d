package flightconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// shows is a location that keeps the headers which it is shown.
func shows(seen *metadata.MD) *fake {
	return &fake{get: func(k *pb.Ticket, s pb.FlightService_DoGetServer) error {
		*seen, _ = metadata.FromIncomingContext(s.Context())
		return byTicket(k, s)
	}}
}

// withSecrets gives a connection everything that may be a credential.
func withSecrets(cfg *Config) {
	cfg.Authorization = bearer("Bearer s3cret")
	cfg.Headers = metadata.Pairs("x-api-key", "s3cret")
	cfg.SessionHeader = "x-session"
	cfg.DialOptions = []grpc.DialOption{grpc.WithUnaryInterceptor(nil), grpc.WithChainStreamInterceptor(
		func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return next(metadata.AppendToOutgoingContext(ctx, "x-of-dial-options", "s3cret"), d, cc, method, opts...)
		})}
}

func TestCredentialsGoToTheSameHostAndToNobodyElse(t *testing.T) {
	const secrets = "authorization cookie x-api-key x-session x-call x-of-dial-options"
	for name, c := range map[string]struct {
		location string
		policy   func(*url.URL) (bool, bool)
		shown    bool
		refused  string
	}{
		"same host":              {"grpc://server:2", nil, true, ""},
		"another host":           {"grpc://elsewhere:2", nil, false, ""},
		"a socket":               {"grpc+unix:///run/x.sock", nil, false, "socket of this machine"},
		"loopback":               {"grpc://127.0.0.1:2", nil, false, "loopback or link-local"},
		"loopback by name":       {"grpc://localhost:2", nil, false, "loopback or link-local"},
		"link-local":             {"grpc://169.254.169.254:80", nil, false, "loopback or link-local"},
		"loopback with a zone":   {"grpc://[::1%25lo]:2", nil, false, "loopback or link-local"},
		"link-local with a zone": {"grpc://[fe80::1%25eth0]:2", nil, false, "loopback or link-local"},
		"loopback by no host":    {"grpc://:2", nil, false, "loopback or link-local"},
		"allowed":                {"grpc://elsewhere:2", func(*url.URL) (bool, bool) { return true, true }, true, ""},
		"allowed without":        {"grpc://server:2", func(*url.URL) (bool, bool) { return true, false }, false, ""},
		"not allowed":            {"grpc://server:2", func(*url.URL) (bool, bool) { return false, true }, false, "Config.Locations does not allow"},
		"a loopback that may be": {"grpc://127.0.0.1:2", func(*url.URL) (bool, bool) { return true, false }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var seen metadata.MD
			f := &fake{}
			f.info = func(ctx context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
				_ = grpc.SetHeader(ctx, metadata.Pairs("set-cookie", "arrow_flight_session_id=s3cret"))
				return infoOf(at(answer(int64Schema, "0"), c.location))(ctx, d)
			}
			inBubble(t, f, func(b *bubble) {
				u, err := url.Parse(c.location)
				require.NoError(b, err)
				b.net.serve(b, u.Host+u.Path, shows(&seen))
				ctx := metadata.AppendToOutgoingContext(b.Context(), "x-mine", "s3cret")
				s, err := b.open().Query(ctx, "q", backend.Call{Headers: metadata.Pairs("x-call", "s3cret")})
				if c.refused != "" {
					require.ErrorContains(b, err, c.refused)
					require.True(b, failure(b, err).Fault.KeepsConn())
					require.Empty(b, seen)
					return
				}
				require.NoError(b, err)
				require.Equal(b, upTo(10), values(b, s))
				for _, key := range strings.Fields(secrets) {
					require.Equal(b, c.shown, len(seen.Get(key)) > 0, "%s: %v", key, seen)
				}
				if !c.shown {
					require.NotContains(b, fmt.Sprint(seen), "s3cret")
				}
			}, withSecrets, func(cfg *Config) { cfg.Locations = c.policy })
		})
	}
}

func TestAnEncryptedConnectionFollowsNoLocationInClear(t *testing.T) {
	cfg := &Config{Address: "server:1", TLS: &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: "name.of.the.certificate", Certificates: []tls.Certificate{{}},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil },
		ClientSessionCache:   tls.NewLRUClientSessionCache(1),
	}}
	for _, uri := range []string{"grpc://server:2", "grpc+tcp://elsewhere:2", "grpc+unix:///x"} {
		_, err := cfg.resolveLocation(uri)
		require.ErrorContains(t, err, "not encrypted", uri)
	}
	mine, err := cfg.resolveLocation("grpc+tls://server:2")
	require.NoError(t, err)
	require.True(t, mine.getsCredentials)
	require.Equal(t, "name.of.the.certificate", cfg.locationTLS(mine).ServerName)
	require.NotEmpty(t, cfg.locationTLS(mine).Certificates)
	theirs, err := cfg.resolveLocation("grpc+tls://elsewhere:2")
	require.NoError(t, err)
	require.False(t, theirs.getsCredentials)
	require.Empty(t, cfg.locationTLS(theirs).ServerName, "the name is that of another server")
	require.Empty(t, cfg.locationTLS(theirs).Certificates)
	require.Nil(t, cfg.locationTLS(theirs).GetClientCertificate)
	require.NotEmpty(t, cfg.TLS.ServerName, "the user's own is not changed")
}

func TestASocketFollowsSocketsAndThisMachine(t *testing.T) {
	cfg := &Config{Network: "unix", Address: "/run/flight.sock"}
	for uri, trusted := range map[string]bool{"grpc+unix:///run/other.sock": true, "grpc://127.0.0.1:2": true, "grpc://elsewhere:2": false} {
		at, err := cfg.resolveLocation(uri)
		require.NoError(t, err, uri)
		require.Equal(t, trusted, at.getsCredentials, uri)
	}
	require.True(t, cfg.isOwnAddress(locationAddr{network: "unix", addr: "/run/flight.sock"}))
	require.False(t, cfg.isOwnAddress(locationAddr{network: "unix", addr: "/run/other.sock"}))
}

// TestTheLossOfTheOwnTransportIsNoFaultOfTheStatement has a server that dies
// under the stream, and names itself in each way.
func TestTheLossOfTheOwnTransportIsNoFaultOfTheStatement(t *testing.T) {
	for _, uris := range [][]string{nil, {"grpc://" + here}, {"grpc://" + here, "grpc://dead:1"}, {"grpc://dead:1", "grpc://" + here}, {"grpc://alias:1"}, {"grpc://alias:1", ""}} {
		for _, rows := range []int{0, 1} {
			t.Run(fmt.Sprint(uris, rows), func(t *testing.T) {
				var b *bubble
				f := &fake{info: infoOf(at(answer(int64Schema, "0"), uris...))}
				f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
					if rows > 0 {
						if err := sendBatches(s, rows); err != nil {
							return err
						}
						time.Sleep(time.Second)
					}
					for _, link := range b.listener.Conns() { // the connection's own first
						link.Cut()
						time.Sleep(time.Millisecond)
					}
					return silence(s.Context())
				}
				inBubble(t, f, func(bb *bubble) {
					b = bb
					b.net["alias:1"] = b.listener
					c := b.open()
					s, err := c.Query(b.Context(), "q", backend.Call{})
					for err == nil {
						_, err = s.Next()
					}
					e := failure(b, err)
					require.Equal(b, backend.FaultTransport, e.Fault, "%v", err)
					require.ErrorIs(b, err, backend.ErrSessionLost)
					require.False(b, e.Fault.KeepsConn())
					require.NotContains(b, err.Error(), "\n")
				})
			})
		}
	}
}

// TestAServerThatIsBusyIsNoFaultOfTheStatement has a living server that answers
// UNAVAILABLE, with its own address as the location.
func TestAServerThatIsBusyIsNoFaultOfTheStatement(t *testing.T) {
	f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://"+here, "grpc://dead:1"))}
	f.get = func(*pb.Ticket, pb.FlightService_DoGetServer) error { return status.Error(codes.Unavailable, "busy") }
	inBubble(t, f, func(b *bubble) {
		_, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.Equal(b, backend.FaultTransport, failure(b, err).Fault, "%v", err)
		require.ErrorContains(b, err, "dead:1")
	})
}

// kept is how many clients of locations there are, and how many of them idle.
func kept(b *bubble) (open, idle int) {
	ls := &b.endpoint.locations
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.mu.open), ls.mu.idle.Len()
}

func TestClientsOfLocationsAreBounded(t *testing.T) {
	var uris []string
	for i := range 200 {
		uris = append(uris, fmt.Sprintf("grpc://server:%d", 1000+i))
	}
	one := &fake{get: byTicket}
	t.Run("that have rows", func(t *testing.T) {
		f := &fake{}
		f.info = func(ctx context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			info := answer(int64Schema)
			for _, uri := range uris {
				info.Endpoint = append(info.Endpoint, at(answer(nil, "0"), uri+"/?a=b").Endpoint...)
			}
			return infoOf(info)(ctx, d)
		}
		inBubble(t, f, func(b *bubble) {
			most := 0
			for i := range uris {
				b.net.serve(b, fmt.Sprintf("server:%d", 1000+i), one)
			}
			s, err := b.open().Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			for err == nil {
				_, err = s.Next()
				open, _ := kept(b)
				most = max(most, open)
			}
			synctest.Wait()
			require.LessOrEqual(b, most, idleLocations+2*parallelEndpoints, "also while the result is read")
			open, idle := kept(b)
			require.Equal(b, idleLocations, open)
			require.Equal(b, idleLocations, idle)
			time.Sleep(locationIdle + time.Second)
			synctest.Wait()
			open, _ = kept(b)
			require.Zero(b, open)
		})
	})
	t.Run("that have none", func(t *testing.T) {
		inBubble(t, &fake{info: infoOf(at(answer(int64Schema, "0"), uris...))}, func(b *bubble) {
			_, err := b.open().Query(b.Context(), "q", backend.Call{})
			require.ErrorContains(b, err, "184 more were not tried")
			require.Less(b, len(err.Error()), 8000)
			synctest.Wait()
			open, _ := kept(b)
			require.Zero(b, open, "a client that has no transport is not kept")
		})
	})
}

func TestALocationThatDoesNotAnswerIsTriedLastForAWhile(t *testing.T) {
	f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://server:666", "grpc://server:2"))}
	inBubble(t, f, func(b *bubble) {
		b.net.serve(b, "server:2", &fake{get: byTicket})
		c := b.open()
		b.endpoint.cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == "server:666" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return b.net.dial(ctx, addr)
		}
		took := func() time.Duration {
			began := time.Now()
			s, err := c.Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			require.Equal(b, upTo(10), values(b, s))
			return time.Since(began)
		}
		require.Equal(b, DefaultDialTimeout, took())
		require.Zero(b, took(), "it is known")
		time.Sleep(downFor)
		require.Equal(b, DefaultDialTimeout, took(), "it may be back")
	})
}

func TestNothingOfALocationThatMayBeSecretShowsInAnError(t *testing.T) {
	f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://user:hunter2@server:2/?token=hunter2#hunter2", "grpc://hunter2:%zz", "grpc:user:hunter2@server:2", "hunter2://x:2"))}
	inBubble(t, f, func(b *bubble) {
		_, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.ErrorContains(b, err, `"grpc://server:2/"`)
		require.NotContains(b, strings.ReplaceAll(err.Error(), `"hunter2://x:2": scheme "hunter2"`, ""), "hunter2")
	})
}

// TestAForeignNameThatLeadsToThisMachineIsNotDialled has a location of another
// host whose name the resolver leads to a listener of this machine.
func TestAForeignNameThatLeadsToThisMachineIsNotDialled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	uri := "grpc://elsewhere.example:" + port
	reach := func(cfg Config) error {
		cfg.resolver, cfg.Dialer = namesAre([4]byte{127, 0, 0, 1}), nil
		cfg.proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
		cfg, err := cfg.resolve()
		require.NoError(t, err)
		at, err := cfg.resolveLocation(uri)
		require.NoError(t, err)
		ls := &locations{cfg: &cfg}
		defer ls.close()
		used, err := ls.acquire(t.Context(), at)
		require.NoError(t, err)
		defer used.release()
		if used.cc.GetState() == connectivity.Ready {
			return nil
		}
		_, err = pb.NewFlightServiceClient(&channel{cc: used.cc, id: noIdentity}).GetFlightInfo(t.Context(), &pb.FlightDescriptor{})
		return err
	}
	server := grpc.NewServer()
	pb.RegisterFlightServiceServer(server, &fake{})
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	err = reach(Config{Address: "server.example:1"})
	require.ErrorIs(t, err, errLocalLocation)
	require.ErrorContains(t, err, "loopback or link-local address")
	require.NoError(t, reach(Config{Address: "127.0.0.1:1"}), "the server is on this machine itself")
	require.NoError(t, reach(Config{Address: "server.example:1", Locations: func(*url.URL) (bool, bool) { return true, false }}))
}

// blocked dials for longer than anybody waits.
func blocked(ctx context.Context, _ string) (net.Conn, error) {
	<-ctx.Done()
	time.Sleep(time.Second)
	return nil, ctx.Err()
}

func (ls *locations) isKnownIdle() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.mu.idle.Len()
}

func TestALocationIsRememberedAsDownUntilItIsReachedAgain(t *testing.T) {
	var dial func(ctx context.Context, addr string) (net.Conn, error)
	inBubble(t, &fake{}, func(b *bubble) {
		b.net.serve(b, "remote:2", &fake{})
		ls := &b.endpoint.locations
		at, err := b.endpoint.cfg.resolveLocation("grpc://remote:2")
		require.NoError(b, err)

		dial = blocked
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		_, err = ls.acquire(ctx, at)
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.False(b, ls.isDown(at), "it was the caller who had no time")
		require.Zero(b, b.endpoint.streamsAtLocations())

		began := time.Now()
		_, err = ls.acquire(b.Context(), at)
		require.ErrorContains(b, err, "no connection within 5s")
		require.Equal(b, DefaultDialTimeout, time.Since(began))
		require.True(b, ls.isDown(at))
		require.Zero(b, b.endpoint.streamsAtLocations())
		time.Sleep(downFor - time.Nanosecond)
		require.True(b, ls.isDown(at))
		time.Sleep(time.Nanosecond)
		require.False(b, ls.isDown(at))

		dial = func(context.Context, string) (net.Conn, error) { return nil, errors.New("refused") }
		l, err := ls.acquire(b.Context(), at)
		require.NoError(b, err, "the RPC says what is the matter")
		l.release()
		require.True(b, ls.isDown(at))

		dial = b.net.dial
		l, err = ls.acquire(b.Context(), at)
		require.NoError(b, err)
		require.False(b, ls.isDown(at))
		require.False(b, ls.anyDown())
		l.release()
	}, func(cfg *Config) {
		known := cfg.Dialer
		cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == here {
				return known(ctx, addr)
			}
			return dial(ctx, addr)
		}
	})
}

func TestALocationInUseIsNotIdle(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		b.net.serve(b, "remote:2", &fake{})
		ls := &b.endpoint.locations
		at, err := b.endpoint.cfg.resolveLocation("grpc://remote:2")
		require.NoError(b, err)
		use := func() *location {
			l, err := ls.acquire(b.Context(), at)
			require.NoError(b, err)
			return l
		}
		l := use()
		require.Same(b, l, use())
		l.release()
		require.Zero(b, ls.isKnownIdle(), "one stream is left")
		l.release()
		require.Equal(b, 1, ls.isKnownIdle())
		time.Sleep(locationIdle - time.Second)
		require.Same(b, l, use())
		require.Zero(b, ls.isKnownIdle())
		time.Sleep(2 * locationIdle)
		require.Equal(b, connectivity.Ready, l.cc.GetState(), "it is in use")
		l.release()
		time.Sleep(locationIdle)
		synctest.Wait()
		require.Equal(b, connectivity.Shutdown, l.cc.GetState())
		require.Zero(b, ls.isKnownIdle())
		require.NotSame(b, l, use(), "and not found any more")
	})
}

// Of two clients that were made for one place at the same time, one is kept.
func TestAPlaceHasOneClientAndAClosedEndpointNone(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		b.net.serve(b, "remote:2", &fake{})
		ls := &b.endpoint.locations
		at, err := b.endpoint.cfg.resolveLocation("grpc://remote:2")
		require.NoError(b, err)
		var made []*location
		for range 3 {
			l, err := ls.dial(at)
			require.NoError(b, err)
			made = append(made, l)
		}
		for i, l := range made[:2] {
			ls.mu.dials++
			known, err := ls.add(l, nil)
			require.NoError(b, err)
			require.Same(b, made[0], known)
			require.Equal(b, i+1, known.streams)
		}
		require.Equal(b, connectivity.Shutdown, made[1].cc.GetState())
		ls.close()
		require.Equal(b, connectivity.Shutdown, made[0].cc.GetState())
		made[0].release()
		made[0].release()
		require.Zero(b, ls.isKnownIdle(), "nothing is kept after the end")
		ls.mu.dials++
		_, err = ls.add(made[2], nil)
		require.ErrorIs(b, err, errClosed)
		require.Equal(b, connectivity.Shutdown, made[2].cc.GetState())
		_, err = ls.acquire(b.Context(), at)
		require.ErrorIs(b, err, errClosed)
	})
}

func TestWhatIsRememberedOfLocationsIsBounded(t *testing.T) {
	ls := &locations{cfg: &Config{}}
	for i := range 3 * downLocations {
		at := locationAddr{addr: strconv.Itoa(i)}
		ls.markUnreachable(at)
		require.True(t, ls.isDown(at))
		require.LessOrEqual(t, len(ls.mu.down), downLocations)
		require.True(t, i == 0 || i%downLocations == 0 || ls.isDown(locationAddr{addr: strconv.Itoa(i - 1)}))
	}
	ls.mu.open = map[locationAddr]*location{}
	for i := range openLocations + idleLocations {
		at := locationAddr{addr: strconv.Itoa(i)}
		ls.mu.open[at] = &location{owner: ls, at: at}
	}
	_, err := ls.getOrDial(locationAddr{addr: "one more"})
	require.ErrorContains(t, err, "other locations are in use")
	_, err = ls.acquire(t.Context(), locationAddr{addr: "one more"})
	require.ErrorContains(t, err, "other locations are in use")
	known, err := ls.getOrDial(locationAddr{addr: "0"})
	require.NoError(t, err)
	require.Equal(t, 1, known.streams)

	const room, comers = 3, 40
	for i := range room {
		delete(ls.mu.open, locationAddr{addr: strconv.Itoa(i + 1)})
	}
	var wg sync.WaitGroup
	var taken atomic.Int64
	for i := range comers {
		wg.Go(func() {
			if _, err := ls.getOrDial(locationAddr{addr: "new:" + strconv.Itoa(i)}); err == nil {
				taken.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, room, taken.Load())
	require.Zero(t, ls.mu.dials)
	require.Len(t, ls.mu.open, openLocations+idleLocations)
	for _, l := range ls.mu.open {
		if l.cc != nil {
			require.NoError(t, l.cc.Close())
		}
	}
}
