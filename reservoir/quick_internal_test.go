package reservoir

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// opensAny makes a configuration whose server takes any number.
func opensAny(change func(c *Config[int])) Config[int] {
	c := Config[int]{Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil }}
	change(&c)
	return c
}

// lentIdle has n connections opened and given back.
func lentIdle(t *testing.T, r *Reservoir[int], n int) {
	t.Helper()
	var loans []Loan[int]
	for range n {
		l, err := r.Acquire(t.Context())
		require.NoError(t, err)
		loans = append(loans, l)
	}
	for _, l := range loans {
		require.NoError(t, l.Release())
	}
	synctest.Wait()
}

// The quick path is what makes a borrow cheap: it is taken wherever a lending
// leaves nothing else to do.
func TestTheCommonBorrowTakesTheQuickPath(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(c *Config[int])
		idle int
	}{
		"more than MinIdle": {func(c *Config[int]) { c.MaxSize, c.MinIdle = 8, 1 }, 2},
		"no MinIdle":        {func(c *Config[int]) { c.MaxSize = 8 }, 1},
		"MinIdle, and full": {func(c *Config[int]) { c.MaxSize, c.MinIdle = 2, 2 }, 2},
		"checks, but just used": {func(c *Config[int]) {
			c.CheckOnAcquire, c.Check = true, func(context.Context, int) error { return nil }
		}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, err := New(opensAny(c.set))
			require.NoError(t, err)
			time.Sleep(10 * time.Second)
			lentIdle(t, r, c.idle)
			r.mu.Lock()
			loan, ok := r.tryFastPath()
			r.mu.Unlock()
			require.True(t, ok, name)
			require.Nil(t, loan.entry.borrower, "nobody looks for leaks")
			require.NoError(t, loan.Release())
			require.NoError(t, r.Close(t.Context()))
		})
	}
}

// A borrow that takes the quick path goes by one time, even if the one that is
// kept is used up by it and the connection has to be checked from then on.
func TestABorrowGoesByOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(opensAny(func(c *Config[int]) {
			c.CheckOnAcquire, c.Check = true, func(context.Context, int) error { return nil }
		}))
		require.NoError(t, err)
		lentIdle(t, r, 1)
		r.mu.Lock()
		since := r.mu.idle.front().idleSince
		r.mu.Unlock()
		time.Sleep(time.Duration(since-r.clock.exact()) + time.Second - time.Millisecond)
		r.mu.Lock()
		r.clock.read()
		r.clock.usesLeft = 1
		r.mu.Unlock()
		time.Sleep(2 * time.Millisecond)
		l, err := r.Acquire(t.Context())
		require.NoError(t, err)
		require.Zero(t, r.Stats().Checks)
		require.NoError(t, l.Release())
		require.NoError(t, r.Close(t.Context()))
	})
}

// A lending that leaves a spare connection missing has a stale one make room for
// it: it does not take the quick path.
func TestALendingHasAStaleConnectionMakeRoomForASpareOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		r, err := New(opensAny(func(c *Config[int]) {
			c.MaxSize, c.MinIdle, c.MaxLifetime, c.LifetimeJitter, c.IdleTTL = 8, 6, 100*time.Second, -1, -1
			c.Close = func(int) error {
				if slow.Load() {
					time.Sleep(time.Minute)
				}
				return nil
			}
		}))
		require.NoError(t, err)
		require.NoError(t, r.WaitReady(t.Context(), 1))
		synctest.Wait()
		time.Sleep(50 * time.Second)
		require.NoError(t, r.WaitReady(t.Context(), 8))
		a, err := r.Acquire(t.Context())
		require.NoError(t, err)
		slow.Store(true)
		require.NoError(t, a.Discard(nil)) // for a minute, its place is taken
		synctest.Wait()
		r.mu.Lock()
		first := r.mu.idle.back()
		first.lifetime.replaceAt = r.clock.read() // one of the first becomes stale
		first.fastPathUntil = first.lifetime.replaceAt
		r.markStale(first, r.clock.now())
		open, retire := demand(r.openCounts())
		require.Equal(t, [3]int{0, 0, 7}, [3]int{open, retire, r.mu.idle.n}, "nothing to do yet")
		r.mu.minIdle = 7
		r.mu.Unlock()
		l, err := r.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, r.Stats().Closing)
		slow.Store(false)
		require.NoError(t, l.Release())
		require.NoError(t, r.Close(t.Context()))
	})
}

