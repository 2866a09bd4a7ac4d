package registry_test

import (
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
		f.set(func() { f.down = true; f.restarts++ })
		for g.Healthy("s") {
			_, err := g.EvictIdle("s")
			require.NoError(t, err)
			if c, err := g.Acquire(t.Context(), "s", "b"); err == nil {
				_, _ = c.SQL().ExecContext(t.Context(), "1ms")
				_ = c.Release()
			}
			time.Sleep(time.Second)
		}
		f.set(func() { f.down, f.noCreds = false, true })
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
