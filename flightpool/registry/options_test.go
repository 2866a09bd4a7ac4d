package registry_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// Every option, changed while a connection is idle and another is on loan: where
// connections are made with it there are new ones, else those that there are stay, and
// the borrower notices nothing. What it does: TestEveryOptionTakesEffectOnAServerAtWork.
func TestEveryOptionChangesLive(t *testing.T) {
	inPlace := map[string]string{
		"min_connections": "2", "max_connections": "20", "reserved_connections": "1", "user_max_connections": "5", "max_concurrent_opens": "3",
		"connect_timeout": "1s", "query_timeout": "2s", "acquire_timeout": "3s", "idle_timeout": "4s", "max_lifetime": "5m",
		"enable_health_check": "false", "health_check_interval": "6s", "health_check_timeout": "7s", "failure_threshold": "8", "recovery_threshold": "9",
		"validate_on_acquire": "true", "validation_interval": "10s", "validation_interval_seconds": "10", "warmup_on_create": "false", "warmup_connections": "4",
		"exhaustion_policy": "fail_fast", "max_waiters": "11", "collect_statistics": "false", "user_idle_timeout": "12m",
	}
	replaces := map[string]string{
		"target": "elsewhere", "host": "another", "health_check_type": "query", "health_check_query": "SELECT 2", "reset_on_release": "true",
		"validate_on_release": "true", "collect_query_stats": "false", "leak_after": "1m",
	}
	for _, set := range []struct {
		options map[string]string
		opens   int
	}{{inPlace, 2}, {replaces, 3}} {
		for name, value := range set.options {
			require.Contains(t, liveEffects, name, "its effect is tested")
			bubble(t, func(t *testing.T, g *rig) {
				define(t, g, nil)
				held, idle := acquire(t, g, "a"), acquire(t, g, "a")
				require.NoError(t, idle.Release())
				err := g.ApplyDDL(t.Context(), fmt.Sprintf("ALTER SERVER s OPTIONS (ADD %s '%s')", name, value))
				if err != nil { // define has set it
					err = g.ApplyDDL(t.Context(), fmt.Sprintf("ALTER SERVER s OPTIONS (SET %s '%s')", name, value))
				}
				require.NoError(t, err, name)
				synctest.Wait()
				require.Equal(t, "remote a", whoami(t, held), name)
				require.NoError(t, acquire(t, g, "a").Release(), name)
				require.NoError(t, held.Release(), name)
				opens := 0
				for _, f := range g.all() {
					opens += f.read(&f.opens)
				}
				if name == "min_connections" { // others are kept ready
					opens = min(opens, set.opens)
				}
				require.Equal(t, set.opens, opens, name)
				require.NoError(t, g.ApplyDDL(t.Context(), "ALTER SERVER s OPTIONS (DROP "+name+")"), name)
			})
		}
	}
}

func TestAConnectionIsCheckedBeforeItIsLentAndWhenItComesBack(t *testing.T) {
	for _, on := range []bool{false, true} {
		bubble(t, func(t *testing.T, g *rig) {
			define(t, g, func(d *registry.ServerDefinition) {
				d.ValidateOnAcquire, d.ValidateAfter, d.HealthCheck.Interval, d.HealthCheck.FailureThreshold = on, time.Second, time.Hour, 100
			})
			f := g.fake("s")
			require.NoError(t, acquire(t, g, "a").Release())
			time.Sleep(2 * time.Second)
			f.set(func() { f.restarts++ }) // what was open is dead, and nobody knows yet
			c := acquire(t, g, "a")
			_, err := c.SQL().ExecContext(t.Context(), "1ms")
			require.Equal(t, on, err == nil, "validate_on_acquire %v: %v", on, err)
			require.NoError(t, c.Release())
		})
		bubble(t, func(t *testing.T, g *rig) {
			define(t, g, func(d *registry.ServerDefinition) { d.ValidateOnRelease = on })
			require.NoError(t, acquire(t, g, "a").Release())
			f := g.fake("s")
			require.Equal(t, on, f.read(&f.pings) > 0, "validate_on_release %v", on)
		})
	}
}

func TestEachTypeOfCheckAsksTheServer(t *testing.T) {
	for kind, want := range map[string][2]int{"ping": {1, 0}, "query": {0, 1}, "full_validate": {0, 1}} {
		bubble(t, func(t *testing.T, g *rig) {
			define(t, g, nil)
			require.NoError(t, g.ApplyDDL(t.Context(), "ALTER SERVER s OPTIONS (SET health_check_type '"+kind+"', SET health_check_query 'SELECT 7')"))
			require.NoError(t, acquire(t, g, "a").Release())
			f := g.fake("s")
			f.set(func() { f.pings, f.asked = 0, map[string]int{} })
			require.NoError(t, g.CheckNow(t.Context(), "s"))
			f.set(func() { require.Equal(t, want, [2]int{f.pings, f.asked["SELECT 7"]}, kind) })
			if kind == "full_validate" {
				f.set(func() { require.NotZero(t, f.asked["ROLLBACK"], "it resets first") })
			}
		})
	}
}

