package registry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// fell makes a server unhealthy.
func fell(t *testing.T, g *rig, f *fake) {
	t.Helper()
	f.set(func() { f.down = true })
	for g.Healthy("s") {
		require.Error(t, g.CheckNow(t.Context(), "s"))
	}
}

func TestAnUnhealthyServerWithoutUsersIsProbedNoFaster(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, nil)
		fell(t, g, g.fake("s"))
		d.Users = nil
		require.NoError(t, g.Update(t.Context(), d))
		began := time.Now()
		time.Sleep(time.Minute) // a maintain that does not rest would stop the clock here
		require.Equal(t, time.Minute, time.Since(began))
		require.ErrorIs(t, g.CheckNow(t.Context(), "s"), registry.ErrNoMapping)
		require.False(t, g.Healthy("s"))
	})
}

func TestUsersWhoGoAtOnceAreNotSoughtWithoutRest(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.UserIdleTimeout = time.Millisecond })
		require.NoError(t, acquire(t, g, "a").Release())
		time.Sleep(time.Second)
		st, err := g.ServerStats("s")
		require.NoError(t, err)
		require.Zero(t, st.UserPools)
	})
}

func TestACheckThatItsCallerGivesUpSaysNothingOfTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		f.dial, f.ping = 100*time.Millisecond, 100*time.Millisecond
		define(t, g, nil)
		require.NoError(t, g.CheckNow(t.Context(), "s"))
		for range 5 { // the first time an idle connection is asked, then one is opened
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			require.ErrorIs(t, g.CheckNow(ctx, "s"), context.DeadlineExceeded)
			cancel()
			require.NoError(t, g.CheckNow(t.Context(), "s"), "the next one has an answer")
			require.NoError(t, g.CloseAll(t.Context(), "s"))
		}
		require.True(t, g.Healthy("s"))
		st, err := g.ServerStats("s")
		require.NoError(t, err)
		require.Zero(t, st.ChecksFailed)
	})
}

func TestAPoolThatGoesDuringAProbeIsNoRecovery(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.HealthCheck.RecoveryThreshold = 1 })
		f := g.fake("s")
		fell(t, g, f)
		f.set(func() { f.stuck = true })
		done := make(chan error, 1)
		go func() { done <- g.CheckNow(t.Context(), "s") }()
		synctest.Wait()
		require.NoError(t, g.CloseAll(t.Context(), "s"))
		require.Error(t, <-done)
		require.False(t, g.Healthy("s"))
	})
}

// Who was let in while the server was well, and comes to the queue while it is
// probed, is failed when the probe is.
func TestALatecomerIsFailedWithTheProbe(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.AcquireTimeout = -1; d.OpenTimeout = time.Second })
		f := g.fake("s")
		require.NoError(t, acquire(t, g, "a").Release())
		g.connecting = func() { // the pool of b is being made
			g.connecting = nil
			fell(t, g, f)
			synctest.Wait() // until those who waited have been told
			f.set(func() { f.stuck = true })
			go func() { assert.Error(t, g.CheckNow(t.Context(), "s")) }()
			synctest.Wait()
		}
		began := time.Now()
		_, err := g.Acquire(t.Context(), "s", "b")
		require.ErrorIs(t, err, registry.ErrUnhealthy)
		require.InDelta(t, 1, time.Since(began).Seconds(), .1)
	})
}

func TestOpensThatHaveNoSlotAreNoConnections(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 1 })
		held := acquire(t, g, "a")
		done := make(chan error, 1)
		go func() {
			_, err := work(t.Context(), g, "s", "b", 0)
			done <- err
		}()
		synctest.Wait()
		st, err := g.ServerStats("s")
		require.NoError(t, err)
		require.Equal(t, []int{1, 0, 1}, []int{st.Total, st.Opening, st.Waiting})
		require.NoError(t, held.Release())
		require.NoError(t, <-done)
	})
}

// A server that can be reached again is healthy again, whoever has all connections that it may
// have on loan: one that its user keeps for long is no reason to refuse the others.
func TestAServerRecoversWhileItsBusiestUserHasAllOnLoan(t *testing.T) {
	for name, bound := range map[string]func(*registry.ServerDefinition){
		"the user's bound": func(d *registry.ServerDefinition) { d.UserMaxSize = 2 },
		"what is reserved": func(d *registry.ServerDefinition) { d.MaxSize, d.UserReserved = 3, 1 },
		"refused at once":  func(d *registry.ServerDefinition) { d.UserMaxSize, d.OnExhausted = 2, flightpool.FailFast },
		"no other pool":    func(d *registry.ServerDefinition) { d.UserMaxSize, d.UserIdleTimeout = 2, 100*time.Millisecond },
		"guests": func(d *registry.ServerDefinition) {
			guests(d)
			delete(d.Users, "b")
			d.UserMaxSize, d.UserIdleTimeout = 2, 100*time.Millisecond
		},
	} {
		bubble(t, func(t *testing.T, g *rig) {
			define(t, g, bound)
			f := g.fake("s")
			for range 5 {
				require.NoError(t, acquire(t, g, "a").Release())
			}
			held := []*registry.Conn{acquire(t, g, "a"), acquire(t, g, "a")}
			f.set(func() { f.down = true })
			for g.Healthy("s") {
				_, err := g.Acquire(t.Context(), "s", "b")
				require.Error(t, err, name)
				time.Sleep(time.Second)
			}
			time.Sleep(time.Minute)
			f.set(func() { f.down = false })
			time.Sleep(time.Minute) // twice the longest pause between probes
			require.True(t, g.Healthy("s"), name)
			c, err := g.Acquire(t.Context(), "s", "b")
			require.NoError(t, err, name)
			for _, c := range append(held, c) {
				require.NoError(t, c.Release())
			}
		})
	}
}
