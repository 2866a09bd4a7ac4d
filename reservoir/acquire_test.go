package reservoir_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

func TestAConnectionIsReusedAndTheHottestIsLentFirst(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		a, b := acquire(t, r), acquire(t, r)
		release(t, a, b)
		c := acquire(t, r)
		require.Same(t, b.Value(), c.Value())
		require.Equal(t, 2, f.read(&f.opens))
		release(t, c)
		shut(t, r)
	})
}

func TestWaitersAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		held := acquire(t, r)
		var order []int
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				l := acquire(t, r)
				order = append(order, i) // the one connection is the lock
				release(t, l)
			})
			synctest.Wait()
		}
		release(t, held)
		wg.Wait()
		require.Len(t, order, 50)
		require.IsIncreasing(t, order)
		shut(t, r)
	})
}

func TestNobodyBargesPastAWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		held := acquire(t, r)
		first := call(t.Context(), r)
		synctest.Wait()
		release(t, held)
		_, ok := r.TryAcquire()
		require.False(t, ok)
		second := call(t.Context(), r)
		release(t, (<-first).loan)
		release(t, (<-second).loan)
		shut(t, r)
	})
}

func TestAnEndedContextFailsAtOnceEvenWhenAConnectionIsIdle(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		release(t, acquire(t, r))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.Acquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1, r.Stats().Idle)
		shut(t, r)
	})
}

func TestAWaiterWhoseContextEndedIsSkippedAtTheInstantOfHandOff(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		held := acquire(t, r)
		ctx, cancel := context.WithCancel(t.Context())
		leaver := call(ctx, r)
		synctest.Wait()
		stayer := call(t.Context(), r)
		synctest.Wait()
		cancel() // the leaver has not run yet
		release(t, held)
		require.ErrorIs(t, (<-leaver).err, context.Canceled)
		got := <-stayer
		require.NoError(t, got.err)
		require.EqualValues(t, 2, r.Stats().Handoffs) // the first one's, and this
		release(t, got.loan)
		shut(t, r)
	})
}

func TestAConnectionHandedToACallerWhoJustLeftGoesToTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		held := acquire(t, r)
		ctx, cancel := context.WithCancel(t.Context())
		leaver := call(ctx, r)
		synctest.Wait()
		stayer := call(t.Context(), r)
		synctest.Wait()
		release(t, held)
		cancel() // it has the connection, but may not have run yet
		first := <-leaver
		if first.err == nil {
			release(t, first.loan)
		} else {
			require.ErrorIs(t, first.err, context.Canceled)
		}
		got := <-stayer
		require.NoError(t, got.err)
		release(t, got.loan)
		shut(t, r)
	})
}

// lateContext ends between the hand-off, which looks at Done, and its caller's
// look at Err.
type lateContext struct {
	context.Context
	mu    sync.Mutex
	armed bool
}

func (c *lateContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed {
		return context.Canceled
	}
	return nil
}

func (c *lateContext) arm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = true
}

func TestAWokenCallerWhoseContextHasEndedKeepsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		held := acquire(t, r)
		ctx := &lateContext{Context: context.Background()}
		leaver := call(ctx, r)
		synctest.Wait()
		stayer := call(t.Context(), r)
		synctest.Wait()
		ctx.arm()
		release(t, held)
		require.ErrorIs(t, (<-leaver).err, context.Canceled)
		got := <-stayer
		require.NoError(t, got.err)
		release(t, got.loan)
		shut(t, r)
	})
}

func TestAcquireTimeoutIsExactAndItsErrorSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.AcquireTimeout = 2, 3*time.Second })
		a := acquire(t, r)
		f.set(func() { f.refuse = errRefused })
		time.Sleep(123456789)
		got := <-call(t.Context(), r)
		require.Equal(t, 3*time.Second, got.took)
		var exhausted *reservoir.ExhaustedError
		require.ErrorAs(t, got.err, &exhausted)
		require.ErrorIs(t, got.err, reservoir.ErrExhausted)
		require.ErrorIs(t, got.err, errRefused)
		require.NotErrorIs(t, got.err, context.DeadlineExceeded, "the caller's own has not passed")
		require.Equal(t, 1, exhausted.InUse)
		require.Equal(t, 2, exhausted.MaxSize)
		require.Equal(t, 3*time.Second, exhausted.Waited)
		require.Contains(t, got.err.Error(), "connection refused")
		release(t, a)
		shut(t, r)
	})
}

