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

func TestEachUserBorrowsConnectionsOfHisOwn(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		for range 3 {
			for _, user := range []string{"a", "b"} {
				c := acquire(t, g, user)
				require.Equal(t, "remote "+user, whoami(t, c))
				require.Equal(t, []string{"s", user}, []string{c.Server(), c.User()})
				require.Nil(t, c.Session())
				require.True(t, c.Valid())
				require.NoError(t, c.Release())
				require.False(t, c.Valid())
				require.ErrorIs(t, c.Release(), registry.ErrReleased)
			}
		}
		require.Equal(t, 2, g.fake("s").read(&g.fake("s").opens), "one connection each, used again")
	})
}

func TestPublicHoldsForThoseWithoutAMappingOfTheirOwn(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, nil)
		_, err := g.Acquire(t.Context(), "s", "stranger")
		require.ErrorIs(t, err, registry.ErrNoMapping)
		require.ErrorContains(t, err, `"stranger"`)
		_, err = g.Acquire(t.Context(), "nowhere", "a")
		require.ErrorIs(t, err, registry.ErrUnknownServer)

		d.Users[registry.Public] = registry.UserMapping{User: "guest"}
		require.NoError(t, g.Update(t.Context(), d))
		c := acquire(t, g, "stranger")
		require.Equal(t, "guest", whoami(t, c))
		require.NoError(t, c.Release())
		c = acquire(t, g, "a")
		require.Equal(t, "remote a", whoami(t, c))
		require.NoError(t, c.Release())
	})
}

func TestFailClosesTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		f := g.fake("s")
		require.NoError(t, acquire(t, g, "a").Fail(nil))
		synctest.Wait()
		require.Zero(t, f.read(&f.live))
		require.True(t, g.Healthy("s"), "a borrower's word is no fault of the server")
	})
}

func TestRegisterReportsEveryFaultAndKnowsEachServerOnce(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		err := g.Register(t.Context(), registry.ServerDefinition{Kind: "oracle", MaxSize: -1, OpenTimeout: -1, OnExhausted: flightpool.Overflow(0), HealthCheck: registry.HealthCheck{Query: "SELECT 1; COMMIT"}})
		for _, field := range []string{"Name", "oracle", "MaxSize", "OpenTimeout", "OnExhausted", "HealthCheck.Query"} {
			require.ErrorContains(t, err, field)
		}
		d := define(t, g, nil)
		require.ErrorIs(t, g.Register(t.Context(), d), registry.ErrExists)
		d.Name = "other"
		require.ErrorIs(t, g.Update(t.Context(), d), registry.ErrUnknownServer)
		require.ErrorIs(t, g.Unregister(t.Context(), "other"), registry.ErrUnknownServer)
		require.Equal(t, []string{"s"}, g.Servers())
	})
}

func TestRegisterWarmsThePoolsOfNamedUsers(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.WarmupConnections = 2 })
		synctest.Wait()
		st, err := g.ServerStats("s")
		require.NoError(t, err)
		require.Equal(t, 6, st.Idle)
		require.Equal(t, 3, st.UserPools)
	})
}

func TestMinConnectionsAreKeptReady(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.MinIdle = 2 })
		c := acquire(t, g, "a")
		synctest.Wait()
		st, err := g.UserStats("s")
		require.NoError(t, err)
		require.Equal(t, 2, st[0].Idle)
		require.NoError(t, c.Release())
	})
}

func TestWarmupOpensForEveryUserAndRefusesMoreThanFits(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		require.NoError(t, g.Warmup(t.Context(), "s", 3))
		require.Equal(t, 9, g.fake("s").live)
		require.ErrorContains(t, g.Warmup(t.Context(), "s", 4), "MaxSize")
		n, err := g.EvictIdle("s")
		require.NoError(t, err)
		require.Equal(t, 9, n)
	})
}

