package fleet

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightpool/flightpool/lease"
)

// Waiters by the hundred, contexts that end at any moment, closes too: every
// Acquire returns in time, and the store has nothing left of anybody.
func TestNothingIsLostHoweverManyWaitWhenProcessesClose(t *testing.T) {
	for seed := range 2 * storms(t) {
		synctest.Test(t, func(t *testing.T) {
			rng := seeded(seed)
			w := newWorld()
			limit := 5 + rng.IntN(20)
			var wg sync.WaitGroup
			for i := range 6 {
				s := rng.Uint64()
				wg.Go(func() {
					r := seeded(s)
					time.Sleep(upTo(r, time.Minute))
					l, p := join(t, w, s, Config{Limit: limit, Shards: 1 + i%3, Strict: r.IntN(2) == 0})
					p.set(func(p *process) {
						p.faults = faults{lostRequest: 0.03, lostReply: 0.05, duplicate: 0.2, delay: 30 * time.Millisecond, duplicateDelay: 4 * time.Second}
					})
					slow := lease.NewHolder(func(n int) int { time.Sleep(upTo(seeded(1), time.Minute)); return n })
					var us sync.WaitGroup
					for range 200 {
						own := r.Uint64()
						us.Go(func() {
							q := seeded(own)
							for range 3 {
								ctx, c := context.WithTimeout(t.Context(), upTo(q, 90*time.Second))
								at := time.Now()
								d, _ := ctx.Deadline()
								rel, err := l.Acquire(lease.WithHolder(ctx, slow))
								if time.Since(at) > d.Sub(at)+time.Second {
									t.Errorf("late %v", time.Since(at))
								}
								c()
								if err == nil {
									time.Sleep(upTo(q, 20*time.Second))
									rel()
									rel()
								}
							}
						})
					}
					time.Sleep(upTo(r, 4*time.Minute))
					ctx, c := context.WithTimeout(t.Context(), upTo(r, 60*time.Second))
					_ = l.Close(ctx)
					c()
					us.Wait()
					if n := l.Stats().InUse; n != 0 {
						t.Errorf("in use %d", n)
					}
				})
			}
			wg.Wait()
			o, _ := join(t, w, 99, Config{Limit: limit})
			time.Sleep(3 * time.Minute)
			if w.used() != 0 {
				t.Errorf("seed %d: lost %d", seed, w.used())
			}
			o.stopGoroutines()
		})
	}
}

// Whatever stands in a record, no process panics, and all ends as usual.
func TestRecordsWrittenByHandEndNoProcess(t *testing.T) {
	for seed := range 4 * storms(t) {
		synctest.Test(t, func(t *testing.T) {
			rng := seeded(seed)
			w := newWorld()
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			var ls []*pool
			for i := range 3 {
				l, _ := join(t, w, uint64(i), Config{Limit: 30, Shards: 2})
				ls = append(ls, newPool(ctx, l, uint64(i), 15, rng.IntN(15), &running))
			}
			time.Sleep(time.Minute)
			names := []string{"limit", "level", "levels", "round", "lease", "grace", "began", "used"}
			values := []int64{-1, 0, 1, 7, 1 << 40, 1 << 62, -1 << 62}
			for range 4 {
				name := names[rng.IntN(len(names))]
				key := budgetKey("b")
				if name == "used" {
					key = shardKey("b", rng.IntN(2))
				}
				v := values[rng.IntN(len(values))]
				old := mustRead(t, w, key).Numbers[name]
				_, _ = w.write(Change{Key: key, Set: map[string]int64{name: v}})
				time.Sleep(upTo(rng, 2*time.Minute))
				if name != "used" && name != "round" && name != "levels" {
					_, _ = w.write(Change{Key: key, Set: map[string]int64{name: old}})
				}
				if rng.IntN(2) == 0 {
					_, _ = w.write(Change{Key: shardKey("b", 0), Put: map[string]Owner{fmt.Sprint("X", rng.IntN(3)): {Leases: values[rng.IntN(7)], Want: v, Kept: v, Seq: v, Round: v}}})
				}
			}
			time.Sleep(5 * time.Minute)
			cancel()
			running.Wait()
			for _, p := range ls {
				if p.leases.Stats().InUse != 0 {
					t.Error("in use")
				}
				p.leases.stopGoroutines()
			}
		})
	}
}
