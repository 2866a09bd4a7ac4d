package fleet

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/leasetest"
)

var silence = slog.New(slog.DiscardHandler)

func TestLeasesConform(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {})
	leasetest.Leases(t, func(t *testing.T, limit int) lease.Leases {
		l, err := New(t.Context(), NewMemory(), Config{Budget: "b", Limit: limit, Logger: silence})
		require.NoError(t, err)
		return l
	})
}

func TestLimiterConforms(t *testing.T) {
	leasetest.Limiter(t, func(t *testing.T, rate float64, burst int) lease.Limiter {
		l, err := NewLimiter(t.Context(), NewMemory(), LimiterConfig{Budget: "b", Rate: rate, Burst: burst, Logger: silence})
		require.NoError(t, err)
		return l
	})
}
