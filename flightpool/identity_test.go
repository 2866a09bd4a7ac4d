package flightpool

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/testserver"
)

// serial is a source of the tokens t0, t1, …, each for the given time.
func serial(life time.Duration) (source TokenSource, tokens []string, given *atomic.Int32) {
	for i := range 100 {
		tokens = append(tokens, fmt.Sprint("t", i))
	}
	given = &atomic.Int32{}
	return func(context.Context) (string, time.Time, error) {
		return tokens[given.Add(1)-1], time.Now().Add(life), nil
	}, tokens, given
}

// withTokens runs test on a server that binds the session to the bearer token.
func withTokens(t *testing.T, change func(*testserver.Profile), life time.Duration, cfg Config, test func(r *rig, given *atomic.Int32)) {
	synctest.Test(t, func(t *testing.T) {
		profile := testserver.GizmoSQL()
		if change != nil {
			change(&profile)
		}
		source, tokens, given := serial(life)
		srv, err := testserver.Start(testserver.Options{Profile: profile, Listen: testserver.InMemory, Tokens: tokens})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		cfg.Dialer, cfg.Auth = srv.Dial, TokenAuth(source)
		pool, err := New(t.Context(), srv.URI(), cfg)
		require.NoError(t, err)
		r := &rig{t, srv, pool}
		defer r.closePool()
		test(r, given)
	})
}

// TestATokenIsRenewedBetweenConnectionsAndNeverUnderOne keeps a session past
// the moment at which new connections get the next token: on a server that
// binds the session to the token, another one would be another session.
func TestATokenIsRenewedBetweenConnectionsAndNeverUnderOne(t *testing.T) {
	for name, change := range map[string]func(*testserver.Profile){
		"that checks transaction ids": nil,
		"that ignores them":           func(p *testserver.Profile) { p.IgnoreTxID, p.UnknownTxOK = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			withTokens(t, change, 5*time.Minute, Config{MinIdle: -1, MaxSize: 2, HealthCheck: HealthCheck{Interval: -1}}, func(r *rig, given *atomic.Int32) {
				r.exec("CREATE TABLE t (a BIGINT)")
				s := r.session()
				require.NoError(r, s.BeginTransaction(r.Context()))
				_, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)")
				require.NoError(r, err)
				time.Sleep(4*time.Minute + 45*time.Second)
				r.exec("INSERT INTO t VALUES (10)") // on another connection
				require.Greater(r, given.Load(), int32(1), "which has the next token")
				_, err = s.Update(r.Context(), "INSERT INTO t VALUES (2)")
				require.NoError(r, err)
				require.NoError(r, s.Commit(r.Context()))
				require.NoError(r, s.Close())
				require.Equal(r, "3", r.value(r.pool, "SELECT count(*) FROM t"))
			})
		})
	}
}

func TestAConnectionIsReplacedBeforeItsTokenExpires(t *testing.T) {
	for _, life := range []time.Duration{6 * time.Second, 5 * time.Minute} {
		withTokens(t, nil, life, Config{MinIdle: 2, MaxSize: 2}, func(r *rig, given *atomic.Int32) {
			r.exec("CREATE TABLE t (a BIGINT)")
			start := time.Now()
			for time.Since(start) < 10*life {
				_, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (1)")
				require.NoError(r, err)
				time.Sleep(life / 7)
			}
			require.Zero(r, r.pool.Stats().Failures)
			require.Zero(r, r.pool.Stats().Retries, "no connection was used with a token that had ended")
			require.LessOrEqual(r, given.Load(), int32(25), "a token serves for half its life")
			require.GreaterOrEqual(r, given.Load(), int32(10))
		})
	}
}

// TestExpiredTokensFailNoCall has a server that forgets its tokens at once. A
// refused credential is refused before anything runs, so changes are made again.
func TestExpiredTokensFailNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Profile: testserver.GizmoSQL(), Listen: testserver.InMemory, Users: map[string]string{"u": "p"}})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		pool, err := New(t.Context(), srv.URI(), Config{Dialer: srv.Dial, Auth: BasicAuth("u", "p"), MaxSize: 8, MinIdle: 8, HealthCheck: HealthCheck{Interval: -1}})
		require.NoError(t, err)
		r := &rig{t, srv, pool}
		defer r.closePool()
		r.exec("CREATE TABLE t (a BIGINT)")
		require.NoError(r, pool.WaitReady(r.Context(), 8))
		srv.Faults().ExpireTokens()
		for range 20 {
			r.exec("INSERT INTO t VALUES (1)")
		}
		require.Equal(r, "20", r.value(r.pool, "SELECT count(*) FROM t"))
	})
}

func TestTheCredentialOfAnotherServiceInTheCallersContextIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory, Tokens: []string{"pool"}})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		// As in a gRPC handler that calls several services.
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer for-another-service")
		pool, err := New(ctx, srv.URI(), Config{Dialer: srv.Dial, Auth: BearerAuth("pool")})
		require.NoError(t, err)
		r := &rig{t, srv, pool}
		defer r.closePool()
		_, err = firstValue(ctx, pool, "SELECT 1")
		require.NoError(t, err)
		_, err = pool.QueryWithOptions(ctx, "SELECT 1", QueryOptions{Headers: metadata.Pairs("authorization", "Bearer x")})
		require.ErrorContains(t, err, "Config.Auth")
		require.NotContains(t, err.Error(), "Bearer")
	})
}

func TestConfigLocationsDecides(t *testing.T) {
	for _, kind := range []string{"same host", "none"} {
		var mu sync.Mutex // guards asked: opens ask beside calls
		var asked []string
		cfg := Config{}
		if kind == "none" {
			cfg.Locations = func(u *url.URL) (allow, sendCredentials bool) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, u.String())
				return false, false
			}
		}
		inBubble(t, testserver.Strict(), cfg, func(r *rig) {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, After: true, SQL: "SELECT 1", Do: testserver.Rewrite(func(i *flight.FlightInfo) {
				i.Endpoint[0].Location = []*flight.Location{{Uri: "grpc://server:2"}}
			})})
			_, err := firstValue(r.Context(), r.pool, "SELECT 1")
			if kind == "none" {
				require.ErrorContains(r, err, "Config.Locations does not allow")
				mu.Lock()
				defer mu.Unlock()
				require.Equal(r, []string{"grpc://server:2"}, slices.Compact(asked)) // the probe of an open asks as well
				return
			}
			require.NoError(r, err)
		})
	}
}
