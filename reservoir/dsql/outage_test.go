package dsql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// A table is what a fleet's budgets are kept in, and can be away.
type table struct{ away atomic.Bool }

// tableLimiter permits nothing while its table is away, as that of dynamolease
// does without a fallback: after some seconds, and then at once.
type tableLimiter struct {
	lease.Limiter
	table *table
	since atomic.Int64 // since when it knows
}

func (l *tableLimiter) Wait(ctx context.Context) error {
	if !l.table.away.Load() {
		l.since.Store(0)
		return l.Limiter.Wait(ctx)
	}
	if l.since.CompareAndSwap(0, time.Now().UnixNano()) {
		time.Sleep(3 * time.Second)
	}
	return &lease.Error{Budget: "x", Reason: lease.ErrUnavailable}
}

// tableLeases grant nothing while their table is away but what replaces a
// connection, as those of dynamolease; strict ones grant nothing at all.
type tableLeases struct {
	lease.Leases
	table  *table
	strict bool
	mu     sync.Mutex
	held   int
	most   int // while the table was there
}

func (l *tableLeases) Acquire(ctx context.Context) (func(), error) {
	l.mu.Lock()
	if l.table.away.Load() && (l.strict || l.held >= l.most) {
		l.mu.Unlock()
		return nil, &lease.Error{Budget: "x", Reason: lease.ErrUnavailable}
	}
	l.held++
	if !l.table.away.Load() {
		l.most = max(l.most, l.held)
	}
	l.mu.Unlock()
	release, err := l.Leases.Acquire(ctx)
	return func() {
		release()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held--
	}, err
}

// An outage is a process of 20 connections that works on while its table is away,
// 30 minutes by default, from a moment of its life on; every minute it loses a
// connection if lossy.
type outage struct {
	set    func(*Config)
	strict bool
	owners int
	lossy  bool

	failed   int
	ready    int // the fewest
	opened   uint64
	fallback uint64
}

func (o *outage) run(t *testing.T) {
	const size, workers = 20, 6
	cfg := Config{Host: someHost, MaxSize: size, CheckInterval: -1, Logger: slog.New(slog.DiscardHandler)}
	if o.set != nil {
		o.set(&cfg)
	}
	cfg, err := cfg.resolve(environ(nil))
	require.NoError(t, err)
	tab := &table{}
	leases := &tableLeases{Leases: lease.NewLeases("x", 1000), table: tab, strict: o.strict}
	var limiter lease.Limiter = &tableLimiter{Limiter: lease.NewLimiter("x", 100, 100), table: tab}
	limiter = withFallback(limiter, cfg, func() int { return o.owners })
	c, err := newCluster(t.Context(), cfg, &budgets{leases: leases, limiter: limiter}, func(context.Context) (*physical, error) {
		p := &physical{}
		local, _ := net.Pipe()
		p.setSocket(local)
		p.owner.Store(ownedByCloser) // so that nothing is closed but its end of the pipe
		return p, nil
	})
	require.NoError(t, err)
	require.NoError(t, c.res.WaitReady(t.Context(), size))
	time.Sleep(30 * time.Minute) // a steady state
	before := c.Stats().Opened
	tab.away.Store(true)
	o.ready = size
	over := time.Now().Add(30 * time.Minute)
	var all sync.WaitGroup
	var failed atomic.Int64
	for range workers {
		all.Go(func() {
			for time.Now().Before(over) {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				l, err := c.res.Acquire(ctx)
				cancel()
				if err != nil {
					failed.Add(1)
					time.Sleep(time.Second)
					continue
				}
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				if o.lossy && rand.IntN(500) == 0 {
					_ = l.Discard(errors.New("lost"))
				} else {
					_ = l.Release()
				}
				time.Sleep(time.Duration(rand.IntN(1600)) * time.Millisecond)
			}
		})
	}
	for time.Now().Before(over) {
		time.Sleep(time.Second)
		s := c.res.Stats()
		o.ready = min(o.ready, s.Idle+s.InUse)
	}
	all.Wait()
	o.failed, o.opened, o.fallback = int(failed.Load()), c.Stats().Opened-before, c.Stats().Limiter.Fallbacks
	tab.away.Store(false)
	require.NoError(t, c.Close(t.Context()))
}

