package fleet

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// cost is what a fleet of n processes with 10,000 connections, whose lives are
// about 12 minutes, is billed per connection life, when each process would like
// so many.
func cost(t *testing.T, n, want int, lasts time.Duration) (wru, rru float64) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.limited = true
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		var running, starting sync.WaitGroup
		pools := make([]*pool, n)
		each := 10_000 / n
		for i := range n {
			starting.Go(func() {
				time.Sleep(upTo(seeded(uint64(i)), 30*time.Second))
				l, _ := join(t, w, uint64(i), Config{Limit: 10_000, Want: each})
				pools[i] = newPool(ctx, l, uint64(i), want, 0, &running)
			})
		}
		starting.Wait()
		running.Wait()
		lives := 0
		for _, p := range pools {
			lives += p.lives
			p.leases.stop()
		}
		require.Positive(t, lives)
		wru, rru = w.bill()
		wru, rru = wru/float64(lives), rru/float64(lives)
		t.Logf("%d processes: %d lives, %.3f write units and %.3f read units each; largest record %d bytes; throttled %d and %d; by kind %v",
			n, lives, wru, rru, w.largest, w.throttledWrites, w.throttledReads, w.wru)
		for _, p := range pools {
			p.leases.stopGoroutines()
		}
	})
	return wru, rru
}

// storm is n processes that start at once and open 10,000 connections at
// the rate of DSQL: how long it takes, and how long it would take the rate alone.
func storm(t *testing.T, n, each int) (ready, ideal time.Duration) {
	const rate, burst = 100, 500
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.limited = true
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		start := time.Now()
		var running sync.WaitGroup
		var mu sync.Mutex
		var at []time.Duration
		var ls []*Leases
		var limiters []*Limiter
		for i := range n {
			running.Go(func() {
				l, p := join(t, w, uint64(i), Config{Limit: 10_000, Want: each})
				limiter, err := NewLimiter(ctx, p, LimiterConfig{Budget: "b", Rate: rate, Burst: burst, Logger: silence})
				require.NoError(t, err)
				mu.Lock()
				ls, limiters = append(ls, l), append(limiters, limiter)
				mu.Unlock()
				var openers sync.WaitGroup
				left := make(chan struct{}, each)
				for range each {
					left <- struct{}{}
				}
				close(left)
				for range 8 { // as many opens at once as a reservoir has
					openers.Go(func() {
						for range left {
							for ctx.Err() == nil {
								release, err := l.Acquire(ctx)
								if err != nil {
									pause(ctx, 250*time.Millisecond, nil)
									continue
								}
								if limiter.Wait(ctx) != nil {
									release()
									pause(ctx, 250*time.Millisecond, nil)
									continue
								}
								mu.Lock()
								at = append(at, time.Since(start))
								mu.Unlock()
								pause(ctx, 80*time.Millisecond, nil) // the open itself
								break
							}
						}
					})
				}
				openers.Wait()
			})
		}
		running.Wait()
		slices.Sort(at)
		ready = time.Since(start)
		ideal = time.Duration(n*each-burst) * time.Second / rate
		writes := uint64(0)
		for _, l := range limiters {
			writes += l.Stats().Traffic.Writes
		}
		wru, rru := w.bill()
		t.Logf("%d processes x %d: %d connections, half after %v, 90 %% after %v, all after %v (the rate alone: %v); leases %.0f write units, with the limiter's %.0f read units; limiter %.2f writes per open; throttled %d writes, %d reads",
			n, each, len(at), at[len(at)/2].Round(time.Second), at[len(at)*9/10].Round(time.Second), ready.Round(time.Second), ideal,
			wru, rru, float64(writes)/float64(len(at)), w.throttledWrites, w.throttledReads)
		for _, l := range limiters {
			l.stop()
		}
		for _, l := range ls {
			l.stop()
		}
		for i, l := range ls {
			l.stopGoroutines()
			require.NoError(t, limiters[i].Close(context.Background()))
		}
	})
	return ready, ideal
}