func TestTheCallersOwnDeadlineEndsItsWaitOnTime(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		a := acquire(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond)
		defer cancel()
		got := <-call(ctx, r)
		require.Equal(t, 70*time.Millisecond, got.took)
		require.ErrorIs(t, got.err, context.DeadlineExceeded)
		require.ErrorIs(t, got.err, reservoir.ErrExhausted)
		release(t, a)
		shut(t, r)
	})
}

func TestAStormOfExpiredWaitersEndsInOneInstantAndBlocksNobody(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.AcquireTimeout = 1, time.Second })
		held := acquire(t, r)
		var calls []<-chan outcome
		for range 20_000 {
			calls = append(calls, call(t.Context(), r))
		}
		synctest.Wait()
		require.Equal(t, 20_000, r.Stats().Waiting)
		for _, c := range calls {
			got := <-c
			require.ErrorIs(t, got.err, reservoir.ErrExhausted)
			require.Equal(t, time.Second, got.took)
		}
		require.EqualValues(t, 20_000, r.Stats().Timeouts)
		release(t, held)
		release(t, acquire(t, r))
		shut(t, r)
	})
}

func TestFailFastFailsOnlyWhenNothingCanComeFree(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.OnExhausted = 2, reservoir.FailFast })
		f.dial = time.Second
		a := acquire(t, r) // waits for an open that may be made
		b := acquire(t, r)
		_, err := r.Acquire(t.Context())
		require.ErrorIs(t, err, reservoir.ErrExhausted)
		require.EqualValues(t, 1, r.Stats().Rejected)
		release(t, a, b)
		shut(t, r)
	})
}

func TestMaxWaitersShedsTheNextOne(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.MaxWaiters = 1, 2 })
		held := acquire(t, r)
		first, second := call(t.Context(), r), call(t.Context(), r)
		synctest.Wait()
		_, err := r.Acquire(t.Context())
		var exhausted *reservoir.ExhaustedError
		require.ErrorAs(t, err, &exhausted)
		require.Equal(t, 2, exhausted.Waiting)
		release(t, held)
		got := make([]outcome, 0, 2)
		select {
		case o := <-first:
			release(t, o.loan)
			got = append(got, <-second)
		case o := <-second:
			release(t, o.loan)
			got = append(got, <-first)
		}
		release(t, got[0].loan)
		shut(t, r)
	})
}

func TestOverflowServesWaitersBeyondMaxSizeAndIsClosedAfterwards(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.OnExhausted = 2, reservoir.Overflow(3) })
		var loans []loan
		for range 5 {
			loans = append(loans, acquire(t, r))
		}
		sixth := call(t.Context(), r)
		synctest.Wait()
		require.Equal(t, 5, f.read(&f.mostLive))
		release(t, loans[0])
		loans[0] = (<-sixth).loan // a waiter keeps the overflow alive
		require.Equal(t, 5, f.read(&f.live))
		release(t, loans...)
		time.Sleep(time.Second - 1)
		synctest.Wait()
		require.Equal(t, 5, r.Stats().Total, "the next burst may come")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, 2, r.Stats().Total)
		require.EqualValues(t, 3, r.Stats().Closed[reservoir.OverCapacity])
		shut(t, r)
	})
}

func TestDoubleLateAndZeroReleasesAreErrorsAndChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		a := acquire(t, r)
		release(t, a)
		require.ErrorIs(t, a.Release(), reservoir.ErrReleased)
		require.ErrorIs(t, a.Discard(nil), reservoir.ErrReleased)
		b := acquire(t, r) // the same connection, another loan
		require.Same(t, a.Value(), b.Value())
		require.ErrorIs(t, a.Release(), reservoir.ErrReleased)
		require.Equal(t, 1, r.Stats().InUse)
		require.NoError(t, b.Discard(errors.New("bad")))
		require.ErrorIs(t, b.Release(), reservoir.ErrReleased)
		require.ErrorIs(t, loan{}.Release(), reservoir.ErrReleased)
		require.ErrorIs(t, loan{}.Discard(nil), reservoir.ErrReleased)
		require.Nil(t, loan{}.Value())
		shut(t, r)
	})
}

