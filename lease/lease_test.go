package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/leasetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLeasesInMemoryConform(t *testing.T) {
	leasetest.Leases(t, func(_ *testing.T, limit int) lease.Leases { return lease.NewLeases("b", limit) })
}

func TestLimiterInMemoryConforms(t *testing.T) {
	leasetest.Limiter(t, func(_ *testing.T, rate float64, burst int) lease.Limiter {
		return lease.NewLimiter("b", rate, burst)
	})
}

func TestLimiterInMemoryGrantsExactlyTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := lease.NewLimiter("b", 10, 5), time.Now()
		for range 25 {
			require.NoError(t, l.Wait(t.Context()))
		}
		require.InDelta(t, 2.0, time.Since(start).Seconds(), 1e-6)
	})
}

// In a bubble the waiter sleeps until its context has ended and it has been
// answered, in either order, so that it has to look at both.
func TestAnAcquireWhoseContextHasEndedIsNeverGrantedAndCountedOnce(t *testing.T) {
	for _, first := range []string{"the answer", "the end of the context"} {
		for _, answer := range []string{"a lease", "closed"} {
			t.Run(first+" comes first, "+answer, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { answeredAndEnded(t, first == "the answer", answer == "closed") })
			})
		}
	}
}

func answeredAndEnded(t *testing.T, answerFirst, closed bool) {
	ended, end := context.WithCancel(t.Context())
	end()
	l := lease.NewLeases("b", 1)
	release, err := l.Acquire(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx)
		got <- err
	}()
	synctest.Wait()
	if !answerFirst {
		cancel()
	}
	if closed {
		require.ErrorIs(t, l.Close(ended), lease.ErrInUse)
	} else {
		release()
	}
	cancel()
	require.Error(t, <-got)
	release() // does nothing the second time
	s := l.Stats()
	require.Zero(t, s.InUse)
	require.EqualValues(t, 1, s.Granted)
	require.EqualValues(t, 1, s.Denied)
	require.NoError(t, l.Close(t.Context()))
}

func TestALimiterTellsWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lease.NewLimiter("b", 1, 1)
		require.NoError(t, l.Wait(t.Context()))
		var waiters sync.WaitGroup
		for range 2 {
			waiters.Go(func() { require.NoError(t, l.Wait(t.Context())) })
		}
		synctest.Wait()
		require.Equal(t, 2, l.Stats().Waiting)
		waiters.Wait()
		require.Zero(t, l.Stats().Waiting)
	})
}

func TestALimiterThatIsClosedGrantsNothing(t *testing.T) {
	l := lease.NewLimiter("b", 1, 100)
	require.NoError(t, l.Wait(t.Context()))
	require.NoError(t, l.Close(t.Context()))
	for range 50 {
		require.ErrorIs(t, l.Wait(t.Context()), lease.ErrClosed)
	}
	require.EqualValues(t, 1, l.Stats().Granted)
	require.EqualValues(t, 50, l.Stats().Denied)
}

func TestALimiterRefusesARateThatIsNone(t *testing.T) {
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-11, math.SmallestNonzeroFloat64} {
		require.ErrorContains(t, lease.CheckRate(rate), "must be finite and at least 1e-06")
		require.Panics(t, func() { lease.NewLimiter("b", rate, 1) }, "%v", rate)
	}
	require.PanicsWithValue(t, "lease: limit must be positive", func() { lease.NewLeases("b", 0) })
	require.PanicsWithValue(t, "lease: burst is 0, must be positive", func() { lease.NewLimiter("b", 1, 0) })
}

// Every rate that is accepted grants the second permit after one over the rate,
// without a number of wakings that grows.
func TestALimiterOfAnyRateGrantsInTime(t *testing.T) {
	for _, rate := range []float64{lease.MinRate, 1e-3, 0.1, 1.0 / 3, 1, 7, 1e3, 1e9, 1e12, math.MaxFloat64} {
		synctest.Test(t, func(t *testing.T) {
			l, start := lease.NewLimiter("b", rate, 1), time.Now()
			for range 3 {
				require.NoError(t, l.Wait(t.Context()))
			}
			require.InDelta(t, 2/rate, time.Since(start).Seconds(), 1e-6, "%v", rate)
			time.Sleep(time.Duration(0.25 / rate * float64(time.Second)))
			start = time.Now()
			require.NoError(t, l.Wait(t.Context()))
			require.InDelta(t, 0.75/rate, time.Since(start).Seconds(), 1e-6, "%v: a quarter was there", rate)
		})
	}
}

func TestALimiterGrantsNothingToAnEndedContext(t *testing.T) {
	l := lease.NewLimiter("b", math.MaxFloat64, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 {
		err := l.Wait(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, lease.ErrLimit)
	}
	require.EqualValues(t, 200, l.Stats().Denied)
	require.NoError(t, l.Wait(t.Context()), "the permit is still there")
}

func TestAdmitHandsTheLeaseBackOnEveryWayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases, limiter := lease.NewLeases("b", 1), lease.NewLimiter("b", 1, 1)
		admit := lease.Admit(leases, limiter)
		release, err := admit(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, leases.Stats().InUse)
		release()

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err = admit(ctx) // no permit for a second
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, leases.Stats().InUse)

		require.Panics(t, func() { _, _ = lease.Admit(leases, panicky{limiter})(t.Context()) })
		require.Zero(t, leases.Stats().InUse)

		lost := lost{leases}
		time.Sleep(time.Second)
		_, err = lease.Admit(lost, limiter)(t.Context())
		require.ErrorIs(t, err, lease.ErrUnavailable)
		require.Zero(t, leases.Stats().InUse)
	})
}

