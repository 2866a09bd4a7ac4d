package fleet

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

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
		wru, rru := shortCost(t, v.processes)
		t.Logf("LEASE short_cost processes=%d wru_per_life=%.3f rru_per_life=%.3f (simulated)", v.processes, wru, rru)
		if wru > v.most {
			t.Errorf("%d processes: %.3f write units per life, should be %.1f at most", v.processes, wru, v.most)
		}
	}
}

func shortCost(t *testing.T, n int) (wru, rru float64) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.limited = true
		ctx, cancel := context.WithTimeout(t.Context(), 26*time.Minute)
		defer cancel()
		var running, starting sync.WaitGroup
		pools := make([]*pool, n)
		each := 10_000 / n
		for i := range n {
			starting.Go(func() {
				time.Sleep(upTo(seeded(uint64(i)), 30*time.Second))
				l, _ := join(t, w, uint64(i), Config{Limit: 10_000, Want: each})
				pools[i] = newPool(ctx, l, uint64(i), each*12/10, 0, &running)
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
		for _, p := range pools {
			p.leases.halt()
		}
	})
	return wru, rru
}
