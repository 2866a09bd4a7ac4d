package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
)

// What ends while its server turns unhealthy is told what has become of it. The server's state, and the reason of it, which
// is an open that has sent nothing, say nothing of what was sent before.
func TestWhatWasSentToAServerThatTurnsUnhealthyIsNotToldAsUnsent(t *testing.T) {
	insert := func(ctx context.Context, p *flightpool.FlightSQLPool) error {
		_, err := p.Update(ctx, "INSERT INTO t VALUES (1)")
		return err
	}
	for _, c := range []struct {
		what string
		on   testserver.Point
		sql  string
		call func(ctx context.Context, r *registry.Registry) error
		is   error
	}{
		{"a change", testserver.OnStatement, "INSERT", func(ctx context.Context, r *registry.Registry) error {
			_, err := r.ExecuteUpdate(ctx, "s", "a", "INSERT INTO t VALUES (1)")
			return err
		}, flightpool.ErrSessionLost},
		{"a change of Do", testserver.OnStatement, "INSERT", func(ctx context.Context, r *registry.Registry) error {
			return r.Do(ctx, "s", "a", func(p *flightpool.FlightSQLPool) error { return insert(ctx, p) })
		}, flightpool.ErrSessionLost},
		{"a COMMIT", testserver.OnEnd, "", func(ctx context.Context, r *registry.Registry) error {
			return r.Do(ctx, "s", "a", func(p *flightpool.FlightSQLPool) error {
				return p.InTx(ctx, flightpool.TxOptions{}, func(ctx context.Context, tx *flightpool.Tx) error {
					_, err := tx.Update(ctx, "INSERT INTO t VALUES (1)")
					return err
				})
			})
		}, flightpool.ErrCommitUnknown},
		{"a function of Do that fails behind a change, elsewhere", testserver.OnStatement, "INSERT", func(ctx context.Context, r *registry.Registry) error {
			return r.Do(ctx, "s", "a", func(p *flightpool.FlightSQLPool) error {
				return errors.Join(errElsewhere, insert(ctx, p))
			})
		}, errElsewhere},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
				require.NoError(t, err)
				defer func() { require.NoError(t, srv.Close()) }()
				var away atomic.Bool
				r := registryThatLoses(t, srv, &away)
				defer func() { require.NoError(t, r.Close(t.Context())) }()
				_, err = r.ExecuteUpdate(t.Context(), "s", "a", "CREATE TABLE t (a BIGINT)")
				require.NoError(t, err)
				require.NoError(t, r.Do(t.Context(), "s", "a", func(p *flightpool.FlightSQLPool) error { // what it learns of transactions is learned
					return p.InTx(t.Context(), flightpool.TxOptions{}, func(context.Context, *flightpool.Tx) error { return nil })
				}))
				srv.Faults().Set(testserver.Fault{On: c.on, SQL: c.sql, After: true, Times: 1, Do: testserver.Delay(time.Minute)})
				ended := make(chan error, 1)
				go func() { ended <- c.call(t.Context(), r) }()
				time.Sleep(time.Second)
				away.Store(true)
				require.Error(t, r.Do(t.Context(), "s", "b", func(p *flightpool.FlightSQLPool) error { return p.Ping(t.Context()) }))
				synctest.Wait() // for the hook of the failed open
				require.False(t, r.Healthy("s"))
				srv.Faults().KillConns()
				err = <-ended
				require.ErrorIs(t, err, c.is)
				require.False(t, flightpool.SafeToRetry(err) || flightpool.IsConflict(err), "%v", err)
				srv.Faults().Clear()
			})
		})
	}
}

// What a function of Do fails with by itself may be of anything that it has to do with.
func TestDoFailsWithWhatItsFunctionReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		var away atomic.Bool
		r := registryThatLoses(t, srv, &away)
		defer func() { require.NoError(t, r.Close(t.Context())) }()
		require.ErrorIs(t, r.Do(t.Context(), "s", "a", func(p *flightpool.FlightSQLPool) error {
			if _, err := p.Update(t.Context(), "CREATE TABLE t (a BIGINT)"); err != nil {
				return err
			}
			away.Store(true)
			require.Error(t, r.Do(t.Context(), "s", "b", func(p *flightpool.FlightSQLPool) error { return p.Ping(t.Context()) }))
			synctest.Wait() // for the hook of the failed open
			require.False(t, r.Healthy("s"))
			return errElsewhere
		}), errElsewhere)
	})
}

