package reservoir

import (
	"context"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/option/optiontest"
)

func complete(c Config[int]) Config[int] {
	c.Open = func(context.Context) (int, error) { return 1, nil }
	c.Close = func(int) error { return nil }
	return c
}

func resolved(t *testing.T, c Config[int]) Config[int] {
	t.Helper()
	c, err := complete(c).resolve()
	require.NoError(t, err)
	return c
}

// Every default is the one that Config's documentation names, and a negative
// value turns a field off.
func TestTheDefaultsAreThoseOfTheDocumentation(t *testing.T) {
	check := func(context.Context, int) error { return nil }
	c := resolved(t, Config[int]{})
	said := optiontest.Said(t, "config.go", "Config")
	require.Equal(t, "30s", said["CheckInterval"], "of a config with Check")
	optiontest.Hold(t, said, c, "MaxSize", "MaxWaiters", "CheckInterval")
	require.Equal(t, 0, c.MinIdle)
	require.Equal(t, max(4, min(16, 2*runtime.NumCPU())), c.MaxSize)
	require.Equal(t, 8, c.MaxConcurrentOpens)
	require.Equal(t, math.MaxInt, c.MaxWaiters)
	require.Equal(t, 30*time.Second, c.AcquireTimeout)
	require.Equal(t, []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second}, []time.Duration{c.OpenTimeout, c.CloseTimeout, c.CheckTimeout})
	require.Equal(t, 5*time.Minute, c.IdleTTL)
	require.Equal(t, time.Hour, c.MaxLifetime)
	require.Equal(t, 5*time.Minute, c.LifetimeJitter)
	require.Equal(t, 10*time.Second, c.GuardWindow)
	require.Equal(t, time.Second, c.IdleBeforeCheck)
	require.Zero(t, c.LeakAfter)
	require.Zero(t, c.CheckInterval, "without Check")
	require.Equal(t, 30*time.Second, resolved(t, Config[int]{Check: check}).CheckInterval)

	c = resolved(t, Config[int]{
		MinIdle: -1, MaxConcurrentOpens: -1, MaxWaiters: -1, AcquireTimeout: -1, OpenTimeout: -1, CloseTimeout: -1, CheckTimeout: -1, IdleTTL: -1,
		MaxLifetime: -1, ReplaceAfter: -1, LifetimeJitter: -1, GuardWindow: -1, IdleBeforeCheck: -1, LeakAfter: -1, CheckInterval: -1, Check: check,
	})
	require.Equal(t, 0, c.MinIdle)
	require.Equal(t, math.MaxInt32, c.MaxConcurrentOpens)
	require.Equal(t, math.MaxInt, c.MaxWaiters)
	for _, d := range []time.Duration{
		c.AcquireTimeout, c.OpenTimeout, c.CloseTimeout, c.CheckTimeout, c.IdleTTL, c.MaxLifetime,
		c.ReplaceAfter, c.LifetimeJitter, c.GuardWindow, c.IdleBeforeCheck, c.LeakAfter, c.CheckInterval,
	} {
		require.Zero(t, d)
	}

	c = resolved(t, Config[int]{MaxLifetime: 36 * time.Second})
	require.Equal(t, 3*time.Second, c.LifetimeJitter, "a part of a short life")
	require.Equal(t, 3*time.Second, c.GuardWindow)
	require.Equal(t, 10*time.Second, resolved(t, Config[int]{MaxLifetime: -1}).GuardWindow, "for ExpiresAt")
	require.Equal(t, 50, resolved(t, Config[int]{MinIdle: 50}).MaxSize)
}