func TestAdmitTakesEitherBudgetAlone(t *testing.T) {
	release, err := lease.Admit(nil, nil)(t.Context())
	require.NoError(t, err)
	release()
	leases := lease.NewLeases("b", 1)
	release, err = lease.Admit(leases, nil)(t.Context())
	require.NoError(t, err)
	release()
	require.Zero(t, leases.Stats().InUse)
	require.NoError(t, leases.Close(t.Context()))
	_, err = lease.Admit(leases, nil)(t.Context())
	require.ErrorIs(t, err, lease.ErrClosed)
	release, err = lease.Admit(nil, lease.NewLimiter("b", 1, 1))(t.Context())
	require.NoError(t, err)
	release()
}

type panicky struct{ lease.Limiter }

func (panicky) Wait(context.Context) error { panic("on purpose") }

// lost is a Leases that loses what it granted.
type lost struct{ lease.Leases }

func (lost) OnRevoke(func(lease.Revocation)) func() { return func() {} }
func (lost) Valid() error                           { return &lease.Error{Budget: "b", Reason: lease.ErrUnavailable} }

func TestErrorReachesReasonAndCause(t *testing.T) {
	cause := errors.New("cause")
	err := error(&lease.Error{Budget: "b", Reason: lease.ErrLimit, Used: 3, Limit: 3, Err: cause})
	require.ErrorIs(t, err, lease.ErrLimit)
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, `lease "b": the fleet's budget is used up (3 of 3): cause`)
	err = &lease.Error{Budget: "b", Reason: lease.ErrClosed, Limit: 3}
	require.EqualError(t, err, `lease "b": the fleet's budget is closed`)
}

func TestFallbackSaysWhatItAllows(t *testing.T) {
	require.Equal(t, lease.Fallback{}, lease.Pessimistic())
	require.Equal(t, lease.Pessimistic(), lease.Share(-1))
	require.Equal(t, "Share(7)", lease.Share(7).String())
	require.Equal(t, 7, lease.Share(7).Allows())
	require.Equal(t, math.MaxInt, lease.Optimistic().Allows())
}

// A holder that panics, or ends its goroutine, is asked again, and one that takes long is not meanwhile.
func TestAHolderIsAskedUntilNobodyWaits(t *testing.T) {
	for name, budget := range map[string]func(*testing.T) lease.Leases{
		"in memory": func(*testing.T) lease.Leases { return lease.NewLeases("b", 2) },
		"of a fleet": func(t *testing.T) lease.Leases {
			l, err := fleet.New(t.Context(), fleet.NewMemory(), fleet.Config{Budget: "b", Limit: 2, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer slog.SetDefault(slog.Default())
				slog.SetDefault(slog.New(slog.DiscardHandler))
				l := budget(t)
				asked, closing := 0, make(chan func(), 2)
				rich := lease.WithHolder(t.Context(), lease.NewHolder(func(n int) int {
					require.Equal(t, 1, n)
					switch asked++; asked {
					case 1:
						panic("of the holder")
					case 2:
						runtime.Goexit()
					case 3:
						time.Sleep(time.Minute)
						return 0
					}
					(<-closing)()
					return 1
				}))
				for range 2 {
					release, err := l.Acquire(rich)
					require.NoError(t, err)
					closing <- release
				}
				start := time.Now()
				release, err := l.Acquire(t.Context())
				require.NoError(t, err)
				require.Equal(t, 4, asked)
				require.Greater(t, time.Since(start), time.Minute)
				require.Less(t, time.Since(start), 2*time.Minute)
				time.Sleep(time.Hour)
				require.Equal(t, 4, asked, "nobody waits")
				release()
				(<-closing)()
				require.NoError(t, l.Close(t.Context()))
			})
		})
	}
}

// Many callers who come while connections close cost as many connections as they get, and one asks for all.
func TestHoldersGiveUpWhatIsLackingOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 16
		l := lease.NewLeases("b", limit)
		asked, idle := 0, make(chan func(), limit)
		rich := lease.WithHolder(t.Context(), lease.NewHolder(func(n int) int {
			asked++
			for range n {
				release := <-idle
				time.AfterFunc(100*time.Millisecond, release)
			}
			return n
		}))
		for range limit {
			release, err := l.Acquire(rich)
			require.NoError(t, err)
			idle <- release
		}
		poor, releases := lease.WithHolder(t.Context(), lease.NewHolder(nil)), make(chan func(), limit)
		for range 6 {
			go func() {
				release, err := l.Acquire(poor)
				require.NoError(t, err)
				releases <- release
			}()
			time.Sleep(time.Millisecond)
		}
		for range 6 {
			(<-releases)()
		}
		require.Len(t, idle, limit-6)
		require.Equal(t, 1, asked)
		for len(idle) > 0 {
			(<-idle)()
		}
		require.NoError(t, l.Close(t.Context()))
	})
}