var errElsewhere = fmt.Errorf("another server: %w", io.ErrUnexpectedEOF)

// registryThatLoses reaches srv while it is not away.
func registryThatLoses(t *testing.T, srv *testserver.Server, away *atomic.Bool) *registry.Registry {
	kind := registry.Kind{Name: "flightsql", Flight: func(ctx context.Context, p registry.ConnectParams) (*flightpool.FlightSQLPool, error) {
		cfg := p.Config
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("connection refused")
			}
			return srv.Dial(ctx, address)
		}
		return flightpool.New(ctx, "grpc://mem:1", cfg)
	}}
	r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{kind}})
	require.NoError(t, err)
	require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{
		Name: "s", Kind: "flightsql", Users: map[string]registry.UserMapping{"a": {}, "b": {}}, MinIdle: -1, WarmupConnections: -1, AcquireTimeout: -1,
		HealthCheck: registry.HealthCheck{FailureThreshold: 1},
	}))
	return r
}

// What ends many idle connections at once, such as a proxy that is started anew, is no fault in the way of a
// caller; that it ends those on loan is.
func TestIdleConnectionsThatBreakSayNothingOfTheirServer(t *testing.T) {
	for _, borrowed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
			require.NoError(t, err)
			defer func() { require.NoError(t, srv.Close()) }()
			r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{flightKind(srv)}})
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close(t.Context())) }()
			require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{Name: "s", Kind: "flightsql", MinIdle: 5, Users: map[string]registry.UserMapping{"a": {}}}))
			require.NoError(t, r.Warmup(t.Context(), "s", 5))
			time.Sleep(2 * time.Second)
			var held []*registry.Conn
			for len(held) < 5 && borrowed {
				c, err := r.Acquire(t.Context(), "s", "a")
				require.NoError(t, err)
				held = append(held, c)
			}
			require.GreaterOrEqual(t, srv.Faults().KillConns(), 5)
			for _, c := range held {
				_, err := c.Session().Update(t.Context(), "CREATE TABLE t (a BIGINT)")
				require.ErrorIs(t, err, flightpool.ErrSessionLost)
				require.NoError(t, c.Release())
			}
			synctest.Wait()
			require.Equal(t, !borrowed, r.Healthy("s"))
			if !borrowed {
				c, err := r.Acquire(t.Context(), "s", "a")
				require.NoError(t, err)
				require.NoError(t, c.Release())
			}
		})
	}
}

// A check that ends with its pool has not found out anything.
func TestChecksThatEndWithTheirPoolSayNothingOfTheirServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{flightKind(srv)}})
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close(t.Context())) }()
		d := registry.ServerDefinition{
			Name: "s", Kind: "flightsql", Users: map[string]registry.UserMapping{"a": {}, "b": {}, "c": {}, "d": {}},
			HealthCheck: registry.HealthCheck{Kind: flightpool.Query, Query: "SELECT 7", Interval: 10 * time.Second, Timeout: 5 * time.Second},
		}
		require.NoError(t, r.Register(t.Context(), d))
		require.NoError(t, r.Warmup(t.Context(), "s", 1))
		srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, SQL: "SELECT 7", Do: testserver.Delay(4 * time.Second)})
		time.Sleep(11 * time.Second)
		before, err := r.ServerStats("s")
		require.NoError(t, err)
		require.NoError(t, r.CloseAll(t.Context(), "s"))
		synctest.Wait()
		st, err := r.ServerStats("s")
		require.NoError(t, err)
		require.True(t, st.Healthy, st.UnhealthyReason)
		require.Equal(t, []uint64{before.ChecksPassed, 0}, []uint64{st.ChecksPassed, st.ChecksFailed})
	})
}

// Nor has a statement that its caller has cancelled been answered.
func TestACancelledStatementEndsNoRowOfFaults(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.HealthCheck.FailureThreshold = 3 })
		held := acquire(t, g, "a")
		g.fake("s").set(func() { g.servers["s"].down = true })
		for range 2 {
			_, err := g.Acquire(t.Context(), "s", "b")
			require.ErrorIs(t, err, errDown)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := held.SQL().ExecContext(ctx, "1m")
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, g.Healthy("s"))
		_, err = g.Acquire(t.Context(), "s", "b")
		synctest.Wait() // the fault is recorded beside the answer
		healthy := g.Healthy("s")
		_ = held.Release() // it may have gone
		require.ErrorIs(t, err, errDown)
		require.False(t, healthy, "three in a row")
	})
}
