package reservoir_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

func TestASpikeIsServedByReturnsWithFewOpens(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle = 50, 5 })
		require.NoError(t, r.WaitReady(t.Context(), 5))
		f.set(func() { f.dial, f.opens = 150*time.Millisecond, 0 })
		began := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				l := acquire(t, r)
				time.Sleep(2 * time.Millisecond)
				release(t, l)
			})
		}
		wg.Wait()
		require.Equal(t, 20*time.Millisecond, time.Since(began)) // 50/5 rounds of 2ms
		require.LessOrEqual(t, f.read(&f.opens), 8)
		shut(t, r)
	})
}

func TestACallerThatGivesUpDoesNotKillTheOpen(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial = 100 * time.Millisecond
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := r.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		got := <-call(t.Context(), r)
		require.Equal(t, 50*time.Millisecond, got.took) // of the same open
		require.Equal(t, 1, f.read(&f.opens))
		release(t, got.loan)
		shut(t, r)
	})
}

func TestMoreOpensThanMaxConcurrentOpensAreNeverUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial = time.Second
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle, c.MaxConcurrentOpens = 30, 30, 3 })
		require.NoError(t, r.WaitReady(t.Context(), 30))
		require.Equal(t, 3, f.read(&f.mostOpening))
		require.Equal(t, 30, f.read(&f.opens))
		shut(t, r)
	})
}

func TestAnAdmittedOpenThatNobodyWantsIsElided(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.MaxSize = 2
			c.Admit = func(ctx context.Context) (func(), error) {
				if f.read(&f.leasesTaken) > 0 {
					_ = sleep(ctx, time.Second)
				}
				return f.admit(ctx)
			}
		})
		held := acquire(t, r)
		waiting := call(t.Context(), r)
		synctest.Wait()
		release(t, held)
		got := <-waiting
		require.Equal(t, 1, r.Stats().Opening)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, f.read(&f.opens))
		require.EqualValues(t, 1, r.Stats().OpensSkipped)
		require.Equal(t, 1, f.read(&f.leases))
		require.Equal(t, 2, f.read(&f.leasesTaken))
		release(t, got.loan)
		shut(t, r)
	})
}

// Opens that wait for Admit are no connections yet. Where Resize leaves too little room, they
// give way, and those who wait are served by what there is.
func TestOpensThatWaitForAdmitGiveWayToConnectionsWhenTheReservoirShrinks(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		full := make(chan struct{})
		r := f.pool(t, func(c *config) {
			c.MaxSize = 4
			c.Admit = func(ctx context.Context) (func(), error) {
				if f.read(&f.leasesTaken) >= 2 {
					select {
					case <-full:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				return f.admit(ctx)
			}
		})
		one, two := acquire(t, r), acquire(t, r)
		first, second := call(t.Context(), r), call(t.Context(), r)
		synctest.Wait()
		require.NoError(t, r.Resize(2))
		release(t, one)
		release(t, two)
		one, two = (<-first).loan, (<-second).loan
		third, fourth := call(t.Context(), r), call(t.Context(), r)
		synctest.Wait()
		close(full)
		synctest.Wait()
		require.EqualValues(t, 2, r.Stats().OpensSkipped, "there is no room for them")
		require.Equal(t, 2, f.read(&f.opens))
		require.Equal(t, 2, f.read(&f.leases))
		release(t, one)
		release(t, two)
		release(t, (<-third).loan)
		release(t, (<-fourth).loan)
		require.Zero(t, r.Stats().Closed[reservoir.OverCapacity])
		shut(t, r)
	})
}

func TestAFailedOpenReachesItsWaitersWhenNothingElseCanServeThem(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial, f.refuse = time.Second, errRefused
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		early := call(t.Context(), r)
		time.Sleep(time.Second / 2)
		late := call(t.Context(), r) // after that open began
		got := <-early
		require.Equal(t, time.Second, got.took)
		require.ErrorIs(t, got.err, errRefused)
		var failed *reservoir.OpenError
		require.ErrorAs(t, got.err, &failed)
		f.set(func() { f.refuse = nil })
		second := <-late
		require.NoError(t, second.err) // the next open is news for it
		release(t, second.loan)
		shut(t, r)
	})
}

