package reservoir_test

import (
	"context"
	"fmt"
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

func TestAQuietReservoirShrinksToMinIdleByTheClock(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.IdleTTL, c.MinIdle, c.MaxSize = time.Minute, 1, 20 })
		a, b, c := acquire(t, r), acquire(t, r), acquire(t, r)
		synctest.Wait()
		require.Equal(t, 4, r.Stats().Total, "with the spare one")
		release(t, a)
		time.Sleep(30 * time.Second)
		release(t, b)
		time.Sleep(30*time.Second - 1)
		release(t, c)
		synctest.Wait()
		require.Equal(t, 4, r.Stats().Idle)
		for _, want := range []struct {
			after  time.Duration
			closed *conn
		}{{1, nil}, {30 * time.Second, a.Value()}, {30*time.Second - 1, b.Value()}} {
			time.Sleep(want.after)
			synctest.Wait()
			if want.closed == nil {
				require.Equal(t, 3, r.Stats().Idle, "of the two that are a minute old one is MinIdle's")
				require.False(t, a.Value().closed.Load(), "the coldest goes first")
			} else {
				require.True(t, want.closed.closed.Load())
			}
		}
		time.Sleep(time.Hour)
		require.Equal(t, 1, r.Stats().Total)
		d := acquire(t, r)
		require.Same(t, c.Value(), d.Value(), "the hottest is kept")
		release(t, d)
		shut(t, r)
	})
}

func TestWithoutIdleTTLNothingIsTooIdle(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.IdleTTL, c.Check, c.CheckInterval = -1, f.check, time.Minute })
		release(t, acquire(t, r), acquire(t, r))
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Equal(t, 2, r.Stats().Idle)
		shut(t, r)
	})
}

func TestABurstOfAnySizeShrinksToMinIdle(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.IdleTTL, c.MinIdle, c.MaxSize, c.MaxConcurrentOpens = time.Minute, 2, 1000, -1 })
		require.NoError(t, r.WaitReady(t.Context(), 1000))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, 2, r.Stats().Total)
		shut(t, r)
	})
}

// MinIdle counts what is not in use: who uses one connection all the time does
// not cost one of them.
func TestASteadyCallerBesideMinIdleCausesNoOpens(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial = 50 * time.Millisecond
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle, c.IdleTTL = 16, 4, 0 })
		require.NoError(t, r.WaitReady(t.Context(), 4))
		for began := time.Now(); time.Since(began) < time.Hour; {
			l := acquire(t, r)
			time.Sleep(36 * time.Millisecond)
			release(t, l)
			time.Sleep(4 * time.Millisecond)
		}
		require.Equal(t, 5, f.read(&f.opens))
		shut(t, r)
	})
}

