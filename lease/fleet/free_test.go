package fleet

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// What an operator is told before leases are freed: a process that lives learns of it
// within a quarter of Lease, has leases for all its connections again, on top of the limit
// if need be, and is told to close them if that overruns the limit.
func TestALivingProcessLearnsThatItsLeasesWereFreed(t *testing.T) {
	for seed := range 40 * storms(t) {
		synctest.Test(t, func(t *testing.T) {
			rng, w := seeded(seed), newWorld()
			limit, shards := 8+rng.IntN(20), 1+rng.IntN(4)
			victim, _ := join(t, w, 1, Config{Limit: limit, Shards: shards, Batch: 1})
			other, _ := join(t, w, 2, Config{Limit: limit, Shards: shards, Batch: 1})
			defer victim.stopGoroutines()
			defer other.stopGoroutines()
			has := 1 + rng.IntN(limit-1)
			take(t, victim, has)
			wants := rng.IntN(limit)
			time.Sleep(upTo(rng, 3*time.Minute))
			var revoked atomic.Int64
			defer victim.OnRevoke(func(lease.Revocation) { revoked.Add(1) })()
			before := victim.Stats()
			freed, err := Free(t.Context(), w.mem, "b", victim.id)
			require.NoError(t, err)
			require.Equal(t, before.InUse+before.Spare, freed, "seed %d", seed)
			at := time.Now()
			for range wants { // as many as come
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					_, _ = other.Acquire(ctx)
				}()
			}
			for victim.Stats().Losses == 0 || victim.Stats().Unbacked > 0 {
				require.LessOrEqual(t, time.Since(at), 15*time.Second, "seed %d", seed)
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			all, err := Inspect(t.Context(), w.mem, "b")
			require.NoError(t, err)
			i := slices.IndexFunc(all.Members, func(m Member) bool { return m.ID == victim.id })
			require.GreaterOrEqual(t, i, 0, "seed %d", seed)
			require.GreaterOrEqual(t, all.Members[i].Leases, has, "seed %d", seed)
			require.Equal(t, all.Used > limit, revoked.Load() > 0, "seed %d: %d of %d, revoked %d times", seed, all.Used, limit, revoked.Load())
		})
	}
}