// figures is "all" when the figures of large fleets are wanted too: make fleet.
func figures() bool { return os.Getenv("FLEET_FIGURES") == "all" }

// Leases of the dead are back within Lease and Grace however many die
// together, in the largest fleets while others want them.
func TestLeasesOfManyDeadAreBackWithinLeaseAndGrace(t *testing.T) {
	kills := []struct{ processes, killed int }{{2, 1}, {10, 1}, {10, 5}, {20, 18}}
	if figures() {
		kills = append(kills, []struct{ processes, killed int }{{100, 90}, {300, 290}, {1000, 990}}...)
	}
	for _, v := range kills {
		for _, wanted := range []bool{true, false} {
			back := massKill(t, v.processes, v.killed, wanted)
			terms := terms{lease: time.Minute, grace: 20 * time.Second}
			limit := terms.lease + terms.grace + terms.roundEvery(v.processes, wanted) - terms.roundEvery(v.processes, true)
			t.Logf("LEASE mass_kill killed=%d/%d back_s=%.1f limit_s=%.0f wanted=%v (simulated)", v.killed, v.processes, back.Seconds(), limit.Seconds(), wanted)
			require.LessOrEqual(t, back, limit)
		}
	}
}

func TestLeasesCostLittle(t *testing.T) {
	fleets := []struct {
		processes int
		most      float64 // write units per connection life
	}{{50, 0.2}}
	if figures() {
		fleets = append(fleets, []struct {
			processes int
			most      float64
		}{{300, 0.5}, {1000, 0.5}}...)
	}
	for _, v := range fleets {
		wru, rru := cost(t, v.processes, 10_000/v.processes, 26*time.Minute)
		t.Logf("LEASE cost processes=%d wru_per_life=%.3f rru_per_life=%.3f (simulated)", v.processes, wru, rru)
		require.LessOrEqual(t, wru, v.most)
	}
}

func TestAFleetThatStartsAtOnceIsReadyAsSoonAsTheRateAllows(t *testing.T) {
	fleets := []struct{ processes, each int }{{50, 60}}
	if figures() {
		fleets = []struct{ processes, each int }{{300, 33}, {1000, 10}}
	}
	for _, v := range fleets {
		ready, ideal := storm(t, v.processes, v.each)
		t.Logf("LEASE join processes=%d ready_s=%.1f ideal_s=%.1f (simulated)", v.processes, ready.Seconds(), ideal.Seconds())
		require.LessOrEqual(t, ready, ideal*110/100+time.Second)
	}
}

// Random fleets, deaths and times of death, on a table that throttles.
func TestLeasesOfTheDeadAreBackInRandomFleets(t *testing.T) {
	for seed := range 5 * storms(t) {
		rng := seeded(seed)
		processes := 2 + rng.IntN(100)
		killed := 1 + rng.IntN(processes-1)
		back := massKillOn(t, seed, processes, killed, rng.IntN(2) == 0, faults{delay: 20 * time.Millisecond, throttle: 0.1})
		require.LessOrEqual(t, back, 80*time.Second, "seed %d: %d of %d", seed, killed, processes)
	}
}

// A fleet that is short all the time, since its processes want a fifth more
// than there is, costs what the package's documentation says.
func TestAFleetThatIsAlwaysShortCostsWhatIsSaid(t *testing.T) {
	if !figures() {
		return
	}
	for _, v := range []struct {
		processes int
		most      float64 // write units per connection life
	}{{50, 0.2}, {300, 3.5}} {
		wru, rru := cost(t, v.processes, 10_000/v.processes*12/10, 26*time.Minute)
		t.Logf("LEASE short_cost processes=%d wru_per_life=%.3f rru_per_life=%.3f (simulated)", v.processes, wru, rru)
		if wru > v.most {
			t.Errorf("%d processes: %.3f write units per life, should be %.1f at most", v.processes, wru, v.most)
		}
	}
}
