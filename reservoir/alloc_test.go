//go:build !race && !invariants

// The invariants' messages allocate, so this looks at a build without them.

package reservoir_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNeitherTheHotPathNorTheHandOffAllocates(t *testing.T) {
	f := &fake{}
	r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle = 2, 1 })
	ctx := t.Context()
	release(t, acquire(t, r), acquire(t, r))
	cycle := func() {
		l, err := r.Acquire(ctx)
		runtime.Gosched() // there is one processor: let others find it taken
		if err != nil || l.Release() != nil {
			t.Error("acquire or release failed")
		}
	}
	require.Zero(t, testing.AllocsPerRun(1000, cycle))
	full := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle = 2, 2 })
	require.NoError(t, full.WaitReady(ctx, 2))
	require.Zero(t, testing.AllocsPerRun(1000, func() { release(t, acquire(t, full)) }))
	shut(t, full)

	// Two connections and four callers: nearly every acquire waits.
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					cycle()
				}
			}
		})
	}
	require.Zero(t, testing.AllocsPerRun(10_000, cycle))
	close(stop)
	others.Wait()
	s := r.Stats()
	require.Greater(t, s.AcquiredWaited, uint64(10_000), "this was to measure waits")
	shut(t, r)
}
