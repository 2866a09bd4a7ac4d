package reservoir_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// lives sets a lifetime without jitter of which the last 10s are guarded.
func lives(life time.Duration) func(*config) {
	return func(c *config) { c.MaxLifetime, c.LifetimeJitter, c.GuardWindow = life, -1, 10*time.Second }
}

func TestAConnectionIsLentUntilItsGuardWindowToTheNanosecond(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { lives(100 * time.Second)(c); c.MaxSize = 2; c.MaxConcurrentOpens = 1 })
		f.set(func() { f.sessions = 1 })
		l := acquire(t, r)
		first := l.Value()
		time.Sleep(time.Until(first.born.Add(90*time.Second - 1)))
		release(t, l)
		l = acquire(t, r)
		require.Same(t, first, l.Value(), "one nanosecond is left")
		release(t, l)
		time.Sleep(time.Nanosecond)
		f.set(func() { f.sessions = 0 })
		l = acquire(t, r)
		require.NotSame(t, first, l.Value())
		release(t, l)
		shut(t, r)
	})
}

func TestALoanThatOutlivesItsConnectionIsLeftAloneAndClosedWhenItReturns(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, lives(100*time.Second))
		l := acquire(t, r)
		time.Sleep(time.Hour)
		require.False(t, l.Value().closed.Load())
		release(t, l)
		synctest.Wait()
		require.EqualValues(t, 1, r.Stats().Closed[reservoir.Expired])
		shut(t, r)
	})
}

func TestABurstIsReplacedWithoutEverEmptyingTheReservoir(t *testing.T) {
	for name, jitter := range map[string]time.Duration{"without jitter": -1, "with jitter": 5 * time.Minute} {
		for room, minIdle := range map[string]int{"full": 50, "with room": 40} {
			t.Run(name+" "+room, func(t *testing.T) {
				bubble(t, func(t *testing.T, f *fake) {
					f.dial, f.closes = 150*time.Millisecond, 50*time.Millisecond
					r := f.pool(t, func(c *config) {
						c.MaxSize, c.MinIdle, c.MaxLifetime, c.LifetimeJitter = 50, minIdle, time.Hour, jitter
					})
					require.NoError(t, r.WaitReady(t.Context(), minIdle))
					least := minIdle
					for range 3 * 60 * 60 * 10 {
						time.Sleep(100 * time.Millisecond)
						synctest.Wait()
						least = min(least, r.Stats().Idle)
					}
					if minIdle == 50 {
						require.GreaterOrEqual(t, least, 50-8)
					} else {
						require.GreaterOrEqual(t, least, 40, "there was room to open the replacements first")
					}
					replaced := r.Stats().Closed[reservoir.Expired]
					require.GreaterOrEqual(t, replaced, uint64(2*minIdle))
					require.LessOrEqual(t, replaced, uint64(4*minIdle))
					shut(t, r)
				})
			})
		}
	}
}

func TestConnectionsOpenedTogetherEndSpreadOverTheJitter(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		const n = 20
		began, ends := time.Now(), []time.Duration{}
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.MinIdle, c.MaxLifetime, c.LifetimeJitter, c.GuardWindow = 2*n, n, time.Hour, n*time.Minute, -1
			c.Hooks.Closed = func(reservoir.Reason, error) { f.set(func() { ends = append(ends, time.Since(began)) }) }
		})
		require.NoError(t, r.WaitReady(t.Context(), n))
		f.set(func() { f.refuse = errRefused }) // so that none is replaced before its end
		time.Sleep(2 * time.Hour)
		f.set(func() {
			require.Len(t, ends, n)
			last := time.Hour
			for _, end := range append(ends, time.Hour+n*time.Minute) {
				require.GreaterOrEqual(t, end, last)
				require.LessOrEqual(t, end-last, 2200*time.Millisecond*60, "jitter/n is a minute")
				last = end
			}
		})
		shut(t, r)
	})
}

func TestIdleTTLClosesTheColdestAndKeepsMinIdle(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.IdleTTL, c.MinIdle = time.Minute, 1 })
		a, b, c := acquire(t, r), acquire(t, r), acquire(t, r)
		synctest.Wait()
		release(t, a)
		time.Sleep(30 * time.Second)
		release(t, b)
		time.Sleep(30 * time.Second)
		release(t, c) // a and the spare one have been idle for a minute
		synctest.Wait()
		require.True(t, a.Value().closed.Load())
		require.False(t, b.Value().closed.Load())
		require.Equal(t, 2, r.Stats().Idle)
		time.Sleep(time.Hour)
		require.Equal(t, 2, r.Stats().Idle, "nothing looks while nothing happens")
		d := acquire(t, r)
		require.Same(t, c.Value(), d.Value(), "the hottest is MinIdle's")
		synctest.Wait()
		require.True(t, b.Value().closed.Load())
		release(t, d)
		shut(t, r)
	})
}

