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

func TestALateErrorSaysWhatTheContextDoes(t *testing.T) {
	why := errors.New("shutting down")
	ends := map[string]func() context.Context{
		"cancelled": func() context.Context { ctx, stop := context.WithCancel(t.Context()); stop(); return ctx },
		"with a cause": func() context.Context {
			ctx, stop := context.WithCancelCause(t.Context())
			stop(why)
			return ctx
		},
		"for another's deadline": func() context.Context {
			ctx, stop := context.WithCancelCause(t.Context())
			stop(context.DeadlineExceeded)
			return ctx
		},
		"over": func() context.Context { ctx, stop := context.WithTimeout(t.Context(), -1); defer stop(); return ctx },
		"over, with a cause": func() context.Context {
			ctx, stop := context.WithTimeoutCause(t.Context(), -1, why)
			defer stop()
			return ctx
		},
	}
	for name, end := range ends {
		for kind, ctx := range map[string]context.Context{"own": end(), "another's": another{end()}, "with a value": context.WithValue(end(), another{}, 1)} {
			want, got := ctxerr.Of(ctx), ctxerr.Late(ctx)
			require.EqualError(t, got, want.Error(), name, kind)
			require.Equal(t, ctxerr.IsTimeout(want), ctxerr.IsTimeout(got), name, kind)
			require.ErrorIs(t, got, ctx.Err(), name, kind)
			require.Equal(t, errors.Is(want, why), errors.Is(got, why), name, kind)
		}
	}
	require.NoError(t, ctxerr.Late(t.Context()))
}

// Another's context may be of another call when this one has returned.
func TestALateErrorAsksNothingOfAnothersContextLater(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("shutting down"))
	used := &reused{Context: ctx}
	for _, ctx := range []context.Context{used, context.WithValue(used, another{}, 1)} {
		err := ctxerr.Late(ctx)
		used.again = true
		require.EqualError(t, err, "context canceled: shutting down")
		used.again = false
	}
	child, end := context.WithCancel(used)
	defer end()
	<-child.Done()
	err := ctxerr.Late(child)
	used.again = true
	require.EqualError(t, err, "context canceled: shutting down")
}

type another struct{ context.Context }

// A reused context is asked when another call has it.
type reused struct {
	context.Context
	again bool
}

func (r *reused) Err() error {
	if r.again {
		panic("asked again")
	}
	return r.Context.Err()
}

func (r *reused) Value(key any) any {
	if r.again {
		panic("asked again")
	}
	return r.Context.Value(key)
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