func TestTheErrorOfAnOpenIsNotLostWhenAnOlderOneFailsLater(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial, f.refuse = 2*time.Second, errRefused
		r := f.pool(t, func(c *config) { c.MinIdle = 1 }) // the refiller's open, for nobody
		synctest.Wait()
		f.set(func() { f.dial = time.Second })
		got := <-call(t.Context(), r)
		require.Equal(t, 2*time.Second, got.took, "when both have failed, not after a third")
		require.ErrorIs(t, got.err, errRefused)
		shut(t, r)
	})
}

func TestAnOpenThatTimesOutIsNotItsCallersTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial = time.Hour
		r := f.pool(t, func(c *config) { c.OpenTimeout = time.Second })
		got := <-call(t.Context(), r)
		require.Equal(t, time.Second, got.took)
		var failed *reservoir.OpenError
		require.ErrorAs(t, got.err, &failed)
		require.ErrorIs(t, got.err, context.DeadlineExceeded)
		require.NotErrorIs(t, got.err, reservoir.ErrExhausted)
		require.Zero(t, r.Stats().Timeouts)
		shut(t, r)
	})
}

func TestAFailedOpenReachesNobodyWhileALoanIsOut(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		held := acquire(t, r)
		f.set(func() { f.refuse = errRefused })
		waiting := call(t.Context(), r)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, r.Stats().Waiting)
		release(t, held)
		got := <-waiting
		require.NoError(t, got.err)
		release(t, got.loan)
		shut(t, r)
	})
}

func TestAFailedAdmitReachesThoseWhoWaitedForItWhenNothingElseCanServeThem(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var reachable atomic.Bool
		r := f.pool(t, func(c *config) {
			c.Admit = func(ctx context.Context) (func(), error) {
				if err := sleep(ctx, time.Second); err != nil || !reachable.Load() {
					return nil, errRefused
				}
				return f.admit(ctx)
			}
		})
		early := call(t.Context(), r)
		time.Sleep(time.Second / 2)
		late := call(t.Context(), r) // another open, whose Admit began later
		got := <-early
		require.Equal(t, 1500*time.Millisecond, got.took, "once the other open, which might have served it, has failed too")
		require.ErrorIs(t, got.err, errRefused)
		require.ErrorAs(t, got.err, new(*reservoir.OpenError))
		require.ErrorIs(t, (<-late).err, errRefused)

		early = call(t.Context(), r)
		synctest.Wait()
		time.Sleep(100 * time.Millisecond) // the pause after the failures
		reachable.Store(true)
		got = <-early
		require.NoError(t, got.err)
		reachable.Store(false)
		waiting := call(t.Context(), r)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, r.Stats().Waiting, "the loan that is out may serve it")
		release(t, got.loan)
		got = <-waiting
		require.NoError(t, got.err)
		release(t, got.loan)
		shut(t, r)
	})
}

func TestAFullBudgetFailsNobodyAndIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var full atomic.Bool
		var asked atomic.Int32
		full.Store(true)
		r := f.pool(t, func(c *config) {
			c.AcquireTimeout = 10 * time.Second
			c.Admit = func(ctx context.Context) (func(), error) {
				if asked.Add(1); full.Load() {
					return nil, fmt.Errorf("9 of 9: %w", reservoir.ErrExhausted)
				}
				return f.admit(ctx)
			}
		})
		got := <-call(t.Context(), r)
		require.Equal(t, 10*time.Second, got.took)
		require.ErrorIs(t, got.err, reservoir.ErrExhausted)
		require.ErrorContains(t, got.err, "9 of 9")
		require.NotErrorAs(t, got.err, new(*reservoir.OpenError))
		require.Less(t, asked.Load(), int32(40), "with pauses that grow to a second")

		waiting := call(t.Context(), r)
		time.Sleep(3 * time.Second)
		full.Store(false)
		got = <-waiting
		require.NoError(t, got.err)
		require.LessOrEqual(t, got.took, 4*time.Second)
		release(t, got.loan)
		shut(t, r)
	})
}

func TestAnOpenThatFailsLikeAFullBudgetIsAFailedOpen(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.refuse = reservoir.ErrExhausted // of a reservoir under this one, say
		r := f.pool(t, nil)
		got := <-call(t.Context(), r)
		require.Zero(t, got.took)
		require.ErrorAs(t, got.err, new(*reservoir.OpenError))
		shut(t, r)
	})
}

