package reservoir

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A fragileContext's methods panic, or end the goroutine, at the left'th call
// of any. Zero: none does any more.
type fragileContext struct {
	context.Context
	left *atomic.Int64
	end  func()
}

func (c fragileContext) called() {
	if c.left.Add(-1) == 0 {
		c.end()
	}
}

func (c fragileContext) Done() <-chan struct{}       { c.called(); return c.Context.Done() }
func (c fragileContext) Err() error                  { c.called(); return c.Context.Err() }
func (c fragileContext) Deadline() (time.Time, bool) { c.called(); return c.Context.Deadline() }

// A call that waits asks the caller's ctx before, during and after the wait; at
// each of these it may end the goroutine. Nothing of the call is left then.
func TestACallThatItsContextBreaksOffLeavesNothing(t *testing.T) {
	calls := map[string]func(context.Context, *Reservoir[int]){
		"Acquire": func(ctx context.Context, r *Reservoir[int]) {
			if l, err := r.Acquire(ctx); err == nil {
				_ = l.Release()
			}
		},
		"Prove":     func(ctx context.Context, r *Reservoir[int]) { _ = r.CheckOne(ctx) },
		"WaitReady": func(ctx context.Context, r *Reservoir[int]) { _ = r.WaitReady(ctx, 2) },
	}
	results := map[string]func(r *Reservoir[int], held Loan[int], cancel context.CancelFunc){
		"served":         func(_ *Reservoir[int], held Loan[int], _ context.CancelFunc) { _ = held.Release() },
		"cancelled":      func(_ *Reservoir[int], _ Loan[int], cancel context.CancelFunc) { cancel() },
		"failed":         func(r *Reservoir[int], _ Loan[int], _ context.CancelFunc) { r.FailWaiters(nil) },
		"served, leaves": func(_ *Reservoir[int], held Loan[int], cancel context.CancelFunc) { _ = held.Release(); cancel() },
		"leaves, served": func(_ *Reservoir[int], held Loan[int], cancel context.CancelFunc) { cancel(); _ = held.Release() },
	}
	for name, call := range calls {
		for result, happens := range results {
			for way, end := range map[string]func(){"panic": func() { panic("context") }, "Goexit": runtime.Goexit} {
				t.Run(name+", "+result+", "+way, func(t *testing.T) {
					for at, reached := int64(1), true; reached; at++ {
						synctest.Test(t, func(t *testing.T) { reached = breaksOff(t, call, happens, end, at) })
					}
				})
			}
		}
	}
}

// breaksOff has a call wait whose ctx breaks it off at a time, and reports
// whether the call came that far.
func breaksOff(t *testing.T, call func(context.Context, *Reservoir[int]), happens func(*Reservoir[int], Loan[int], context.CancelFunc), end func(), at int64) bool {
	var opens atomic.Int64
	r, err := New(Config[int]{
		Open: func(context.Context) (int, error) {
			if opens.Add(1) > 1 {
				return 0, errors.New("one session only")
			}
			return 1, nil
		},
		Close: func(int) error { return nil }, Check: func(context.Context, int) error { return nil }, MaxSize: 2, OpenRetry: OpenRetryAlways,
	})
	require.NoError(t, err)
	held, err := r.Acquire(t.Context())
	require.NoError(t, err)
	var left atomic.Int64
	left.Store(at)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = recover() }()
		call(fragileContext{ctx, &left, end}, r)
	}()
	synctest.Wait()
	happens(r, held, cancel)
	synctest.Wait()
	cancel() // WaitReady's
	<-ended
	_ = held.Release() // where it has not been
	synctest.Wait()
	s := r.Stats()
	require.Zero(t, s.Waiting, "at %d", at)
	require.Zero(t, s.InUse, "at %d", at)
	tried := opens.Load()
	time.Sleep(time.Minute)
	require.LessOrEqual(t, opens.Load(), tried+1, "nobody asks for another connection; at %d", at)
	require.NoError(t, r.Close(t.Context()))
	require.Empty(t, r.mu.readyWaits)
	require.Zero(t, r.leavers.inQueue.Load())
	return left.Load() <= 0
}

