package registry_test

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// stressLength is what STRESS says, or byDefault.
func stressLength(t *testing.T, byDefault time.Duration) time.Duration {
	length := os.Getenv("STRESS")
	if length == "" {
		return byDefault
	}
	d, err := time.ParseDuration(length)
	require.NoError(t, err)
	return d
}

// TestStressOfEverythingAtOnce changes, kills and removes servers at random under
// load, in real time, for STRESS (a second). The server tells whose connection a
// borrower has.
func TestStressOfEverythingAtOnce(t *testing.T) {
	length := stressLength(t, time.Second)
	g := newRig(t)
	names := []string{"s0", "s1", "s2"}
	for _, name := range names {
		require.NoError(t, g.Register(t.Context(), randomDefinition(name)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var served, refused atomic.Int64
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if borrowOnce(ctx, t, g, names[rand.N(len(names))], []string{"a", "b", "c"}[rand.N(3)]) {
					served.Add(1)
				} else {
					refused.Add(1)
					_ = sleep(ctx, time.Millisecond)
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				disturb(ctx, g, names[rand.N(len(names))])
				_ = sleep(ctx, rand.N(10*time.Millisecond))
			}
		})
	}
	wg.Wait()
	t.Logf("%d served, %d refused", served.Load(), refused.Load())
	require.NotZero(t, served.Load())
	require.NoError(t, g.Close(t.Context()))
	for name, f := range g.servers {
		require.Zero(t, f.live, "connections of %s left open", name)
		require.Zero(t, f.twice, "connections of %s closed twice", name)
	}
}

func randomDefinition(name string) registry.ServerDefinition {
	size := 1 + rand.N(8)
	return registry.ServerDefinition{
		Name: name, Kind: "fake", MaxSize: size, MinIdle: rand.N(size) - 1, UserReserved: rand.N(3), AcquireTimeout: 50 * time.Millisecond,
		OnExhausted: []flightpool.Exhaustion{flightpool.Wait, flightpool.FailFast, flightpool.Overflow(2)}[rand.N(3)],
		KeepSession: rand.N(2) == 0, HealthCheck: registry.HealthCheck{Interval: 10 * time.Millisecond}, UserIdleTimeout: 5 * time.Millisecond,
		Users: map[string]registry.UserMapping{"a": {User: "remote a"}, "b": {User: "remote b"}, registry.Public: {User: "remote c"}},
	}
}

// borrowOnce checks on the server that a connection is the user's own.
func borrowOnce(ctx context.Context, t *testing.T, g *rig, server, user string) bool {
	c, err := g.Acquire(ctx, server, user)
	if err != nil {
		return false
	}
	var who string
	if err := c.SQL().QueryRowContext(ctx, "whoami").Scan(&who); err == nil && who != "remote "+user {
		t.Errorf("user %s got a connection of %s", user, who)
	}
	if rand.N(10) == 0 {
		_ = c.Fail(errDown)
	} else {
		_ = c.Release()
	}
	return true
}

// disturb does one thing at random to a server.
func disturb(ctx context.Context, g *rig, name string) {
	f := g.fake(name)
	switch rand.N(8) {
	case 0, 1, 2:
		_ = g.Update(ctx, randomDefinition(name))
	case 3:
		soon, cancel := context.WithTimeout(ctx, rand.N(3*time.Millisecond))
		_ = g.Unregister(soon, name)
		cancel()
		_ = g.Register(ctx, randomDefinition(name))
	case 4:
		f.set(func() { f.down = true })
		_ = sleep(ctx, rand.N(5*time.Millisecond))
		f.set(func() { f.down = false })
	case 5:
		_ = g.CloseAll(ctx, name)
	case 6:
		_, _ = g.EvictIdle(name)
		_, _ = g.ServerStats(name)
		_, _ = g.Connections(name)
		_ = g.Stats()
	case 7:
		_ = g.CheckNow(ctx, name)
	}
}
