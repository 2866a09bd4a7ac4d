package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// pool is what a process does with its leases: it keeps a number of
// connections, replaces each when its life has ended, and closes idle ones when
// it is asked to. It counts as a reservoir does.
type pool struct {
	leases *Leases
	holder *lease.Holder
	mu     sync.Mutex
	conns  map[int]context.CancelFunc // of each connection
	busy   int                        // how many of them are in use, if there are so many
	want   int
	again  context.Context // ends when want changes
	change context.CancelFunc
	lives  int
}

// newPool keeps want connections, busy of them in use all the time, until ctx
// ends.
func newPool(ctx context.Context, l *Leases, seed uint64, want, busy int, running *sync.WaitGroup) *pool {
	p := &pool{leases: l, busy: busy, conns: map[int]context.CancelFunc{}}
	p.set(ctx, want, busy)
	p.holder = lease.NewHolder(p.yield)
	for i := range want {
		running.Go(func() { p.keep(ctx, i, seeded(seed*1000+uint64(i))) })
	}
	return p
}

// set changes how many connections are wanted, up to the first number, and are in use.
func (p *pool) set(ctx context.Context, want, busy int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.change != nil {
		p.change()
	}
	p.want, p.busy = want, busy
	p.again, p.change = context.WithCancel(ctx)
	for id, end := range p.conns {
		if id >= want {
			end()
		}
	}
}

// yield closes up to n connections that are not in use.
func (p *pool) yield(n int) (closing int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, end := range p.conns {
		if closing == n || len(p.conns) <= p.busy {
			return closing
		}
		delete(p.conns, id)
		end()
		closing++
	}
	return closing
}

// keep sees to one connection.
func (p *pool) keep(ctx context.Context, id int, rng *rand.Rand) {
	for ctx.Err() == nil {
		p.mu.Lock()
		again, wanted := p.again, id < p.want
		p.mu.Unlock()
		if !wanted {
			pause(ctx, 250*time.Millisecond, nil)
			continue
		}
		release, err := p.leases.Acquire(lease.WithHolder(again, p.holder))
		if err != nil {
			pause(ctx, 250*time.Millisecond, nil)
			continue
		}
		life, end := context.WithTimeout(ctx, 11*time.Minute+upTo(rng, 2*time.Minute))
		p.mu.Lock()
		p.lives++
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
}

func (p *pool) has() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// connections is how many all of them have.
func connections(pools []*pool) (sum int) {
	for _, p := range pools {
		sum += p.has()
	}
	return sum
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
				t.Logf("LEASE fair min=%d max=%d after_s=120 processes=%d limit=%d (simulated)", has[0], has[len(has)-1], len(pools), v.limit)
				require.GreaterOrEqual(t, has[0], v.floor)
				require.LessOrEqual(t, has[len(has)-1], v.ceiling)
				require.LessOrEqual(t, sum, v.limit)
				require.Positive(t, pools[0].leases.Stats().Share)
				cancel()
				running.Wait()
				for _, p := range pools {
					p.leases.stopGoroutines()
				}
			})
		})
	}
}

// Connections in use are not taken from anybody, and those that are idle are
// shared by the others: 50 are in use, so that 22 each are left for two who want
// more than 5.
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
		require.Equal(t, 5, pools[2].has())
		require.GreaterOrEqual(t, pools[1].has(), 22)
		require.GreaterOrEqual(t, pools[3].has(), 22)
		cancel()
		running.Wait()
		for _, p := range pools {
			p.leases.stopGoroutines()
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
	require.Equal(t, 33, fairLevel(shard(has(33), has(33), wants(33, 80)), 99), "none is left over")
	keeps := func(n, kept int64) Owner { return Owner{Leases: n, Kept: kept} }
	require.Equal(t, 22, fairLevel(shard(keeps(50, 50), wants(31, 40), wants(0, 5), wants(19, 60)), 100), "50, 22, 5 and 22")
	require.Equal(t, 50, fairLevel(shard(keeps(50, 1<<62), wants(10, 80)), 100), "nobody keeps more than it has")
	require.Equal(t, 50, fairLevel(shard(keeps(60, -1<<62), wants(10, 1<<62)), 100))
	require.Equal(t, 1, fairLevel(shard(keeps(70, 70), keeps(30, 30), wants(0, -1<<62), wants(0, 5)), 100), "all is in use")
	require.Equal(t, 1, fairLevel(shard(Owner{Leases: 1 << 62, Want: 1 << 62, Kept: 1 << 62}, wants(-1<<62, 7)), 100), "an entry that was changed by hand")
}

