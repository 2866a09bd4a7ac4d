package flightpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// docs/troubleshooting.md says when a silent link is found where TCP does not tell: by the cancel of
// the first call whose context ends, or by HTTP/2's ping where nothing may be cancelled.
func TestWhenASilentLinkIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		opts  QueryOptions
		limit time.Duration
	}{
		"with a cancel": {QueryOptions{}, 11 * time.Second},
		"NoCancel":      {QueryOptions{NoCancel: true}, 7*time.Minute + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.Strict(), Config{MaxSize: 1, AcquireTimeout: time.Hour}, func(r *rig) {
				require.NoError(r, r.pool.WaitReady(r.Context(), 1))
				r.srv.Faults().FreezeConns()
				start := time.Now()
				ctx, stop := context.WithTimeout(r.Context(), 100*ms)
				defer stop()
				_, err := r.pool.UpdateWithOptions(ctx, "SELECT 1", tc.opts)
				require.ErrorIs(r, err, context.DeadlineExceeded)
				_, err = r.pool.Update(r.Context(), "SELECT 1")
				require.NoError(r, err)
				require.LessOrEqual(r, time.Since(start), tc.limit)
				r.srv.Faults().ThawConns() // lets the server notice
			})
		})
	}
}
