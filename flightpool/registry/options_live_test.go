package registry_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// A live effect is what an option does to a server at work, of which user a has used
// one connection.
type liveEffect struct {
	to   string                                   // the option's new value
	with string                                   // other options of the same statement
	set  func(d *registry.ServerDefinition)       // what the definition has besides
	seen func(t *testing.T, g *rig, f *fake) bool // whether the option is at work
}

// got counts the connections of a user that can be had within a second each.
func got(t *testing.T, g *rig, user string, most int) (n int) {
	t.Helper()
	var held []*registry.Conn
	for range most {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		c, err := g.Acquire(ctx, "s", user)
		cancel()
		if err == nil {
			held = append(held, c)
		}
	}
	for _, c := range held {
		require.NoError(t, c.Release())
	}
	return len(held)
}

// full takes all ten connections for user a.
func full(t *testing.T, g *rig) (end func()) {
	t.Helper()
	var held []*registry.Conn
	for range 10 {
		held = append(held, acquire(t, g, "a"))
	}
	return func() {
		for _, c := range held {
			require.NoError(t, c.Release())
		}
	}
}

// asked counts what the server is asked while f runs.
func asked(f *fake, do func()) (pings int, statements map[string]int) {
	f.set(func() { f.pings, f.asked = 0, map[string]int{} })
	do()
	f.set(func() { pings, statements = f.pings, maps.Clone(f.asked) })
	return pings, statements
}

// use borrows and gives back.
func use(t *testing.T, g *rig, user string) {
	t.Helper()
	require.NoError(t, acquire(t, g, user).Release())
	synctest.Wait()
}

