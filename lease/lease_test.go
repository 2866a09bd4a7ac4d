package lease_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightpool/flightpool/lease"
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
}

func TestFallbackSaysWhatItAllows(t *testing.T) {
	require.Equal(t, lease.Fallback{}, lease.Pessimistic())
	require.Equal(t, lease.Pessimistic(), lease.Share(-1))
	require.Equal(t, "Share(7)", lease.Share(7).String())
	require.Equal(t, 7, lease.Share(7).Allows())
	require.Equal(t, math.MaxInt, lease.Optimistic().Allows())
}
