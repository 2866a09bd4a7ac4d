package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// After an outage of the whole store nobody takes what the shares of others
// already are: each has no more than its share, and together they fit.
func TestSharesHoldTheLimitOnTheWayBackFromAnOutage(t *testing.T) {
	bad := 0
	for seed := range 2 * storms(t) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			rng := seeded(seed)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			var pools []*pool
			var revoked atomic.Int32
			for i := range 4 {
				l, _ := join(t, w, uint64(i)+10*seed, Config{Limit: 40, Fallback: lease.Share(10)})
				want := 2
				if i == 0 {
					want = 10
				}
				pools = append(pools, newPool(ctx, l, uint64(i), want, 0, &running))
				l.OnRevoke(func(lease.Revocation) { revoked.Add(1) })
			}
			time.Sleep(time.Minute)
			w.mu.Lock()
			w.outage = time.Now().Add(100*time.Second + upTo(rng, 50*time.Second))
			w.mu.Unlock()
			time.Sleep(80 * time.Second)
			most := 0
			for _, p := range pools { // now all want more
				p.mu.Lock()
				p.want = 30
				p.mu.Unlock()
				for j := range 28 {
					running.Go(func() { p.keep(ctx, 30-j-1, seeded(uint64(j))) })
				}
			}
			for range 400 {
				time.Sleep(250 * time.Millisecond)
				sum := 0
				for _, p := range pools {
					sum += p.has()
				}
				most = max(most, sum)
			}
			cancel()
			running.Wait()
			for _, p := range pools {
				p.leases.halt()
			}
			if most > 40 || revoked.Load() > 0 {
				bad++
				t.Logf("seed %d: %d connections, %d revocations", seed, most, revoked.Load())
			}
		})
	}
	require.Zero(t, bad)
}
