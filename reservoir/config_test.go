package reservoir_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

func TestNewNamesEveryFaultAtOnce(t *testing.T) {
	_, err := reservoir.New(config{
		MaxSize: -1, OnExhausted: reservoir.Overflow(0), CheckInterval: time.Second, CheckOnAcquire: true, CheckOnRelease: true,
		MaxLifetime: time.Second, GuardWindow: time.Second,
	})
	for _, field := range []string{"Open:", "Close:", "MaxSize:", "OnExhausted:", "CheckInterval:", "CheckOnAcquire:", "CheckOnRelease:", "GuardWindow:"} {
		require.ErrorContains(t, err, field)
	}
	require.NotContains(t, err.Error(), "\n")
	f := &fake{}
	_, err = reservoir.New(f.config(func(c *config) { c.MinIdle = 5 }))
	require.ErrorContains(t, err, "MinIdle:")
	_, err = reservoir.New(f.config(func(c *config) { c.MaxLifetime, c.LifetimeJitter = 1<<62, 1<<62 }))
	require.ErrorContains(t, err, "LifetimeJitter:")
}

func TestTheDefaultsOfShortLivesFitThem(t *testing.T) {
	f := &fake{}
	r := f.pool(t, func(c *config) { c.MaxLifetime = time.Second })
	require.NoError(t, r.Close(context.Background()))
}

func TestTheZeroConfigOfOpenAndCloseIsEnough(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r, err := reservoir.New(config{Open: f.open, Close: f.close})
		require.NoError(t, err)
		require.GreaterOrEqual(t, r.Stats().MaxSize, 4)
		require.LessOrEqual(t, r.Stats().MaxSize, 16)
		release(t, acquire(t, r))
		shut(t, r)
	})
}

func TestEveryReasonHasAName(t *testing.T) {
	for reason := range len(reservoir.Stats{}.Closed) {
		require.NotEmpty(t, reservoir.Reason(reason).String())
		require.NotEqual(t, "unknown", reservoir.Reason(reason).String())
	}
	require.Equal(t, "unknown", reservoir.Reason(99).String())
}