func TestUpdateOfSizesKeepsTheConnections(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, nil)
		f := g.fake("s")
		held := acquire(t, g, "a")
		d.MaxSize, d.AcquireTimeout, d.IdleTTL = 1, 2*time.Second, time.Minute
		require.NoError(t, g.Update(t.Context(), d))
		began := time.Now()
		_, err := g.Acquire(t.Context(), "s", "a")
		require.ErrorIs(t, err, registry.ErrExhausted)
		require.Equal(t, 2*time.Second, time.Since(began))
		require.NoError(t, held.Release())
		synctest.Wait()
		require.Equal(t, 1, f.read(&f.opens))
		require.Equal(t, 1, f.read(&f.live))
	})
}

func TestUpdateOfTimeoutsKeepsTheConnections(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, func(d *registry.ServerDefinition) { d.HealthCheck.Interval = 10 * time.Second })
		f := g.fake("s")
		held := acquire(t, g, "a")
		d.QueryTimeout, d.OpenTimeout, d.HealthCheck.Timeout = 2*time.Second, 3*time.Second, time.Second
		d.HealthCheck.FailureThreshold, d.HealthCheck.RecoveryThreshold, d.ValidateAfter = 7, 8, time.Minute
		d.MaxWaiters, d.UserReserved, d.MaxConcurrentOpens, d.UserIdleTimeout, d.MaxLifetime = 9, 1, 2, time.Hour, time.Hour
		require.NoError(t, g.Update(t.Context(), d))
		began := time.Now()
		_, err := held.SQL().ExecContext(t.Context(), "1m")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(began), "query_timeout, on a connection from before")
		require.NoError(t, held.Release())
		require.NoError(t, acquire(t, g, "a").Release()) // the probes go as who calls most
		require.Equal(t, 1, f.read(&f.opens))
		require.Equal(t, 1, f.read(&f.live))

		f.set(func() { f.stuck = true })
		began = time.Now()
		_, err = g.Acquire(t.Context(), "s", "b")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(began), "connect_timeout")
		f.set(func() { f.ping = time.Hour })
		began = time.Now()
		require.ErrorIs(t, g.CheckNow(t.Context(), "s"), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began), "health_check_timeout")
	})
}

func TestAnUpdateThatCannotBeChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, nil)
		require.NoError(t, acquire(t, g, "a").Release())
		require.NoError(t, acquire(t, g, "b").Release())
		before, err := g.Definition("s")
		require.NoError(t, err)
		d.Options, d.MaxSize = map[string]string{"impossible": "yes"}, 1
		require.ErrorContains(t, g.Update(t.Context(), d), "impossible")
		now, err := g.Definition("s")
		require.NoError(t, err)
		require.Equal(t, before, now)
		one, two, three := acquire(t, g, "a"), acquire(t, g, "b"), acquire(t, g, "c")
		require.Equal(t, 3, g.fake("s").read(&g.fake("s").opens), "the connections of before, and one for who is new")
		require.NoError(t, one.Release())
		require.NoError(t, two.Release())
		require.NoError(t, three.Release())
	})
}

func TestUpdateOfACredentialDrainsTheOldConnectionsWithoutFailingABorrower(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, nil)
		f := g.fake("s")
		held, idle, other := acquire(t, g, "a"), acquire(t, g, "a"), acquire(t, g, "b")
		require.NoError(t, idle.Release())
		d.Users["a"] = registry.UserMapping{User: "new a"}
		require.NoError(t, g.Update(t.Context(), d))
		synctest.Wait()
		require.Equal(t, 2, f.read(&f.live), "the idle one is closed")
		require.Equal(t, "remote a", whoami(t, held), "the borrower keeps what he has")
		fresh := acquire(t, g, "a")
		require.Equal(t, "new a", whoami(t, fresh))
		require.NoError(t, held.Release())
		require.NoError(t, fresh.Release())
		require.NoError(t, other.Release())
		synctest.Wait()
		require.Zero(t, f.users("remote a"))
		require.Equal(t, 1, f.users("remote b"), "others are not touched")
	})
}

