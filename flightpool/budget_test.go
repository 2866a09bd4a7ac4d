package flightpool_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver"
)

// fleetOfPools runs f in virtual time, with a function that starts a process's pool on a
// server that all of them share, and on a budget of limit connections.
func fleetOfPools(t *testing.T, limit int, f func(t *testing.T, srv *testserver.Server, start func(cfg flightpool.Config) *flightpool.FlightSQLPool)) {
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
		f(t, srv, func(cfg flightpool.Config) *flightpool.FlightSQLPool {
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
	fleetOfPools(t, 4, func(t *testing.T, _ *testserver.Server, start func(flightpool.Config) *flightpool.FlightSQLPool) {
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

// What is in use is closed for others when it comes back, and not before.
func TestASaturatedPoolGivesConnectionsToANewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := must(testserver.Start(testserver.Options{Listen: testserver.InMemory}))
		defer func() { require.NoError(t, srv.Close()) }()
		ctx := context.WithoutCancel(t.Context())
		cfg := flightpool.Config{MinIdle: -1, MaxSize: 4, Leases: lease.NewLeases("warehouse", 4), Dialer: srv.Dial}
		busy := must(flightpool.New(t.Context(), "grpc://server:1", cfg))
		stop, end := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for stop.Err() == nil {
					s, err := busy.AcquireSession(stop)
					if err != nil {
						continue
					}
					time.Sleep(50 * time.Millisecond)
					if _, err := s.Update(ctx, "SET threads = 2"); err != nil {
						t.Error(err)
					}
					_ = s.Close()
				}
			})
		}
		time.Sleep(time.Second)
		newcomer := must(flightpool.New(t.Context(), "grpc://server:1", cfg))
		began := time.Now()
		s, err := newcomer.AcquireSession(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, s.Close())
		end()
		callers.Wait()
		require.NoError(t, newcomer.Close(ctx))
		require.NoError(t, busy.Close(ctx))
	})
}

// Pools that would like more than there is: all their callers are served, and the server
// never has more than the limit.
func TestPoolsOfAFleetThatIsShortServeAllTheirCallers(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 11))
		limit := 3 + rng.IntN(8)
		pools := 2 + rng.IntN(min(3, limit-1)) // no more than connections
		fleetOfPools(t, limit, func(t *testing.T, srv *testserver.Server, start func(flightpool.Config) *flightpool.FlightSQLPool) {
			end := time.Now().Add(15 * time.Minute)
			var callers sync.WaitGroup
			for range pools {
				pool := start(flightpool.Config{
					MinIdle: []int{-1, rng.IntN(limit + 2)}[rng.IntN(2)], MaxSize: limit + 1, IdleTTL: time.Hour, AcquireTimeout: 3 * time.Minute,
					OpenRetry: flightpool.OpenRetryAlways,
				})
				for range 1 + rng.IntN(limit) {
					own := rand.New(rand.NewPCG(rng.Uint64(), 1))
					callers.Go(func() {
						for time.Now().Before(end) {
							time.Sleep(time.Duration(own.Int64N(int64(20 * time.Second))))
							_, err := flightpool.CollectRows[bool](pool.Query(t.Context(), fmt.Sprintf("SELECT sleep('%ds')", own.IntN(20))))
							if err != nil {
								t.Errorf("seed %d: %v", seed, err)
							}
							if n := srv.Ledger().Snapshot().Conns; n > limit {
								t.Errorf("seed %d: %d connections of %d", seed, n, limit)
							}
						}
					})
				}
			}
			callers.Wait()
		})
	}
}

