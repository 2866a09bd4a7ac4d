package backoff

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAPauseDoublesUpToTheLongest(t *testing.T) {
	for times, want := range map[int]time.Duration{0: 10, 1: 20, 3: 80, 4: 100, 5: 100, 61: 100, 62: 100, 63: 100, 64: 100, 1 << 40: 100} {
		require.Equal(t, want, Doubled(10, 100, times), times)
	}
	require.EqualValues(t, 100, Doubled(200, 100, 0))
	require.EqualValues(t, 1<<62, Doubled(1, math.MaxInt64, 62))
	require.EqualValues(t, 100, Doubled(25, 100, 2))
}

func TestASleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begun := time.Now()
		require.NoError(t, Sleep(ctx, 9*time.Second))
		require.NoError(t, Sleep(ctx, 0))
		require.ErrorIs(t, Sleep(ctx, 9*time.Second), context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(begun))
		require.ErrorIs(t, Sleep(ctx, 0), context.DeadlineExceeded)
	})
}
