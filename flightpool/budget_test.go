package flightpool_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver"
)

// fleetOfPools runs f in virtual time, with a function that starts a process's pool on a
// server that all of them share, and on a budget of limit connections.
func fleetOfPools(t *testing.T, limit int, f func(t *testing.T, start func(cfg flightpool.Config) *flightpool.FlightSQLPool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := must(testserver.Start(testserver.Options{Listen: testserver.InMemory}))
		store := fleet.NewMemory()
		var closers []func(context.Context) error
		defer func() {
			ctx := context.WithoutCancel(t.Context())
			for i := range closers {
				require.NoError(t, closers[len(closers)-1-i](ctx))
			}
			require.NoError(t, srv.Close())
		}()
		f(t, func(cfg flightpool.Config) *flightpool.FlightSQLPool {
			leases, err := fleet.New(t.Context(), store, fleet.Config{Budget: "warehouse", Limit: limit, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			cfg.Leases, cfg.Dialer = leases, srv.Dial
			pool, err := flightpool.New(t.Context(), "grpc://server:1", cfg)
			require.NoError(t, err)
			closers = append(closers, leases.Close, pool.Close)
			return pool
		})
	})
}

// Idle connections of one process are closed for another that has none.
func TestAFleetsIdleConnectionsGoToWhoWaits(t *testing.T) {
	fleetOfPools(t, 4, func(t *testing.T, start func(flightpool.Config) *flightpool.FlightSQLPool) {
		rich := start(flightpool.Config{MinIdle: 4, MaxSize: 4})
		require.NoError(t, rich.WaitReady(t.Context(), 4))
		poor := start(flightpool.Config{MinIdle: -1, MaxSize: 4, AcquireTimeout: 2 * time.Minute})
		began := time.Now()
		_, err := poor.Update(t.Context(), "CREATE TABLE t (n BIGINT)")
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Minute)
		require.Equal(t, 3, rich.Stats().Idle)
	})
}

// revocable is a budget that can be taken away, and asked for.
type revocable struct {
	lease.Leases
	mu      sync.Mutex
	revoke  func(lease.Revocation)
	reclaim func(int) int
}

func (r *revocable) OnRevoke(f func(lease.Revocation)) func() {
	return r.set(func() { r.revoke = f }, func() { r.revoke = nil })
}

func (r *revocable) OnReclaim(f func(int) int) func() {
	return r.set(func() { r.reclaim = f }, func() { r.reclaim = nil })
}

func (r *revocable) set(now, later func()) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		later()
	}
}

func (r *revocable) Valid() error { return nil }

func TestRevokedLeasesEndConnectionsByTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := must(testserver.Start(testserver.Options{Listen: testserver.InMemory}))
		defer func() { require.NoError(t, srv.Close()) }()
		budget := &revocable{Leases: lease.NewLeases("x", 3)}
		pool, err := flightpool.New(t.Context(), "grpc://server:1", flightpool.Config{MinIdle: 3, MaxSize: 3, Leases: budget, Dialer: srv.Dial})
		require.NoError(t, err)
		require.NoError(t, pool.WaitReady(t.Context(), 3))
		brief, err := pool.AcquireSession(t.Context())
		require.NoError(t, err)
		busy, err := pool.AcquireSession(t.Context())
		require.NoError(t, err)
		_, err = busy.Update(t.Context(), "SET threads = 2")
		require.NoError(t, err)
		running := make(chan error, 1)
		start := time.Now()
		go func() {
			res, err := busy.Query(t.Context(), "SELECT sleep('300s')")
			if err == nil {
				for res.Next() {
					continue
				}
				err = res.Err()
				res.Release()
			}
			running <- err
		}()
		budget.revoke(lease.Revocation{Deadline: start.Add(20 * time.Second)})
		synctest.Wait()
		require.EqualValues(t, 1, pool.Stats().Closed[reservoir.Outdated], "the idle one, at once")
		require.NoError(t, brief.Close())
		synctest.Wait()
		require.EqualValues(t, 2, pool.Stats().Closed[reservoir.Outdated], "the other when it comes back")
		err = <-running
		require.ErrorIs(t, err, flightpool.ErrSessionLost)
		require.Equal(t, 20*time.Second, time.Since(start).Round(time.Second))
		_ = busy.Close()
		synctest.Wait()
		s := pool.Stats()
		require.LessOrEqual(t, s.InUse, 0, "%+v", s)
		require.LessOrEqual(t, budget.Stats().InUse, 3)

		// What was opened since is not touched by the deadline of an earlier revocation.
		budget.revoke(lease.Revocation{Deadline: time.Now().Add(20 * time.Second)})
		fresh, err := pool.AcquireSession(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		_, err = fresh.Update(t.Context(), "SET threads = 3")
		require.NoError(t, err)
		require.NoError(t, fresh.Close())

		require.Equal(t, 2, budget.reclaim(2))
		require.NoError(t, pool.Close(t.Context()))
		require.Nil(t, budget.revoke, "it listens no more")
		require.Nil(t, budget.reclaim)
		require.Zero(t, budget.Stats().InUse)
	})
}
