// Package leasetest is the conformance suite of lease.Leases and
// lease.Limiter. It waits on no clock but that of the calls themselves, so
// that it serves budgets in memory and those of a real service alike.
package leasetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// brief is how long a call is given that must fail by its context. A call that
// must succeed has patience.
const (
	brief    = 300 * time.Millisecond
	patience = 30 * time.Second
)

// Leases runs the suite. open returns a new budget of limit connections that
// nobody else uses, closed or not at the end of the test.
func Leases(t *testing.T, open func(t *testing.T, limit int) lease.Leases) {
	for name, check := range map[string]func(*testing.T, lease.Leases){
		"the limit holds and a release makes room":        limitHolds,
		"waiters are served in their order":               order,
		"a second release does nothing":                   secondRelease,
		"a caller that gives up leaves nothing behind":    givingUp,
		"close waits for leases in use and fails waiters": closing,
		"many callers at once never exceed the limit":     crowd,
		"holders give up what others lack":                holders,
	} {
		t.Run(name, func(t *testing.T) { check(t, open(t, limit)) })
	}
}

func limitHolds(t *testing.T, l lease.Leases) {
	releases := acquireAll(t, l)
	refused(t, l)
	require.Equal(t, limit, l.Stats().InUse)
	require.Equal(t, limit, l.Stats().Limit)
	releases[0]()
	releases[0] = acquire(t, l)
	refused(t, l)
	for _, release := range releases {
		release()
	}
	require.Zero(t, l.Stats().InUse)
	done(t, l)
}

func order(t *testing.T, l lease.Leases) {
	releases := acquireAll(t, l)
	served := make(chan int, 4)
	var waiters sync.WaitGroup
	for i := range 4 {
		waiters.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if release, err := l.Acquire(ctx); err == nil {
				served <- i
				release()
			}
		})
		for l.Stats().Waiting != i+1 { // they must queue up in this order
			pause(t)
		}
	}
	releases[0]()
	waiters.Wait()
	close(served)
	var got []int
	for i := range served {
		got = append(got, i)
	}
	require.Equal(t, []int{0, 1, 2, 3}, got)
	for _, release := range releases {
		release()
	}
	done(t, l)
}

// pause lets others run, in a bubble and outside alike.
func pause(t *testing.T) {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.FailNow()
	}
}

func secondRelease(t *testing.T, l lease.Leases) {
	first := acquire(t, l)
	second := acquire(t, l)
	first()
	first()
	require.Equal(t, 1, l.Stats().InUse)
	second()
	require.Zero(t, l.Stats().InUse)
	done(t, l)
}

func givingUp(t *testing.T, l lease.Leases) {
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errWithdrawn)
	_, err := l.Acquire(ended)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errWithdrawn)
	releases := acquireAll(t, l)
	refused(t, l)
	require.Zero(t, l.Stats().Waiting)
	for _, release := range releases {
		release()
	}
	for i := range releases { // all of it is there again
		releases[i] = acquire(t, l)
	}
	for _, release := range releases {
		release()
	}
	done(t, l)
}

func closing(t *testing.T, l lease.Leases) {
	releases := acquireAll(t, l)
	waiting := make(chan error, 1)
	go func() {
		_, err := l.Acquire(t.Context())
		waiting <- err
	}()
	for l.Stats().Waiting != 1 {
		pause(t)
	}
	closed := make(chan error, 1)
	go func() { closed <- l.Close(t.Context()) }()
	require.ErrorIs(t, <-waiting, lease.ErrClosed)
	_, err := l.Acquire(t.Context())
	require.ErrorIs(t, err, lease.ErrClosed)
	for _, release := range releases {
		select {
		case err := <-closed:
			t.Fatalf("closed with leases in use: %v", err)
		default:
		}
		release()
	}
	require.NoError(t, <-closed)
	done(t, l)
}

