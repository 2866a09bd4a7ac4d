package reservoir_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// What Reset has made outdated before Open was called is not opened.
func TestAnOpenThatResetMadeOutdatedIsElided(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.Admit = func(ctx context.Context) (func(), error) { _ = sleep(ctx, time.Second); return f.admit(ctx) }
		})
		waiting := call(t.Context(), r)
		time.Sleep(time.Second / 2)
		r.Reset()
		got := <-waiting
		require.NoError(t, got.err)
		require.Equal(t, 2*time.Second, got.took)
		require.Equal(t, 1, f.read(&f.opens))
		require.EqualValues(t, 1, r.Stats().OpensSkipped)
		release(t, got.loan)
		shut(t, r)
	})
}

// A failed open reaches those who came while it waited for Admit: Open had not
// been called yet.
func TestAFailedOpenReachesThoseWhoCameBeforeOpenWasCalled(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.refuse, f.dial = errRefused, time.Second
		r := f.pool(t, func(c *config) {
			c.MaxSize = 1
			c.Admit = func(ctx context.Context) (func(), error) { _ = sleep(ctx, time.Second); return f.admit(ctx) }
		})
		first := call(t.Context(), r)
		time.Sleep(time.Second / 2)
		second := call(t.Context(), r)
		require.Equal(t, 2*time.Second, (<-first).took)
		got := <-second
		require.ErrorIs(t, got.err, errRefused)
		require.Equal(t, 1500*time.Millisecond, got.took)
		shut(t, r)
	})
}

// A budget that is full fails nobody, even if its error is marked Permanent and
// an open has failed before.
func TestAFullBudgetFailsNobodyWhateverFailedBefore(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		asked := 0
		r := f.pool(t, func(c *config) {
			c.MaxSize = 1
			c.Admit = func(ctx context.Context) (func(), error) {
				switch asked++; {
				case asked == 1:
					return nil, errRefused
				case asked < 5:
					return nil, reservoir.Permanent(reservoir.ErrExhausted)
				}
				return f.admit(ctx)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := <-call(ctx, r)
		require.NoError(t, got.err)
		require.Equal(t, 5, asked)
		release(t, got.loan)
		shut(t, r)
	})
}

// A connection that can't be lent even once fails nobody while a loan is out:
// that can serve them.
func TestANewConnectionThatCannotBeLentFailsNobodyWhileALoanIsOut(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var expired bool
		r := f.pool(t, func(c *config) {
			c.OpenRetry = reservoir.OpenRetryNever
			c.ExpiresAt = func(*conn) time.Time {
				if expired {
					return time.Now()
				}
				return time.Time{}
			}
		})
		held := acquire(t, r)
		expired = true
		waiting := call(t.Context(), r)
		time.Sleep(time.Second)
		require.Empty(t, waiting)
		release(t, held)
		got := <-waiting
		require.NoError(t, got.err)
		require.Same(t, held.Value(), got.loan.Value())
		release(t, got.loan)
		shut(t, r)
	})
}

// A connection that ends within its first second counts as a failed open; after a
// second, and once Close has begun, it does not.
func TestALossCountsAsAFailedOpenForASecond(t *testing.T) {
	for name, c := range map[string]struct {
		age    time.Duration
		closes bool
		counts bool
	}{
		"a nanosecond less": {time.Second - 1, false, true},
		"a second":          {time.Second, false, false},
		"while it closes":   {time.Millisecond, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				w := &watchman{}
				r := f.pool(t, func(c *config) { c.Watch = w.watch })
				l := acquire(t, r)
				time.Sleep(c.age)
				if c.closes {
					go func() { _ = r.Close(t.Context()) }()
					synctest.Wait()
				}
				w.lose(l.Value())
				if c.counts {
					require.ErrorIs(t, r.Stats().LastOpenError, errCut)
				} else {
					require.NoError(t, r.Stats().LastOpenError)
				}
				release(t, l)
				if !c.closes {
					shut(t, r)
				}
			})
		})
	}
}

