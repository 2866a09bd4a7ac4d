package taskgroup

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAGroupGrowsBesideAWait(t *testing.T) {
	var g Group
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				g.Go(func() {})
			}
		})
	}
	for range 200 {
		g.Wait(t.Context())
	}
	all.Wait()
	require.Zero(t, g.Wait(t.Context()))
}

func TestAWaitIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		for n := range 3 {
			g.Go(func() { time.Sleep(time.Duration(n+1) * time.Second) })
		}
		ctx, stop := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer stop()
		require.Equal(t, 2, g.Wait(ctx))
		start := time.Now()
		require.Zero(t, g.Wait(t.Context()))
		require.Equal(t, 1500*time.Millisecond, time.Since(start))
	})
}

func TestAClosedGroupTakesNoTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		require.True(t, g.Add())
		done := g.AllDone()
		g.Close()
		require.False(t, g.Add())
		require.False(t, g.Go(func() { panic("it runs") }))
		require.Equal(t, 1, g.Running())
		g.Done()
		<-done
		<-g.AllDone()
		require.Zero(t, g.Running())
	})
}

func TestATaskThatEndsItsGoroutineHasEnded(t *testing.T) {
	var g Group
	g.Go(runtime.Goexit)
	require.Zero(t, g.Wait(t.Context()))
}
