package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/flightpool/registry/kinds"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

// inHole waits for an answer that does not come: the network swallows all.
func inHole(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// clusterOf is a registry with a cluster in virtual time, whose server d is mapped for all.
func clusterOf(t *testing.T, cfg dsql.Config, health func(down *registry.UnhealthyError), options string) *registry.Registry {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Credentials = credentials.NewStaticCredentialsProvider("AKIDTEST", "secret", "")
	r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{kinds.DSQL(cfg)}, Health: func(_ string, down *registry.UnhealthyError) {
		if health != nil {
			health(down)
		}
	}})
	require.NoError(t, err)
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host 'abc.dsql.us-east-1.on.aws', max_connections '20', min_connections '0', warmup_connections '0', %s);
		CREATE USER MAPPING FOR PUBLIC SERVER d`, options)))
	return r
}

// callFor has a user ask for connections until a time.
func callFor(t *testing.T, r *registry.Registry, user string, until time.Time) {
	t.Helper()
	for time.Now().Before(until) {
		_, err := r.Acquire(t.Context(), "d", user)
		require.Error(t, err)
		time.Sleep(100 * time.Millisecond)
	}
}

// A denial is told again, without an open, to who comes behind it. In a hole that shows nothing.
func TestADenialToldAgainDoesNotShowThatTheClusterAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hole atomic.Bool
		var turns []bool
		denied := &pgconn.PgError{Severity: "FATAL", Code: "08006", Message: "unable to accept connection, access denied"}
		r := clusterOf(t, dsql.Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if hole.Load() {
				return inHole(ctx)
			}
			return nil, denied
		}}, func(down *registry.UnhealthyError) { turns = append(turns, down == nil) }, `connect_timeout '2000'`)
		defer func() { require.NoError(t, r.Close(context.WithoutCancel(t.Context()))) }()
		callFor(t, r, "bob", time.Now().Add(30*time.Second))
		require.Empty(t, turns)
		hole.Store(true)
		var callers sync.WaitGroup
		end := time.Now().Add(time.Minute)
		for range 4 {
			callers.Go(func() { callFor(t, r, "alice", end) })
		}
		callers.Go(func() { callFor(t, r, "bob", end) })
		callers.Wait()
		synctest.Wait()
		require.Equal(t, []bool{false}, turns)
	})
}

// Leases that are all with opens which nobody answers hide no outage, however many wait for one.
func TestLimitsHideNoOutage(t *testing.T) {
	for name, dial := range map[string]func(context.Context) (net.Conn, error){
		"a hole": inHole,
		"no route": func(context.Context) (net.Conn, error) {
			time.Sleep(100 * time.Millisecond)
			return nil, &net.OpError{Op: "dial", Err: errors.New("no route")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var down time.Duration
				r := clusterOf(t, dsql.Config{
					Leases: lease.NewLeases("x", 2),
					Dial:   func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
				}, func(*registry.UnhealthyError) {
					if down == 0 {
						down = time.Since(began)
					}
				}, `connect_timeout '2000'`)
				defer func() { require.NoError(t, r.Close(context.WithoutCancel(t.Context()))) }()
				var callers sync.WaitGroup
				for i := range 8 {
					callers.Go(func() { callFor(t, r, fmt.Sprint("user", i), began.Add(time.Minute)) })
				}
				callers.Wait()
				synctest.Wait()
				require.False(t, r.Healthy("d"))
				require.Less(t, down, 15*time.Second)
			})
		})
	}
}

// burst permits n opens; then others of the fleet have the rate.
type burst struct {
	lease.Limiter
	n atomic.Int64
}

func (b *burst) Wait(ctx context.Context) error {
	if b.n.Add(-1) >= 0 {
		return nil
	}
	<-ctx.Done()
	return &lease.Error{Budget: "x", Reason: lease.ErrLimit, Err: ctx.Err()}
}
func (*burst) Refused() {}

// An open that waits again for its permission, behind one that finds out whether the cluster still refuses, has not asked the cluster.
func TestAnOpenThatWaitsForASecondPermissionSaysNothingOfTheCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		permits int64
		login   time.Duration
	}{
		"the rate is used up":                        {5, time.Second},
		"there is little time behind the one before": {1 << 40, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dials atomic.Int64
				limiter := &burst{Limiter: lease.NewLimiter("x", 1, 1)}
				limiter.n.Store(tc.permits)
				r := clusterOf(t, dsql.Config{Limiter: limiter, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
					if dials.Add(1) == 1 {
						return nil, &pgconn.PgError{Code: "53400", Message: "too fast"}
					}
					select {
					case <-time.After(tc.login):
						return nil, &pgconn.PgError{Code: "XX000", Message: "internal"}
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}}, nil, `connect_timeout '10000', acquire_timeout '30000'`)
				defer func() { require.NoError(t, r.Close(context.WithoutCancel(t.Context()))) }()
				var callers sync.WaitGroup
				callers.Go(func() { _, _ = r.Acquire(t.Context(), "d", "bob") })
				time.Sleep(500 * time.Millisecond)
				for range 3 {
					callers.Go(func() { _, err := r.Acquire(t.Context(), "d", "bob"); t.Log(err) })
				}
				callers.Wait()
				synctest.Wait()
				require.True(t, r.Healthy("d"))
			})
		})
	}
}

// A refusal for the limits is why callers wait for as long as the pause behind it.
func TestWhoComesInAPauseAfterARefusalIsToldOfTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := clusterOf(t, dsql.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &pgconn.PgError{Code: "53300", Message: "too many connections"}
		}}, nil, `connect_timeout '400', acquire_timeout '2000'`)
		defer func() { require.NoError(t, r.Close(context.WithoutCancel(t.Context()))) }()
		for range 10 {
			_, err := r.Acquire(t.Context(), "d", "bob")
			require.ErrorIs(t, err, registry.ErrExhausted)
			require.ErrorAs(t, err, new(*pgconn.PgError))
		}
		require.True(t, r.Healthy("d"))
	})
}

// A pause after a refusal says nothing of the cluster, also once an open that was under way before has succeeded.
func TestAPauseAfterARefusalSaysNothingOfTheCluster(t *testing.T) {
	server := postgres(t)
	key := dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret"}
	gate, err := dsqlgate.Start(t.Context(), dsqlgate.Options{Upstream: server.DSN(), Credentials: []dsqlgate.Credential{key}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, gate.Close()) })
	var refuse atomic.Bool
	var first sync.Once
	dialling, goOn := make(chan struct{}, 1), make(chan struct{})
	r := newRegistry(t, kinds.DSQL(dsql.Config{
		TLS: gate.ClientTLS(), Logger: slog.New(slog.DiscardHandler), Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, ""),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if refuse.Load() {
				first.Do(func() { close(goOn) })
				return nil, &pgconn.PgError{Code: "53300", Message: "too many connections"}
			}
			dialling <- struct{}{}
			<-goOn
			return gate.Dial(ctx, network, address)
		},
	}))
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host '%s', max_connections '8', min_connections '0', warmup_connections '0', connect_timeout '400', acquire_timeout '420');
		CREATE USER MAPPING FOR PUBLIC SERVER d`, gate.Host())))
	var callers sync.WaitGroup
	callers.Go(func() {
		if c, err := r.Acquire(t.Context(), "d", "bob"); err == nil {
			t.Cleanup(func() { _ = c.Release() })
		}
	})
	<-dialling
	refuse.Store(true)
	for range 4 {
		callers.Go(func() {
			if c, err := r.Acquire(t.Context(), "d", "bob"); err == nil {
				t.Cleanup(func() { _ = c.Release() })
			}
		})
	}
	callers.Wait()
	require.True(t, r.Healthy("d"))
}

