package ctxerr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/ctxerr"
)

func TestTheCauseOfAContextIsKept(t *testing.T) {
	require.NoError(t, ctxerr.Of(t.Context()))
	plain, stop := context.WithCancel(t.Context())
	stop()
	require.Equal(t, context.Canceled, ctxerr.Of(plain))
	why := errors.New("shutting down")
	caused, end := context.WithCancelCause(t.Context())
	end(why)
	child, stop := context.WithTimeout(caused, time.Hour)
	defer stop()
	err := ctxerr.Of(child)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, err, ctxerr.Of(caused))
	require.EqualError(t, err, "context canceled: shutting down")

	over := fmt.Errorf("OpenTimeout is over: %w", context.DeadlineExceeded)
	late, stop := context.WithTimeoutCause(t.Context(), -1, over)
	defer stop()
	require.Equal(t, over, ctxerr.Of(late))
}

func TestAnEndThatIsDueIsTheCallers(t *testing.T) {
	for left, want := range map[time.Duration]bool{-time.Hour: true, 0: true, 100 * time.Millisecond: true, time.Minute: false} {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		require.Equal(t, want, ctxerr.IsDue(ctx.Deadline), left)
		alive := func() error { return nil }
		require.Equal(t, want, ctxerr.Ended(alive, ctx.Deadline, true) != nil, left)
		require.NoError(t, ctxerr.Ended(alive, ctx.Deadline, false), left)
		cancel()
	}
	require.False(t, ctxerr.IsDue(t.Context().Deadline))
	over := func() error { return context.Canceled }
	require.Equal(t, context.Canceled, ctxerr.Ended(over, t.Context().Deadline, false))
}