func TestAnOutageOfTheTableCostsNoRequest(t *testing.T) {
	for name, o := range map[string]*outage{
		"defaults":                      {owners: 50},
		"defaults, connections lost":    {owners: 50, lossy: true},
		"nobody was seen":               {},
		"no rate of its own":            {owners: 50, set: func(c *Config) { c.RateFallback = -1 }},
		"strict leases":                 {owners: 50, strict: true},
		"lives of 50 minutes":           {owners: 50, set: func(c *Config) { c.ReplaceAfter = 50 * time.Minute }},
		"lives of 50 minutes and lossy": {owners: 50, lossy: true, set: func(c *Config) { c.ReplaceAfter = 50 * time.Minute }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o.run(t)
				t.Logf("DSQL outage minutes=30 failed=%d ready_min=%d of=20 opened=%d by_fallback=%d", o.failed, o.ready, o.opened, o.fallback)
				require.Zero(t, o.failed)
				require.GreaterOrEqual(t, o.ready, 20-8, "as many as are replaced at a time")
				if o.set == nil && !o.strict {
					require.Equal(t, o.opened, o.fallback, "each at this process's own rate")
				}
			})
		})
	}
}

func TestTheRateOfAnOutageIsAPartOfTheFleets(t *testing.T) {
	for name, c := range map[string]struct {
		owners int
		set    float64
		want   float64 // per second
	}{
		"by the processes seen":        {owners: 50, want: 2},
		"by ConnLimit, as none were":   {owners: 0, want: 100 * 20.0 / 9000},
		"a rate that was asked for":    {owners: 50, set: 7, want: 7},
		"the whole rate if it's alone": {owners: 1, want: 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := &table{}
				tab.away.Store(true)
				cfg, err := Config{Host: someHost, MaxSize: 20, ConnLimit: 9000, RateFallback: c.set, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
				require.NoError(t, err)
				l := withFallback(&tableLimiter{Limiter: lease.NewLimiter("x", 100, 100), table: tab}, cfg, func() int { return c.owners })
				ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Second)
				defer cancel()
				granted := 0
				for l.Wait(ctx) == nil {
					granted++
				}
				require.InDelta(t, c.want*997, granted, max(2, 2*c.want), "from the third second on, with a burst of one second")
				require.EqualValues(t, granted, l.Stats().Fallbacks)
				require.EqualValues(t, granted, l.Stats().Granted)
				require.NoError(t, l.Close(t.Context()))
			})
		})
	}
}

// The budgets are closed in time of their own: nothing is in use any more, and
// their leases go back.
func TestCloseGivesItsBudgetsTimeOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := Config{Host: someHost, MinIdle: -1, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
		require.NoError(t, err)
		var closed []error
		c, err := newCluster(t.Context(), cfg, &budgets{
			leases: lease.NewLeases("x", 10), limiter: lease.NewLimiter("x", 100, 100),
			closers: []func(context.Context) error{func(ctx context.Context) error {
				time.Sleep(time.Second) // a request to the table
				closed = append(closed, ctx.Err())
				return ctx.Err()
			}},
		}, nil)
		require.NoError(t, err)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, c.Close(ended))
		require.Equal(t, []error{nil}, closed)
	})
}

// reclaiming leases ask the latest holder for some of what it has, when a test wants it and no sooner.
type reclaiming struct {
	lease.Leases
	holder atomic.Pointer[lease.Holder]
}