// The error is that of the open, whatever the reservoir under this one has been full for.
func TestAnOpenThatFailsForAFullReservoirIsNoFullReservoir(t *testing.T) {
	for _, policy := range []reservoir.Exhaustion{reservoir.Wait, reservoir.FailFast} {
		bubble(t, func(t *testing.T, f *fake) {
			under, err := reservoir.New(reservoir.Config[int]{
				Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil },
				MaxSize: 1, AcquireTimeout: time.Second, OnExhausted: policy,
			})
			require.NoError(t, err)
			require.NoError(t, under.WaitReady(t.Context(), 1))
			held, err := under.Acquire(t.Context())
			require.NoError(t, err)
			_, f.refuse = under.Acquire(t.Context())
			require.ErrorIs(t, f.refuse, reservoir.ErrExhausted)
			r := f.pool(t, nil)
			got := <-call(t.Context(), r)
			require.IsType(t, new(reservoir.OpenError), got.err)
			shut(t, r)
			require.NoError(t, held.Release())
			require.NoError(t, under.Close(t.Context()))
		})
	}
}

func TestAServerThatTakesNoMoreIsAskedAboutOnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.sessions = 3
		r := f.pool(t, func(c *config) { c.MaxSize, c.AcquireTimeout = 20, -1 })
		var loans []loan
		for range 3 {
			loans = append(loans, acquire(t, r))
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 17 {
			call(ctx, r)
		}
		synctest.Wait()
		f.set(func() { f.opens = 0 })
		time.Sleep(time.Minute)
		require.LessOrEqual(t, f.read(&f.opens), 60*2+10)
		require.GreaterOrEqual(t, f.read(&f.opens), 30)
		cancel()
		synctest.Wait()
		release(t, loans...)
		require.Len(t, f.connections(), 3)
		shut(t, r)
	})
}

func TestAfterFailuresOneSuccessOpensTheDoorAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.refuse = errRefused
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle = 16, 16 })
		time.Sleep(10 * time.Second)
		require.Zero(t, r.Stats().Idle)
		require.ErrorIs(t, r.Stats().LastOpenError, errRefused)
		f.set(func() { f.refuse = nil })
		began := time.Now()
		require.NoError(t, r.WaitReady(t.Context(), 16))
		require.LessOrEqual(t, time.Since(began), time.Second)
		require.NoError(t, r.Stats().LastOpenError)
		shut(t, r)
	})
}

func TestMinIdleIsRefilledAsConnectionsAreTaken(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle = 5, 2 })
		synctest.Wait()
		require.Equal(t, 2, r.Stats().Idle)
		loans := []loan{acquire(t, r), acquire(t, r)}
		synctest.Wait()
		require.Equal(t, 2, r.Stats().Idle)
		loans = append(loans, acquire(t, r), acquire(t, r))
		synctest.Wait()
		require.Equal(t, 1, r.Stats().Idle) // MaxSize
		require.NoError(t, loans[0].Discard(nil))
		synctest.Wait()
		require.Equal(t, 2, r.Stats().Idle)
		release(t, loans[1:]...)
		shut(t, r)
	})
}

func TestAPanicInACallbackIsAnErrorAndLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		bad := map[string]bool{"open": true}
		panics := func(what string) {
			if bad[what] {
				panic("bad " + what)
			}
		}
		var closeErr error
		r := f.pool(t, func(c *config) {
			c.MaxSize = 1
			c.Open = func(ctx context.Context) (*conn, error) { panics("open"); return f.open(ctx) }
			c.Close = func(x *conn) error { defer panics("close"); return f.close(x) }
			c.Reset = func(context.Context, *conn) error { panics("reset"); return nil }
			c.Check = func(context.Context, *conn) error { panics("check"); return nil }
			c.Admit = func(ctx context.Context) (func(), error) { panics("admit"); return f.admit(ctx) }
			c.CheckOnAcquire, c.IdleBeforeCheck, c.CheckInterval = true, -1, -1
			c.Hooks.Closed = func(_ reservoir.Reason, err error) { closeErr = err }
		})
		var caught *reservoir.PanicError
		_, err := r.Acquire(t.Context())
		require.ErrorAs(t, err, &caught)
		require.Equal(t, "bad open", caught.Value)
		require.Contains(t, string(caught.Stack), "refill_test.go")
		require.Zero(t, f.read(&f.leases))

		bad = map[string]bool{"admit": true}
		_, err = r.Acquire(t.Context())
		require.ErrorAs(t, err, &caught)

		bad = map[string]bool{"reset": true, "close": true}
		release(t, acquire(t, r)) // reset panics: it is closed, which panics too
		synctest.Wait()
		require.Zero(t, r.Stats().Total)
		require.ErrorAs(t, closeErr, &caught)

		bad = nil
		release(t, acquire(t, r))
		bad = map[string]bool{"check": true}
		got := call(t.Context(), r) // the check panics: another is opened
		synctest.Wait()
		bad = nil
		release(t, (<-got).loan)
		require.EqualValues(t, 1, r.Stats().Closed[reservoir.Unhealthy])
		shut(t, r)
	})
}

func TestACallbackThatEndsItsGoroutineLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.Open = func(context.Context) (*conn, error) { runtime.Goexit(); return nil, nil }
		})
		_, err := r.Acquire(t.Context())
		var failed *reservoir.OpenError
		require.ErrorAs(t, err, &failed)
		shut(t, r)
	})
}

func TestWaitReadyWaitsOverFailuresAndSaysWhatIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.sessions = 2
		r := f.pool(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := r.WaitReady(ctx, 3)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errRefused)
		require.ErrorContains(t, err, "2 of 3")
		require.NoError(t, r.WaitReady(t.Context(), 2))
		require.Error(t, r.WaitReady(t.Context(), 5), "more than MaxSize")
		shut(t, r)
		require.ErrorIs(t, r.WaitReady(t.Context(), 1), reservoir.ErrClosed)
	})
}

func TestResizeDownKeepsLoansAndClosesThemAsTheyReturn(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle = 8, 3 })
		var loans []loan
		for range 8 {
			loans = append(loans, acquire(t, r))
		}
		require.NoError(t, r.Resize(2))
		require.Error(t, r.Resize(0))
		waiting := call(t.Context(), r) // must not keep the reservoir large
		synctest.Wait()
		require.Equal(t, 8, r.Stats().Total)
		release(t, loans[:6]...)
		synctest.Wait()
		require.Equal(t, 2, r.Stats().Total)
		require.Equal(t, 1, r.Stats().Waiting)
		release(t, loans[6:]...)
		release(t, (<-waiting).loan)
		synctest.Wait()
		require.Equal(t, 2, r.Stats().Idle) // MinIdle is 2 now
		require.NoError(t, r.Resize(8))
		synctest.Wait()
		require.Equal(t, 3, r.Stats().Idle) // and 3 again
		shut(t, r)
	})
}

func TestResizeUpServesWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		a := acquire(t, r)
		waiting := call(t.Context(), r)
		synctest.Wait()
		require.NoError(t, r.Resize(2))
		release(t, a, (<-waiting).loan)
		shut(t, r)
	})
}

func TestResetReplacesIdleConnectionsNowAndLoansWhenTheyReturn(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MinIdle = 1 })
		a, b := acquire(t, r), acquire(t, r)
		release(t, b)
		r.Reset()
		synctest.Wait()
		require.True(t, b.Value().closed.Load())
		require.False(t, a.Value().closed.Load())
		release(t, a)
		synctest.Wait()
		require.True(t, a.Value().closed.Load())
		require.Equal(t, 1, r.Stats().Idle)
		require.GreaterOrEqual(t, r.Stats().Closed[reservoir.Outdated], uint64(2))
		shut(t, r)
	})
}

func TestAResetOrCheckThatFailsOnReleaseClosesTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		dirty := errors.New("dirty")
		var fail error
		r := f.pool(t, func(c *config) {
			c.CheckTimeout = time.Second
			c.Reset = func(ctx context.Context, _ *conn) error {
				if fail == nil {
					return nil
				}
				<-ctx.Done()
				return fail
			}
			c.Check, c.CheckOnRelease, c.CheckInterval = f.check, true, -1
		})
		a := acquire(t, r)
		release(t, a)
		fail = dirty
		a = acquire(t, r)
		began := time.Now()
		release(t, a)
		require.Equal(t, time.Second, time.Since(began)) // CheckTimeout bounds it
		fail = nil
		b := acquire(t, r)
		b.Value().broken = true
		release(t, b)
		synctest.Wait()
		require.Zero(t, r.Stats().Total)
		require.EqualValues(t, 1, r.Stats().Closed[reservoir.Discarded])
		require.EqualValues(t, 1, r.Stats().Closed[reservoir.Unhealthy])
		require.EqualValues(t, 2, r.Stats().Checks)
		require.EqualValues(t, 1, r.Stats().CheckFailures)
		shut(t, r)
	})
}
