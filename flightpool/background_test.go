package flightpool

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackgroundGrowsBesideWait(t *testing.T) {
	var b background
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				b.Go(func() {})
			}
		})
	}
	for range 200 {
		b.wait(t.Context())
	}
	all.Wait()
	require.Zero(t, b.wait(t.Context()))
}

func TestBackgroundWaitIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b background
		for n := range 3 {
			b.Go(func() { time.Sleep(time.Duration(n+1) * time.Second) })
		}
		ctx, stop := context.WithTimeout(t.Context(), 1500*ms)
		defer stop()
		require.Equal(t, 2, b.wait(ctx))
		start := time.Now()
		require.Zero(t, b.wait(t.Context()))
		require.Equal(t, 1500*ms, time.Since(start))
	})
}