func (r *reclaiming) Acquire(ctx context.Context) (func(), error) {
	if h := lease.HolderOf(ctx); h != nil {
		r.holder.Store(h)
	}
	return r.Leases.Acquire(lease.WithHolder(ctx, nil))
}

func (r *reclaiming) ask(n int) (closing int) {
	r.holder.Load().Ask(n, func(n int, _ error) { closing = n })
	return closing
}

func dialPipe(context.Context) (*physical, error) {
	p := &physical{}
	local, _ := net.Pipe()
	p.setSocket(local)
	p.owner.Store(ownedByCloser) // so that nothing is closed but its end of the pipe
	return p, nil
}

// What one cluster of a process has idle it gives up for the callers of another over the same budget,
// down to the share of each.
func TestClustersOfOneProcessShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 6
		leases, limiter := lease.NewLeases("x", size), lease.NewLimiter("x", 100, 100)
		start := func() *Cluster {
			cfg, err := Config{Host: someHost, MaxSize: size, CheckInterval: -1, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
			require.NoError(t, err)
			c, err := newCluster(t.Context(), cfg, &budgets{leases: leases, limiter: limiter}, dialPipe)
			require.NoError(t, err)
			return c
		}
		rich := start()
		require.NoError(t, rich.res.WaitReady(t.Context(), size))
		poor := start()
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, poor.res.WaitReady(soon, size/2))
		synctest.Wait()
		require.Equal(t, size/2, rich.res.Stats().Idle)
		require.NoError(t, poor.Close(t.Context()))
		require.NoError(t, rich.res.WaitReady(soon, size), "there is room again")
		require.NoError(t, rich.Close(t.Context()))
	})
}

func TestIdleConnectionsAreGivenUpForOthersOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 6
		leases := &reclaiming{Leases: lease.NewLeases("x", size)}
		cfg, err := Config{Host: someHost, MaxSize: size, CheckInterval: -1, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
		require.NoError(t, err)
		c, err := newCluster(t.Context(), cfg, &budgets{leases: leases, limiter: lease.NewLimiter("x", 100, 100)}, dialPipe)
		require.NoError(t, err)
		require.NoError(t, c.res.WaitReady(t.Context(), size))
		busy, ok := c.res.TryAcquire()
		require.True(t, ok)
		others := make(chan func(), size)
		for range 2 {
			go func() {
				release, err := leases.Acquire(t.Context())
				if err == nil {
					others <- release
				}
			}()
		}
		synctest.Wait()
		require.Empty(t, others)
		require.Equal(t, 2, leases.ask(2))
		synctest.Wait()
		require.Len(t, others, 2)
		s := c.res.Stats()
		require.Equal(t, size-2-1, s.Idle)
		require.Equal(t, 1, s.InUse, "what is in use stays")
		(<-others)()
		(<-others)()
		synctest.Wait()
		require.Equal(t, size-1, c.res.Stats().Idle, "there is room again")
		require.NoError(t, busy.Release())
		var above []int
		stop := c.OnReclaim(func(n int) int { above = append(above, n); return 3 })
		require.Equal(t, 2, leases.ask(2), "the cluster's own come first")
		synctest.Wait() // they are opened again
		require.Equal(t, size+3, leases.ask(size+4))
		stop()
		require.Equal(t, []int{0, 4}, above, "none, so that what was asked for before is over")
		synctest.Wait()
		require.Equal(t, size, leases.ask(size+4))
		busy, err = c.res.Acquire(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, size, leases.ask(size), "one will come back")
		require.NoError(t, busy.Release())
		require.NoError(t, c.Close(t.Context()))
	})
}

// A revoking budget can take its leases back.
type revoking struct {
	lease.Leases
	tell func(lease.Revocation)
}

func (r *revoking) OnRevoke(f func(lease.Revocation)) func() {
	r.tell = f
	return func() { r.tell = nil }
}

func (r *revoking) Valid() error { return nil }

