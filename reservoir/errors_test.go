package reservoir_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

func TestAnErrorSaysAllThatIsKnown(t *testing.T) {
	cause, open := errors.New("deadline"), errors.New("refused")
	e := &reservoir.ExhaustedError{Total: 4, InUse: 3, Idle: 1, Opening: 2, Waiting: 5, MaxSize: 7, Waited: time.Second, Cause: cause}
	const text = "reservoir: exhausted after 1s: 4 of 7 connections, 3 in use, 1 idle, 2 opening, 5 waiting: deadline"
	require.EqualError(t, e, text)
	require.ErrorIs(t, e, cause)
	require.NotErrorIs(t, e, open)
	e.LastOpen = open
	require.EqualError(t, e, text+" (last open: refused)")
	require.ErrorIs(t, e, cause)
	require.ErrorIs(t, e, open)
	require.ErrorIs(t, e, reservoir.ErrExhausted)
	require.NotErrorIs(t, e, reservoir.ErrClosed)

	require.EqualError(t, &reservoir.OpenError{Err: open}, "reservoir: open: refused")
	require.ErrorIs(t, &reservoir.OpenError{Err: open}, open)
	closing := &reservoir.CloseError{Forced: 1, Remaining: 2, Cause: cause}
	require.EqualError(t, closing, "reservoir: close: 1 borrowed connections closed by force, 2 remain: deadline")
	require.ErrorIs(t, closing, cause)
	require.NoError(t, reservoir.Permanent(nil))
	require.EqualError(t, reservoir.Permanent(open), "refused")
	require.ErrorIs(t, reservoir.Permanent(open), open)
	require.ErrorIs(t, &reservoir.PanicError{Value: open}, open)
	require.NoError(t, (&reservoir.PanicError{Value: "text"}).Unwrap())
}

// Whose ctx had ended before is counted by how it ended, and told of a closed
// reservoir too.
func TestACallerThatComesTooLateIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		late, stop := context.WithTimeout(t.Context(), -1)
		defer stop()
		for range 2 {
			_, err := r.Acquire(canceled)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, reservoir.ErrExhausted)
		}
		_, err := r.Acquire(late)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, reservoir.ErrExhausted)
		require.Zero(t, f.read(&f.opens), "nothing is opened for them")
		shut(t, r)
		_, err = r.Acquire(canceled)
		require.ErrorIs(t, err, reservoir.ErrClosed)
		require.ErrorIs(t, err, context.Canceled)
		s := r.Stats()
		require.Equal(t, []uint64{2, 1, 0}, []uint64{s.Canceled, s.Timeouts, s.Failed})
	})
}

// Many callers are failed in batches; those who come meanwhile are not meant.
func TestFailWaitersFailsManyAndCountsThem(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		const n = 200
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		held := acquire(t, r)
		calls := make([]<-chan outcome, n)
		for i := range calls {
			calls[i] = call(t.Context(), r)
		}
		synctest.Wait()
		gone := errors.New("gone")
		require.Equal(t, n, r.FailWaiters(gone))
		for _, c := range calls {
			require.ErrorIs(t, (<-c).err, gone)
		}
		require.Zero(t, r.FailWaiters(gone))
		require.EqualValues(t, n, r.Stats().Failed)
		release(t, held)
		shut(t, r)
	})
}

func TestResizeAndWaitReadyKeepTheirBounds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MinIdle, c.MaxSize = 3, 4 })
		synctest.Wait()
		for _, n := range []int{-1, 0, 1 << 31} {
			require.Error(t, r.Resize(n))
			require.Equal(t, 4, r.Stats().MaxSize)
		}
		require.NoError(t, r.Resize(1<<31-1))
		require.NoError(t, r.Resize(1))
		synctest.Wait()
		require.Equal(t, 1, r.Stats().Total, "while MaxSize is less than MinIdle, MinIdle is that")
		require.Error(t, r.WaitReady(t.Context(), 2))
		require.NoError(t, r.WaitReady(t.Context(), 1))
		require.NoError(t, r.Resize(4))
		synctest.Wait()
		require.Equal(t, 3, r.Stats().Idle, "MinIdle is what it was")
		shut(t, r)
		require.ErrorIs(t, r.Resize(2), reservoir.ErrClosed)
		require.ErrorIs(t, r.WaitReady(t.Context(), 1), reservoir.ErrClosed)
	})
}
