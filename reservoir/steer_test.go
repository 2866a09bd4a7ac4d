package reservoir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

func TestTuneChangesSizesAndTimesInPlace(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1; c.AcquireTimeout = time.Hour })
		held := acquire(t, r)
		waiting := call(t.Context(), r)
		synctest.Wait()
		time.Sleep(3 * time.Second)
		require.NoError(t, r.Reconfigure(config{MaxSize: 1, AcquireTimeout: 5 * time.Second, MaxLifetime: -1, IdleTTL: time.Minute}))
		got := <-waiting
		require.ErrorIs(t, got.err, reservoir.ErrExhausted)
		require.Equal(t, 5*time.Second, got.took, "counted from its arrival")

		require.NoError(t, r.Reconfigure(config{MaxSize: 3, MinIdle: 2, MaxLifetime: -1, IdleTTL: time.Minute}))
		synctest.Wait()
		require.Equal(t, 3, r.Stats().Total, "the one on loan and two to keep ready")
		require.NoError(t, r.Reconfigure(config{MaxSize: 3, MaxLifetime: -1, IdleTTL: time.Minute}))
		time.Sleep(time.Minute)
		release(t, held)
		synctest.Wait()
		require.Equal(t, 1, r.Stats().Total, "the new IdleTTL holds")
		require.Same(t, held.Value(), f.connections()[0], "nobody lost a connection for it")
		shut(t, r)
	})
}

func TestALongerIdleTTLKeepsWhatWasAlreadyIdleForTheShorterOne(t *testing.T) {
	for _, ttl := range []time.Duration{-1, time.Minute, 5 * time.Hour} {
		bubble(t, func(t *testing.T, f *fake) {
			set := func(c *config) { c.MinIdle, c.MaxSize, c.IdleTTL, c.MaxLifetime = 4, 8, time.Minute, -1 }
			r := f.pool(t, set)
			start := time.Now()
			time.Sleep(2 * time.Minute)
			cfg := f.config(func(c *config) { set(c); c.MinIdle, c.IdleTTL = 0, ttl })
			require.NoError(t, r.Reconfigure(cfg))
			synctest.Wait()
			require.Equal(t, ttl == time.Minute, r.Stats().Idle == 0, "what is too idle for the new one goes at once")
			if ttl != time.Minute {
				time.Sleep(time.Until(start.Add(5*time.Hour - time.Second)))
				synctest.Wait()
				require.Equal(t, 4, r.Stats().Idle)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Equal(t, ttl > 0, r.Stats().Idle == 0)
			}
			shut(t, r)
		})
	}
}

func TestTuneRefusesWhatNewRefusesAndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		err := r.Reconfigure(config{MaxSize: -1, MinIdle: 9, MaxLifetime: time.Second, GuardWindow: time.Minute})
		require.ErrorContains(t, err, "MaxSize")
		require.ErrorContains(t, err, "GuardWindow")
		require.Equal(t, 4, r.Stats().MaxSize)
		shut(t, r)
		require.ErrorIs(t, r.Reconfigure(config{}), reservoir.ErrClosed)
	})
}

func TestYieldClosesTheColdestThatWereNotUsedFor(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		allow := make(chan struct{}, 9)
		for range 3 {
			allow <- struct{}{}
		}
		r := f.pool(t, func(c *config) {
			c.MinIdle = 1
			c.Admit = func(ctx context.Context) (func(), error) {
				select {
				case <-allow:
					return func() {}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		})
		a, b, c := acquire(t, r), acquire(t, r), acquire(t, r)
		release(t, a)
		time.Sleep(time.Minute)
		release(t, b, c)
		require.Equal(t, 1, r.CloseIdle(5, time.Second), "one is cold")
		synctest.Wait()
		require.True(t, a.Value().closed.Load())
		require.Equal(t, 1, r.CloseIdle(1, 0))
		require.Equal(t, 1, r.CloseIdle(1, 0), "below MinIdle too")
		require.Equal(t, 0, r.CloseIdle(1, 0))
		synctest.Wait()
		s := r.Stats()
		require.Equal(t, 1, s.Opening, "what MinIdle lacks waits for Admit")
		require.Equal(t, uint64(3), s.Closed[reservoir.OverCapacity])
		shut(t, r)
	})
}

func TestFailWaitersFailsEverybodyInTheQueueAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		held := acquire(t, r)
		first, second := call(t.Context(), r), call(t.Context(), r)
		synctest.Wait()
		gone := errors.New("no connection will come")
		require.Equal(t, 2, r.FailWaiters(gone))
		require.ErrorIs(t, (<-first).err, gone)
		require.ErrorIs(t, (<-second).err, gone)
		third := call(t.Context(), r)
		synctest.Wait()
		require.Equal(t, 1, r.FailWaiters(fmt.Errorf("%w: elsewhere", reservoir.ErrExhausted)))
		require.ErrorIs(t, (<-third).err, reservoir.ErrExhausted)
		require.Equal(t, []uint64{2, 1}, []uint64{r.Stats().Failed, r.Stats().Rejected}, "counted before they hear of it")
		release(t, held)
		release(t, acquire(t, r))
		shut(t, r)
	})
}