func TestAStaleConnectionThatNobodyUsesIsNotReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { lives(time.Hour)(c); c.IdleTTL, c.MinIdle, c.MaxSize = time.Minute, 1, 20 })
		release(t, acquire(t, r), acquire(t, r), acquire(t, r))
		synctest.Wait()
		before := f.read(&f.opens)
		f.set(func() { f.dial = time.Second }) // what is wanted is begun
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		require.Equal(t, 1, r.Stats().Total)
		require.Equal(t, before+1, f.read(&f.opens))
		shut(t, r)
	})
}

func TestEvictIdleClosesAllAboveMinIdle(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MinIdle = 1 })
		release(t, acquire(t, r), acquire(t, r), acquire(t, r))
		synctest.Wait()
		idle := r.Stats().Idle
		require.Equal(t, idle-1, r.EvictIdle())
		synctest.Wait()
		require.Equal(t, 1, r.Stats().Total)
		shut(t, r)
	})
}

func TestTheSweeperChecksOneIdleConnectionAtATimeAndAgesNone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		running, most, checks := 0, 0, map[*conn]int{}
		r := f.pool(t, func(c *config) {
			c.MinIdle, c.MaxSize, c.IdleTTL = 1, 8, 10*time.Minute
			c.LeakAfter = 300 * time.Millisecond // makes the sweeper look often
			c.Check = func(ctx context.Context, x *conn) error {
				f.set(func() { running++; most = max(most, running); checks[x]++ })
				time.Sleep(time.Second)
				f.set(func() { running-- })
				return f.check(ctx, x)
			}
		})
		var loans []loan
		for range 6 {
			loans = append(loans, acquire(t, r))
		}
		release(t, loans...)
		synctest.Wait()
		opens := f.read(&f.opens)
		for range 240 {
			l := acquire(t, r)
			time.Sleep(400 * time.Millisecond)
			release(t, l)
			time.Sleep(100 * time.Millisecond)
			require.GreaterOrEqual(t, r.Stats().Idle, 5)
		}
		f.set(func() {
			require.Equal(t, 1, most)
			for _, l := range loans[:5] { // the last is in use all the time
				require.Contains(t, []int{3, 4}, checks[l.Value()])
			}
		})
		time.Sleep(8 * time.Minute)
		require.Equal(t, opens, f.read(&f.opens), "a check is no reason to open another")
		release(t, acquire(t, r)) // ten minutes: the checks have not made them younger
		synctest.Wait()
		require.LessOrEqual(t, r.Stats().Idle, 2)
		shut(t, r)
	})
}

func TestAnIdleConnectionThatFailsItsCheckIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MinIdle, c.Check = 2, f.check })
		require.NoError(t, r.WaitReady(t.Context(), 2))
		f.set(func() { f.log[0].broken = true })
		time.Sleep(31 * time.Second)
		synctest.Wait()
		require.True(t, f.connections()[0].closed.Load())
		require.Equal(t, 2, r.Stats().Idle)
		require.EqualValues(t, 1, r.Stats().CheckFailures)
		shut(t, r)
	})
}

func TestACallerDoesNotWaitForTheSweepersCheck(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.MaxSize = 2
			c.Check = func(context.Context, *conn) error { time.Sleep(3 * time.Second); return nil }
		})
		release(t, acquire(t, r))
		time.Sleep(31 * time.Second)
		require.Equal(t, 1, r.Stats().InUse, "being checked")
		got := <-call(t.Context(), r)
		require.NoError(t, got.err)
		require.Zero(t, got.took)
		release(t, got.loan)
		shut(t, r)
	})
}

func TestCheckOnAcquireLooksAtWhatWasIdleWhileTheCallerQueues(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.CheckOnAcquire, c.CheckInterval = 2, true, -1
			c.Check = func(ctx context.Context, x *conn) error {
				time.Sleep(3 * time.Second)
				return f.check(ctx, x)
			}
		})
		a, b := acquire(t, r), acquire(t, r)
		release(t, b, a)
		release(t, acquire(t, r)) // idle for less than a second: no check
		require.Zero(t, r.Stats().Checks)
		time.Sleep(time.Second)
		f.set(func() { a.Value().broken = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Acquire(ctx) // leaves: the check goes on
		require.ErrorIs(t, err, context.DeadlineExceeded)
		got := <-call(t.Context(), r) // joins the check of a, which fails; then b
		require.NoError(t, got.err)
		require.Same(t, b.Value(), got.loan.Value())
		require.EqualValues(t, 1, r.Stats().CheckFailures)
		release(t, got.loan)

		time.Sleep(time.Second)
		_, ok := r.TryAcquire() // has it checked
		require.False(t, ok)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		l, ok := r.TryAcquire()
		require.True(t, ok)
		release(t, l)
		shut(t, r)
	})
}

func TestAnIdleReservoirHasNoGoroutine(t *testing.T) {
	// Without Close: the bubble fails if a goroutine of the reservoir is left.
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		r := f.pool(t, func(c *config) { lives(time.Hour)(c); c.MinIdle, c.Check = 2, f.check })
		release(t, acquire(t, r))
		time.Sleep(10 * time.Minute)
	})
}
