package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
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

// offlineLeases are those of a table that cannot be reached.
type offlineLeases struct{ lease.Leases }

func (offlineLeases) Acquire(context.Context) (func(), error) {
	return nil, &lease.Error{Budget: "x", Reason: lease.ErrUnavailable, Err: &net.OpError{Op: "dial", Err: errors.New("no route to the table")}}
}
func (offlineLeases) Stats() lease.Stats { return lease.Stats{Degraded: true} }

// grantingLeases are those of a table that cannot be reached, whose Fallback grants.
type grantingLeases struct{ lease.Leases }

func (grantingLeases) Stats() lease.Stats { return lease.Stats{Degraded: true} }

// The time of an open may be over while it waits for its permission, or for a cluster that opens too many at a time.
func TestWhatWaitsForAPermissionSaysNothingOfTheCluster(t *testing.T) {
	fullLeases := func(t *testing.T) lease.Leases {
		l := lease.NewLeases("x", 1)
		_, err := l.Acquire(t.Context())
		require.NoError(t, err)
		return l
	}
	spentLimiter := func(t *testing.T) lease.Limiter {
		l := lease.NewLimiter("x", 0.01, 1)
		require.NoError(t, l.Wait(t.Context()))
		return l
	}
	dial := func(err error) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, _, _ string) (net.Conn, error) {
			if err == nil { // no answer
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, err
		}
	}
	refused, tooFast := dial(&net.OpError{Op: "dial", Err: errors.New("connection refused")}), dial(&pgconn.PgError{Code: "53400"})
	for name, c := range map[string]struct {
		base    func(t *testing.T) dsql.Config // made in the bubble
		healthy bool
	}{
		"no lease":  {func(t *testing.T) dsql.Config { return dsql.Config{Leases: fullLeases(t), Dial: dial(nil)} }, true},
		"no permit": {func(t *testing.T) dsql.Config { return dsql.Config{Limiter: spentLimiter(t), Dial: dial(nil)} }, true},
		"no table": {func(t *testing.T) dsql.Config {
			return dsql.Config{Leases: offlineLeases{fullLeases(t)}, Dial: dial(nil)}
		}, true},
		"opens too many": {func(t *testing.T) dsql.Config { return dsql.Config{Dial: tooFast} }, true},
		"no answer":      {func(t *testing.T) dsql.Config { return dsql.Config{Dial: dial(nil)} }, false},
		"nobody listens": {func(t *testing.T) dsql.Config { return dsql.Config{Dial: refused} }, false},
		"nobody listens, nor at the table": {func(t *testing.T) dsql.Config {
			return dsql.Config{Leases: grantingLeases{lease.NewLeases("x", 9)}, Dial: refused}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := c.base(t)
				base.Logger = slog.New(slog.DiscardHandler)
				base.Credentials = credentials.NewStaticCredentialsProvider("AKIDTEST", "secret", "")
				r := newRegistry(t, kinds.DSQL(base))
				require.NoError(t, r.ApplyDDL(t.Context(), `
					CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host 'abc.dsql.us-east-1.on.aws', max_connections '4', min_connections '0', warmup_connections '0', connect_timeout '2000');
					CREATE USER MAPPING FOR PUBLIC SERVER d`))
				var callers sync.WaitGroup
				faults := make([]error, 4)
				for i := range faults {
					callers.Go(func() { _, faults[i] = r.Acquire(t.Context(), "d", fmt.Sprint("user", i)) })
				}
				callers.Wait()
				synctest.Wait()
				require.Equal(t, c.healthy, r.Healthy("d"), "%v", faults)
				if !c.healthy {
					return
				}
				for _, err := range faults {
					require.ErrorIs(t, err, registry.ErrExhausted)
					require.NotErrorIs(t, err, registry.ErrUnhealthy)
					require.ErrorIs(t, err, dsql.ErrReservoirEmpty)
					require.ErrorAs(t, err, new(*dsql.EmptyError))
				}
			})
		})
	}
}

