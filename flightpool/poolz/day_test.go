package poolz

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
)

// The page that is open for a day, over a pool whose connections come and go.
func TestADayCostsNoMemory(t *testing.T) {
	cfg := flightpool.Config{MaxSize: 4, MaxLifetime: time.Minute, LifetimeJitter: -1, GuardWindow: -1}
	inBubble(t, Config{SlowerThan: 1}, cfg, func(r *rig) {
		used := func() uint64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		look := func(hours int) {
			for minute := range hours * 60 {
				require.NoError(r, r.query("SELECT 1"))
				time.Sleep(time.Minute)
				if minute%10 == 0 {
					get(r, r.page, "/state.json")
				}
			}
		}
		look(2)
		before := used()
		look(22)
		grown := int64(used()) - int64(before) //nolint:gosec // sizes of a test
		require.Less(r, grown, int64(1<<20))
		d := r.told("").Details
		require.Len(r, d.History["calls"], 300)
		require.Len(r, r.told("?range=1h").Details.History["calls"], 360)
		require.LessOrEqual(r, len(r.page.latest.byID), 64+2*4+1, "connections that are closed are forgotten")
		require.Greater(r, r.pool.Stats().Opens, uint64(1000))
	})
}

func TestWithoutATracerItIsSaidSo(t *testing.T) {
	inBubble(t, Config{}, flightpool.Config{MaxSize: 1}, func(r *rig) {
		r.page.Add("bare", r.pool)
		d := r.told("?source=bare").Details
		require.Equal(r, "bare", d.Source)
		require.False(r, d.Traced)
		require.Empty(r, d.Connections[0].Op)
	})
}

func TestHistoriesAreBounded(t *testing.T) {
	inBubble(t, Config{}, flightpool.Config{MaxSize: 1}, func(r *rig) {
		for i := range maxSources + 5 {
			r.page.Add(string(rune('a'+i)), r.pool)
		}
		after(2 * time.Second)
		r.page.mu.Lock()
		defer r.page.mu.Unlock()
		require.Equal(r, maxSources, r.page.histories())
	})
}
