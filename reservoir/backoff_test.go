package reservoir_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The order is that of a server with one place left: of two opens at once the
// failure is heard first, the success a moment later.
func TestASuccessBesideAFailureDoesNotEndTheBackOff(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var opens atomic.Int64
		r := f.pool(t, func(c *config) {
			c.MinIdle = -1
			open := c.Open
			c.Open = func(ctx context.Context) (*conn, error) {
				switch n := opens.Add(1); {
				case n == 2:
					time.Sleep(time.Millisecond)
					return open(ctx)
				case n > 100:
					<-ctx.Done() // a storm would never let the clock go on
				}
				return nil, errRefused
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.ErrorIs(t, r.WaitReady(ctx, 2), errRefused)
		synctest.Wait()
		require.Less(t, opens.Load(), int64(20), "opens in 5s")
		shut(t, r)
	})
}
