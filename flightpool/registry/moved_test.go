package registry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// The pause before the next probe is that of a place which nobody asks for any more.
func TestAServerThatIsLedElsewhereIsProbedThereAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, func(d *registry.ServerDefinition) { d.Target = "wrong"; d.HealthCheck.Interval = time.Hour })
		f := g.fake("wrong")
		f.set(func() { f.down = true })
		for g.Healthy("s") {
			_, _ = g.Acquire(t.Context(), "s", "a")
		}
		time.Sleep(5 * time.Hour)
		changed := d
		changed.MaxSize = 20
		require.NoError(t, g.Update(t.Context(), changed))
		time.Sleep(time.Second)
		require.False(t, g.Healthy("s"), "it leads to the same place")
		asked := f.read(&f.opens)
		d.Target = "right"
		require.NoError(t, g.Update(t.Context(), d))
		time.Sleep(time.Second)
		require.True(t, g.Healthy("s"))
		require.Equal(t, asked, f.read(&f.opens), "the place of before is not asked")
		require.NoError(t, acquire(t, g, "b").Release())
	})
}

// What was borrowed before goes on at the place of before, which may be shut down.
func TestWhatBreaksAtThePlaceOfBeforeIsNoFaultOfTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, func(d *registry.ServerDefinition) { d.Target = "before" })
		held := []*registry.Conn{acquire(t, g, "a"), acquire(t, g, "a"), acquire(t, g, "b"), acquire(t, g, "b")}
		d.Target = "now"
		require.NoError(t, g.Update(t.Context(), d))
		require.NoError(t, acquire(t, g, "a").Release())
		before := g.fake("before")
		before.set(func() { before.down = true })
		for _, c := range held {
			_, err := c.SQL().ExecContext(t.Context(), "0s")
			require.ErrorIs(t, err, errDown)
			require.NoError(t, c.Fail(err))
		}
		synctest.Wait()
		require.True(t, g.Healthy("s"))
		require.Empty(t, g.told())
		require.NoError(t, acquire(t, g, "a").Release())
		now := g.fake("now")
		require.Equal(t, 1, now.read(&now.made), "its connections stay")
	})
}

// A new credential leads to the same place.
func TestWhatBreaksUnderAnotherCredentialIsAFaultOfTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, nil)
		held := []*registry.Conn{acquire(t, g, "a"), acquire(t, g, "a"), acquire(t, g, "a")}
		d.Users["a"] = registry.UserMapping{User: "remote a", Password: "new"}
		require.NoError(t, g.Update(t.Context(), d))
		f := g.fake("s")
		f.set(func() { f.down = true })
		for _, c := range held {
			_, err := c.SQL().ExecContext(t.Context(), "0s")
			require.ErrorIs(t, err, errDown)
			require.NoError(t, c.Fail(err))
		}
		synctest.Wait()
		require.False(t, g.Healthy("s"))
	})
}

// One whose mapping leads elsewhere than the server stays where it was.
func TestAUserWhoseOwnOptionHoldsStaysAWitness(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, func(d *registry.ServerDefinition) {
			d.Options = map[string]string{"host": "one"}
			d.Users = map[string]registry.UserMapping{"a": {User: "remote a", Options: map[string]string{"host": "own"}}}
		})
		require.NoError(t, acquire(t, g, "a").Release())
		d.Options = map[string]string{"host": "two"}
		require.NoError(t, g.Update(t.Context(), d))
		f := g.fake("s")
		f.set(func() { f.down = true; f.restarts++ })
		for range 5 {
			_, _ = work(t.Context(), g, "s", "a", 0)
		}
		synctest.Wait()
		require.False(t, g.Healthy("s"))
	})
}
