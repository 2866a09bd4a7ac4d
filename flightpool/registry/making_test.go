package registry_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// moody is a Kind whose functions do what a test says.
func moody(connect, validate func(r registry.ConnectParams) error) registry.Kind {
	return registry.Kind{Name: "moody", Validate: validate, Connector: func(r registry.ConnectParams) (driver.Connector, error) {
		return sqlConnector{&fake{byUser: map[string]int{}}, r.User}, connect(r)
	}}
}

func fine(registry.ConnectParams) error { return nil }

func moodyServer(name string, users ...string) registry.ServerDefinition {
	d := registry.ServerDefinition{Name: name, Kind: "moody", MinIdle: -1, WarmupConnections: -1, KeepSession: true, Users: map[string]registry.UserMapping{}}
	for _, u := range users {
		d.Users[u] = registry.UserMapping{User: u}
	}
	return d
}

// A Kind that hangs holds up nobody but those who wait for it, and those until
// their context ends or OpenTimeout is over; what it makes at last is used.
func TestAKindThatHangsHoldsUpItsOwnServerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, calls := make(chan struct{}), atomic.Int64{}
		hang := func(r registry.ConnectParams) error {
			if r.Server == "bad" {
				calls.Add(1)
				<-release
			}
			return nil
		}
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{moody(hang, fine)}})
		require.NoError(t, err)
		d := moodyServer("bad", "a")
		require.NoError(t, r.Register(t.Context(), d))
		began := time.Now()
		took := func(want time.Duration, what string) {
			t.Helper()
			require.Equal(t, want, time.Since(began), what)
			began = time.Now()
		}
		soon := func(call func(ctx context.Context) error) error {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("a cause of its own"))
			defer cancel()
			return call(ctx)
		}
		for range 3 {
			require.ErrorIs(t, soon(func(ctx context.Context) error { _, err := r.Acquire(ctx, "bad", "a"); return err }), context.DeadlineExceeded)
			took(time.Second, "a caller's context")
			require.ErrorIs(t, soon(func(ctx context.Context) error { return r.Warmup(ctx, "bad", 1) }), context.DeadlineExceeded)
			took(time.Second, "of Warmup, too")
		}
		_, err = r.Acquire(t.Context(), "bad", "a")
		require.ErrorContains(t, err, "OpenTimeout")
		took(5*time.Second, "or OpenTimeout")
		require.EqualValues(t, 1, calls.Load(), "they all wait for the same call")

		register := make(chan error)
		go func() {
			d := moodyServer("bad2", "a")
			d.Name, d.WarmupConnections = "bad", 1
			_ = r.Unregister(t.Context(), "bad") // waits for what has not returned, for a while
			register <- r.Register(t.Context(), d)
		}()
		synctest.Wait()
		require.NoError(t, r.Register(t.Context(), moodyServer("good", "a")), "another server")
		c, err := r.Acquire(t.Context(), "good", "a")
		require.NoError(t, err)
		require.NoError(t, c.Release())
		require.NoError(t, r.Update(t.Context(), moodyServer("good", "a", "b")))
		took(0, "nobody waits for another server's Kind")
		require.ErrorContains(t, <-register, "OpenTimeout")
		took(10*time.Second, "Unregister, and then Register")
		close(release)
		synctest.Wait()
		require.NoError(t, r.Close(t.Context()))
	})
}

func TestAnUpdateIsGivenUpWithItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, hung := make(chan struct{}), atomic.Bool{}
		hang := func(registry.ConnectParams) error {
			if hung.Load() {
				<-release
			}
			return nil
		}
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{moody(hang, fine)}})
		require.NoError(t, err)
		d := moodyServer("s", "a", "b")
		require.NoError(t, r.Register(t.Context(), d))
		for _, user := range []string{"a", "b"} {
			c, err := r.Acquire(t.Context(), "s", user)
			require.NoError(t, err)
			require.NoError(t, c.Release())
		}
		hung.Store(true)
		was := d.MaxSize
		d.Target, d.MaxSize = "elsewhere", 3
		began := time.Now()
		err = r.Update(t.Context(), d)
		require.ErrorContains(t, err, "OpenTimeout")
		require.Equal(t, 5*time.Second, time.Since(began))
		now, err := r.Definition("s")
		require.NoError(t, err)
		require.Equal(t, []any{"", was}, []any{now.Target, now.MaxSize}, "nothing was changed")
		c, err := r.Acquire(t.Context(), "s", "a")
		require.NoError(t, err, "who has a pool is served")
		require.NoError(t, c.Release())
		var drain *registry.DrainError
		began = time.Now()
		require.ErrorAs(t, r.Close(t.Context()), &drain, "Close tells of what does not return")
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
		close(release)
	})
}

// Close tells of a Kind that hangs in the check of a definition as of any other.
func TestCloseTellsOfACheckThatHasNotReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{moody(fine, func(registry.ConnectParams) error { <-release; return nil })}})
		require.NoError(t, err)
		require.ErrorContains(t, r.Register(t.Context(), moodyServer("s", "a")), "OpenTimeout")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		err = r.Close(ctx)
		var drain *registry.DrainError
		require.ErrorAs(t, err, &drain)
		require.EqualError(t, drain, "registry: drain: 0 changes of definitions and 1 calls of Kinds for them have not returned")
		require.Empty(t, drain.Server)
		require.Equal(t, 5*time.Second, time.Since(began))
		close(release)
	})
}