// A pool whose callers are served by what comes back takes nothing from another.
func TestShortBurstsCostOthersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := must(testserver.Start(testserver.Options{Listen: testserver.InMemory}))
		leases := lease.NewLeases("warehouse", 8)
		pool := func(minIdle int) *flightpool.FlightSQLPool {
			p, err := flightpool.New(t.Context(), "grpc://server:1", flightpool.Config{MinIdle: minIdle, MaxSize: 8, Leases: leases, Dialer: srv.Dial})
			require.NoError(t, err)
			require.NoError(t, p.WaitReady(t.Context(), minIdle))
			return p
		}
		bursts, quiet := pool(3), pool(5)
		for range 20 {
			var calls sync.WaitGroup
			for range 6 {
				calls.Go(func() {
					_, err := flightpool.CollectRows[bool](bursts.Query(t.Context(), "SELECT sleep('2ms')"))
					assert.NoError(t, err)
				})
			}
			calls.Wait()
			time.Sleep(time.Second)
		}
		assert.EqualValues(t, 5, quiet.Stats().Opens)
		require.NoError(t, bursts.Close(t.Context()))
		require.NoError(t, quiet.Close(t.Context()))
		require.NoError(t, srv.Close())
	})
}

// revocable is a budget that can be taken away.
type revocable struct {
	lease.Leases
	mu     sync.Mutex
	revoke func(lease.Revocation)
}

func (r *revocable) OnRevoke(f func(lease.Revocation)) func() {
	return r.set(func() { r.revoke = f }, func() { r.revoke = nil })
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
		require.Equal(t, 15*time.Second, time.Since(start).Round(time.Second), "CloseTimeout before the deadline")
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

		require.NoError(t, pool.Close(t.Context()))
		require.Nil(t, budget.revoke, "it listens no more")
		require.Zero(t, budget.Stats().InUse)
	})
}

// A server that does not answer when a connection is closed, or checked, keeps none beyond
// the deadline: others may have the leases then.
func TestNoConnectionOutlastsARevocationWhateverTheServerAnswers(t *testing.T) {
	for name, silent := range map[string]struct{ check, close bool }{"checked": {check: true}, "closed": {close: true}} {
		synctest.Test(t, func(t *testing.T) {
			srv := must(testserver.Start(testserver.Options{Listen: testserver.InMemory}))
			defer func() { require.NoError(t, srv.Close()) }()
			budget := &revocable{Leases: lease.NewLeases("x", 3)}
			pool, err := flightpool.New(t.Context(), "grpc://server:1", flightpool.Config{
				MinIdle: 3, MaxSize: 3, Leases: budget, Dialer: srv.Dial,
				HealthCheck: flightpool.HealthCheck{Kind: flightpool.Query, Interval: 10 * time.Second, Timeout: time.Minute},
			})
			require.NoError(t, err)
			require.NoError(t, pool.WaitReady(t.Context(), 3))
			held, err := pool.AcquireSession(t.Context())
			require.NoError(t, err)
			if silent.check {
				srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT 1", Do: testserver.Hang(), Times: 1})
			}
			time.Sleep(15 * time.Second) // idle ones are checked
			revoked := time.Now()
			budget.revoke(lease.Revocation{Deadline: revoked.Add(20 * time.Second)})
			time.Sleep(10 * time.Second)
			if silent.close {
				srv.Faults().FreezeConns()
			}
			time.Sleep(10*time.Second + time.Millisecond)
			for _, c := range pool.Connections() {
				assert.False(t, c.Opened.Before(revoked), "%s: %+v", name, c)
			}
			assert.Zero(t, pool.Stats().Closing, name)
			srv.Faults().Clear()
			srv.Faults().ThawConns()
			_ = held.Close()
			_ = pool.Close(t.Context())
		})
	}
}

