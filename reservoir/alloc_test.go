//go:build !race && !invariants

// The invariants' messages allocate, so this looks at a build without them.

package reservoir_test

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"slices"
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

// TestAWaiterAllocatesTheSmallestStack: one that grows is copied. It runs in a process whose goroutines all begin with the smallest.
func TestAWaiterAllocatesTheSmallestStack(t *testing.T) {
	const setting = "GODEBUG=adaptivestackstart=0"
	if !slices.Contains(os.Environ(), setting) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), setting)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	f := &fake{}
	const waiters, smallest = 4000, 2048
	r := f.pool(t, func(c *config) { c.MaxSize, c.MaxWaiters = 1, waiters })
	held := acquire(t, r)
	stacks := func() int64 {
		runtime.GC() // what nobody uses any more is not counted
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.StackInuse)
	}
	before := stacks()
	ctx, cancel := context.WithCancel(t.Context())
	var left sync.WaitGroup
	for range waiters {
		left.Go(func() {
			if _, err := r.Acquire(ctx); err == nil {
				t.Error("a caller got the connection that another holds")
			}
		})
	}
	for r.Stats().Waiting < waiters {
		runtime.Gosched()
	}
	require.Less(t, (stacks()-before)/waiters, int64(smallest*5/4), "bytes of stack for each who waits")
	cancel()
	left.Wait()
	release(t, held)
	shut(t, r)
}
