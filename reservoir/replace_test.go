package reservoir_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// steady has callers use a reservoir for a time: each uses a connection for
// nine parts of a period and pauses for one.
func steady(t *testing.T, r *pool, callers int, period, length time.Duration) {
	t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			time.Sleep(time.Duration(i) * period / time.Duration(callers))
			for time.Since(began) < length {
				l := acquire(t, r)
				time.Sleep(period * 9 / 10)
				release(t, l)
				time.Sleep(period / 10)
			}
		})
	}
	all.Wait()
}

// Each connection that reaches the end of its life costs one open, not more.
func TestASteadyLoadOpensOneConnectionForEachThatIsReplaced(t *testing.T) {
	for _, callers := range []int{1, 20} {
		for _, size := range []int{0, 1, 200} { // 0: the default
			for _, minIdle := range []int{0, 1} {
				t.Run(fmt.Sprintf("%d callers, MaxSize %d, MinIdle %d", callers, size, minIdle), func(t *testing.T) {
					bubble(t, func(t *testing.T, f *fake) {
						f.dial = 50 * time.Millisecond
						r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle, c.MaxLifetime, c.IdleTTL = size, minIdle, 0, 0 })
						period := time.Duration(callers) * 200 * time.Millisecond
						if size < callers && size > 0 {
							period = time.Second // each waits for all others, within AcquireTimeout
						}
						steady(t, r, callers, period, 10*time.Minute)
						before, had := f.read(&f.opens), r.Stats().Total
						steady(t, r, callers, period, 66*time.Minute)
						s := r.Stats()
						opens, replaced := f.read(&f.opens)-before, int(s.Closed[reservoir.Expired])
						require.GreaterOrEqual(t, replaced, had-2, "every connection ends within an hour and its jitter")
						require.LessOrEqual(t, float64(opens), 1.05*float64(replaced))
						require.LessOrEqual(t, f.read(&f.mostLive), min(s.MaxSize, had+1+had/4))
						shut(t, r)
					})
				})
			}
		}
	}
}

func TestAConnectionIsUsedForNearlyAllOfItsLife(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial = 200 * time.Millisecond
		const life, guard = 12 * time.Minute, 45 * time.Second
		var lived []time.Duration
		r := f.pool(t, func(c *config) {
			c.MinIdle, c.MaxSize, c.MaxConcurrentOpens, c.MaxLifetime, c.LifetimeJitter, c.GuardWindow = 90, 100, 4, life, -1, guard
			c.Close = func(x *conn) error {
				f.set(func() { lived = append(lived, time.Since(x.born)) })
				return f.close(x)
			}
		})
		time.Sleep(3 * time.Hour)
		f.set(func() {
			require.Greater(t, len(lived), 1000)
			for _, l := range lived {
				require.GreaterOrEqual(t, l, (life-guard)*97/100)
				require.LessOrEqual(t, l, life-guard)
			}
		})
		require.Equal(t, 90, r.Stats().Idle)
		shut(t, r)
	})
}

func TestAFullReservoirIsReplacedAQuarterAtATime(t *testing.T) {
	for _, size := range []int{1, 4, 16} {
		for _, life := range []time.Duration{time.Minute, time.Hour} {
			t.Run(fmt.Sprintf("MaxSize %d, %v", size, life), func(t *testing.T) {
				bubble(t, func(t *testing.T, f *fake) {
					f.dial, f.closes = 150*time.Millisecond, 50*time.Millisecond
					r := f.pool(t, func(c *config) {
						c.MaxSize, c.MinIdle, c.MaxLifetime, c.LifetimeJitter = size, size, life, -1
					})
					require.NoError(t, r.WaitReady(t.Context(), size))
					least := size
					for range 25 * 60 * 10 {
						time.Sleep(life / 6000)
						synctest.Wait()
						least = min(least, r.Stats().Idle)
					}
					require.GreaterOrEqual(t, r.Stats().Closed[reservoir.Expired], uint64(2*size))
					require.Equal(t, size-max(1, size/4), least)
					shut(t, r)
				})
			})
		}
	}
}

func TestNothingGoodIsClosedWhileTheServerRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle, c.MaxLifetime, c.LifetimeJitter = 8, 8, time.Hour, -1 })
		require.NoError(t, r.WaitReady(t.Context(), 8))
		time.Sleep(time.Until(f.connections()[0].born.Add(59*time.Minute + 19*time.Second)))
		f.set(func() { f.refuse = errRefused })
		time.Sleep(30*time.Second - 1)
		require.GreaterOrEqual(t, r.Stats().Idle, 6, "it found out with the first two")
		shut(t, r)
	})
}

// All connections are in use when they grow old, and callers wait.
func TestUnderFullLoadConnectionsAreReplacedOneAfterTheOther(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial = 50 * time.Millisecond
		r := f.pool(t, func(c *config) { c.MaxSize, c.MaxLifetime, c.LifetimeJitter = 8, time.Hour, -1 })
		least := 8
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(time.Minute)
			for range 60 * 60 * 10 {
				time.Sleep(100 * time.Millisecond)
				least = min(least, r.Stats().InUse)
			}
		}()
		steady(t, r, 20, 400*time.Millisecond, 70*time.Minute)
		<-done
		require.GreaterOrEqual(t, least, 6)
		require.EqualValues(t, 8, r.Stats().Closed[reservoir.Expired])
		require.Equal(t, 16, f.read(&f.opens))
		shut(t, r)
	})
}

func TestSizesAndTimesAtTheirBoundsKeepConnectionsWithinTheirLives(t *testing.T) {
	for name, set := range map[string]func(*config){
		"MaxSize":     func(c *config) { c.MaxSize, c.MaxConcurrentOpens = math.MaxInt32, 1 },
		"OpenTimeout": func(c *config) { c.OpenTimeout = math.MaxInt64 },
		"jitter":      func(c *config) { c.LifetimeJitter = math.MaxInt64 - c.MaxLifetime },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				r := f.pool(t, func(c *config) { c.MinIdle, c.MaxLifetime, c.LifetimeJitter = 1, time.Minute, -1; set(c) })
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, 1, r.Stats().Idle)
				if name != "jitter" {
					require.InDelta(t, 75, f.read(&f.opens), 20, "a quarter of a life is kept at most")
				}
				shut(t, r)
			})
		})
	}
}

func TestAnOverflowThatLastsIsNotDialledForEveryCall(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.OnExhausted = 2, reservoir.Overflow(2) })
		steady(t, r, 3, 9*time.Millisecond, 10*time.Second)
		require.LessOrEqual(t, f.read(&f.opens), 4)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, r.Stats().Total)
		shut(t, r)
	})
}