// With ReplaceAfter, MaxLifetime is what no life exceeds, whatever its part of
// the jitter.
func TestNoLifeExceedsMaxLifetimeWithReplaceAfter(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		const n = 20
		var ends []time.Duration
		began := time.Now()
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.MaxLifetime, c.ReplaceAfter, c.LifetimeJitter, c.GuardWindow = 2*n, time.Hour, 10*time.Minute, 20*time.Minute, -1
			c.Hooks.Closed = func(reservoir.Reason, error) { f.set(func() { ends = append(ends, time.Since(began)) }) }
		})
		require.NoError(t, r.WaitReady(t.Context(), n))
		f.set(func() { f.refuse = errRefused }) // so that none is replaced before its end
		time.Sleep(2 * time.Hour)
		f.set(func() {
			require.Len(t, ends, n)
			for _, end := range ends {
				require.LessOrEqual(t, end, time.Hour)
				require.Greater(t, end, 39*time.Minute)
			}
		})
		shut(t, r)
	})
}

// Whatever is wrong is named, and nothing that follows from it.
func TestAFaultIsNamedOnce(t *testing.T) {
	f := &fake{}
	_, err := reservoir.New(f.config(func(c *config) { c.MaxSize, c.MinIdle = -1, 3 }))
	require.EqualError(t, err, "reservoir: MaxSize: -1 is less than 1")
	_, err = reservoir.New(f.config(func(c *config) { c.ReplaceAfter, c.MaxLifetime = time.Minute, -1 }))
	require.EqualError(t, err, "reservoir: ReplaceAfter: 1m0s with LifetimeJitter 0s is more than MaxLifetime 0s")
	for _, off := range []time.Duration{-1, -time.Hour} {
		require.NoError(t, f.config(func(c *config) { c.ReplaceAfter, c.MaxLifetime = off, time.Minute }).Validate())
	}
}

// What is opened while spare connections are missing is one of those, not the
// successor of a stale one: that stays until there is one.
func TestAStaleConnectionStaysUntilItsSuccessorIsMoreThanASpareOne(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { lives(100 * time.Second)(c); c.MinIdle, c.MaxSize = 2, 8 })
		began := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(began.Add(d))); synctest.Wait() }
		require.NoError(t, r.WaitReady(t.Context(), 2))
		require.NoError(t, r.WaitReady(t.Context(), 2))
		at(50 * time.Second)
		require.NoError(t, acquire(t, r).Discard(nil)) // MinIdle has two opened
		synctest.Wait()
		for r.Stats().Idle > 2 {
			l := acquire(t, r)
			require.NotEqual(t, began, l.Value().born)
			require.NoError(t, l.Discard(nil))
			synctest.Wait()
		}
		old := f.connections()[0]
		if old.closed.Load() {
			old = f.connections()[1]
		}
		require.False(t, old.closed.Load())
		require.Equal(t, 2, r.Stats().Idle)
		f.set(func() { f.dial = time.Second })
		at(88300 * time.Millisecond)
		require.Equal(t, 1, r.Stats().Opening, "a successor")
		f.set(func() { f.dial = 1500 * time.Millisecond })
		l := acquire(t, r)
		require.NotSame(t, old, l.Value())
		at(88400 * time.Millisecond)
		require.Equal(t, 2, r.Stats().Opening, "and a spare one")
		at(89300 * time.Millisecond)
		require.Equal(t, 2, r.Stats().Idle)
		require.False(t, old.closed.Load(), "it is one of two")
		at(89850 * time.Millisecond)
		require.True(t, old.closed.Load())
		require.Equal(t, 2, r.Stats().Idle)
		release(t, l)
		shut(t, r)
	})
}

// A successor that ends at once replaces nothing.
func TestASuccessorThatEndsAtOnceReplacesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var ends atomic.Bool
		r := f.pool(t, func(c *config) {
			lives(100 * time.Second)(c)
			c.MaxSize = 8
			c.Watch = func(_ *conn, lost func(error)) {
				if ends.Load() {
					lost(errCut)
				}
			}
		})
		a := acquire(t, r)
		time.Sleep(50 * time.Second)
		b := acquire(t, r)
		release(t, b, a)
		ends.Store(true)
		time.Sleep(39 * time.Second) // a is stale, not yet too old
		synctest.Wait()
		require.NotZero(t, r.Stats().Closed[reservoir.Lost])
		require.False(t, a.Value().closed.Load())
		require.Zero(t, r.Stats().Closed[reservoir.Expired])
		shut(t, r)
	})
}