// What a user's AfterConnect meets, elsewhere or in a statement, is no word on the cluster, which has taken the login.
func TestAnAfterConnectThatFailsByItselfSaysNothingOfTheCluster(t *testing.T) {
	for name, fails := range map[string]func(context.Context) error{
		"another service refuses": func(context.Context) error {
			return fmt.Errorf("tenants: %w", &net.OpError{Op: "dial", Err: errors.New("refused")})
		},
		"another service is slow":  func(context.Context) error { return fmt.Errorf("tenants: %w", context.DeadlineExceeded) },
		"another database is down": func(context.Context) error { return &pgconn.PgError{Code: "57P03"} },
		"it hangs":                 func(ctx context.Context) error { <-ctx.Done(); return errors.New("gave up") },
		"it does not return":       func(ctx context.Context) error { <-ctx.Done(); time.Sleep(time.Second); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			server := postgres(t, "alice", "bob")
			key := dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret"}
			gate, err := dsqlgate.Start(t.Context(), dsqlgate.Options{Upstream: server.DSN(), Credentials: []dsqlgate.Credential{key}})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, gate.Close()) })
			r := newRegistry(t, kinds.DSQL(dsql.Config{
				TLS: gate.ClientTLS(), Dial: gate.Dial, Logger: slog.New(slog.DiscardHandler),
				Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, ""),
				AfterConnect: func(ctx context.Context, c *pgx.Conn) error {
					if c.Config().User == "bob" {
						return fails(ctx)
					}
					return nil
				},
			}))
			require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
				CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host '%s', max_connections '8', min_connections '0', warmup_connections '0', connect_timeout '2000', acquire_timeout '4000');
				CREATE USER MAPPING FOR alice SERVER d OPTIONS (user 'alice');
				CREATE USER MAPPING FOR bob SERVER d OPTIONS (user 'bob')`, gate.Host())))
			held, err := r.Acquire(t.Context(), "d", "alice")
			require.NoError(t, err)
			var callers sync.WaitGroup
			faults := make([]error, 4)
			for i := range faults {
				callers.Go(func() { _, faults[i] = r.Acquire(t.Context(), "d", "bob") })
			}
			callers.Wait()
			for _, err := range faults {
				require.Error(t, err)
				require.NotErrorIs(t, err, registry.ErrUnhealthy)
			}
			require.True(t, r.Healthy("d"))
			other, err := r.Acquire(t.Context(), "d", "alice")
			require.NoError(t, err)
			require.NoError(t, other.Release())
			require.NoError(t, held.Release())
		})
	}
}
