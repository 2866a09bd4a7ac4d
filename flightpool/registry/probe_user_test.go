package registry_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// A notAskedErr is of an open for which its user has no credentials.
type notAskedErr struct{}

func (notAskedErr) Error() string { return "no credentials of a" }
func (notAskedErr) NotAsked()     {}

// One user without credentials does not keep a server unhealthy that is back.
func TestAProbeInVainIsFollowedByOneAsAnotherUser(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.UserIdleTimeout = -1 })
		f := g.fake("s")
		for range 10 {
			require.NoError(t, acquire(t, g, "a").Release())
		}
		require.NoError(t, acquire(t, g, "b").Release())
		fallsIll(t, g, f, "b")
		f.set(func() { f.down, f.noCreds = false, "remote a" })
		time.Sleep(time.Hour)
		require.NoError(t, acquire(t, g, "b").Release(), "who could connect for an hour")
	})
}

// Nor does one of whom the kind cannot make a connector.
func TestAProbePassesAUserWithoutAConnector(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) {
			d.UserIdleTimeout = time.Minute
			d.Users["a"] = registry.UserMapping{User: "remote a", Options: map[string]string{"impossible": "x"}}
		})
		f := g.fake("s")
		c := acquire(t, g, "b")
		require.NoError(t, c.Release())
		f.set(func() { f.down = true; f.restarts++ })
		for g.Healthy("s") {
			if c, err := g.Acquire(t.Context(), "s", "b"); err == nil {
				_, _ = c.SQL().ExecContext(t.Context(), "1ms")
				_ = c.Release()
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		f.set(func() { f.down = false })
		time.Sleep(time.Hour)
		require.NoError(t, acquire(t, g, "b").Release(), "who could connect for an hour")
	})
}

// fallsIll has the server down, and returns once a user's calls have shown that.
func fallsIll(t *testing.T, g *rig, f *fake, user string) {
	t.Helper()
	f.set(func() { f.down = true; f.restarts++ })
	for g.Healthy("s") {
		_, err := g.EvictIdle("s")
		require.NoError(t, err)
		if c, err := g.Acquire(t.Context(), "s", user); err == nil {
			_, _ = c.SQL().ExecContext(t.Context(), "1ms")
			_ = c.Release()
		}
		time.Sleep(time.Second)
	}
}

// recoversFor waits until a user is served, who asks every second.
func recoversFor(t *testing.T, g *rig, user string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second) {
		if c, err := g.Acquire(t.Context(), "s", user); err == nil {
			require.NoError(t, c.Release())
			return
		}
		require.Less(t, time.Since(began), 5*time.Minute)
	}
}

// An outage that is longer than users' pools are kept leaves the probes as many users as there were.
func TestAnOutageRemovesNoPool(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		f := g.fake("s")
		for range 10 {
			require.NoError(t, acquire(t, g, "a").Release())
		}
		require.NoError(t, acquire(t, g, "b").Release())
		fallsIll(t, g, f, "b")
		time.Sleep(20 * time.Minute)
		st, err := g.UserStats("s")
		require.NoError(t, err)
		require.Len(t, st, 2)
		f.set(func() { f.down, f.noCreds = false, "remote a" })
		recoversFor(t, g, "b")
		time.Sleep(20 * time.Minute)
		st, err = g.UserStats("s")
		require.NoError(t, err)
		require.Empty(t, st, "they are unused now")
	})
}