func TestTryAcquireTakesIdleConnectionsOnly(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		_, ok := r.TryAcquire()
		require.False(t, ok)
		synctest.Wait()
		require.Zero(t, f.read(&f.opens))
		release(t, acquire(t, r))
		l, ok := r.TryAcquire()
		require.True(t, ok)
		release(t, l)
		shut(t, r)
	})
}

func TestALeakIsReportedOnceWithTheBorrowersStack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var leaks []reservoir.Leak
		r := f.pool(t, func(c *config) {
			c.LeakAfter = time.Minute
			c.Hooks.Leaked = func(l reservoir.Leak) { f.set(func() { leaks = append(leaks, l) }) }
		})
		l := acquire(t, r)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, leaks, 1)
		require.GreaterOrEqual(t, leaks[0].Held, time.Minute)
		require.Contains(t, leaks[0].Stack, "TestALeakIsReportedOnceWithTheBorrowersStack")
		require.NotContains(t, leaks[0].Stack, "Reservoir[")
		require.False(t, l.Value().closed.Load())
		second := acquire(t, r)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, leaks, 2, "each once")
		release(t, l, second)
		shut(t, r)
	})
}

// In an errgroup the cause of a context is what another call has failed with, such as a deadline of its own.
func TestACancelledWaitHasNotTimedOutWhateverItsCause(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		held := acquire(t, r)
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { end(fmt.Errorf("another call: %w", context.DeadlineExceeded)) })
		var err error
		for range 2 { // while it waits, and when it comes
			_, err = r.Acquire(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, context.DeadlineExceeded, "of the cause")
			require.NotErrorIs(t, err, reservoir.ErrExhausted)
		}
		further, end := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { end(err) }) // which is both
		for range 2 {
			_, both := r.Acquire(further)
			require.ErrorIs(t, both, err)
			require.NotErrorIs(t, both, reservoir.ErrExhausted)
		}
		require.EqualValues(t, 4, r.Stats().Canceled)
		require.Zero(t, r.Stats().Timeouts)
		release(t, held)
		shut(t, r)
	})
}

// The hook is told of each that is counted, also where the last open has failed with another pool's end.
func TestTheRejectedAreToldWhateverTheLastOpenHasFailedWith(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		told := uint64(0)
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.OnExhausted = 2, reservoir.FailFast
			c.Hooks.Rejected = func() { told++ }
		})
		held := acquire(t, r)
		f.set(func() { f.refuse = fmt.Errorf("the tunnel's pool: %w", reservoir.ErrClosed) })
		_, err := r.Acquire(t.Context()) // which waits for an open
		require.ErrorIs(t, err, reservoir.ErrClosed)
		before := r.Stats().Rejected
		_, err = r.Acquire(t.Context())
		require.ErrorIs(t, err, reservoir.ErrExhausted)
		require.ErrorIs(t, r.Stats().LastOpenError, reservoir.ErrClosed)
		require.EqualValues(t, 1, told)
		require.Equal(t, before+1, r.Stats().Rejected)
		release(t, held)
		shut(t, r)
	})
}

// Or that its pool is closed.
func TestACancelledWaitSaysThatItWasOneWhateverItsCause(t *testing.T) {
	for _, cause := range []error{reservoir.ErrClosed, &reservoir.OpenError{Err: errors.New("refused")}} {
		bubble(t, func(t *testing.T, f *fake) {
			r := f.pool(t, func(c *config) { c.MaxSize = 1 })
			held := acquire(t, r)
			ctx, end := context.WithCancelCause(t.Context())
			end(fmt.Errorf("another pool: %w", cause))
			_, err := r.Acquire(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, cause)
			require.ErrorContains(t, err, "reservoir: acquire: context canceled: another pool: ")
			release(t, held)
			shut(t, r)
		})
	}
}