func TestIdleAndOldConnectionsAreLetGo(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.IdleTTL = time.Minute; d.UserIdleTimeout = -1 })
		f := g.fake("s")
		one, two := acquire(t, g, "a"), acquire(t, g, "a")
		require.NoError(t, one.Release())
		require.NoError(t, two.Release())
		for range 4 {
			time.Sleep(20 * time.Second)
			require.NoError(t, acquire(t, g, "a").Release())
		}
		require.Equal(t, 1, f.read(&f.live), "idle_timeout: the one that nobody needed")
	})
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.MaxLifetime = time.Minute })
		f := g.fake("s")
		for range 8 {
			require.NoError(t, acquire(t, g, "a").Release())
			time.Sleep(10 * time.Second)
		}
		require.Equal(t, 2, f.read(&f.opens), "max_lifetime")
	})
}

// Whatever max_lifetime is.
func TestAConnectionThatTellsItsEndIsReplacedBeforeThat(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		f.set(func() { f.lasts = time.Minute })
		define(t, g, func(d *registry.ServerDefinition) { d.UserIdleTimeout = -1 })
		for range 8 {
			c := acquire(t, g, "a")
			all, err := g.Connections("s")
			require.NoError(t, err)
			require.Less(t, time.Since(all[0].OpenedAt), time.Minute)
			require.NoError(t, c.Release())
			time.Sleep(10 * time.Second)
		}
		require.Equal(t, 2, f.read(&f.opens))
	})
}

// The budget of a Kind's own may be short of what a user keeps idle.
func TestIdleConnectionsAreGivenUpForOthersOfTheKindsBudget(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		define(t, g, nil)
		busy, idle := acquire(t, g, "a"), acquire(t, g, "a")
		require.NoError(t, idle.Release())
		require.Len(t, f.reclaims, 1)
		require.Zero(t, (*f.reclaims[0])(0))
		require.Equal(t, 2, (*f.reclaims[0])(5), "one will come back")
		synctest.Wait()
		require.Equal(t, 1, f.read(&f.live), "what is on loan stays until then")
		require.NoError(t, busy.Release())
		synctest.Wait()
		require.Zero(t, f.read(&f.live))
	})
}

// An open that fails gives a slot of the registry back, and nothing of the budget of a Kind's own.
func TestAnOpenThatFailsGivesNothingUpOfTheKindsBudget(t *testing.T) {
	for name, n := range map[string]int{"others are short": 1, "all are revoked": math.MaxInt} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, g *rig) {
				f := g.fake("s")
				define(t, g, func(d *registry.ServerDefinition) { d.HealthCheck.Disabled, d.AcquireTimeout = true, time.Minute })
				busy := acquire(t, g, "a")
				f.set(func() { f.stuck = true }) // as where the budget is full: an open waits until its time is over
				waits := make(chan error, 1)
				go func() { _, err := work(t.Context(), g, "s", "a", 0); waits <- err }()
				synctest.Wait()
				require.Equal(t, n, (*f.reclaims[0])(n), "it will come back")
				time.Sleep(6 * time.Second) // the open has failed, and another has begun
				require.NoError(t, busy.Release())
				synctest.Wait()
				require.Zero(t, f.read(&f.live), "it is given up")
				<-waits
			})
		})
	}
}

// What has been opened since is not what was revoked.
func TestAllThatThereWasIsClosedWhereAKindsBudgetIsRevoked(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		define(t, g, nil)
		old := acquire(t, g, "a")
		(*f.reclaims[0])(math.MaxInt)
		require.NoError(t, acquire(t, g, "a").Release())
		synctest.Wait()
		require.Equal(t, 2, f.read(&f.live), "the one that was opened since is kept")
		require.NoError(t, old.Release())
		synctest.Wait()
		require.Equal(t, 1, f.read(&f.live))
	})
}

func TestStatisticsCanBeSwitchedOff(t *testing.T) {
	for _, off := range []bool{false, true} {
		bubble(t, func(t *testing.T, g *rig) {
			define(t, g, func(d *registry.ServerDefinition) { d.DisableStatistics, d.DisableQueryStats = off, off })
			for range 9 { // most of all waits
				waitASecond(t, g)
			}
			users, err := g.UserStats("s")
			require.NoError(t, err)
			w := users[0].Wait
			require.Equal(t, off, w.P99 == 0, "collect_statistics: %v", w)
			require.Equal(t, off, w.P999 == 0, "collect_statistics: %v", w)
			require.Equal(t, off, users[0].Queries == 0, "collect_query_stats: %d", users[0].Queries)
			require.Equal(t, off, users[0].MeanQuery == 0, "collect_query_stats: %v", users[0].MeanQuery)
			require.Equal(t, uint64(9*11), users[0].Acquires, "counters cost nothing")
		})
	}
}

// An unhealthy server fails a call in real time too without doing anything.
func TestAnUnhealthyServerRefusesWithinFiveMilliseconds(t *testing.T) {
	g := newRig(t)
	define(t, g, nil)
	fell(t, g, g.fake("s"))
	best := time.Hour
	for range 100 { // the machine may be busy with something else
		began := time.Now()
		_, err := g.Acquire(context.Background(), "s", "a")
		best = min(best, time.Since(began))
		require.ErrorIs(t, err, registry.ErrUnhealthy)
	}
	t.Logf("%v", best)
	require.Less(t, best, 5*time.Millisecond)
	require.NoError(t, g.Close(t.Context()))
}