var liveEffects = map[string]liveEffect{
	"min_connections":      {to: "3", seen: func(_ *testing.T, _ *rig, f *fake) bool { return f.users("remote a") == 3 }},
	"max_connections":      {to: "4", seen: func(t *testing.T, g *rig, _ *fake) bool { return got(t, g, "a", 10) == 4 }},
	"user_max_connections": {to: "2", seen: func(t *testing.T, g *rig, _ *fake) bool { return got(t, g, "a", 10) == 2 }},
	"reserved_connections": {to: "2", seen: func(t *testing.T, g *rig, _ *fake) bool {
		use(t, g, "b")
		return got(t, g, "a", 10) < 10
	}},
	"max_concurrent_opens": {to: "1", seen: func(t *testing.T, g *rig, f *fake) bool {
		f.set(func() { f.dial, f.mostOpening = time.Second, 0 })
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { _, _ = work(t.Context(), g, "s", "b", 10*time.Second) })
		}
		all.Wait()
		return f.read(&f.mostOpening) == 1
	}},
	"connect_timeout": {to: "1s", seen: func(t *testing.T, g *rig, f *fake) bool {
		f.set(func() { f.dial = 3 * time.Second })
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		_, err := work(ctx, g, "s", "b", 0)
		return err != nil
	}},
	"query_timeout": {to: "2s", seen: func(t *testing.T, g *rig, _ *fake) bool {
		began := time.Now()
		_, _ = work(t.Context(), g, "s", "a", 3*time.Second)
		return time.Since(began) < 3*time.Second
	}},
	"acquire_timeout": {to: "3s", seen: func(t *testing.T, g *rig, _ *fake) bool {
		defer full(t, g)()
		began := time.Now()
		_, err := g.Acquire(t.Context(), "s", "a")
		require.Error(t, err)
		return time.Since(began) == 3*time.Second
	}},
	"idle_timeout": {to: "4s", seen: func(_ *testing.T, _ *rig, f *fake) bool { time.Sleep(30 * time.Second); return f.read(&f.live) == 0 }},
	"max_lifetime": {to: "5s", seen: func(t *testing.T, g *rig, _ *fake) bool {
		use(t, g, "b") // a connection that is opened after the change
		born := time.Now()
		time.Sleep(30 * time.Second)
		use(t, g, "b")
		all, err := g.Connections("s")
		require.NoError(t, err)
		return !slices.ContainsFunc(all, func(c registry.ConnectionStats) bool { return c.User == "b" && !c.OpenedAt.After(born) })
	}},
	"reset_on_release": {to: "true", seen: func(t *testing.T, g *rig, f *fake) bool {
		_, statements := asked(f, func() { use(t, g, "a") })
		return statements["reset session"] > 0
	}},
	"warmup_connections": {to: "4", set: everybody, seen: func(t *testing.T, g *rig, f *fake) bool {
		use(t, g, "z")                  // whose pool is made after the change
		return f.users("remote z") >= 4 // the first caller's own may come on top
	}},
	"warmup_on_create": {
		to: "false", set: func(d *registry.ServerDefinition) { everybody(d); d.WarmupConnections = 4 },
		seen: func(t *testing.T, g *rig, f *fake) bool {
			use(t, g, "z")
			return f.users("remote z") == 1
		},
	},
	"user_idle_timeout": {to: "12s", set: func(d *registry.ServerDefinition) { d.UserIdleTimeout = 24 * time.Hour }, seen: func(t *testing.T, g *rig, _ *fake) bool {
		time.Sleep(20 * time.Second)
		users, err := g.UserStats("s")
		require.NoError(t, err)
		return len(users) == 0
	}},
	"enable_health_check": {to: "false", seen: func(_ *testing.T, _ *rig, f *fake) bool {
		pings, _ := asked(f, func() { time.Sleep(2 * time.Minute) })
		return pings == 0
	}},
	"health_check_interval": {to: "1s", seen: func(_ *testing.T, _ *rig, f *fake) bool {
		pings, _ := asked(f, func() { time.Sleep(20 * time.Second) })
		return pings >= 10
	}},
	"health_check_timeout": {to: "1s", seen: func(t *testing.T, g *rig, f *fake) bool {
		f.set(func() { f.ping = 2 * time.Second })
		return g.CheckNow(t.Context(), "s") != nil
	}},
	"health_check_type": {
		to: "query", set: func(d *registry.ServerDefinition) { d.HealthCheck.Query = "SELECT 7" },
		seen: func(t *testing.T, g *rig, f *fake) bool {
			_, statements := asked(f, func() { use(t, g, "a"); require.NoError(t, g.CheckNow(t.Context(), "s")) })
			return statements["SELECT 7"] > 0
		},
	},
	"health_check_query": {to: "SELECT 2", with: ", SET health_check_type 'query'", seen: func(t *testing.T, g *rig, f *fake) bool {
		_, statements := asked(f, func() { use(t, g, "a"); require.NoError(t, g.CheckNow(t.Context(), "s")) })
		return statements["SELECT 2"] > 0
	}},
	"failure_threshold": {to: "1", seen: func(t *testing.T, g *rig, f *fake) bool {
		f.set(func() { f.down = true })
		require.Error(t, g.CheckNow(t.Context(), "s"))
		return !g.Healthy("s")
	}},
	"recovery_threshold": {to: "9", seen: func(t *testing.T, g *rig, f *fake) bool {
		fell(t, g, f)
		f.set(func() { f.down = false })
		for range 3 {
			require.NoError(t, g.CheckNow(t.Context(), "s"))
		}
		return !g.Healthy("s")
	}},
	"validate_on_acquire": {to: "true", with: ", ADD validation_interval '1s'", seen: func(t *testing.T, g *rig, f *fake) bool {
		time.Sleep(20 * time.Second)
		pings, _ := asked(f, func() { use(t, g, "a") })
		return pings > 0
	}},
	"validate_on_release": {to: "true", seen: func(t *testing.T, g *rig, f *fake) bool {
		pings, _ := asked(f, func() { use(t, g, "a") })
		return pings > 0
	}},
	"validation_interval":         {to: "1s", set: validating, seen: validatesAfterTwoSeconds},
	"validation_interval_seconds": {to: "1", set: validating, seen: validatesAfterTwoSeconds},
	"exhaustion_policy": {to: "fail_fast", seen: func(t *testing.T, g *rig, _ *fake) bool {
		defer full(t, g)()
		began := time.Now()
		_, err := g.Acquire(t.Context(), "s", "a")
		require.Error(t, err)
		return time.Since(began) == 0
	}},
	"leak_after": {to: "1m", seen: func(t *testing.T, g *rig, _ *fake) bool {
		c := acquire(t, g, "a")
		time.Sleep(3 * time.Minute)
		all, err := g.Connections("s")
		require.NoError(t, err)
		i := slices.IndexFunc(all, func(c registry.ConnectionStats) bool { return c.InUse && c.Borrower != nil })
		require.NoError(t, c.Release())
		return g.Stats().Leaks == 1 && i >= 0 && strings.Contains(all[i].Borrower.String(), "registry_test.acquire\n")
	}},
	"max_waiters": {to: "1", seen: func(t *testing.T, g *rig, _ *fake) bool {
		defer full(t, g)()
		errs := make(chan error, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			go func() { _, err := g.Acquire(ctx, "s", "a"); errs <- err }()
		}
		synctest.Wait()
		refused := len(errs)
		<-ctx.Done()
		synctest.Wait()
		require.Len(t, errs, 2)
		return refused == 1
	}},
	"collect_statistics": {to: "false", seen: func(t *testing.T, g *rig, _ *fake) bool {
		waitASecond(t, g)
		users, err := g.UserStats("s")
		require.NoError(t, err)
		return users[0].Wait.P999 == 0
	}},
	"collect_query_stats": {to: "false", seen: func(t *testing.T, g *rig, _ *fake) bool {
		before, err := g.ServerStats("s")
		require.NoError(t, err)
		_, err = work(t.Context(), g, "s", "a", time.Second)
		require.NoError(t, err)
		after, err := g.ServerStats("s")
		require.NoError(t, err)
		return after.Queries == before.Queries
	}},
	"target": {to: "elsewhere", seen: func(t *testing.T, g *rig, _ *fake) bool {
		use(t, g, "a")
		elsewhere := g.fake("elsewhere")
		return elsewhere.read(&elsewhere.opens) > 0
	}},
	"host": {to: "another", seen: func(t *testing.T, g *rig, f *fake) bool { use(t, g, "a"); return f.read(&f.opens) == 2 }},
}