// That is the bound with which a cluster takes no leases in advance.
func TestEachUsersClusterMayHaveAllOfTheFleet(t *testing.T) {
	for _, limit := range []int{0, 7, 20_000} {
		connector, err := kinds.DSQL(dsql.Config{
			ConnLimit: limit, Region: "eu-west-1", Logger: slog.New(slog.DiscardHandler),
			Credentials: credentials.NewStaticCredentialsProvider("AKIDTEST", "secret", ""),
		}).Connector(registry.ConnectParams{Server: "d", Options: map[string]string{"host": "d.example.com"}})
		require.NoError(t, err)
		cfg := connector.(interface{ Cluster() *dsql.Cluster }).Cluster().Config()
		require.Equal(t, cfg.ConnLimit, cfg.MaxSize)
		require.True(t, cfg.OnDemand)
		require.NoError(t, connector.(io.Closer).Close())
	}
}

// offlineCredentials cannot be fetched: where they come from does not answer.
type offlineCredentials struct{}

func (offlineCredentials) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{}, fmt.Errorf("no answer of STS: %w", context.DeadlineExceeded)
}

// hangingCredentials come from where nobody answers.
type hangingCredentials struct{}

func (hangingCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	<-ctx.Done()
	return aws.Credentials{}, ctx.Err()
}

func TestCredentialsThatDoNotComeSayNothingOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, kinds.DSQL(dsql.Config{
			Dial:   func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("is not dialled") },
			Logger: slog.New(slog.DiscardHandler), Credentials: hangingCredentials{},
		}))
		require.NoError(t, r.ApplyDDL(t.Context(), `
			CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host 'abc.dsql.us-east-1.on.aws', max_connections '4', min_connections '0', warmup_connections '0', connect_timeout '2000');
			CREATE USER MAPPING FOR PUBLIC SERVER d`))
		var callers sync.WaitGroup
		for i := range 4 {
			callers.Go(func() {
				_, err := r.Acquire(t.Context(), "d", fmt.Sprint("user", i))
				require.ErrorContains(t, err, "wait for credentials")
			})
		}
		callers.Wait()
		synctest.Wait()
		require.True(t, r.Healthy("d"))
		time.Sleep(2 * time.Minute) // the question for credentials ends
	})
}

// The last open that was denied is not why one waits that has come since.
func TestWhatWaitsForAPermissionBehindADenialSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := lease.NewLeases("x", 1)
		denied := &pgconn.PgError{Severity: "FATAL", Code: "08006", Message: "unable to accept connection, access denied"}
		r := newRegistry(t, kinds.DSQL(dsql.Config{
			Leases: leases, Logger: slog.New(slog.DiscardHandler),
			Credentials: credentials.NewStaticCredentialsProvider("AKIDTEST", "secret", ""),
			Dial:        func(context.Context, string, string) (net.Conn, error) { return nil, denied },
		}))
		require.NoError(t, r.ApplyDDL(t.Context(), `
			CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host 'abc.dsql.us-east-1.on.aws', max_connections '4', min_connections '0', warmup_connections '0', connect_timeout '2000');
			CREATE USER MAPPING FOR PUBLIC SERVER d`))
		_, err := r.Acquire(t.Context(), "d", "bob")
		require.ErrorAs(t, err, new(*dsql.OpenError))
		require.NotErrorIs(t, err, registry.ErrExhausted)
		time.Sleep(10 * time.Second)                // the breaker's pause
		release, err := leases.Acquire(t.Context()) // others of the fleet have what there is
		require.NoError(t, err)
		_, err = r.Acquire(t.Context(), "d", "bob")
		require.ErrorIs(t, err, registry.ErrExhausted)
		require.ErrorAs(t, err, new(*dsql.EmptyError))
		release()
	})
}

// goingCredentials last ten seconds each, and are not given any more.
type goingCredentials struct{ gone atomic.Bool }

