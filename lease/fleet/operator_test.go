package fleet

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// A limit that was lowered is reached by the connections that end, also when
// each is opened anew at once.
func TestALoweredLimitIsReachedThoughConnectionsAreReplacedAtOnce(t *testing.T) {
	for _, processes := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			var ls []*Leases
			for i := range processes {
				l, _ := join(t, w, uint64(i), Config{Limit: 100})
				ls = append(ls, l)
				rng := seeded(uint64(i))
				for range 100 / processes {
					own := rng.Uint64()
					running.Go(func() {
						rng := seeded(own)
						for ctx.Err() == nil {
							release, err := l.Acquire(ctx)
							if err != nil {
								return
							}
							pause(ctx, upTo(rng, 2*time.Second), nil)
							release() // and again at once
						}
					})
				}
			}
			time.Sleep(time.Minute)
			require.EqualValues(t, 100, w.used())
			require.NoError(t, SetLimit(ctx, w.mem, "b", 50))
			var sums []int
			for range 4 {
				time.Sleep(10 * time.Second)
				sum := 0
				for _, l := range ls {
					sum += l.Stats().InUse
				}
				sums = append(sums, sum)
			}
			t.Logf("%d processes: %v", processes, sums)
			cancel()
			running.Wait()
			for _, l := range ls {
				l.stopGoroutines()
			}
			require.LessOrEqual(t, sums[3], 50, "%v", sums)
		})
	}
}

// Shards that appear in a live record, or vanish, add no room: not even while a
// process that has leases in them is cut off.
func TestShardsChangedInALiveRecordAddNoRoom(t *testing.T) {
	for _, v := range []struct{ from, to int64 }{{1, 2}, {2, 5}, {8, 2}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			var pools []*pool
			var first *process
			for i := range 3 {
				l, p := join(t, w, uint64(i), Config{Limit: 60, Shards: int(v.from)})
				if i == 0 {
					first = p
				}
				pools = append(pools, newPool(ctx, l, uint64(i), 30, 0, &running))
			}
			time.Sleep(time.Minute)
			first.set(func(p *process) { p.outage = time.Now().Add(25 * time.Second) })
			_, err := w.write(Change{Key: budgetKey("b"), Set: map[string]int64{"shards": v.to}})
			require.NoError(t, err)
			most := 0
			for i := range 240 {
				if i == 100 {
					if l, err := New(ctx, newProcess(w, 9, calm), Config{Budget: "b", Limit: 60, Logger: silence}); err == nil {
						pools = append(pools, newPool(ctx, l, 9, 30, 0, &running))
					}
				}
				time.Sleep(500 * time.Millisecond)
				most = max(most, connections(pools))
			}
			cancel()
			running.Wait()
			for _, p := range pools {
				p.leases.stopGoroutines()
			}
			require.LessOrEqual(t, most, 60, "%v", v)
		})
	}
}

// The budget's record alone is deleted: a limit that was set stays, nobody is
// lost, and the dead are found as soon as ever.
func TestTheBudgetsRecordAloneIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var ls []*Leases
		var ps []*process
		for i := range 3 {
			l, p := join(t, w, uint64(i), Config{Limit: 30})
			take(t, l, 3)
			ls, ps = append(ls, l), append(ps, p)
		}
		require.NoError(t, SetLimit(t.Context(), w.mem, "b", 40))
		time.Sleep(20 * time.Minute)
		w.mem.mu.Lock()
		delete(w.mem.records, budgetKey("b"))
		w.mem.mu.Unlock()
		kill(ls[2], ps[2])
		ls[2].stopGoroutines()
		time.Sleep(3 * time.Minute)
		used, limit, losses := w.used(), ls[0].Stats().Limit, ls[0].Stats().Losses
		for _, l := range ls[:2] {
			l.stopGoroutines()
		}
		t.Logf("used %d, limit %d, losses %d", used, limit, losses)
		require.LessOrEqual(t, used, int64(3+3+2+2))
		require.Equal(t, 40, limit)
		require.Zero(t, losses)
	})
}

// Free is told to a process that lives within a quarter of Lease, also when a
// round begins at the same moment.
func TestFreeBeginsARoundThatComesAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l, _ := join(t, w, 1, Config{Limit: 10})
		take(t, l, 3)
		time.Sleep(time.Minute)
		read, err := Inspect(t.Context(), w.mem, "b")
		require.NoError(t, err)
		id := read.Members[0].ID
		before := mustRead(t, w, budgetKey("b")).Numbers["round"]
		s := &between{Store: w.mem}
		s.do = func() { // a round begins, and the process checks in to it, before the entry is removed
			_, _ = w.write(Change{Key: budgetKey("b"), Set: map[string]int64{"round": before + 1}})
			time.Sleep(10 * time.Second)
		}
		_, err = Free(t.Context(), s, "b", id)
		require.NoError(t, err)
		time.Sleep(15 * time.Second)
		losses := l.Stats().Losses
		l.stopGoroutines()
		require.NotZero(t, losses)
	})
}

// between does something after the first read of a store.
type between struct {
	Store
	do func()
}

func (b *between) Read(ctx context.Context, keys ...string) (Snapshot, error) {
	s, err := b.Store.Read(ctx, keys...)
	if b.do != nil {
		do := b.do
		b.do = nil
		do()
	}
	return s, err
}

// Inspect, SetLimit and Free answer a record that something else wrote with an
// error.
func TestOperatorsGetAnErrorForAGarbageRecord(t *testing.T) {
	for _, name := range []string{"limit", "shards", "lease", "grace", "round", "level"} {
		for _, value := range []int64{-1 << 62, -1, 0, 1 << 40, 1 << 62} {
			synctest.Test(t, func(t *testing.T) {
				m := NewMemory()
				l, err := New(t.Context(), m, Config{Budget: "b", Limit: 10, Logger: silence})
				require.NoError(t, err)
				release, err := l.Acquire(t.Context())
				require.NoError(t, err)
				release()
				l.stopGoroutines()
				_, err = m.Write(t.Context(), Change{Key: budgetKey("b"), Set: map[string]int64{name: value}})
				require.NoError(t, err)
				_, inspected := Inspect(t.Context(), m, "b")
				set := SetLimit(t.Context(), m, "b", 12)
				_, freed := Free(t.Context(), m, "b", l.id)
				if name == "round" || name == "level" || name == "grace" && (value == -1 || value == 0) {
					return // what such a number does is no harm
				}
				for _, err := range []error{inspected, set, freed} {
					require.ErrorIs(t, err, ErrRecord, "%s %d", name, value)
				}
			})
		}
	}
}

// What is above a lowered limit is not granted again in an outage either.
func TestAnOutageGrantsNothingAboveALoweredLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l, p := join(t, w, 1, Config{Limit: 10, Batch: 1})
		defer l.stopGoroutines()
		releases := take(t, l, 10)
		require.NoError(t, SetLimit(t.Context(), w.mem, "b", 8))
		time.Sleep(30 * time.Second)
		p.set(func(p *process) { p.outage = time.Now().Add(10 * time.Minute) })
		time.Sleep(time.Minute)
		require.True(t, l.Stats().Degraded)
		for _, release := range releases[:3] {
			release()
		}
		take(t, l, 1) // for the third
		_, err := l.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrUnavailable)
		require.Equal(t, 8, l.Stats().InUse)
	})
}
