package reservoir

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAContextThatPanicsBlocksNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, held, _ := queued(t.Context(), t, 0)
		require.Panics(t, func() { _, _ = r.Acquire(panickingContext{t.Context()}) })
		require.NoError(t, held.Release())
		held, err := r.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, held.Release())
	})
}

type panickingContext struct{ context.Context }

func (panickingContext) Done() <-chan struct{} { panic("no") }

// A ctx of the caller's own make may close Done and not say why.
func TestWaitReadySaysThatItsContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config[int]{Open: func(ctx context.Context) (int, error) { return 0, context.Cause(ctx) }, Close: func(int) error { return nil }, Admit: func(ctx context.Context) (func(), error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		require.NoError(t, err)
		silent := manualDeadline{t.Context(), make(chan struct{})}
		close(silent.over)
		require.ErrorIs(t, r.WaitReady(mute{silent}, 1), context.Canceled)
		require.NoError(t, r.Close(t.Context()))
	})
}

// Mute does not say why it has ended.
type mute struct{ context.Context }

func (mute) Err() error { return nil }

// Under FailFast the last who waits is not refused for one who has left.
func TestFailFastCountsOnlyThoseWhoStillWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config[int]{
			Open:  func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil },
			Close: func(int) error { return nil }, MaxSize: 1, OnExhausted: FailFast,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		left, served := make(chan error), make(chan error)
		call := func(ctx context.Context, result chan<- error) {
			l, err := r.Acquire(ctx)
			if err == nil {
				err = l.Release()
			}
			result <- err
		}
		go call(ctx, left)
		synctest.Wait() // the only connection is being opened for that caller
		r.mu.Lock()
		cancel()
		for r.leavers.inQueue.Load() == 0 { // leaves, and is in the queue
			runtime.Gosched()
		}
		require.NoError(t, r.refusalError())
		var fx effects[int]
		w := r.newWaiter(t.Context())
		r.enqueue(w)
		r.reconcile(&fx)
		r.unlock(&fx)
		go func() {
			l, err := r.await(t.Context(), w)
			if err == nil {
				err = l.Release()
			}
			served <- err
		}()
		require.ErrorIs(t, <-left, context.Canceled)
		require.NoError(t, <-served)
		require.NoError(t, r.Close(t.Context()))
	})
}

// Who has left is not kept by those who leave later.
func TestThoseWhoHaveLeftAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		ctx, cancel := context.WithCancel(t.Context())
		r, held, results := queued(ctx, t, n)
		var all []*waiter[int]
		r.mu.Lock()
		for w := r.mu.waiters.front(); w != nil; w = w.link.next.self {
			all = append(all, w)
		}
		cancel()
		for range n - 1 { // all but the first, who waits for the lock
			<-results
		}
		r.mu.Unlock()
		<-results
		synctest.Wait()
		for _, w := range all {
			require.Nil(t, w.nextLeave)
		}
		require.NoError(t, held.Release())
	})
}

// Every setting that Reconfigure takes over is read with the lock held: the race
// detector watches.
func TestTuneBesideEverythingElse(t *testing.T) {
	synctest.Test(t, tuneBesideEverythingElse) // the pauses after losses cost no time
}

func tuneBesideEverythingElse(t *testing.T) {
	config := func() Config[int] {
		return Config[int]{
			MinIdle: 1, MaxSize: 4, MaxConcurrentOpens: 2, MaxWaiters: 100, AcquireTimeout: time.Minute, IdleTTL: time.Minute,
			MaxLifetime: time.Minute, LifetimeJitter: time.Second, GuardWindow: time.Second,
			CheckInterval: time.Second, IdleBeforeCheck: -1, CheckOnAcquire: true,
		}
	}
	cfg := config()
	cfg.Open, cfg.Close = func(context.Context) (int, error) { return 1, nil }, func(int) error { return nil }
	cfg.Check, cfg.Reset = func(context.Context, int) error { return nil }, func(context.Context, int) error { return nil }
	cfg.Admit = func(context.Context) (func(), error) { return func() {}, nil }
	cfg.ExpiresAt = func(int) time.Time { return time.Now().Add(time.Hour) }
	cfg.Watch = func(_ int, lost func(error)) { go lost(nil) }
	cfg.CheckOnRelease, cfg.LeakAfter = true, time.Millisecond
	hook := func() {}
	cfg.Hooks = Hooks{
		Opening: hook, Opened: func(time.Duration) {}, OpenFailed: func(error, time.Duration) {}, OpenSkipped: hook, WaitStart: hook,
		WaitEnd: func(time.Duration, error) {}, Acquired: func(time.Duration) {}, Released: func(time.Duration) {}, Rejected: hook, Leaked: func(Leak) {},
		Checked: func(error, time.Duration) {}, Closing: func(Reason, error) {}, CloseStalled: func(Reason) {}, Closed: func(Reason, error) {},
	}
	r, err := New(cfg)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for _, call := range []func(){
		func() { _ = r.Reconfigure(config()) },
		func() { _ = r.Resize(3) },
		func() {
			if l, err := r.Acquire(t.Context()); err == nil {
				_ = l.Release()
			}
		},
		func() {
			if l, ok := r.TryAcquire(); ok {
				_ = l.Discard(nil)
			}
		},
		func() { _ = r.CheckOne(t.Context()) },
		func() { _ = r.WaitReady(t.Context(), 1) },
		func() { r.EvictIdle(); r.CloseIdle(1, 0); r.Reset() },
		func() { r.Connections(); _ = r.Stats() },
	} {
		wg.Go(func() {
			for range 100 {
				call()
			}
		})
	}
	wg.Wait()
	require.NoError(t, r.Close(t.Context()))
}