// everybody may come, and begins with a pool that is made then. There is room for what
// the pools of all users open beforehand: else who has it depends on who was first.
func everybody(d *registry.ServerDefinition) {
	d.MaxSize = 40
	d.Users[registry.Public] = registry.UserMapping{User: "remote z"}
}

func validating(d *registry.ServerDefinition) { d.ValidateOnAcquire = true }

func validatesAfterTwoSeconds(t *testing.T, g *rig, f *fake) bool {
	use(t, g, "a")
	time.Sleep(2 * time.Second)
	pings, _ := asked(f, func() { use(t, g, "a") })
	return pings > 0
}

// waitASecond makes somebody wait for a connection.
func waitASecond(t *testing.T, g *rig) {
	t.Helper()
	release := full(t, g)
	failed := make(chan error, 1)
	go func() {
		_, err := work(t.Context(), g, "s", "a", time.Second)
		failed <- err
	}()
	time.Sleep(time.Second)
	release()
	require.NoError(t, <-failed)
}

// Every option does nothing before it is changed, and is at work afterwards, on the
// pools that exist.
func TestEveryOptionTakesEffectOnAServerAtWork(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(liveEffects)) {
		c := liveEffects[name]
		for _, altered := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, g *rig) {
					define(t, g, func(d *registry.ServerDefinition) {
						if c.set != nil {
							c.set(d)
						}
					})
					use(t, g, "a")
					if altered {
						statement := " " + name + " '" + c.to + "'" + c.with + ")"
						if g.ApplyDDL(t.Context(), "ALTER SERVER s OPTIONS (ADD"+statement) != nil { // define has set it
							require.NoError(t, g.ApplyDDL(t.Context(), "ALTER SERVER s OPTIONS (SET"+statement), name)
						}
						synctest.Wait()
					}
					if seen := c.seen(t, g, g.fake("s")); seen != altered {
						t.Errorf("changed %v, at work %v", altered, seen)
					}
				})
			})
		}
	}
}