// A user who is refused and has no pool yet is probed as, where those who have one were in vain; so is one who has all connections
// on loan, once one is back.
func TestAProbeInVainIsFollowedByOneAsAUserWithoutAPoolOrRoom(t *testing.T) {
	for name, asker := range map[string]string{"mapped": "c", "mapped for all": "z", "without any room": "b"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, g *rig) {
				define(t, g, func(d *registry.ServerDefinition) {
					d.AcquireTimeout, d.UserMaxSize, d.MaxSize = 200*time.Millisecond, 1, 8
					d.Users = map[string]registry.UserMapping{"a": {User: "remote a"}}
					if asker == "z" {
						d.Users[registry.Public] = registry.UserMapping{User: "remote a"}
						return
					}
					d.Users[asker] = registry.UserMapping{User: "remote " + asker}
				})
				f := g.fake("s")
				require.NoError(t, acquire(t, g, "a").Release())
				release := func() {}
				if asker == "b" {
					held := acquire(t, g, "b")
					release = func() { _ = held.Release() }
				}
				fallsIll(t, g, f, "a")
				f.set(func() { f.down, f.noCreds = false, "remote a" })
				time.AfterFunc(3*time.Minute, release)
				if asker == "z" { // whose kind has other credentials
					_, err := g.Acquire(t.Context(), "s", "z")
					require.ErrorIs(t, err, registry.ErrUnhealthy)
					time.Sleep(time.Minute)
					st, err := g.UserStats("s")
					require.NoError(t, err)
					require.True(t, slices.ContainsFunc(st, func(u registry.UserStats) bool { return u.User == "z" }), "it was tried")
					return
				}
				for began := time.Now(); !g.Healthy("s"); time.Sleep(time.Second) {
					_, _ = g.Acquire(t.Context(), "s", asker)
					require.Less(t, time.Since(began), 5*time.Minute)
				}
			})
		})
	}
}

// A probe tries several users of whom nothing is shown, and the next one others.
func TestAProbeTriesSeveralUsersAndTheNextOneOthers(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) {
			d.HealthCheck.RecoveryThreshold = 1
			d.Users = map[string]registry.UserMapping{"z": {User: "remote z"}}
			for i := range 6 {
				d.Users[fmt.Sprint("b", i)] = registry.UserMapping{User: "remote b"}
			}
		})
		f := g.fake("s")
		for i := range 6 {
			require.NoError(t, acquire(t, g, fmt.Sprint("b", i)).Release())
		}
		fallsIll(t, g, f, "b0")
		time.Sleep(time.Hour) // none is probed for a while then
		f.set(func() { f.down, f.noCreds = false, "remote b" })
		require.Error(t, g.CheckNow(t.Context(), "s"))
		require.False(t, g.Healthy("s"))
		require.NoError(t, g.CheckNow(t.Context(), "s"))
		require.True(t, g.Healthy("s"))
	})
}

// A user who has all connections on loan is better than none.
func TestAProbeWaitsForAConnectionWhereThereIsNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) {
			d.HealthCheck.RecoveryThreshold, d.UserMaxSize = 1, 1
			d.Users = map[string]registry.UserMapping{"a": {User: "remote a"}}
		})
		f := g.fake("s")
		require.NoError(t, acquire(t, g, "a").Release())
		fallsIll(t, g, f, "a")
		f.set(func() { f.down = false })
		recoversFor(t, g, "a")
		c := acquire(t, g, "a")
		time.AfterFunc(time.Second, func() { _ = c.Release() })
		require.NoError(t, g.CheckNow(t.Context(), "s"))
	})
}

// How often a user was probed in vain in one outage says nothing of the next.
func TestProbesInVainAreForgottenWithTheirOutage(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) {
			d.UserIdleTimeout, d.HealthCheck.RecoveryThreshold = -1, 1
			d.Users = map[string]registry.UserMapping{}
			for i := range 10 {
				d.Users[fmt.Sprint("b", i)] = registry.UserMapping{User: "remote b"}
			}
			d.Users["a"] = registry.UserMapping{User: "remote a"}
		})
		f := g.fake("s")
		require.NoError(t, acquire(t, g, "a").Release())
		fallsIll(t, g, f, "a")
		f.set(func() { f.down, f.noCreds = false, "remote a" })
		time.Sleep(time.Second)
		f.set(func() { f.noCreds = "" })
		recoversFor(t, g, "a")
		for range 100 {
			require.NoError(t, acquire(t, g, "a").Release())
		}
		f.set(func() { f.noCreds = "remote b" })
		fallsIll(t, g, f, "a")
		f.set(func() { f.down = false })
		require.NoError(t, g.CheckNow(t.Context(), "s"))
		require.True(t, g.Healthy("s"), "a was the first")
	})
}