// The last value that is right, and the first that is not.
func TestTheBoundsOfConfig(t *testing.T) {
	check := func(context.Context, int) error { return nil }
	for name, c := range map[string]struct {
		right, wrong Config[int]
		field        string
	}{
		"MaxSize":            {Config[int]{MaxSize: maxConnections}, Config[int]{MaxSize: maxConnections + 1}, "MaxSize"},
		"MaxSize below":      {Config[int]{MaxSize: 1}, Config[int]{MaxSize: -1}, "MaxSize"},
		"MinIdle":            {Config[int]{MinIdle: maxConnections}, Config[int]{MinIdle: maxConnections + 1}, "MinIdle"},
		"MinIdle of MaxSize": {Config[int]{MaxSize: 3, MinIdle: 3}, Config[int]{MaxSize: 3, MinIdle: 4}, "MinIdle"},
		"Overflow":           {Config[int]{OnExhausted: Overflow(maxConnections)}, Config[int]{OnExhausted: Overflow(maxConnections + 1)}, "OnExhausted"},
		"OnExhausted":        {Config[int]{OnExhausted: FailFast}, Config[int]{OnExhausted: FailFast - 1}, "OnExhausted"},
		"Overflow below":     {Config[int]{OnExhausted: Overflow(1)}, Config[int]{OnExhausted: Overflow(0)}, "OnExhausted"},
		"OpenRetry":          {Config[int]{OpenRetry: OpenRetryAlways}, Config[int]{OpenRetry: OpenRetryAlways + 1}, "OpenRetry"},
		"OpenRetry below":    {Config[int]{OpenRetry: OpenRetryTimed}, Config[int]{OpenRetry: OpenRetryTimed - 1}, "OpenRetry"},
		"MaxLifetime":        {Config[int]{MaxLifetime: time.Millisecond}, Config[int]{MaxLifetime: time.Millisecond - 1}, "MaxLifetime"},
		"IdleTTL":            {Config[int]{IdleTTL: time.Millisecond}, Config[int]{IdleTTL: time.Millisecond - 1}, "IdleTTL"},
		"LeakAfter":          {Config[int]{LeakAfter: time.Millisecond}, Config[int]{LeakAfter: time.Millisecond - 1}, "LeakAfter"},
		"AcquireTimeout":     {Config[int]{AcquireTimeout: time.Millisecond}, Config[int]{AcquireTimeout: 30}, "AcquireTimeout: 30ns is less than 1ms: is the unit missing?"},
		"OpenTimeout":        {Config[int]{OpenTimeout: time.Millisecond}, Config[int]{OpenTimeout: time.Millisecond - 1}, "OpenTimeout"},
		"CloseTimeout":       {Config[int]{CloseTimeout: time.Millisecond}, Config[int]{CloseTimeout: time.Millisecond - 1}, "CloseTimeout"},
		"CheckTimeout":       {Config[int]{CheckTimeout: time.Millisecond}, Config[int]{CheckTimeout: time.Millisecond - 1}, "CheckTimeout"},
		"CheckInterval":      {Config[int]{CheckInterval: time.Millisecond, Check: check}, Config[int]{CheckInterval: time.Millisecond - 1, Check: check}, "CheckInterval"},
		"without Check":      {Config[int]{CheckInterval: -1}, Config[int]{CheckInterval: time.Second}, "CheckInterval"},
		"GuardWindow": {
			Config[int]{MaxLifetime: time.Second, GuardWindow: time.Second - 1}, Config[int]{MaxLifetime: time.Second, GuardWindow: time.Second}, "GuardWindow",
		},
		"GuardWindow without MaxLifetime": {Config[int]{MaxLifetime: -1, GuardWindow: time.Hour}, Config[int]{MaxLifetime: time.Minute, GuardWindow: time.Hour}, "GuardWindow"},
		"LifetimeJitter": {
			Config[int]{MaxLifetime: 1 << 62, LifetimeJitter: math.MaxInt64 - 1<<62}, Config[int]{MaxLifetime: 1 << 62, LifetimeJitter: math.MaxInt64 - 1<<62 + 1}, "LifetimeJitter",
		},
		"LifetimeJitter without MaxLifetime": {
			Config[int]{MaxLifetime: -1, LifetimeJitter: math.MaxInt64}, Config[int]{MaxLifetime: 1 << 62, LifetimeJitter: math.MaxInt64}, "LifetimeJitter",
		},
	} {
		require.NoError(t, complete(c.right).Validate(), name)
		require.ErrorContains(t, complete(c.wrong).Validate(), c.field, name)
	}
}

func TestTheClockReadsAgainAfterSoManyUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.init(time.Hour)
		c.read()
		time.Sleep(time.Millisecond)
		for range maxUses {
			require.Zero(t, c.now())
		}
		require.EqualValues(t, time.Millisecond, c.now())
		c.stop()
	})
	for shortest, slack := range map[time.Duration]time.Duration{
		slackPart * maxSlack: maxSlack, slackPart * maxSlack / 2: maxSlack / 2, slackPart * minSlack: minSlack, slackPart*minSlack - 1: 0, -1: maxSlack, 0: maxSlack,
	} {
		var c clock
		c.init(-1, 0, time.Hour, shortest)
		require.EqualValues(t, slack, c.slack, "%v", shortest)
		c.stop()
		require.Zero(t, c.slack)
	}
}
