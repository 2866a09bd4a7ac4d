package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// massKill tells after what time the leases of processes that die together
// are free again. If they are wanted, the survivors ask for more than there are
// from before the death on.
func massKill(t *testing.T, n, killed int, wanted bool) (back time.Duration) {
	t.Helper()
	return massKillOn(t, 1, n, killed, wanted, calm)
}

func massKillOn(t *testing.T, seed uint64, n, killed int, wanted bool, f faults) (back time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.limited = true
		var ls []*Leases
		var ps []*process
		for i := range n {
			l, p := join(t, w, seed*1000+uint64(i), Config{Limit: 10 * n, Want: 10})
			take(t, l, 10)
			p.set(func(p *process) { p.faults = f })
			ls, ps = append(ls, l), append(ps, p)
			time.Sleep(30 * time.Second / time.Duration(n))
		}
		ctx, cancel := context.WithCancel(t.Context())
		if wanted {
			go func() { _, _ = ls[n-1].Acquire(ctx) }()
		}
		time.Sleep(4*time.Minute + upTo(seeded(seed+uint64(n+killed)), time.Minute))
		for i := range killed {
			kill(ls[i], ps[i])
		}
		at := time.Now()
		for w.heldBy(ls[:killed]) > 0 && time.Since(at) < 30*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		back = time.Since(at)
		cancel()
		for _, l := range ls {
			l.stop()
		}
		for _, l := range ls {
			l.stopGoroutines()
		}
	})
	return back
}

// However few processes share a budget of many shards, they look at all of them.
func TestLeasesOfTheDeadAreBackHoweverManyShardsThereAre(t *testing.T) {
	for _, v := range []struct{ processes, shards int }{{2, 2}, {3, 64}, {5, 16}, {12, 32}} {
		for seed := range 2 * storms(t) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				var ls []*Leases
				var first *process
				for i := range v.processes {
					l, p := join(t, w, seed*100+uint64(i), Config{Limit: 640, Shards: v.shards})
					take(t, l, 5)
					if ls = append(ls, l); i == 0 {
						first = p
					}
				}
				time.Sleep(time.Minute + upTo(seeded(seed), time.Minute))
				kill(ls[0], first)
				time.Sleep(80 * time.Second)
				require.Zero(t, w.heldBy(ls[:1]), "%+v", v)
				for _, l := range ls {
					l.stopGoroutines()
				}
			})
		}
	}
}
