package fleet

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A level that nobody renews is void after four beats, also when the wall clock
// was set back meanwhile.
func TestALevelIsVoidAlsoAfterTheWallClockWasSetBack(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			var mu sync.Mutex
			set := time.Duration(0)
			real := processClock()
			l, err := open(t.Context(), newProcess(w, 1, calm), Config{Budget: "b", Limit: 20, Logger: silence}, func() instant {
				mu.Lock()
				defer mu.Unlock()
				now := real()
				now.wall += set
				return now
			})
			require.NoError(t, err)
			other, _ := join(t, w, 2, Config{Limit: 20})
			had := take(t, l, 10)
			releases := take(t, other, 10)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _, _ = other.Acquire(ctx) }() // the fleet is short
			time.Sleep(time.Minute)
			require.NotZero(t, l.Stats().Share)
			cancel()
			for _, release := range releases {
				release()
			}
			time.Sleep(15 * time.Second) // the last level was seen
			mu.Lock()
			set = step
			mu.Unlock()
			time.Sleep(2 * time.Minute)
			require.NoError(t, other.Close(t.Context()))
			share := l.Stats().Share
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			release, err := l.Acquire(ctx)
			cancel()
			if err == nil {
				had = append(had, release)
			}
			for _, release := range had {
				release()
			}
			l.stopGoroutines()
			require.Zero(t, share)
			require.NoError(t, err)
		})
	}
}