func TestUpdateOfATargetMovesEverybodyAndWaitersAreServedThere(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 1 })
		held := acquire(t, g, "a")
		got := make(chan error, 1)
		go func() {
			_, err := work(t.Context(), g, "s", "a", 0)
			got <- err
		}()
		synctest.Wait()
		d.Target = "elsewhere"
		require.NoError(t, g.Update(t.Context(), d))
		synctest.Wait()
		require.NoError(t, held.Release())
		require.NoError(t, <-got)
		require.Equal(t, 1, g.fake("elsewhere").read(&g.fake("elsewhere").opens))
		require.Equal(t, 1, g.fake("s").read(&g.fake("s").opens))
	})
}

func TestAPoolThatIsRemovedWhileItIsRenewedIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, func(d *registry.ServerDefinition) { d.MinIdle = 1 })
		require.NoError(t, acquire(t, g, "a").Release())
		g.connecting = func() {
			g.connecting = nil
			assert.NoError(t, g.CloseAll(t.Context(), "s"))
		}
		d.Users["a"] = registry.UserMapping{User: "new a"}
		require.NoError(t, g.Update(t.Context(), d))
		synctest.Wait()
		require.Zero(t, g.fake("s").read(&g.fake("s").live))
	})
}

func TestUnregisterRefusesAtOnceAndDrains(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		held := acquire(t, g, "a")
		done := make(chan error, 1)
		go func() { done <- g.Unregister(t.Context(), "s") }()
		synctest.Wait()
		_, err := g.Acquire(t.Context(), "s", "a")
		require.ErrorIs(t, err, registry.ErrUnknownServer)
		require.Empty(t, done)
		require.NoError(t, held.Release())
		require.NoError(t, <-done)
	})
}

func TestUnregisterTakesBackWhatIsOutWhenItsContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		held := acquire(t, g, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var drain *registry.DrainError
		require.ErrorAs(t, g.Unregister(ctx, "s"), &drain)
		require.ErrorIs(t, held.Release(), registry.ErrReleased)
	})
}

func TestCloseAllClosesEverythingAndTheServerGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		f := g.fake("s")
		require.NoError(t, acquire(t, g, "a").Release())
		require.NoError(t, g.CloseAll(t.Context(), "s"))
		require.Zero(t, f.read(&f.live))
		require.NoError(t, acquire(t, g, "a").Release())
		st, err := g.ServerStats("s")
		require.NoError(t, err)
		require.Equal(t, uint64(2), st.Acquires, "counters do not go back")
	})
}

func TestCloseWakesWaitersAndLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 1 })
		held := acquire(t, g, "a")
		got := make(chan error, 1)
		go func() {
			_, err := g.Acquire(t.Context(), "s", "b")
			got <- err
		}()
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- g.Close(t.Context()) }()
		require.ErrorIs(t, <-got, registry.ErrClosed)
		require.NoError(t, held.Release())
		require.NoError(t, <-done)
		_, err := g.Acquire(t.Context(), "s", "a")
		require.ErrorIs(t, err, registry.ErrClosed)
		require.ErrorIs(t, g.Close(t.Context()), registry.ErrClosed)
	})
}

func TestAPoolThatNobodyUsesIsRemovedAndItsNextCallerDoesNotNotice(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.MinIdle = 1; d.UserIdleTimeout = time.Minute })
		f := g.fake("s")
		held := acquire(t, g, "b")
		require.NoError(t, acquire(t, g, "a").Release())
		time.Sleep(2 * time.Minute)
		st, err := g.UserStats("s")
		require.NoError(t, err)
		require.Len(t, st, 1, "the one with a loan stays")
		require.Equal(t, "b", st[0].User)
		require.Zero(t, f.users("remote a"))
		require.NoError(t, acquire(t, g, "a").Release())
		require.NoError(t, held.Release())
	})
}
