package reservoir_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

func TestCloseWakesEveryWaiterAtOnceAndDrainsLoans(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 2; c.Admit = f.admit })
		a, b := acquire(t, r), acquire(t, r)
		var calls []<-chan outcome
		for range 100 {
			calls = append(calls, call(t.Context(), r))
		}
		ready := make(chan error, 1)
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- r.Close(t.Context()) }()
		for _, c := range calls {
			got := <-c
			require.ErrorIs(t, got.err, reservoir.ErrClosed)
			require.Zero(t, got.took)
		}
		go func() { ready <- r.WaitReady(t.Context(), 2) }()
		require.ErrorIs(t, <-ready, reservoir.ErrClosed)
		_, err := r.Acquire(t.Context())
		require.ErrorIs(t, err, reservoir.ErrClosed)
		time.Sleep(time.Minute)
		require.Empty(t, closed)
		require.Equal(t, 2, f.read(&f.leases))
		release(t, a)
		time.Sleep(time.Minute)
		require.Empty(t, closed)
		require.NoError(t, b.Discard(nil))
		require.NoError(t, <-closed)
		require.Zero(t, f.read(&f.leases))
		require.EqualValues(t, 1, r.Stats().Closed[reservoir.Shutdown])
		require.EqualValues(t, 1, r.Stats().Closed[reservoir.Discarded])
		require.ErrorIs(t, r.Close(t.Context()), reservoir.ErrClosed)
		require.ErrorIs(t, r.Resize(3), reservoir.ErrClosed)
		r.Reset()
		require.Zero(t, r.EvictIdle())
	})
}

func TestCloseForcesLoansWhenItsContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		a, b := acquire(t, r), acquire(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		second := make(chan error, 1)
		go func() {
			synctest.Wait()
			second <- r.Close(t.Context())
		}()
		began := time.Now()
		err := r.Close(ctx)
		require.Equal(t, time.Second, time.Since(began))
		var closeErr *reservoir.CloseError
		require.ErrorAs(t, err, &closeErr)
		require.Equal(t, 2, closeErr.Forced)
		require.Zero(t, closeErr.Remaining)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, <-second, reservoir.ErrClosed)
		require.True(t, a.Value().closed.Load())
		require.ErrorIs(t, a.Release(), reservoir.ErrReleased)
		require.ErrorIs(t, b.Discard(nil), reservoir.ErrReleased)
	})
}

func TestAFurtherCloseSaysClosedWhateverItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		a := acquire(t, r)
		first := make(chan error, 1)
		go func() { first <- r.Close(t.Context()) }()
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		err := r.Close(ended)
		var closeErr *reservoir.CloseError
		require.ErrorAs(t, err, &closeErr)
		require.Equal(t, 1, closeErr.Remaining)
		require.ErrorIs(t, err, reservoir.ErrClosed)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, a.Release(), "nothing was forced")
		require.NoError(t, <-first)
		for range 20 {
			require.Equal(t, reservoir.ErrClosed, r.Close(ended), "nothing is left to wait for")
		}
	})
}

// The context of the first Close may have ended since something else is closed.
func TestTheErrorOfCloseTellsWhetherAnotherCameBefore(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		acquire(t, r)
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(reservoir.ErrClosed)
		first := make(chan error, 1)
		go func() {
			waits, stop := context.WithTimeoutCause(t.Context(), time.Second, reservoir.ErrClosed)
			defer stop()
			first <- r.Close(waits)
		}()
		synctest.Wait()
		further := r.Close(ended)
		require.True(t, reservoir.ClosedBefore(further), "%v", further)
		err := <-first
		require.ErrorIs(t, err, reservoir.ErrClosed)
		require.False(t, reservoir.ClosedBefore(err), "%v", err)
		require.True(t, reservoir.ClosedBefore(fmt.Errorf("wrapped: %w", r.Close(t.Context()))))
		require.False(t, reservoir.ClosedBefore(nil))
	})
}

func TestCloseCancelsOpensAndAdmissions(t *testing.T) {
	for _, stage := range []string{"open", "admit"} {
		t.Run(stage, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				r := f.pool(t, func(c *config) {
					c.OpenTimeout = -1
					if stage == "admit" {
						c.Admit = func(ctx context.Context) (func(), error) { <-ctx.Done(); return nil, ctx.Err() }
					}
				})
				f.set(func() { f.dial = time.Hour })
				waiting := call(t.Context(), r)
				synctest.Wait()
				require.Equal(t, 1, r.Stats().Opening)
				began := time.Now()
				shut(t, r)
				require.Zero(t, time.Since(began))
				require.ErrorIs(t, (<-waiting).err, reservoir.ErrClosed)
			})
		})
	}
}