func (g *goingCredentials) Retrieve(context.Context) (aws.Credentials, error) {
	if g.gone.Load() {
		return aws.Credentials{}, errors.New("no answer of STS")
	}
	return aws.Credentials{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret", CanExpire: true, Expires: time.Now().Add(10 * time.Second)}, nil
}

func TestAProbeWithoutCredentialsHasNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &goingCredentials{}
		r := newRegistry(t, kinds.DSQL(dsql.Config{
			Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: errors.New("no route")}
			},
			Logger: slog.New(slog.DiscardHandler), Credentials: from,
		}))
		require.NoError(t, r.ApplyDDL(t.Context(), `
			CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host 'abc.dsql.us-east-1.on.aws', max_connections '4', min_connections '0', warmup_connections '0', connect_timeout '2000');
			CREATE USER MAPPING FOR PUBLIC SERVER d`))
		var callers sync.WaitGroup
		for i := range 4 {
			callers.Go(func() { _, _ = r.Acquire(t.Context(), "d", fmt.Sprint("user", i)) })
		}
		callers.Wait()
		synctest.Wait()
		require.False(t, r.Healthy("d"))
		from.gone.Store(true)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.False(t, r.Healthy("d"), "nobody has answered")
	})
}

// That a cluster refuses one user, as it does with an SQLSTATE of broken connections, is no reason to take from the others what they have.
func TestAUserWhoIsDeniedSaysNothingOfTheCluster(t *testing.T) {
	for name, credentials := range map[string]aws.CredentialsProvider{
		"access denied":  credentials.NewStaticCredentialsProvider("AKIDTEST", "secret", ""),
		"no credentials": offlineCredentials{},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				denied := &pgconn.PgError{Severity: "FATAL", Code: "08006", Message: "unable to accept connection, access denied"}
				r := newRegistry(t, kinds.DSQL(dsql.Config{
					Dial:   func(context.Context, string, string) (net.Conn, error) { return nil, denied },
					Logger: slog.New(slog.DiscardHandler), Credentials: credentials,
				}))
				require.NoError(t, r.ApplyDDL(t.Context(), `
					CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host 'abc.dsql.us-east-1.on.aws', max_connections '4', min_connections '0', warmup_connections '0', connect_timeout '2000');
					CREATE USER MAPPING FOR PUBLIC SERVER d`))
				for range 5 {
					_, err := r.Acquire(t.Context(), "d", "bob")
					require.NotErrorIs(t, err, registry.ErrUnhealthy)
					require.ErrorAs(t, err, new(*dsql.OpenError))
				}
				synctest.Wait()
				require.True(t, r.Healthy("d"))
			})
		})
	}
}

// leavingCredentials are asked before each open, and are not given any more once they have gone.
type leavingCredentials struct {
	key  dsqlgate.Credential
	gone atomic.Bool
}

func (l *leavingCredentials) Retrieve(context.Context) (aws.Credentials, error) {
	if l.gone.Load() {
		return aws.Credentials{}, errors.New("no answer of STS")
	}
	return aws.Credentials{AccessKeyID: l.key.AccessKeyID, SecretAccessKey: l.key.SecretAccessKey, CanExpire: true, Expires: time.Now().Add(4 * time.Second)}, nil
}

// preparation is what AfterConnect does: nothing until it is stored.
type preparation struct {
	atomic.Pointer[func(context.Context, *pgx.Conn) error]
}

func (p *preparation) run(ctx context.Context, c *pgx.Conn) error {
	if do := p.Load(); do != nil {
		return (*do)(ctx, c)
	}
	return nil
}