// Close may wait for a loan for long. Leases that are revoked meanwhile end its
// connection by their deadline.
func TestLeasesCanBeRevokedWhileCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &revoking{Leases: lease.NewLeases("x", 10)}
		cfg, err := Config{Host: someHost, MaxSize: 1, CheckInterval: -1, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
		require.NoError(t, err)
		var server net.Conn
		c, err := newCluster(t.Context(), cfg, &budgets{leases: leases, limiter: lease.NewLimiter("x", 100, 100)}, func(context.Context) (*physical, error) {
			p := &physical{}
			var local net.Conn
			local, server = net.Pipe()
			p.setSocket(local)
			p.owner.Store(ownedByCloser) // so that nothing is closed but its end of the pipe
			return p, nil
		})
		require.NoError(t, err)
		busy, err := c.res.Acquire(t.Context())
		require.NoError(t, err)
		closed := make(chan error, 1)
		go func() { closed <- c.Close(t.Context()) }()
		synctest.Wait()
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, c.Close(impatient), ErrClosed, "a second Close waits no longer than its context")
		require.NotNil(t, leases.tell, "it listens while it waits")
		above, began := make(chan time.Duration, 3), time.Now()
		defer c.OnReclaim(func(int) int { above <- time.Since(began); panic("of the pool above") })()
		leases.tell(lease.Revocation{Deadline: time.Now().Add(20 * time.Second), Cause: errGone})
		_, err = server.Read(make([]byte, 1))
		require.Error(t, err)
		require.Equal(t, 20*time.Second, time.Since(began))
		require.NoError(t, <-closed)
		require.Error(t, busy.Release(), "it was taken back")
		require.Nil(t, leases.tell)
		synctest.Wait()
		require.Len(t, above, 2)
		require.Equal(t, []time.Duration{0, 20 * time.Second}, []time.Duration{<-above, <-above})
	})
}

// unanswered is the fleet's limiter of a table that cannot be reached.
type unanswered struct{ lease.Limiter }

func (unanswered) Wait(context.Context) error {
	return fmt.Errorf("no answer: %w", lease.ErrUnavailable)
}

// How many processes are seen may change during an outage.
func TestAnOutageHasOneBurstHoweverManyProcessesAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := Config{Host: someHost, MaxSize: 100, OpenRate: 100, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
		require.NoError(t, err)
		const flips, each, rate = 20, time.Second, 10
		began, opens := time.Now(), 0
		owners := func() int { return 100/rate + int(time.Since(began)/each)%2 }
		f := withFallback(unanswered{lease.NewLimiter("x", 100, 100)}, cfg, owners)
		ctx, cancel := context.WithTimeout(t.Context(), flips*each)
		defer cancel()
		for f.Wait(ctx) == nil {
			opens++
		}
		require.LessOrEqual(t, opens, rate*flips+rate)
		require.GreaterOrEqual(t, opens, rate*flips/2)
	})
}

// Who waits for the rate of its own process does not wait for it when the fleet's is
// reached again.
func TestTheRateOfAProcessEndsWithTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := Config{Host: someHost, MaxSize: 100, RateFallback: 0.1, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
		require.NoError(t, err)
		tab := &table{}
		tab.away.Store(true)
		f := withFallback(&tableLimiter{Limiter: lease.NewLimiter("x", 100, 100), table: tab}, cfg, func() int { return 1 })
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				if err := f.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(25500 * time.Millisecond)
		require.EqualValues(t, 3, f.Stats().Fallbacks)
		require.Equal(t, 17, f.Stats().Waiting)
		tab.away.Store(false)
		back := time.Now()
		callers.Wait()
		require.LessOrEqual(t, time.Since(back), 2*time.Second)
		s := f.Stats()
		require.EqualValues(t, 20, s.Granted)
		require.EqualValues(t, 3, s.Fallbacks)
		require.Zero(t, s.Denied)
		require.Zero(t, s.Waiting)
	})
}