func crowd(t *testing.T, l lease.Leases) {
	var inUse, most atomic.Int64
	var callers sync.WaitGroup
	start := time.Now()
	for range 12 {
		callers.Go(func() {
			for range 5 {
				release, err := l.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				now := inUse.Add(1)
				for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
				}
				for pause(t); most.Load() < limit && time.Since(start) < 10*time.Second; { // a slow store has yet to grant the rest
					pause(t)
				}
				inUse.Add(-1)
				release()
			}
		})
	}
	callers.Wait()
	require.EqualValues(t, limit, most.Load())
	require.EqualValues(t, 60, l.Stats().Granted)
	done(t, l)
}

// holders has one holder take all, one more of whose callers waits before another's: that one is
// served with what the first gives up.
func holders(t *testing.T, l lease.Leases) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	idle := make(chan func(), limit)
	rich := lease.NewHolder(func(n int) (closing int) {
		for range n {
			(<-idle)()
		}
		return n
	})
	for range limit {
		release, err := l.Acquire(lease.WithHolder(ctx, rich))
		require.NoError(t, err)
		idle <- release
	}
	more := make(chan func(), 1)
	go func() {
		if release, err := l.Acquire(lease.WithHolder(ctx, rich)); err == nil {
			more <- release
		}
	}()
	for l.Stats().Waiting != 1 {
		pause(t)
	}
	release, err := l.Acquire(lease.WithHolder(ctx, lease.NewHolder(nil)))
	require.NoError(t, err, "who has least is served first")
	require.Equal(t, 1, l.Stats().Waiting)
	require.Len(t, idle, limit-1)
	release()
	(<-more)()
	for len(idle) > 0 {
		(<-idle)()
	}
	done(t, l)
}

// Limiter runs the suite. open returns a new budget that nobody else uses, of
// rate opens per second and bursts of burst.
func Limiter(t *testing.T, open func(t *testing.T, rate float64, burst int) lease.Limiter) {
	t.Run("no window has more than rate times its length plus the burst", func(t *testing.T) {
		const rate, burst, opens = 100, 50, 120
		l := open(t, rate, burst)
		start := time.Now()
		var mu sync.Mutex
		worst := 0.0
		count := 0
		var callers sync.WaitGroup
		for range opens {
			callers.Go(func() {
				if err := l.Wait(t.Context()); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				count++
				worst = max(worst, float64(count)-rate*time.Since(start).Seconds())
			})
		}
		callers.Wait()
		require.Equal(t, opens, count)
		require.LessOrEqual(t, worst, float64(burst))
		require.NoError(t, l.Close(t.Context()))
	})
	t.Run("a refusal of the server empties the burst", func(t *testing.T) {
		l := open(t, 10, 50)
		require.NoError(t, l.Wait(t.Context()))
		l.Refused()
		pause(t)
		start := time.Now()
		for range 20 {
			require.NoError(t, l.Wait(t.Context()))
		}
		require.Greater(t, time.Since(start), time.Second)
		require.EqualValues(t, 1, l.Stats().Refusals)
		require.NoError(t, l.Close(t.Context()))
	})
	t.Run("close and the end of ctx fail the waiters", func(t *testing.T) {
		l := open(t, 1, 10)
		for range 5 {
			require.NoError(t, l.Wait(t.Context()))
		}
		l.Refused()
		pause(t)
		ctx, cancel := context.WithTimeoutCause(t.Context(), brief, errWithdrawn)
		defer cancel()
		for err := error(nil); ; {
			if err = l.Wait(ctx); err != nil {
				requireWithdrawn(t, err)
				break
			}
		}
		failed := make(chan error, 10)
		for range 10 {
			go func() { failed <- l.Wait(t.Context()) }()
		}
		require.NoError(t, l.Close(t.Context()))
		closed := 0
		for range 10 {
			if err := <-failed; errors.Is(err, lease.ErrClosed) {
				closed++
			}
		}
		require.Positive(t, closed)
		require.ErrorIs(t, l.Wait(t.Context()), lease.ErrClosed)
	})
}