// What the caller could have used is not closed while it asks.
func TestAcquireNeverClosesAnIdleConnectionForItsIdleAge(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.closes = 3 * time.Second
		r := f.pool(t, func(c *config) { c.MaxSize, c.IdleTTL = 1, 0 })
		for range 5 {
			got := <-call(t.Context(), r)
			require.NoError(t, got.err)
			require.Zero(t, got.took, "the old one was closed a minute ago")
			release(t, got.loan)
			time.Sleep(6 * time.Minute)
		}
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

// Connections that are replaced more often than IdleTTL age all the same.
func TestWhatIsReplacedWhileNobodyUsesItShrinksToMinIdle(t *testing.T) {
	for name, set := range map[string]func(*config){
		"MaxLifetime":  func(c *config) { c.MaxLifetime = 2 * time.Minute },
		"near IdleTTL": func(c *config) { c.MaxLifetime = 5 * time.Minute },
		"ReplaceAfter": func(c *config) { c.MaxLifetime, c.ReplaceAfter = 10*time.Minute, 2*time.Minute },
		"ExpiresAt": func(c *config) {
			c.ExpiresAt = func(*conn) time.Time { return time.Now().Add(4 * time.Minute) }
		},
	} {
		for _, minIdle := range []int{0, 3} {
			t.Run(fmt.Sprint(name, minIdle), func(t *testing.T) {
				bubble(t, func(t *testing.T, f *fake) {
					r := f.pool(t, func(c *config) {
						c.MaxSize, c.MinIdle, c.MaxConcurrentOpens, c.IdleTTL = 40, minIdle, 1, 5*time.Minute
						set(c)
					})
					f.set(func() { f.dial = 20 * time.Millisecond })
					var loans []loan
					for range 30 {
						loans = append(loans, acquire(t, r))
					}
					release(t, loans...)
					for range 60 { // one is used on
						time.Sleep(10 * time.Second)
						release(t, acquire(t, r))
					}
					require.LessOrEqual(t, r.Stats().Total, minIdle+3, "10 minutes after the burst")
					require.GreaterOrEqual(t, r.Stats().Idle, minIdle)
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					require.Equal(t, minIdle, r.Stats().Idle)
					for _, c := range r.Connections() {
						require.False(t, c.Used.Before(c.Opened), "%+v", c)
					}
					before := f.read(&f.opens)
					time.Sleep(time.Hour)
					require.LessOrEqual(t, f.read(&f.opens)-before, 45*minIdle, "none but MinIdle are replaced")
					shut(t, r)
				})
			})
		}
	}
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

func TestKeepaliveChecksRunSomeAtATimeAndAgeNothing(t *testing.T) {
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
			require.GreaterOrEqual(t, r.Stats().Idle, 4)
		}
		f.set(func() {
			require.Equal(t, 2, most, "a quarter of MaxSize")
			for _, l := range loans[:5] { // the last is in use all the time
				require.Contains(t, []int{3, 4}, checks[l.Value()])
			}
		})
		time.Sleep(8*time.Minute - time.Second)
		require.Equal(t, opens, f.read(&f.opens), "a check is no reason to open another")
		require.EqualValues(t, opens, r.Stats().Total)
		time.Sleep(3 * time.Minute) // the checks have not made them younger
		synctest.Wait()
		require.LessOrEqual(t, r.Stats().Idle, 2)
		shut(t, r)
	})
}

func TestKeepaliveKeepsItsIntervalForThousandsAndFindsTheDeadSoon(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		last, worst := map[*conn]time.Time{}, time.Duration(0)
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.MinIdle, c.MaxConcurrentOpens = 2000, 2000, -1
			c.Check = func(ctx context.Context, x *conn) error {
				f.set(func() {
					if at, ok := last[x]; ok {
						worst = max(worst, time.Since(at))
					}
					last[x] = time.Now()
				})
				if f.check(ctx, x) != nil {
					<-ctx.Done()
					return ctx.Err()
				}
				return sleep(ctx, 20*time.Millisecond)
			}
		})
		require.NoError(t, r.WaitReady(t.Context(), 2000))
		time.Sleep(10 * time.Minute)
		f.set(func() {
			require.LessOrEqual(t, worst, 31*time.Second)
			for i, c := range f.log {
				c.broken = i%20 == 0
			}
		})
		time.Sleep(time.Minute)
		require.EqualValues(t, 100, r.Stats().CheckFailures)
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
				time.Sleep(50 * time.Millisecond)
				return f.check(ctx, x)
			}
		})
		a, b := acquire(t, r), acquire(t, r)
		release(t, b, a)
		release(t, acquire(t, r)) // idle for less than a second: no check
		require.Zero(t, r.Stats().Checks)
		time.Sleep(time.Second)
		f.set(func() { a.Value().broken, f.dial = true, time.Second })
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
		defer cancel()
		_, err := r.Acquire(ctx) // leaves: the check goes on
		require.ErrorIs(t, err, context.DeadlineExceeded)
		got := <-call(t.Context(), r) // joins the check of a, which fails; then b
		require.NoError(t, got.err)
		require.Same(t, b.Value(), got.loan.Value())
		require.EqualValues(t, 1, r.Stats().CheckFailures)
		release(t, got.loan)

		time.Sleep(3 * time.Second)
		_, ok := r.TryAcquire() // has it checked
		require.False(t, ok)
		time.Sleep(500 * time.Millisecond)
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