// What is made although nobody has waited so long is there for the next caller.
func TestAKindThatIsSlowIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{moody(func(registry.ConnectParams) error { time.Sleep(time.Minute); return nil }, fine)}})
		require.NoError(t, err)
		require.NoError(t, r.Register(t.Context(), moodyServer("s", "a")))
		_, err = r.Acquire(t.Context(), "s", "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		c, err := r.Acquire(t.Context(), "s", "a")
		require.NoError(t, err)
		require.NoError(t, c.Release())
		require.NoError(t, r.Close(t.Context()))
	})
}

func TestAKindThatPanicsIsAnError(t *testing.T) {
	for word, dies := range map[string]func(){"panicked: so it is": func() { panic("so it is") }, "ended its goroutine": runtime.Goexit} {
		bad := false
		die := func(registry.ConnectParams) error {
			if bad {
				dies()
			}
			return nil
		}
		for _, k := range []registry.Kind{moody(die, fine), moody(fine, die)} {
			r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{k}})
			require.NoError(t, err)
			warm := moodyServer("s", "a")
			warm.WarmupConnections = 1
			bad = true
			require.ErrorContains(t, r.Register(t.Context(), warm), word)
			bad = false
			require.NoError(t, r.Register(t.Context(), warm))
			bad = true
			warm.Target = "elsewhere"
			require.ErrorContains(t, r.Update(t.Context(), warm), word)
			bad = false
			require.NoError(t, r.Update(t.Context(), warm))
			require.NoError(t, r.Close(t.Context()))
		}
	}
}

// Many who check at the same time wait for two checks at most.
func TestManyChecksAreOne(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		f := g.fake("s")
		f.ping = time.Second
		var wg sync.WaitGroup
		began := time.Now()
		for range 50 {
			wg.Go(func() { assert.NoError(t, g.CheckNow(t.Context(), "s")) })
		}
		wg.Wait()
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		require.LessOrEqual(t, f.read(&f.pings), 2)
	})
}

// A check says the same each time, and prefers a user whose credentials work.
func TestACheckIsNotAMatterOfLuck(t *testing.T) {
	for range 8 {
		bubble(t, func(t *testing.T, g *rig) {
			define(t, g, func(d *registry.ServerDefinition) {
				d.Users = map[string]registry.UserMapping{"a": {User: "fine"}, "b": {User: "locked out"}, "c": {User: "locked out"}, registry.Public: {User: "locked out"}}
			})
			require.NoError(t, g.CheckNow(t.Context(), "s"), "the first by name")
			for range 5 {
				for _, user := range []string{"b", "c"} {
					_, err := g.Acquire(t.Context(), "s", user)
					require.ErrorContains(t, err, "password")
				}
			}
			require.NoError(t, acquire(t, g, "a").Release())
			require.NoError(t, g.CheckNow(t.Context(), "s"), "calls that got nothing are no merit")
		})
	}
}

func TestThousandsOfOptionsTakeNoMoreThanTheirNumber(t *testing.T) {
	const n = 10_000
	text := func(begin string) string {
		var b strings.Builder
		b.WriteString(begin + " OPTIONS (")
		for i := range n {
			fmt.Fprintf(&b, "o%d 'v', ", i)
		}
		return b.String() + "last 'v')"
	}
	g := newRig(t)
	create, mapping := text("CREATE SERVER s FOREIGN DATA WRAPPER fake"), text("CREATE USER MAPPING FOR ann SERVER s")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, g.ApplyDDL(t.Context(), create+";"+mapping))
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(200), "MB: a copy for each option would be gigabytes")
	require.NoError(t, g.Close(t.Context()))
}

// Numbers as large as there are do no harm.
func TestTheLargestNumbers(t *testing.T) {
	const ever = time.Duration(math.MaxInt64)
	for refused, set := range map[string]func(d *registry.ServerDefinition){
		"OnExhausted: Overflow(9223372036854775807) is more": func(d *registry.ServerDefinition) { d.OnExhausted = flightpool.Overflow(math.MaxInt) },
		"MaxSize: 9223372036854775807 is more":               func(d *registry.ServerDefinition) { d.MaxSize = math.MaxInt },
		"": func(d *registry.ServerDefinition) {
			d.MaxSize, d.UserReserved, d.MaxWaiters, d.WarmupConnections = 3, math.MaxInt, math.MaxInt, math.MaxInt
			d.OpenTimeout, d.AcquireTimeout, d.QueryTimeout, d.IdleTTL, d.MaxLifetime, d.UserIdleTimeout, d.ValidateAfter = ever, ever, ever, ever, ever, ever, ever
			d.HealthCheck.Timeout, d.HealthCheck.Interval, d.ValidateOnAcquire = ever, ever, true
		},
	} {
		bubble(t, func(t *testing.T, g *rig) {
			d := registry.ServerDefinition{Name: "s", Kind: "fake", Users: map[string]registry.UserMapping{"a": {User: "remote a"}}}
			set(&d)
			if err := g.Register(t.Context(), d); refused != "" {
				require.ErrorContains(t, err, refused)
				return
			}
			require.NoError(t, acquire(t, g, "a").Release())
			require.NoError(t, g.CheckNow(t.Context(), "s"))
			f := g.fake("s")
			f.set(func() { f.down = true })
			for g.Healthy("s") {
				_ = g.CheckNow(t.Context(), "s")
			}
			f.set(func() { f.down = false })
			time.Sleep(time.Hour)
			require.True(t, g.Healthy("s"))
		})
	}
}