// Whatever borrowers do, no connection outlasts a revocation's deadline by more than its
// close takes, callers are told so and not otherwise, and nothing is left.
func TestRevocationsBesideAllKindsOfBorrowers(t *testing.T) {
	for seed := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			srv := must(testserver.Start(testserver.Options{Listen: testserver.InMemory}))
			defer func() { require.NoError(t, srv.Close()) }()
			budget := &revocable{Leases: lease.NewLeases("x", 4)}
			pool, err := flightpool.New(t.Context(), "grpc://server:1", flightpool.Config{MinIdle: 2, MaxSize: 4, Leases: budget, Dialer: srv.Dial})
			require.NoError(t, err)
			_, err = pool.Update(t.Context(), "CREATE TABLE done (n BIGINT)")
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			var committed, unknown atomic.Int64
			var borrowers sync.WaitGroup
			for range 6 {
				own := rand.New(rand.NewPCG(rng.Uint64(), 1))
				borrowers.Go(func() {
					for ctx.Err() == nil {
						time.Sleep(time.Duration(own.Int64N(int64(5 * time.Second))))
						if err := borrow(ctx, pool, own, &committed, &unknown); err != nil && ctx.Err() == nil {
							var e *flightpool.Error
							if !errors.As(err, &e) || !errors.Is(err, flightpool.ErrSessionLost) && !errors.Is(err, flightpool.ErrCommitUnknown) {
								t.Errorf("seed %d: %v", seed, err)
							}
						}
					}
				})
			}
			for ctx.Err() == nil {
				time.Sleep(time.Duration(rng.Int64N(int64(40 * time.Second))))
				now, left := time.Now(), time.Duration(rng.Int64N(int64(20*time.Second)))-time.Second
				budget.revoke(lease.Revocation{Deadline: now.Add(left), Cause: errors.New("lapsed")})
				time.AfterFunc(max(left, 0)+6*time.Second, func() {
					for _, c := range pool.Connections() {
						if c.Opened.Before(now) {
							t.Errorf("seed %d: %+v outlasts the revocation of %v by %v", seed, c, now, time.Since(now))
						}
					}
				})
			}
			borrowers.Wait()
			time.Sleep(time.Minute)
			n, err := flightpool.CollectOneRow[int64](pool.Query(t.Context(), "SELECT count(*) FROM done"))
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, committed.Load())
			require.LessOrEqual(t, n, committed.Load()+unknown.Load())
			require.Positive(t, committed.Load())
			require.NoError(t, pool.Close(t.Context()))
			require.Zero(t, budget.Stats().InUse)
			require.NoError(t, srv.Ledger().WaitIdle(t.Context()), "%s", srv.Ledger().Snapshot())
		})
	}
}

// borrow does one thing for a while.
func borrow(ctx context.Context, pool *flightpool.FlightSQLPool, rng *rand.Rand, committed, unknown *atomic.Int64) error {
	d := time.Duration(rng.Int64N(int64(15 * time.Second)))
	switch rng.IntN(4) {
	case 0:
		_, err := flightpool.CollectRows[bool](pool.Query(ctx, fmt.Sprintf("SELECT sleep('%dms')", d.Milliseconds())))
		return err
	case 1: // held without a call
		s, err := pool.AcquireSession(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		if _, err = s.Update(ctx, "SET threads = 3"); err != nil {
			return err
		}
		time.Sleep(d)
		_, err = s.Update(ctx, "SET threads = 4")
		return err
	case 2: // read slowly
		res, err := pool.Query(ctx, "SELECT * FROM generate(100, 10)")
		if err != nil {
			return err
		}
		defer res.Release()
		rows := int64(0)
		for res.Next() {
			rows += res.RecordBatch().NumRows()
			time.Sleep(d / 10)
		}
		if res.Err() == nil && rows != 100 {
			return fmt.Errorf("%d rows without an error", rows)
		}
		return res.Err()
	default:
		tx, err := pool.BeginTx(ctx, flightpool.TxOptions{})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err = tx.Update(ctx, "INSERT INTO done VALUES (1)"); err != nil {
			return err
		}
		time.Sleep(d)
		switch err = tx.Commit(ctx); {
		case err == nil:
			committed.Add(1)
		case errors.Is(err, flightpool.ErrCommitUnknown), ctx.Err() != nil:
			unknown.Add(1)
		}
		return err
	}
}
