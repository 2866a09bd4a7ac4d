package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pool is what a process does with its leases: it keeps a number of
// connections, replaces each when its life has ended, and closes idle ones when
// it is asked to. It counts as a reservoir does.
type pool struct {
	leases *Leases
	mu     sync.Mutex
	conns  map[int]context.CancelFunc // of each connection
	opened int
	lives  int
}

// newPool keeps want connections, busy of them in use all the time, until ctx
// ends.
func newPool(ctx context.Context, l *Leases, seed uint64, want, busy int, running *sync.WaitGroup) *pool {
	p := &pool{leases: l, conns: map[int]context.CancelFunc{}}
	l.OnReclaim(func(n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for id, end := range p.conns {
			if n == 0 || len(p.conns) <= busy {
				return
			}
			delete(p.conns, id)
			end()
			n--
		}
	})
	for i := range want {
		rng := seeded(seed*1000 + uint64(i))
		running.Go(func() {
			for ctx.Err() == nil {
				release, err := l.Acquire(ctx)
				if err != nil {
					pause(ctx, 250*time.Millisecond, nil)
					continue
				}
				life, end := context.WithTimeout(ctx, 11*time.Minute+upTo(rng, 2*time.Minute))
				p.mu.Lock()
				p.opened++
				p.lives++
				id := p.opened
				p.conns[id] = end
				p.mu.Unlock()
				<-life.Done()
				end()
				p.mu.Lock()
				delete(p.conns, id)
				p.mu.Unlock()
				release()
				pause(ctx, 50*time.Millisecond, nil)
			}
		})
	}
	return p
}

func (p *pool) has() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// While the fleet is short every process gets its max-min share within two
// minutes, newcomers too.
func TestAShortFleetIsSharedFairly(t *testing.T) {
	for _, v := range []struct {
		members, newcomers, want, limit, shards int
		floor, ceiling                          int
	}{
		{7, 3, 15, 100, 1, 10, 10},
		{7, 2, 15, 100, 1, 11, 12},
		{9, 1, 15, 100, 3, 10, 10},
		{1, 1, 30, 20, 1, 10, 10},
		{40, 20, 15, 450, 3, 7, 8},
	} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.limited = true
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				var pools []*pool
				add := func(n int) {
					for range n {
						l, _ := join(t, w, uint64(len(pools)), Config{Limit: v.limit, Shards: v.shards})
						pools = append(pools, newPool(ctx, l, uint64(len(pools)), v.want, 0, &running))
						time.Sleep(100 * time.Millisecond)
					}
				}
				add(v.members)
				time.Sleep(10 * time.Minute)
				add(v.newcomers)
				time.Sleep(2 * time.Minute)
				var has []int
				sum := 0
				for _, p := range pools {
					has = append(has, p.has())
					sum += p.has()
				}
				slices.Sort(has)
				t.Logf("LEASE fair processes=%d limit=%d min=%d max=%d after_s=120 (simulated)", len(pools), v.limit, has[0], has[len(has)-1])
				require.GreaterOrEqual(t, has[0], v.floor)
				require.LessOrEqual(t, has[len(has)-1], v.ceiling)
				require.LessOrEqual(t, sum, v.limit)
				require.Positive(t, pools[0].leases.Stats().Share)
				cancel()
				running.Wait()
				for _, p := range pools {
					p.leases.halt()
				}
			})
		})
	}
}

// Connections in use are not taken from anybody, and a newcomer gets some of those
// that are idle.
func TestAShareTakesOnlyWhatOthersDoNotUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		var pools []*pool
		for i, v := range []struct{ want, busy int }{{60, 50}, {40, 0}, {5, 5}} {
			l, _ := join(t, w, uint64(i), Config{Limit: 100})
			pools = append(pools, newPool(ctx, l, uint64(i), v.want, v.busy, &running))
			time.Sleep(10 * time.Second)
		}
		l, _ := join(t, w, 9, Config{Limit: 100})
		pools = append(pools, newPool(ctx, l, 9, 60, 0, &running))
		time.Sleep(2 * time.Minute)
		require.GreaterOrEqual(t, pools[0].has(), 50, "in use")
		require.Positive(t, pools[3].has())
		cancel()
		running.Wait()
		for _, p := range pools {
			p.leases.halt()
		}
	})
}

func TestFairLevelIsMaxMin(t *testing.T) {
	shard := func(owners ...Owner) map[int]*Record {
		r := &Record{Owners: map[string]Owner{}}
		for i, o := range owners {
			r.Owners[fmt.Sprint(i)] = o
		}
		return map[int]*Record{0: r, 1: nil}
	}
	has := func(n int64) Owner { return Owner{Leases: n} }
	wants := func(n, want int64) Owner { return Owner{Leases: n, Want: want} }
	require.Zero(t, fairLevel(shard(has(50), wants(10, 50)), 100), "all of it fits")
	require.Equal(t, 50, fairLevel(shard(has(60), wants(10, 80)), 100))
	require.Equal(t, 90, fairLevel(shard(has(10), wants(20, 95)), 100), "who wants little leaves more")
	require.Equal(t, 35, fairLevel(shard(has(60), has(20), wants(10, 80)), 90), "20, 35 and 35")
	require.Equal(t, 34, fairLevel(shard(has(33), has(33), wants(33, 80)), 100), "the one left over is for whoever comes first")
}

// Random fleets: whoever wants connections has its max-min share of what is
// not in use by others, two minutes after the last process joined.
func TestSharesOfRandomFleetsAreMaxMin(t *testing.T) {
	for seed := range 4 * storms(t) {
		synctest.Test(t, func(t *testing.T) {
			rng := seeded(seed)
			w := newWorld()
			w.limited = true
			members, limit, shards := 2+rng.IntN(30), 20+rng.IntN(300), 1+rng.IntN(4)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			var pools []*pool
			wants := &Record{Owners: map[string]Owner{}}
			for i := range members {
				want := 1 + rng.IntN(2*limit/members)
				wants.Owners[fmt.Sprint(i)] = Owner{Want: int64(want)}
				cfg := Config{Limit: limit, Shards: shards}
				if rng.IntN(2) == 0 {
					cfg.Want = want
				}
				l, _ := join(t, w, seed*100+uint64(i), cfg)
				pools = append(pools, newPool(ctx, l, uint64(i), want, 0, &running))
				time.Sleep(upTo(rng, 20*time.Second))
			}
			time.Sleep(2 * time.Minute)
			level := fairLevel(map[int]*Record{0: wants}, limit)
			if level == 0 {
				level = limit
			}
			sum := 0
			var has, missing []int
			for i, p := range pools {
				has = append(has, p.has())
				sum += p.has()
				if want := int(wants.Owners[fmt.Sprint(i)].Want); p.has() < min(want, level) {
					missing = append(missing, i)
				}
			}
			require.Empty(t, missing, "seed %d: %v of %d in %d shards at level %d: %+v", seed, has, limit, shards, level, wants.Owners)
			require.LessOrEqual(t, sum, limit)
			cancel()
			running.Wait()
			for _, p := range pools {
				p.leases.halt()
			}
		})
	}
}