// A nil ctx is the caller's mistake, and has nothing opened.
func TestWaitReadyWithoutAContextAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opens atomic.Int64
		r, err := New(Config[int]{Open: func(context.Context) (int, error) { return int(opens.Add(1)), nil }, Close: func(int) error { return nil }})
		require.NoError(t, err)
		require.Panics(t, func() { _ = r.WaitReady(nil, 3) }) //nolint:staticcheck // on purpose
		time.Sleep(time.Hour)
		require.Zero(t, opens.Load())
		require.NoError(t, r.Close(t.Context()))
	})
}

// A caller who leaves counts as one who has left before anybody can take it out
// of the queue: else it would be counted back too early, and the next caller
// refused for one who waits no more.
func TestLeaversBesideThoseWhoFailThem(t *testing.T) {
	r, err := New(Config[int]{Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil }, MaxSize: 1, MaxWaiters: 3})
	require.NoError(t, err)
	held, err := r.Acquire(t.Context())
	require.NoError(t, err)
	for range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		var leaving sync.WaitGroup
		var waiters []*waiter[int]
		for range 3 {
			w := r.newWaiter(ctx)
			var fx effects[int]
			r.mu.Lock()
			require.NoError(t, r.refusalError(), "nobody else waits")
			r.enqueue(w)
			r.unlock(&fx)
			waiters = append(waiters, w)
		}
		for _, w := range waiters {
			leaving.Go(func() {
				if !r.leaveQueue(w) {
					<-w.ready
				}
			})
		}
		leaving.Go(func() { r.FailWaiters(nil) })
		leaving.Wait()
		cancel()
		r.FailWaiters(nil) // those of whom somebody else is at work
	}
	require.NoError(t, held.Release())
	require.NoError(t, r.Close(t.Context()))
	require.Zero(t, r.leavers.inQueue.Load())
}

// Under FailFast, whoever was let wait for a caller who counted as one who had
// left and had not is refused once that is known.
func TestFailFastLooksAgainWhenACallerHasNotLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config[int]{Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil }, MaxSize: 1, OnExhausted: FailFast})
		require.NoError(t, err)
		held, err := r.Acquire(t.Context())
		require.NoError(t, err)
		w, late := r.newWaiter(t.Context()), r.newWaiter(t.Context())
		var fx effects[int]
		r.mu.Lock()
		r.leavers.inQueue.Add(1) // w, which is about to leave, and is served before it has
		r.enqueue(late)
		w.status.Store(waiterDecided)
		r.reconcile(&fx)
		r.unlock(&fx)
		r.leavers.inQueue.Add(-1)
		require.Equal(t, 1, r.Stats().Waiting)
		require.False(t, r.leaveQueue(w))
		<-late.ready
		require.ErrorIs(t, late.err, errFailFast)
		require.NoError(t, held.Release())
		require.NoError(t, r.Close(t.Context()))
	})
}

// Who leaves a reservoir that has closed begins no goroutine of it.
func TestLeaversOfAClosedReservoirBeginNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config[int]{Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil }})
		require.NoError(t, err)
		first, second := r.newWaiter(t.Context()), r.newWaiter(t.Context())
		r.leavers.inQueue.Add(2)
		first.status.Store(waiterLeft)
		second.status.Store(waiterLeft)
		second.nextLeave = first
		r.leavers.head.Store(second) // joined while first took itself out
		require.NoError(t, r.Close(t.Context()))
		require.False(t, r.removeLeavers(first, nil))
		before := runtime.NumGoroutine()
		r.removeLaterLeavers(first)
		require.Equal(t, before, runtime.NumGoroutine())
		require.Nil(t, r.leavers.head.Load())
	})
}

// A callingError is an error of the user's whose methods call the reservoir.
type callingError struct{ r **Reservoir[int] }

func (e callingError) Error() string { return "calls" }
func (e callingError) Is(error) bool { (*e.r).Stats(); return false }
func (e callingError) As(any) bool   { (*e.r).Stats(); return false }
func (e callingError) Unwrap() error { (*e.r).Stats(); return nil }

// An endedContext has ended for a reason of its own.
type endedContext struct {
	context.Context
	err error
}

func (c endedContext) Err() error { return c.err }

func TestNoMethodOfAnErrorIsCalledUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *Reservoir[int]
		var err error
		calling := callingError{&r}
		start := make(chan struct{})
		r, err = New(Config[int]{
			Open:  func(context.Context) (int, error) { <-start; return 0, calling },
			Close: func(int) error { return calling }, OpenRetry: OpenRetryNever,
		})
		require.NoError(t, err)
		close(start)
		_, err = r.Acquire(t.Context())
		require.ErrorContains(t, err, "calls")
		_, err = r.Acquire(endedContext{t.Context(), calling})
		require.ErrorContains(t, err, "calls")
		require.NoError(t, r.Close(t.Context()))
	})
}

// Of two opens that fail one after the other, each reaches those whom it has to
// reach, however many they are.
func TestAFailureIsNotForgottenForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r, held, results := queued(ctx, t, 3*batch)
		errFirst, errSecond := errors.New("the first"), errors.New("the second")
		var fx effects[int]
		r.mu.Lock()
		r.failWaitersUpTo(r.mu.lastWaiter, errFirst, true, &fx)
		r.failWaitersUpTo(r.mu.lastWaiter, errSecond, false, &fx)
		r.unlock(&fx)
		synctest.Wait()
		require.Zero(t, r.Stats().Waiting)
		for range 3 * batch {
			require.ErrorIs(t, <-results, errFirst)
		}
		require.Empty(t, r.mu.pendingFailures)
		require.NoError(t, held.Release())
	})
}

// A failed open reaches a caller only when nothing else can serve it: one that
// succeeds while the failure is still being told ends that.
func TestASuccessEndsTheTellingOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, use := make(chan struct{}), make(chan struct{})
		r, err := New(Config[int]{Open: func(context.Context) (int, error) { <-start; return 1, nil }, Close: func(int) error { return nil }, MaxSize: 1})
		require.NoError(t, err)
		const n = 3 * batch
		results := make(chan error, n)
		for range n {
			go func() {
				l, err := r.Acquire(t.Context())
				if err == nil {
					<-use
					err = l.Release()
				}
				results <- err
			}()
		}
		synctest.Wait()
		var fx effects[int]
		r.mu.Lock()
		r.mu.sweepAt = -never // the sweeper comes late
		r.failWaitersUpTo(r.mu.lastWaiter, errNoReason, false, &fx)
		r.unlock(&fx)
		close(start)
		synctest.Wait()
		r.sweep()
		synctest.Wait()
		require.Equal(t, n-batch-1, r.Stats().Waiting)
		close(use)
		failed := 0
		for range n {
			if err := <-results; err != nil {
				require.ErrorIs(t, err, errNoReason)
				failed++
			}
		}
		require.Equal(t, batch, failed)
		require.NoError(t, r.Close(t.Context()))
	})
}

// A connection that comes back after its end is no stale one that has a successor:
// the successor is another's.
func TestAnExpiredConnectionTakesNobodysSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opens atomic.Int64
		start := time.Now()
		ends := map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second}
		r, err := New(Config[int]{
			Open: func(context.Context) (int, error) {
				n := int(opens.Add(1))
				time.Sleep(100 * time.Millisecond)
				return n, nil
			},
			Close: func(int) error { return nil }, IdleTTL: -1, MaxLifetime: -1, GuardWindow: -1,
			ExpiresAt: func(n int) time.Time {
				if d := ends[n]; d > 0 {
					return start.Add(d)
				}
				return time.Time{}
			},
		})
		require.NoError(t, err)
		held, err := r.Acquire(t.Context())
		require.NoError(t, err)
		second, err := r.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, second.Release())
		for opens.Load() < 3 { // the second is stale, and its successor on the way
			time.Sleep(10 * time.Millisecond)
		}
		second, ok := r.TryAcquire()
		require.True(t, ok)
		require.Equal(t, 2, second.Value())
		time.Sleep(150 * time.Millisecond)
		require.NoError(t, held.Release()) // long after its end
		time.Sleep(time.Millisecond)
		require.NoError(t, second.Release())
		time.Sleep(time.Minute)
		require.EqualValues(t, 3, opens.Load())
		require.Equal(t, 1, r.Stats().Total)
		require.NoError(t, r.Close(t.Context()))
	})
}
