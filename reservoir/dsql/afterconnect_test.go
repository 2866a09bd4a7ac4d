package dsql_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir/dsql"
)

// countingLeases counts the releases of each lease, the second of one too.
type countingLeases struct {
	lease.Leases
	granted, released, again atomic.Int32
	beside                   func() // is called before each release
}

func (c *countingLeases) Acquire(ctx context.Context) (func(), error) {
	release, err := c.Leases.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	c.granted.Add(1)
	var done atomic.Bool
	return func() {
		c.beside()
		if c.released.Add(1); done.Swap(true) {
			c.again.Add(1)
		}
		release()
	}, nil
}

// Whatever AfterConnect does with a connection, that is not lent unless it is as good as new, its
// lease is given back once, behind its socket, and the next open has its place.
func TestWhateverAfterConnectDoes(t *testing.T) {
	type hook = func(ctx context.Context, conn *pgx.Conn) error
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	prepare := func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set application_name = 'prepared'")
		return err
	}
	for name, bad := range map[string]hook{
		"an error": func(context.Context, *pgx.Conn) error { return errors.New("not today") },
		"an error of a limit": func(context.Context, *pgx.Conn) error {
			return &pgconn.PgError{Code: "53300", Message: "too many connections"}
		},
		"an error of a login": func(context.Context, *pgx.Conn) error {
			return &pgconn.PgError{Code: "28P01", Message: "access denied"}
		},
		"its context's error": func(context.Context, *pgx.Conn) error { return context.Canceled },
		"a panic":             func(context.Context, *pgx.Conn) error { panic("the user's") },
		"a panic in a query": func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "select $1::text", bomb{})
			return err
		},
		"the end of goroutine": func(context.Context, *pgx.Conn) error { runtime.Goexit(); return nil },
		"the end of its time":  func(ctx context.Context, _ *pgx.Conn) error { <-ctx.Done(); return ctx.Err() },
		"a start too late":     func(ctx context.Context, conn *pgx.Conn) error { <-ctx.Done(); return prepare(ctx, conn) },
		"nothing, for ever":    func(context.Context, *pgx.Conn) error { <-hold; return nil },
		"a long statement": func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "select pg_sleep(60)")
			return err
		},
		"a statement cut off": func(ctx context.Context, conn *pgx.Conn) error {
			ctx, stop := context.WithTimeout(ctx, 50*time.Millisecond)
			defer stop()
			_, _ = conn.Exec(ctx, "select pg_sleep(60)")
			return prepare(ctx, conn)
		},
		"close":         func(ctx context.Context, conn *pgx.Conn) error { return conn.Close(ctx) },
		"hijack":        func(_ context.Context, conn *pgx.Conn) error { _, err := conn.PgConn().Hijack(); return err },
		"a transaction": func(ctx context.Context, conn *pgx.Conn) error { _, err := conn.Begin(ctx); return err },
		"a result left open": func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Query(ctx, "select generate_series(1, 100000)")
			return err
		}, //nolint:rowserrcheck // that is the test
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGate(t, nil)
			var sockets atomic.Int32
			leases := &countingLeases{Leases: lease.NewLeases("test", 2)}
			leases.beside = func() { // the sockets of those that are not released yet
				if open, out := sockets.Load(), leases.granted.Load()-leases.released.Load(); open >= out && open > 0 {
					t.Errorf("a lease is given back with %d sockets open and %d leases out", open, out)
				}
			}
			var calls atomic.Int32
			p := newPool(t, g, func(c *dsql.Config) {
				c.MaxSize, c.OnDemand, c.OpenTimeout, c.CloseTimeout, c.Leases = 1, true, 700*time.Millisecond, 500*time.Millisecond, leases
				dial := g.Dial
				c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := dial(ctx, network, address)
					if err != nil {
						return nil, err
					}
					if cancels := strings.Contains(name, "statement"); cancels && sockets.Load() > 0 {
						return conn, nil // the request to cancel it, which has no session; it may end behind that of the statement
					}
					sockets.Add(1)
					return &counting{Conn: conn, open: &sockets}, nil
				}
				c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
					if calls.Add(1) <= 2 {
						return bad(ctx, conn)
					}
					return prepare(ctx, conn)
				}
			})
			ctx := within(t, 20*time.Second)
			reach(t, "an open succeeds", func() bool {
				var who string
				err := p.QueryRow(ctx, "select current_setting('application_name')").Scan(&who)
				if err == nil {
					require.Equal(t, "prepared", who)
				}
				return err == nil
			})
			reach(t, "the server has one session", func() bool { return g.Stats().Live == 1 })
			closeSoon(t, p.Close)
			reach(t, "the server has none", func() bool { return g.Stats().Live == 0 })
			require.Equal(t, leases.granted.Load(), leases.released.Load())
			require.Zero(t, leases.again.Load())
			require.Zero(t, sockets.Load())
			closeSoon(t, leases.Close)
		})
	}
}

// A statement of AfterConnect that is cancelled because the open's time is over fails with both: the
// server's answer alone would read as if somebody had cancelled it.
func TestAnAfterConnectThatTakesTooLongIsToldAsThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := startSimulated(t, rand.New(rand.NewPCG(1, 1)))
		sim.size = 1
		c, err := dsql.NewCluster(t.Context(), dsql.Config{
			Host: simHost, Region: "us-east-1", TLS: sim.client, Dial: sim.dial, MaxSize: 1, OnDemand: true, OpenTimeout: time.Second,
			Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, key.SessionToken), Logger: discardLogger,
			AfterConnect: func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, "select pg_sleep(20)")
				return err
			},
		})
		require.NoError(t, err)
		defer func() {
			require.NoError(t, c.Close(t.Context()))
			require.NoError(t, sim.listener.Close())
			sim.serving.Wait()
		}()
		p, err := c.NewPool(dsql.View{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, err = p.Exec(ctx, "select 1")
		var open *dsql.OpenError
		require.ErrorAs(t, err, &open)
		require.ErrorIs(t, open, context.DeadlineExceeded)
		require.Equal(t, "AfterConnect", open.Check)
	})
}
