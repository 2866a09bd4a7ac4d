package reservoir

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// queued has n callers wait for the only connection of a reservoir, which the
// returned loan has.
func queued(ctx context.Context, t *testing.T, n int) (*Reservoir[int], Loan[int], <-chan error) {
	t.Helper()
	r, err := New(Config[int]{Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil }, MaxSize: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close(context.Background())) })
	held, err := r.Acquire(t.Context())
	require.NoError(t, err)
	results := make(chan error, n)
	for range n {
		go func() {
			l, err := r.Acquire(ctx)
			if err == nil {
				err = l.Release()
			}
			results <- err
		}()
	}
	synctest.Wait()
	require.Equal(t, n, r.Stats().Waiting)
	return r, held, results
}

// All but the first, who takes the others out of the queue.
func TestThoseWhoLeaveTogetherDoNotWaitForTheLock(t *testing.T) {
	const n = 1000
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancelled": context.WithCancel,
		"late":      newManualDeadline,
	} {
		synctest.Test(t, func(t *testing.T) {
			t.Log(name)
			ctx, cancel := end(context.Background())
			r, held, results := queued(ctx, t, n)
			r.leavers.latestSnapshot.Store(&snapshot{ExhaustedError{MaxSize: 1}, r.clock.exact()}) // one is there
			r.mu.Lock()
			cancel()
			for range n - 1 {
				require.ErrorIs(t, <-results, ctx.Err())
			}
			require.Equal(t, n, r.mu.waiters.n)
			require.LessOrEqual(t, r.waiting(), 1, "those who have left are not counted")
			r.mu.Unlock()
			require.ErrorIs(t, <-results, ctx.Err())
			require.NoError(t, held.Release())
			s := r.Stats()
			require.EqualValues(t, n, s.Timeouts+s.Canceled)
		})
	}
}

func TestAConnectionPassesThoseWhoHaveLeft(t *testing.T) {
	for _, leaving := range []int{10, 1000} { // fewer than a batch, and many
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			r, held, results := queued(ctx, t, leaving)
			last := make(chan error)
			go func() {
				l, err := r.Acquire(t.Context())
				if err == nil {
					err = l.Release()
				}
				last <- err
			}()
			synctest.Wait()
			r.mu.Lock()
			cancel()
			for range leaving - 1 {
				require.ErrorIs(t, <-results, context.Canceled)
			}
			var fx effects[int]
			r.endUse(held.entry)
			r.dispatch(held.entry, &fx) // what Release does
			r.reconcile(&fx)
			require.LessOrEqual(t, leaving+1-r.mu.waiters.n, 2*batch+2, "a bounded part under one hold of the lock")
			require.Equal(t, leaving < batch, r.mu.waiters.n == 0)
			if r.mu.idle.n > 0 { // for those who still wait behind many
				_, ok := r.tryFastPath()
				require.False(t, ok, "others came before")
				r.checkInBackground(&fx) // what TryAcquire does then
				require.Zero(t, r.mu.count[checking], "no check kept it from being lent")
			}
			r.unlock(&fx)
			require.ErrorIs(t, <-results, context.Canceled)
			require.NoError(t, <-last, "the first who still waits gets it")
			synctest.Wait()
			require.Zero(t, r.Stats().Waiting)
		})
	}
}

// A manualDeadline is a context whose deadline is over when the test says so.
type manualDeadline struct {
	context.Context
	over chan struct{}
}

func newManualDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	c := manualDeadline{ctx, make(chan struct{})}
	return c, func() { close(c.over) }
}

func (c manualDeadline) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }
func (c manualDeadline) Done() <-chan struct{}       { return c.over }

func (c manualDeadline) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestThoseWhoHaveLeftAreNotFailedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		ctx, cancel := context.WithCancel(t.Context())
		r, held, results := queued(ctx, t, n)
		r.mu.Lock()
		cancel()
		for range n - 1 {
			require.ErrorIs(t, <-results, context.Canceled)
		}
		var fx effects[int]
		var state *ExhaustedError
		told := 0
		for r.mu.waiters.n > 0 {
			if r.fail(r.mu.waiters.front(), errNoReason, failed, &state, &fx) {
				told++
			}
		}
		require.LessOrEqual(t, told, 1, "who has not returned may not have left")
		r.unlock(&fx)
		require.Error(t, <-results)
		synctest.Wait()
		s := r.Stats()
		require.EqualValues(t, n, s.Canceled+s.Failed)
		require.NoError(t, held.Release())
	})
}