// Of the stale connections the oldest that is not being checked is closed.
func TestAStaleConnectionInACheckIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(opensAny(func(c *Config[int]) {
			c.Check = func(context.Context, int) error { time.Sleep(time.Second); return nil }
		}))
		require.NoError(t, err)
		lentIdle(t, r, 2)
		var fx effects[int]
		r.mu.Lock()
		now := r.clock.read()
		for _, e := range r.mu.all {
			e.lifetime.replaceAt, e.fastPathUntil = now, now
			r.markStale(e, now)
		}
		first := r.oldestStale()
		r.startCheck(first, true, &fx)
		second := r.oldestStale()
		require.Equal(t, idle, second.state)
		require.NotSame(t, first, second)
		r.reconcile(&fx)
		r.unlock(&fx)
		require.NoError(t, r.Close(t.Context()))
	})
}

// Nobody gets a connection from its end on, however late sweepTimer is and however long
// ago the time was read.
func TestALateAlarmLendsNothingThatHasEnded(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		life, guard, read, past time.Duration
	}{
		"long ago":                     {100 * s, 10 * s, 0, s},
		"at its end":                   {100 * s, 10 * s, 0, 0},
		"just read":                    {100 * s, 10 * s, 5 * time.Millisecond, 0},
		"a clock that is exact":        {100 * time.Millisecond, 8 * time.Millisecond, time.Nanosecond, 0},
		"shorter than the clock tells": {10 * s, 10*s - 10*time.Millisecond, 3 * time.Millisecond, time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			hang := false
			r, err := New(opensAny(func(cfg *Config[int]) {
				cfg.MaxSize, cfg.MaxLifetime, cfg.GuardWindow, cfg.LifetimeJitter, cfg.IdleTTL = 1, c.life, c.guard, -1, -1
				cfg.Open = func(ctx context.Context) (int, error) {
					if hang {
						<-ctx.Done()
					}
					return 1, ctx.Err()
				}
			}))
			require.NoError(t, err)
			l, err := r.Acquire(t.Context())
			require.NoError(t, err)
			end := l.entry.lifetime.expireAt
			require.NoError(t, l.Release())
			hang = true
			r.sweepTimer.Stop()
			time.Sleep(time.Duration(end) - c.read)
			if c.read > 0 {
				r.mu.Lock()
				r.clock.read()
				r.mu.Unlock()
			}
			time.Sleep(c.read + c.past)
			_, ok := r.TryAcquire()
			require.False(t, ok, name)
			require.NoError(t, r.Close(t.Context()))
		})
	}
}

// The heap of what time brings keeps its order, whatever is set and removed.
func TestTheTimersKeepTheirOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h timers[int]
	var all []*entry[int]
	for range 1000 {
		switch n := random.IntN(10); {
		case n < 4:
			e := &entry[int]{timerIndex: -1}
			h.set(e, random.Int64N(100))
			all = append(all, e)
		case len(all) == 0:
		case n < 7:
			h.set(all[random.IntN(len(all))], random.Int64N(100))
		default:
			i := random.IntN(len(all))
			h.remove(all[i])
			require.Equal(t, -1, all[i].timerIndex)
			all = slices.Delete(all, i, i+1)
		}
		first := never
		for _, e := range all {
			first = min(first, e.dueAt)
		}
		require.Equal(t, first, h.first())
		require.Len(t, h, len(all))
		for i, e := range h {
			if i != e.timerIndex || h[max(0, i-1)/2].dueAt > e.dueAt {
				t.Fatalf("%d stands at %d, below %d", e.dueAt, i, h[max(0, i-1)/2].dueAt)
			}
		}
	}
}