func TestProveChecksABorrowedConnection(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		checks := 0
		r := f.pool(t, func(c *config) {
			c.Check = f.check
			c.CheckInterval = -1
			c.Hooks.Checked = func(error, time.Duration) { checks++ }
		})
		require.NoError(t, r.CheckOne(t.Context()))
		f.set(func() { f.log[0].broken = true })
		require.ErrorIs(t, r.CheckOne(t.Context()), errRefused)
		synctest.Wait()
		require.True(t, f.connections()[0].closed.Load(), "a connection that fails is closed")
		f.set(func() { f.refuse = errRefused })
		require.ErrorIs(t, r.CheckOne(t.Context()), errRefused)
		require.Equal(t, 2, checks)
		shut(t, r)
		require.ErrorIs(t, r.CheckOne(t.Context()), reservoir.ErrClosed)
	})
}

func TestConnectionsDescribesWhatIsOpen(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 200 })
		began := time.Now()
		var loans []loan
		for range 150 {
			loans = append(loans, acquire(t, r))
		}
		time.Sleep(time.Minute)
		release(t, loans[1:]...)
		infos := r.Connections()
		require.Len(t, infos, 150)
		inUse := 0
		ids := map[uint64]bool{0: true}
		for _, i := range infos {
			require.NotContains(t, ids, i.ID)
			ids[i.ID] = true
			require.Equal(t, i.InUse, i.OnLoan)
			require.True(t, i.Expires.IsZero(), "there is no MaxLifetime")
			require.Equal(t, began, i.Opened)
			require.Equal(t, uint64(1), i.Loans)
			if i.InUse {
				inUse++
				require.Same(t, loans[0].Value(), i.Value)
				require.Equal(t, loans[0].ConnectionID(), i.ID)
				require.Equal(t, began, i.Used)
			} else {
				require.WithinDuration(t, began.Add(time.Minute), i.Used, 10*time.Millisecond)
			}
		}
		require.Equal(t, 1, inUse)
		require.Zero(t, loan{}.ConnectionID())
		release(t, loans[0])
		shut(t, r)
	})
}

func TestConnectionsTellsWhenTheyExpireAndWhoHasThem(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.MaxLifetime, c.LifetimeJitter, c.GuardWindow = 1, time.Hour, -1, time.Minute
			c.Reset = func(context.Context, *conn) error { time.Sleep(time.Second); return nil }
		})
		began := time.Now()
		l := acquire(t, r)
		id := l.ConnectionID()
		require.True(t, r.Connections()[0].OnLoan)
		go func() { _ = l.Release() }()
		synctest.Wait()
		resetting := r.Connections()[0]
		require.True(t, resetting.InUse)
		require.False(t, resetting.OnLoan, "no borrower has it")
		require.Equal(t, began.Add(59*time.Minute), resetting.Expires)
		time.Sleep(2 * time.Hour)
		next := acquire(t, r)
		require.Greater(t, next.ConnectionID(), id)
		release(t, next)
		shut(t, r)
	})
}

// The check is the reservoir's: neither a Check that does not heed its ctx nor one
// that ends its goroutine concerns the caller.
func TestProveEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var broken error
		r := f.pool(t, func(c *config) {
			c.CheckInterval, c.CheckTimeout = -1, time.Hour
			c.Check = func(ctx context.Context, _ *conn) error { time.Sleep(time.Minute); return broken }
		})
		for _, broken = range []error{nil, errRefused} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			require.ErrorIs(t, r.CheckOne(ctx), context.DeadlineExceeded)
			cancel()
			require.Equal(t, time.Second, time.Since(began))
			require.Equal(t, 1, r.Stats().InUse, "the check goes on")
			time.Sleep(time.Minute)
			require.Zero(t, r.Stats().InUse)
		}
		require.EqualValues(t, 1, r.Stats().Closed[reservoir.Unhealthy])
		require.Equal(t, 1, f.read(&f.opens))
		shut(t, r)
	})
}

func TestProveWithoutACheckEndsWithItsContextAlthoughResetHangs(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.Check, c.CheckInterval = nil, 0
			c.Reset = func(context.Context, *conn) error { time.Sleep(time.Minute); return nil }
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		start := time.Now()
		require.ErrorIs(t, r.CheckOne(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, r.Stats().Idle)
		shut(t, r)
	})
}

// Close ends a check, waits for its end, and is told as the reason.
func TestProveBesideClose(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.CheckInterval = -1
			c.Check = func(ctx context.Context, _ *conn) error { <-ctx.Done(); time.Sleep(time.Second); return ctx.Err() }
		})
		proved := make(chan error)
		go func() { proved <- r.CheckOne(t.Context()) }()
		synctest.Wait()
		began := time.Now()
		go func() { require.ErrorIs(t, <-proved, reservoir.ErrClosed) }()
		require.NoError(t, r.Close(t.Context()))
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestWhatIsOutOfRangeIsSaidSo(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		for want, call := range map[string]func() error{
			"reservoir: WaitReady: 5 is not between 0 and MaxSize 4": func() error { return r.WaitReady(t.Context(), 5) },
			"reservoir: Resize: 0 is not between 1 and 2147483647":   func() error { return r.Resize(0) },
		} {
			err := call()
			require.EqualError(t, err, want)
			var outside *reservoir.RangeError
			require.ErrorAs(t, err, &outside)
		}
		shut(t, r)
		require.ErrorIs(t, r.WaitReady(t.Context(), 5), reservoir.ErrClosed)
	})
}
