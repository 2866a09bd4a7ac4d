package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/reservoir"
)

// A saturated pool is a reservoir over a budget whose callers always wait.
type saturated struct {
	*reservoir.Reservoir[*atomic.Bool]
	opens atomic.Int64
}

// newSaturated starts one with so many callers, each of whom holds a connection for some time, until ctx ends.
func newSaturated(ctx context.Context, t *testing.T, l lease.Leases, size, callers int, held time.Duration, running *sync.WaitGroup) *saturated {
	p := &saturated{}
	admit := lease.Admit(l, nil)
	self := lease.NewHolder(func(n int) int { return p.GiveUp(n) })
	var err error
	p.Reservoir, err = reservoir.New(reservoir.Config[*atomic.Bool]{
		MinIdle: -1, MaxSize: size, AcquireTimeout: -1, MaxLifetime: -1,
		Admit: func(ctx context.Context) (func(), error) { return admit(lease.WithHolder(ctx, self)) },
		Open:  func(context.Context) (*atomic.Bool, error) { p.opens.Add(1); return new(atomic.Bool), nil },
		Close: func(c *atomic.Bool) error { c.Store(true); time.Sleep(50 * time.Millisecond); return nil },
	})
	require.NoError(t, err)
	for range callers {
		running.Go(func() {
			for ctx.Err() == nil {
				if loan, err := p.Acquire(ctx); err == nil {
					time.Sleep(held)
					if loan.Value().Load() {
						t.Error("a connection was closed under its borrower")
					}
					_ = loan.Release()
				}
			}
		})
	}
	return p
}

// Pools whose callers always wait have nothing idle. A newcomer has its share all the same, as connections come
// back; and once all have their shares nothing is closed any more.
func TestANewcomerHasItsShareBesideSaturatedPools(t *testing.T) {
	const limit = 8
	for name, budgets := range map[string]func(t *testing.T, processes int) []lease.Leases{
		"of a process": func(_ *testing.T, n int) (all []lease.Leases) {
			one := lease.NewLeases("b", limit)
			for range n {
				all = append(all, one)
			}
			return all
		},
		"of a fleet": func(t *testing.T, n int) (all []lease.Leases) {
			store := fleet.NewMemory()
			for range n {
				l, err := fleet.New(t.Context(), store, fleet.Config{Budget: "b", Limit: limit, Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				all = append(all, l)
			}
			return all
		},
	} {
		for _, held := range []time.Duration{20 * time.Millisecond, time.Second, 4 * time.Second, 12 * time.Second, 40 * time.Second} {
			t.Run(name+"/"+held.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, end := context.WithCancel(t.Context())
					var running sync.WaitGroup
					var pools []*saturated
					all := budgets(t, 3)
					for _, l := range all {
						pools = append(pools, newSaturated(ctx, t, l, limit, 2*limit, held, &running))
						time.Sleep(time.Minute + 3*held)
						least, sum, before := limit, 0, int64(0)
						for _, p := range pools {
							s := p.Stats()
							n := s.InUse + s.Idle
							least, sum, before = min(least, n), sum+n, before+p.opens.Load()
						}
						t.Log(least, sum, before)
						require.GreaterOrEqual(t, least, limit/len(pools), "of %d", len(pools))
						require.GreaterOrEqual(t, sum, limit-1)
						time.Sleep(time.Minute)
						after := int64(0)
						for _, p := range pools {
							after += p.opens.Load()
						}
						require.LessOrEqual(t, after-before, int64(2), "all have their shares")
					}
					end()
					running.Wait()
					for _, p := range pools {
						require.NoError(t, p.Close(t.Context()))
					}
					for _, l := range all {
						require.NoError(t, l.Close(t.Context()))
					}
				})
			})
		}
	}
}

// besideABusyPool runs test with a pool that opens its connections so, beside a saturated one that has all of the budget.
func besideABusyPool(t *testing.T, open func() error, test func(busy *saturated, pool *reservoir.Reservoir[int])) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 4
		l := lease.NewLeases("b", limit)
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		busy := newSaturated(ctx, t, l, limit, 2*limit, time.Second, &running)
		time.Sleep(10 * time.Second)
		var pool *reservoir.Reservoir[int]
		set := make(chan struct{})
		admit := lease.Admit(l, nil)
		self := lease.NewHolder(func(n int) int { <-set; return pool.GiveUp(n) }).Wanting(func() int { <-set; return pool.WantedPermissions() })
		var err error
		pool, err = reservoir.New(reservoir.Config[int]{
			MinIdle: 1, MaxSize: limit,
			Admit: func(ctx context.Context) (func(), error) { return admit(lease.WithHolder(ctx, self)) },
			Open:  func(context.Context) (int, error) { return 0, open() },
			Close: func(int) error { return nil },
		})
		close(set)
		require.NoError(t, err)
		test(busy, pool)
		end()
		running.Wait()
		require.NoError(t, pool.Close(t.Context()))
		require.NoError(t, busy.Close(t.Context()))
		require.NoError(t, l.Close(t.Context()))
	})
}

// A pool whose opens fail, and for which nobody waits, takes what is free and nothing of those who use what they have.
func TestAPoolWhoseOpensFailTakesNothingOfABusyOne(t *testing.T) {
	besideABusyPool(t, func() error { return errors.New("wrong password") }, func(busy *saturated, _ *reservoir.Reservoir[int]) {
		time.Sleep(10 * time.Second)
		before := busy.opens.Load()
		time.Sleep(time.Minute)
		require.LessOrEqual(t, busy.opens.Load()-before, int64(1))
	})
}

// One for which somebody waits has its share, once its server is there.
func TestAPoolWhoseServerComesLaterGetsReadyBesideABusyOne(t *testing.T) {
	var isThere atomic.Bool
	late := func() error {
		if !isThere.Load() {
			return errors.New("the server is not there yet")
		}
		return nil
	}
	besideABusyPool(t, late, func(_ *saturated, pool *reservoir.Reservoir[int]) {
		time.AfterFunc(3*time.Second, func() { isThere.Store(true) })
		bounded, stop := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer stop()
		require.NoError(t, pool.WaitReady(bounded, 2))
	})
}
