package flightpool_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/testserver"
)

// What one pool of a process keeps idle, below MinIdle too, it gives up for the callers of another over
// the same budget, down to the share of each, and opens again when it may.
func TestPoolsOfOneProcessShareABudget(t *testing.T) {
	for name, budget := range map[string]func(t *testing.T) lease.Leases{
		"in memory": func(*testing.T) lease.Leases { return lease.NewLeases("warehouse", 4) },
		"of a fleet": func(t *testing.T) lease.Leases {
			return must(fleet.New(t.Context(), fleet.NewMemory(), fleet.Config{Budget: "warehouse", Limit: 4, Logger: slog.New(slog.DiscardHandler)}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { shareABudget(t, budget(t)) })
		})
	}
}

func shareABudget(t *testing.T, leases lease.Leases) {
	srv := must(testserver.Start(testserver.Options{Listen: testserver.InMemory}))
	defer func() { require.NoError(t, srv.Close()) }()
	ctx := context.WithoutCancel(t.Context())
	defer func() { require.NoError(t, leases.Close(ctx)) }()
	start := func(minIdle int) *flightpool.FlightSQLPool {
		return must(flightpool.New(t.Context(), "grpc://server:1", flightpool.Config{
			MinIdle: minIdle, MaxSize: 4, AcquireTimeout: time.Minute, Leases: leases, Dialer: srv.Dial,
		}))
	}
	rich := start(4)
	defer func() { require.NoError(t, rich.Close(ctx)) }()
	require.NoError(t, rich.WaitReady(t.Context(), 4))
	poor := start(-1)
	closed := false
	defer func() { require.True(t, closed || poor.Close(ctx) == nil) }()

	var sessions []*flightpool.SessionHandle
	for range 2 {
		sessions = append(sessions, must(poor.AcquireSession(t.Context())))
	}
	_, err := poor.AcquireSession(t.Context())
	require.Error(t, err, "each has its share")
	require.Equal(t, 2, rich.Stats().Idle+rich.Stats().InUse) // one of them may be checked just now
	require.NoError(t, rich.Ping(t.Context()))

	for _, s := range sessions {
		require.NoError(t, s.Close())
	}
	require.NoError(t, poor.Close(ctx))
	closed = true
	again, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	require.NoError(t, rich.WaitReady(again, 4))
}

// A pool whose connections take a moment to close gives up what the callers of another wait for, and no more, however they come.
func TestAPoolGivesUpNoMoreThanOthersWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := must(testserver.Start(testserver.Options{Listen: testserver.InMemory}))
		defer func() { require.NoError(t, srv.Close()) }()
		srv.Faults().Set(testserver.Fault{On: testserver.OnCloseSession, Do: testserver.Delay(50 * time.Millisecond)})
		ctx, leases := context.WithoutCancel(t.Context()), lease.NewLeases("warehouse", 16)
		cfg := flightpool.Config{MinIdle: 16, MaxSize: 32, Leases: leases, Dialer: srv.Dial}
		rich := must(flightpool.New(t.Context(), "grpc://server:1", cfg))
		defer func() { require.NoError(t, rich.Close(ctx)) }()
		require.NoError(t, rich.WaitReady(t.Context(), 16))
		cfg.MinIdle = -1
		poor := must(flightpool.New(t.Context(), "grpc://server:1", cfg))
		defer func() { require.NoError(t, poor.Close(ctx)) }()
		const callers = 8
		sessions := make(chan *flightpool.SessionHandle, callers)
		for range callers {
			go func() {
				if s, err := poor.AcquireSession(t.Context()); assert.NoError(t, err) {
					sessions <- s
				}
			}()
			time.Sleep(time.Millisecond)
		}
		for range callers {
			defer func(s *flightpool.SessionHandle) { require.NoError(t, s.Close()) }(<-sessions)
		}
		time.Sleep(time.Second)
		closed := uint64(0)
		for _, n := range rich.Stats().Closed {
			closed += n
		}
		require.EqualValues(t, callers, closed)
	})
}