func TestAnOpenThatIgnoresCloseIsClosedWhenItComes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.MinIdle, c.Admit = 1, f.admit
			c.Open = func(ctx context.Context) (*conn, error) {
				time.Sleep(time.Hour)
				return f.open(context.WithoutCancel(ctx))
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		var closeErr *reservoir.CloseError
		require.ErrorAs(t, r.Close(ctx), &closeErr)
		require.Equal(t, 6*time.Second, time.Since(began)) // ctx, then CloseTimeout
		require.Equal(t, 1, closeErr.Remaining)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, f.read(&f.opens))
		require.Zero(t, r.Stats().Total)
	})
}

func TestAStalledCloseCountsUntilItReturnsAndIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var stalled []reservoir.Reason
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.CloseTimeout, c.AcquireTimeout = 1, time.Second, time.Minute
			c.Admit = f.admit
			c.Hooks.CloseStalled = func(reason reservoir.Reason) { f.set(func() { stalled = append(stalled, reason) }) }
		})
		f.set(func() { f.closes = 10 * time.Second })
		require.NoError(t, acquire(t, r).Discard(nil))
		got := <-call(t.Context(), r)
		require.NoError(t, got.err)
		require.Equal(t, 10*time.Second, got.took)
		require.Equal(t, 1, f.read(&f.mostLive))
		require.Equal(t, 1, f.read(&f.mostLeases))
		f.set(func() { require.Equal(t, []reservoir.Reason{reservoir.Discarded}, stalled) })
		require.EqualValues(t, 1, r.Stats().CloseStalls)
		f.set(func() { f.closes = 0 })
		release(t, got.loan)
		shut(t, r)
	})
}

func TestEveryLeaseComesBackExactlyOnceAndAfterTheClose(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.closes = time.Second
		r := f.pool(t, func(c *config) { c.MaxSize, c.Admit = 3, f.admit })
		l := acquire(t, r)
		require.NoError(t, l.Discard(nil))
		time.Sleep(time.Second - 1)
		require.Equal(t, 1, f.read(&f.leases))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Zero(t, f.read(&f.leases))
		f.set(func() { f.refuse = errRefused })
		_, err := r.Acquire(t.Context())
		require.ErrorIs(t, err, errRefused)
		require.Zero(t, f.read(&f.leases))
		shut(t, r)
	})
}

func TestTheHooksTellTheWholeStory(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var story []string
		tell := func(s string) { f.set(func() { story = append(story, s) }) }
		f.dial = time.Second
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.MaxWaiters = 1, 1
			c.Hooks = reservoir.Hooks{
				Opening:    func() { tell("opening") },
				Opened:     func(took time.Duration) { tell("opened in " + took.String()) },
				OpenFailed: func(err error, _ time.Duration) { tell("failed: " + err.Error()) },
				WaitStart:  func() { tell("wait") },
				WaitEnd:    func(waited time.Duration, err error) { tell("waited " + waited.String()) },
				Acquired:   func(waited time.Duration) { tell("acquired after " + waited.String()) },
				Released:   func(held time.Duration) { tell("released after " + held.String()) },
				Rejected:   func() { tell("shed") },
				Closing:    func(reason reservoir.Reason, cause error) { tell("closing " + reason.String() + " " + cause.Error()) },
				Closed:     func(reason reservoir.Reason, _ error) { tell("closed " + reason.String()) },
			}
		})
		l := acquire(t, r)
		time.Sleep(time.Second)
		release(t, l)
		l = acquire(t, r)
		waiting := call(t.Context(), r)
		synctest.Wait()
		_, err := r.Acquire(t.Context())
		require.ErrorIs(t, err, reservoir.ErrExhausted)
		f.set(func() { f.refuse = errRefused })
		require.NoError(t, l.Discard(errRefused))
		require.ErrorIs(t, (<-waiting).err, errRefused)
		synctest.Wait()
		shut(t, r)
		require.ElementsMatch(t, []string{
			"wait", "opening", "opened in 1s", "waited 1s", "acquired after 1s", "released after 1s", "acquired after 0s",
			"wait", "shed", "released after 0s", "closing discarded connection refused", "closed discarded",
			"opening", "waited 1s", "failed: connection refused",
		}, story)
	})
}
