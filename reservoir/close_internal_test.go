package reservoir

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNoTimerRunsAfterCloseWhateverComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config[int]{
			Open:    func(context.Context) (int, error) { time.Sleep(time.Hour); return 1, nil }, // deaf
			Close:   func(int) error { return nil },
			MinIdle: 1,
		})
		require.NoError(t, err)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, r.Close(ctx))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Zero(t, r.Stats().Total)
		require.False(t, r.sweepTimer.Stop(), "the alarm is set")
		require.False(t, r.clock.staleTimer.Stop(), "the clock's timer is set")
	})
}