// A successor is kept although the one that it is for is still in use; and when it
// becomes stale itself, another is opened for both.
func TestASuccessorIsKeptWhileTheOldOneIsInUse(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			lives(100 * time.Second)(c)
			c.MaxSize, c.CheckOnRelease, c.Check, c.CheckInterval = 8, true, f.check, -1
		})
		old := acquire(t, r)
		release(t, old)
		f.set(func() { f.dial = time.Second })
		for r.Stats().Opening == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		old = acquire(t, r) // lent on, and kept
		time.Sleep(2 * time.Second)
		require.Equal(t, 2, r.Stats().Total)
		next := acquire(t, r)
		require.NotSame(t, old.Value(), next.Value())
		release(t, next)
		synctest.Wait()
		require.False(t, next.Value().closed.Load(), "it is the successor")
		time.Sleep(95 * time.Second)
		third := acquire(t, r)
		require.NotSame(t, next.Value(), third.Value(), "it was replaced in time")
		require.GreaterOrEqual(t, f.read(&f.opens), 3)
		release(t, third, old)
		shut(t, r)
	})
}

// A ghost is a ctx that ends while its caller is being served, which takes a
// second to say.
type ghost struct {
	context.Context
	asked bool
}

func (g *ghost) Done() <-chan struct{} { return make(chan struct{}) }

func (g *ghost) Err() error {
	if !g.asked { // before the wait
		g.asked = true
		return nil
	}
	time.Sleep(time.Second)
	return context.Canceled
}

// A connection that comes back from a caller who did not take it is the one that
// was used last; and if it can't be lent any more, what is missing is opened.
func TestWhatALateCallerDidNotTakeComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 2 })
		a, b := acquire(t, r), acquire(t, r)
		waiting := call(&ghost{Context: t.Context()}, r)
		synctest.Wait()
		release(t, a)
		time.Sleep(time.Second / 2)
		release(t, b)
		require.ErrorIs(t, (<-waiting).err, context.Canceled)
		c := acquire(t, r)
		require.Same(t, a.Value(), c.Value())
		release(t, c)
		shut(t, r)
	})
	bubble(t, func(t *testing.T, f *fake) {
		f.closes = time.Minute
		r := f.pool(t, func(c *config) { c.OpenTimeout = -1 })
		a := acquire(t, r)
		f.set(func() { f.dial = 10 * time.Second })
		waiting := call(&ghost{Context: t.Context()}, r)
		synctest.Wait()
		release(t, a)
		ready := make(chan error, 1)
		go func() { ready <- r.WaitReady(t.Context(), 2) }()
		time.Sleep(time.Second / 2)
		require.Equal(t, 1, r.Stats().Opening)
		r.Reset()
		require.ErrorIs(t, (<-waiting).err, context.Canceled)
		synctest.Wait()
		require.Equal(t, 1, r.Stats().Closing)
		require.Equal(t, 2, r.Stats().Opening, "it is missed before it is closed")
		require.NoError(t, <-ready)
		shut(t, r)
	})
}

// The connection of an open that has failed counts, and keeps its permission, until it is closed.
func TestWhatAFailedOpenHasMadeCountsUntilItIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		closed, fails := make(chan struct{}), true
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.OpenRetry, c.Admit = 1, reservoir.OpenRetryNever, f.admit
			c.Open = func(ctx context.Context) (*conn, error) {
				if fails {
					return nil, reservoir.StillClosing(errRefused, closed)
				}
				return f.open(ctx)
			}
		})
		began := time.Now()
		_, err := r.Acquire(t.Context())
		require.ErrorIs(t, err, errRefused)
		require.Zero(t, time.Since(began))
		fails = false
		waiting := call(t.Context(), r)
		time.Sleep(5 * time.Second)
		require.Empty(t, waiting)
		require.Equal(t, 1, r.Stats().Closing)
		require.Equal(t, 1, f.read(&f.leases))
		close(closed)
		got := <-waiting
		require.NoError(t, got.err)
		require.Equal(t, 1, f.read(&f.mostLeases))
		release(t, got.loan)
		shut(t, r)
		require.Zero(t, f.read(&f.leases))
		require.NoError(t, reservoir.StillClosing(nil, closed))
	})
}
