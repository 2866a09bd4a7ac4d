package registry_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// guests makes everybody a guest of ten connections.
func guests(d *registry.ServerDefinition) {
	d.MinIdle, d.WarmupConnections = 0, 0 // the defaults
	d.Users[registry.Public] = registry.UserMapping{User: "guest"}
}

// A gateway: new users all the time, each for a moment. They are many more than
// connections, which are idle nearly always.
func TestNewUsersFindAConnectionAtOnce(t *testing.T) {
	for _, rate := range []int{9, 50} {
		bubble(t, func(t *testing.T, g *rig) {
			g.fake("s").dial = 2 * time.Millisecond
			define(t, g, guests)
			var wg sync.WaitGroup
			waits := make([]time.Duration, rate*20)
			for n := range waits {
				wg.Go(func() {
					waited, err := work(t.Context(), g, "s", fmt.Sprint("guest", n), 5*time.Millisecond)
					assert.NoError(t, err)
					waits[n] = waited
				})
				time.Sleep(time.Second / time.Duration(rate))
			}
			wg.Wait()
			slices.Sort(waits)
			t.Logf("%d new users a second, %d in all: wait p50 %v p99 %v max %v", rate, len(waits), percentile(waits, .5), percentile(waits, .99), percentile(waits, 1))
			require.LessOrEqual(t, percentile(waits, .99), 20*time.Millisecond)
			require.LessOrEqual(t, g.fake("s").mostLive, 10)
		})
	}
}

// A user who calls now and then, beside one with a hundred callers and ten
// strangers a second.
func TestARegularUserBesideAHogAndStrangers(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		f.dial = 5 * time.Millisecond
		define(t, g, func(d *registry.ServerDefinition) { guests(d); d.AcquireTimeout = -1 })
		until := time.Now().Add(30 * time.Second)
		hog := callers(t, g, "a", 100, 200*time.Millisecond, until)
		strangers := make(chan func() []time.Duration, 300)
		go func() {
			for n := 0; time.Now().Before(until); n++ {
				strangers <- callers(t, g, fmt.Sprint("guest", n), 1, 50*time.Millisecond, time.Now().Add(time.Nanosecond))
				time.Sleep(100 * time.Millisecond)
			}
			close(strangers)
		}()
		time.Sleep(5 * time.Second)
		var waits []time.Duration
		for range 50 {
			waited, err := work(t.Context(), g, "s", "b", 20*time.Millisecond)
			require.NoError(t, err)
			waits = append(waits, waited)
			time.Sleep(480 * time.Millisecond)
		}
		served := len(hog())
		var strange []time.Duration
		for s := range strangers {
			strange = append(strange, s()...)
		}
		slices.Sort(waits)
		slices.Sort(strange)
		t.Logf("the regular user: p50 %v max %v; strangers: p50 %v max %v; the hog was served %d times", percentile(waits, .5), percentile(waits, 1), percentile(strange, .5), percentile(strange, 1), served)
		require.LessOrEqual(t, percentile(waits, 1), 200*time.Millisecond, "a loan of the hog's at most")
		require.LessOrEqual(t, percentile(strange, 1), 400*time.Millisecond)
		require.Greater(t, served, 900, "what the others do not use is the hog's: 30 s x 10 / 0.2 s = 1,500 in all")
	})
}

// Many more users than connections, all of them busy all the time.
func TestAHundredBusyUsersOnTenConnections(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		g.fake("s").dial = time.Millisecond
		define(t, g, guests)
		until := time.Now().Add(2 * time.Second)
		var done []func() []time.Duration
		for n := range 100 {
			done = append(done, callers(t, g, fmt.Sprint("guest", n), 2, 5*time.Millisecond, until)) // fails when one is refused
		}
		least, longest := 1<<30, time.Duration(0)
		for _, d := range done {
			waits := d()
			least, longest = min(least, len(waits)), max(longest, percentile(waits, 1))
		}
		t.Logf("each was served at least %d times, and waited %v at most", least, longest)
		require.Less(t, longest, time.Second)
		require.Greater(t, least, 10)
	})
}

// Under FailFast too, what nobody uses is there for who comes.
func TestFailFastTakesAnIdleConnectionOfAnothers(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 2; d.OnExhausted = flightpool.FailFast })
		busy := acquire(t, g, "a")
		require.NoError(t, acquire(t, g, "b").Release())
		began := time.Now()
		c := acquire(t, g, "c")
		require.Zero(t, time.Since(began))
		_, err := g.Acquire(t.Context(), "s", "b")
		require.ErrorIs(t, err, registry.ErrExhausted, "both are in use now")
		require.Zero(t, time.Since(began))
		st, err := g.ServerStats("s")
		require.NoError(t, err)
		require.Equal(t, []uint64{1, 0}, []uint64{st.Rejected, st.AcquireTimeouts})
		require.NoError(t, c.Release())
		require.NoError(t, busy.Release())
	})
}

// A server of the same name has what is left of the bound while the old one drains.
func TestAServerRegisteredAgainSharesItsBoundWithTheOldOne(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 2 })
		f := g.fake("s")
		one, two := acquire(t, g, "a"), acquire(t, g, "a")
		drained := make(chan error, 2)
		for range 2 { // the second one's server drains too, without anything of its own
			go func() { drained <- g.Unregister(t.Context(), "s") }()
			synctest.Wait()
			require.NoError(t, g.Register(t.Context(), d))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.Acquire(ctx, "s", "b")
		require.ErrorIs(t, err, registry.ErrExhausted)
		require.NoError(t, one.Release())
		three := acquire(t, g, "b")
		require.Equal(t, 2, f.read(&f.mostLive))
		require.NoError(t, two.Release())
		four := acquire(t, g, "c")
		require.NoError(t, three.Release())
		require.NoError(t, four.Release())
		require.NoError(t, <-drained)
		require.NoError(t, <-drained)
		require.Equal(t, 2, f.read(&f.mostLive))
	})
}