// What Close leaves to run by itself is only what it waits for.
func TestCloseStopsItsTimersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan struct{})
		r, err := New(opensAny(func(c *Config[int]) {
			c.MaxSize = 2
			open := c.Open
			c.Open = func(ctx context.Context) (int, error) {
				select {
				case <-started: // the second is deaf
					time.Sleep(time.Hour)
				default:
					close(started)
				}
				return open(ctx)
			}
		}))
		require.NoError(t, err)
		require.False(t, r.sweepTimer.Stop(), "nothing is due")
		var unused clock
		unused.init(time.Hour)
		require.False(t, unused.staleTimer.Stop(), "nobody reads the time")
		l, err := r.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Release())
		ready, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, r.WaitReady(ready, 2))
		synctest.Wait()
		l, err = r.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Release())
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		closed := make(chan error)
		go func() { closed <- r.Close(ctx) }()
		synctest.Wait()
		require.False(t, r.sweepTimer.Stop(), "the alarm is set")
		require.False(t, r.clock.staleTimer.Stop(), "the clock's timer is set")
		require.Error(t, <-closed)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.False(t, r.sweepTimer.Stop(), "the alarm is set by what comes late")
		require.ErrorIs(t, r.Close(t.Context()), ErrClosed)
	})
}

// A connection that comes only after Close sets no timer.
func TestNothingSetsTheAlarmAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(opensAny(func(c *Config[int]) {
			c.MinIdle, c.Open = 1, func(context.Context) (int, error) { time.Sleep(time.Hour); return 1, nil }
		}))
		require.NoError(t, err)
		synctest.Wait()
		require.False(t, r.sweepTimer.Stop(), "nothing is due")
		require.NoError(t, r.Close(t.Context()))
		require.False(t, r.sweepTimer.Stop())
	})
}

// The stack of a leak begins with the borrower, and goes on whoever called it.
func TestALeaksStackBeginsWithTheBorrower(t *testing.T) {
	const module = "github.com/flightpool/flightpool/"
	require.Empty(t, (&BorrowStack{}).String())
	require.True(t, ownCode(runtime.Frame{Function: module + "session.f", File: "f.go"}))
	require.False(t, ownCode(runtime.Frame{Function: module + "examples/gateway.f", File: "f.go"}))
	require.False(t, ownCode(runtime.Frame{Function: module + "session.f", File: "f_test.go"}))
	require.False(t, ownCode(runtime.Frame{Function: "main.main", File: "f.go"}))
	synctest.Test(t, func(t *testing.T) {
		var leaks []Leak
		lender, err := New(opensAny(func(c *Config[int]) {
			c.LeakAfter, c.Hooks.Leaked = time.Minute, func(l Leak) { leaks = append(leaks, l) }
		}))
		require.NoError(t, err)
		time.Sleep(13 * time.Second)
		var l Loan[int]
		other, err := New(opensAny(func(c *Config[int]) {
			c.Hooks.Opened = func(time.Duration) { l, _ = lender.Acquire(t.Context()) } // called by the module's own code
			c.MinIdle, c.MaxLifetime = 1, -1
		}))
		require.NoError(t, err)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, leaks, 1)
		require.InDelta(t, time.Minute, leaks[0].Held, float64(maxSlack))
		require.Contains(t, leaks[0].Stack, "internal/callback.")
		require.Contains(t, lender.Connections()[0].Borrower.String(), "internal/callback.")
		l.entry.borrower.loan--
		require.Nil(t, lender.Connections()[0].Borrower, "that of another loan")
		require.NoError(t, l.Release())
		l.entry.borrower = nil
		lender.recordBorrower(l)
		require.Nil(t, l.entry.borrower, "the loan is over: the connection may be lent to another")
		require.NoError(t, other.Close(t.Context()))
		require.NoError(t, lender.Close(t.Context()))
	})
}

// Reset closes what was opened before it, and nothing else.
func TestResetClosesNothingThatWasOpenedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(opensAny(func(c *Config[int]) { c.MaxSize = 3 }))
		require.NoError(t, err)
		lentIdle(t, r, 3)
		var fx effects[int]
		r.mu.Lock()
		r.retireOutdated(Outdated, &fx) // a batch of Reset's, after all are closed
		r.unlock(&fx)
		require.Equal(t, 3, r.Stats().Idle)
		r.mu.Lock() // Reset, before it closes what it has made outdated
		r.mu.generation++
		r.mu.outdated = r.mu.idle.n
		r.mu.Unlock()
		require.Zero(t, r.EvictIdle(), "Reset closes them")
		require.NoError(t, r.Close(t.Context()))
	})
}