// Who stands still, is cut off or says what is not so does not keep the others
// from their share for longer than it takes to be found dead.
func TestSharesWithProcessesThatDoNotTakePart(t *testing.T) {
	for _, v := range []struct {
		name string
		do   func(p *process, greedy *pool)
		has  []int // of the three others, at least
	}{
		{"frozen above the level", func(p *process, _ *pool) {
			p.set(func(p *process) { p.paused = time.Now().Add(10 * time.Minute) })
		}, []int{40, 5, 50}},
		{"cut off above the level", func(p *process, _ *pool) {
			p.set(func(p *process) { p.outage = time.Now().Add(10 * time.Minute) })
		}, []int{40, 5, 50}},
		{"says that it keeps more than it has, and wants more than there is", func(p *process, greedy *pool) {
			greedy.mu.Lock()
			greedy.busy = 0
			greedy.mu.Unlock()
			p.set(func(p *process) {
				p.edit = func(c *Change) {
					for id, o := range c.Put {
						o.Kept, o.Want = 1<<62, 1<<62
						c.Put[id] = o
					}
				}
			})
		}, []int{27, 5, 27}},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				var pools []*pool
				add := func(want, busy int) *process {
					l, p := join(t, w, uint64(len(pools)), Config{Limit: 100})
					pools = append(pools, newPool(ctx, l, uint64(len(pools)), want, busy, &running))
					time.Sleep(10 * time.Second)
					return p
				}
				odd := add(50, 50)
				add(40, 0)
				add(5, 5)
				v.do(odd, pools[0])
				add(60, 0)
				time.Sleep(2 * time.Minute)
				var has []int
				for _, p := range pools {
					has = append(has, p.has())
				}
				for i, least := range v.has {
					if has[i+1] < least {
						t.Errorf("they have %v, and should have %v", has[1:], v.has)
						break
					}
				}
				odd.set(func(p *process) { p.paused = time.Now() })
				cancel()
				running.Wait()
				for _, p := range pools {
					p.leases.stopGoroutines()
				}
			})
		})
	}
}

// unfair tells which pools have less than the max-min share of what others do
// not use, and what they all have.
func unfair(pools []*pool, limit int) string {
	type use struct{ has, want, kept int }
	uses, sum := make([]use, len(pools)), 0
	for i, p := range pools {
		p.mu.Lock()
		uses[i] = use{len(p.conns), p.want, min(len(p.conns), p.busy)}
		p.mu.Unlock()
		sum += uses[i].has
	}
	at := func(level int) (sum int) {
		for _, u := range uses {
			sum += max(min(u.want, level), u.kept)
		}
		return sum
	}
	level := 0
	for level < limit && at(level+1) <= limit {
		level++
	}
	wrong := ""
	for i, u := range uses {
		if u.has < min(u.want, level) {
			wrong += fmt.Sprintf("%d has %d, ", i, u.has)
		}
	}
	switch {
	case sum > limit:
		return fmt.Sprintf("%d of %d", sum, limit)
	case wrong != "":
		return fmt.Sprintf("%sthe level is %d of %d: %v", wrong, level, limit, uses)
	}
	return ""
}

// Random fleets, whose wants and connections in use change: whoever wants
// connections has its max-min share of what is not in use by others, two minutes
// after the last change.
func TestSharesOfRandomFleetsAreMaxMin(t *testing.T) {
	for seed := range 2 * storms(t) {
		synctest.Test(t, func(t *testing.T) {
			rng := seeded(seed)
			w := newWorld()
			w.limited = true
			members, limit, shards := 2+rng.IntN(14), 20+rng.IntN(150), 1+rng.IntN(4)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			var pools []*pool
			wants := make([]int, members)
			used := func(want int) int { return []int{0, want, rng.IntN(want + 1)}[rng.IntN(3)] }
			for i := range members {
				wants[i] = 1 + rng.IntN(5*limit/members)
				cfg := Config{Limit: limit, Shards: shards}
				if rng.IntN(2) == 0 {
					cfg.Want = wants[i]
				}
				l, _ := join(t, w, seed*100+uint64(i), cfg)
				pools = append(pools, newPool(ctx, l, uint64(i), wants[i], used(wants[i]), &running))
				time.Sleep(upTo(rng, 20*time.Second))
			}
			for range rng.IntN(2 * members) {
				i := rng.IntN(members)
				want := 1 + rng.IntN(wants[i])
				pools[i].set(ctx, want, used(want))
				time.Sleep(upTo(rng, 20*time.Second))
			}
			var wrong []string
			for step := range 4 { // and it stays so
				time.Sleep(max(2*time.Minute-time.Duration(step)*100*time.Second, 20*time.Second))
				if w := unfair(pools, limit); w == "" {
					continue
				}
				time.Sleep(time.Second) // one was being replaced
				if w := unfair(pools, limit); w != "" {
					wrong = append(wrong, w)
				}
			}
			cancel()
			running.Wait()
			for _, p := range pools {
				p.leases.stopGoroutines()
			}
			require.Empty(t, wrong, "seed %d, %d shards", seed, shards)
		})
	}
}