// Who has a connection is not told of an open that fails, but waits for another. That is no fault of the cluster, either.
func TestAUserOfConnectionsWhoIsDeniedMoreSaysNothingOfTheCluster(t *testing.T) {
	prepare := func(p *preparation, how func(context.Context, *pgx.Conn) error) { p.Store(&how) }
	for name, deny := range map[string]func(*dsqlgate.Gate, *leavingCredentials, *preparation){
		"access denied":  func(g *dsqlgate.Gate, l *leavingCredentials, _ *preparation) { g.Revoke(l.key.AccessKeyID) },
		"no credentials": func(_ *dsqlgate.Gate, l *leavingCredentials, _ *preparation) { l.gone.Store(true) },
		"a table that is not there": func(_ *dsqlgate.Gate, _ *leavingCredentials, p *preparation) {
			prepare(p, func(ctx context.Context, c *pgx.Conn) error {
				_, err := c.Exec(ctx, "SELECT * FROM no_such_table")
				return err
			})
		},
		"no tenant": func(_ *dsqlgate.Gate, _ *leavingCredentials, p *preparation) {
			prepare(p, func(context.Context, *pgx.Conn) error { return errors.New("no such tenant") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := postgres(t)
			key := dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret"}
			gate, err := dsqlgate.Start(t.Context(), dsqlgate.Options{Upstream: server.DSN(), Credentials: []dsqlgate.Credential{key}})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, gate.Close()) })
			from, prepared := &leavingCredentials{key: key}, new(preparation)
			r := newRegistry(t, kinds.DSQL(dsql.Config{
				TLS: gate.ClientTLS(), Dial: gate.Dial, Logger: slog.New(slog.DiscardHandler), Credentials: from, AfterConnect: prepared.run,
			}))
			require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
				CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host '%s', max_connections '8', min_connections '0', warmup_connections '0',
					connect_timeout '500', acquire_timeout '800');
				CREATE USER MAPPING FOR PUBLIC SERVER d`, gate.Host())))
			c, err := r.Acquire(t.Context(), "d", "bob")
			require.NoError(t, err)
			defer func() { _ = c.Release() }()
			deny(gate, from, prepared)
			var callers sync.WaitGroup
			faults := make([]error, 4)
			for i := range faults {
				callers.Go(func() { _, faults[i] = r.Acquire(t.Context(), "d", "bob") })
			}
			callers.Wait()
			for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() { // the opens have been told
				st, err := r.ServerStats("d")
				require.NoError(t, err)
				if st.ConnectionErrors >= uint64(len(faults)) {
					break
				}
				require.True(t, time.Now().Before(end))
			}
			for _, err := range faults {
				require.Error(t, err)
				require.NotErrorIs(t, err, registry.ErrUnhealthy)
				require.ErrorAs(t, err, new(*dsql.OpenError))
				require.ErrorIs(t, err, dsql.ErrReservoirEmpty)
				require.ErrorAs(t, err, new(*dsql.EmptyError))
			}
			require.True(t, r.Healthy("d"))
			var n int
			require.NoError(t, c.SQL().QueryRowContext(t.Context(), "SELECT 1").Scan(&n), "what works goes on")
		})
	}
}

// What a cluster said of a user before does not show that it answers now, while an open is under way.
func TestAnEarlierDenialDoesNotShowThatTheClusterAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hole atomic.Bool
		denied := &pgconn.PgError{Severity: "FATAL", Code: "08006", Message: "unable to accept connection, access denied"}
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{kinds.DSQL(dsql.Config{
			Logger:      slog.New(slog.DiscardHandler),
			Credentials: credentials.NewStaticCredentialsProvider("AKIDTEST", "secret", ""),
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if hole.Load() { // the network swallows all
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return nil, denied
			},
		})}})
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close(context.WithoutCancel(t.Context()))) }()
		require.NoError(t, r.ApplyDDL(t.Context(), `
			CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host 'abc.dsql.us-east-1.on.aws', max_connections '8', min_connections '0', warmup_connections '0', connect_timeout '2000');
			CREATE USER MAPPING FOR PUBLIC SERVER d`))
		for range 8 { // as whom the server is probed
			_, err := r.Acquire(t.Context(), "d", "bob")
			require.Error(t, err)
		}
		time.Sleep(time.Minute)
		hole.Store(true)
		for r.Healthy("d") {
			_, err := r.Acquire(t.Context(), "d", "alice")
			require.Error(t, err)
		}
		for range 60 {
			time.Sleep(time.Second)
			require.False(t, r.Healthy("d"))
		}
	})
}
