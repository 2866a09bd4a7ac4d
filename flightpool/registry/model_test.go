package registry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// TestStressOfEveryChangeInVirtualTime does everything to servers at random, from
// a seed, while users call; then it leaves them alone and looks whether anything
// was lost: a slot, a connection, a caller.
func TestStressOfEveryChangeInVirtualTime(t *testing.T) {
	began, length := time.Now(), stressLength(t, 0)
	for seed := uint64(1); seed <= 2 || time.Since(began) < length; seed++ {
		storm(t, seed)
	}
}

// A weather is one run of the test.
type weather struct {
	g   *rig
	rnd *rand.Rand // of the one goroutine that changes things

	mu    sync.Mutex
	bound map[string]int // by target: the most connections that there ever could be
	now   map[string]registry.ServerDefinition
	n     int
}

func storm(t *testing.T, seed uint64) {
	bubble(t, func(t *testing.T, g *rig) {
		defer func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		}()
		w := &weather{g: g, rnd: rand.New(rand.NewPCG(seed, 1)), bound: map[string]int{}, now: map[string]registry.ServerDefinition{}}
		for _, name := range []string{"s", "t"} {
			require.NoError(t, g.Register(t.Context(), w.define(name, true)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 16 {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)+2))
			wg.Go(func() { call(ctx, t, g, rnd) })
		}
		for range 100 {
			w.change(t.Context(), t)
			_ = sleep(ctx, time.Duration(w.rnd.IntN(300))*time.Millisecond)
		}
		w.calm(t)
		cancel()
		wg.Wait() // every caller's wait ends
		w.account(t)
	})
}

// define makes a definition at random, with the target that the server has, or
// another one.
func (w *weather) define(name string, move bool) registry.ServerDefinition {
	size, r := 1+w.rnd.IntN(8), w.rnd
	d := registry.ServerDefinition{
		Name: name, Kind: "fake", MaxSize: size, MinIdle: r.IntN(size+1) - 1, UserReserved: r.IntN(3), MaxConcurrentOpens: 1 + r.IntN(4),
		AcquireTimeout: []time.Duration{-1, 100 * time.Millisecond, 5 * time.Second}[r.IntN(3)], OpenTimeout: time.Duration(1+r.IntN(3)) * time.Second,
		OnExhausted: []flightpool.Exhaustion{flightpool.Wait, flightpool.FailFast, flightpool.Overflow(2)}[r.IntN(3)], UserMaxSize: 1 + r.IntN(size),
		KeepSession: r.IntN(2) == 0, ValidateOnAcquire: r.IntN(4) == 0, ValidateAfter: time.Millisecond, MaxLifetime: time.Duration(1+r.IntN(20)) * time.Second,
		HealthCheck: registry.HealthCheck{Interval: time.Second, RecoveryThreshold: 1 + r.IntN(2)}, UserIdleTimeout: time.Duration(1+r.IntN(5)) * time.Second, WarmupConnections: r.IntN(3) - 1,
		Users: map[string]registry.UserMapping{},
	}
	d.MinIdle = min(d.MinIdle, d.UserMaxSize)
	for _, user := range []string{"a", "b", registry.Public} {
		if r.IntN(8) > 0 {
			d.Users[user] = registry.UserMapping{User: fmt.Sprint(user, " ", r.IntN(3))}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.Target = w.now[name].Target; move || d.Target == "" {
		w.n++
		d.Target = fmt.Sprint(name, "#", w.n)
		w.g.fake(d.Target).dial = time.Duration(r.IntN(50)) * time.Millisecond
		w.g.fake(d.Target).slow = time.Duration(r.IntN(3)) * 20 * time.Millisecond
	}
	w.now[name] = d
	w.bound[d.Target] = max(w.bound[d.Target], d.MaxSize+max(0, int(d.OnExhausted)))
	return d
}

func (w *weather) fake(name string) *fake { return w.g.fake(w.now[name].Target) }

// change does one thing.
func (w *weather) change(ctx context.Context, t *testing.T) {
	name := []string{"s", "t"}[w.rnd.IntN(2)]
	f := w.fake(name)
	soon, cancel := context.WithTimeout(ctx, time.Duration(1+w.rnd.IntN(200))*time.Millisecond)
	defer cancel()
	switch w.rnd.IntN(12) {
	case 0, 1, 2:
		if err := w.g.Update(ctx, w.define(name, false)); err != nil {
			t.Errorf("update: %v", err)
		}
	case 3:
		if err := w.g.Update(ctx, w.define(name, true)); err != nil {
			t.Errorf("move: %v", err)
		}
	case 4:
		_ = w.g.Unregister(soon, name)
		if err := w.g.Register(ctx, w.define(name, true)); err != nil {
			t.Errorf("register: %v", err)
		}
	case 5, 6:
		f.set(func() { f.down = !f.down })
	case 7:
		f.set(func() { f.stuck = !f.stuck })
	case 8:
		_ = w.g.CloseAll(soon, name)
	case 9:
		_ = w.g.Warmup(soon, name, 1)
	case 10:
		_ = w.g.CheckNow(soon, name)
	case 11:
		_, _ = w.g.EvictIdle(name)
		_, _ = w.g.Connections(name)
		_, _ = w.g.UserStats(name)
	}
}

// call is a user's callers: they wait, hold, give back, and look whose connection
// they have.
func call(ctx context.Context, t *testing.T, g *rig, rnd *rand.Rand) {
	for ctx.Err() == nil {
		user := []string{"a", "b", "c"}[rnd.IntN(3)]
		mine, cancel := ctx, context.CancelFunc(func() {})
		if rnd.IntN(3) == 0 {
			mine, cancel = context.WithTimeout(ctx, time.Duration(rnd.IntN(300))*time.Millisecond)
		}
		c, err := g.Acquire(mine, []string{"s", "t"}[rnd.IntN(2)], user)
		if err == nil {
			var who string
			prefix := map[string]string{"a": "a ", "b": "b ", "c": "PUBLIC "}[user]
			if c.SQL().QueryRowContext(ctx, "whoami").Scan(&who) == nil && !strings.HasPrefix(who, prefix) && !strings.HasPrefix(who, "PUBLIC ") {
				t.Errorf("user %s got a connection of %s", user, who)
			}
			_ = sleep(ctx, time.Duration(rnd.IntN(100))*time.Millisecond)
			if rnd.IntN(8) == 0 {
				_ = c.Fail(errDown)
			} else {
				_ = c.Release()
			}
		}
		cancel()
		_ = sleep(ctx, time.Duration(rnd.IntN(100))*time.Millisecond)
	}
}

// calm gives everything time to come to rest: servers that work, definitions that
// stay.
func (w *weather) calm(t *testing.T) {
	for _, f := range w.g.all() {
		f.set(func() { f.down, f.stuck = false, false })
	}
	for _, name := range []string{"s", "t"} {
		d := w.define(name, false)
		d.OnExhausted, d.UserReserved, d.UserMaxSize, d.AcquireTimeout, d.UserIdleTimeout, d.MinIdle, d.MaxLifetime = flightpool.Wait, 0, 0, -1, -1, -1, -1
		d.HealthCheck.Interval = time.Hour // else one may be under way at the end
		d.Users = map[string]registry.UserMapping{registry.Public: {User: "PUBLIC 0"}}
		require.NoError(t, w.g.Update(t.Context(), d))
		w.now[name] = d
	}
	time.Sleep(time.Minute)
}

// account looks for what was lost. All callers are gone.
func (w *weather) account(t *testing.T) {
	time.Sleep(10 * time.Second) // the last opens and closes end
	synctest.Wait()
	for name, d := range w.now {
		require.True(t, w.g.Healthy(name))
		st, err := w.g.ServerStats(name)
		require.NoError(t, err)
		assert.Equal(t, []int{0, 0, 0}, []int{st.Active, st.Waiting, st.Opening}, "server %s", name)
		assert.Equal(t, st.Acquires, st.Releases)
		assert.Equal(t, w.fake(name).read(&w.fake(name).live), st.Total, "what exists is what is counted")
		assert.LessOrEqual(t, st.Total, d.MaxSize)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		var held []*registry.Conn
		for range d.MaxSize { // every slot is there
			c, err := w.g.Acquire(ctx, name, "z")
			if assert.NoError(t, err) {
				held = append(held, c)
			}
		}
		_, err = w.g.Acquire(ctx, name, "z")
		assert.True(t, errors.Is(err, registry.ErrExhausted), "and no more: %v", err)
		for _, c := range held {
			assert.NoError(t, c.Release())
		}
		cancel()
	}
	for target, most := range w.bound {
		f := w.g.fake(target)
		assert.LessOrEqual(t, f.read(&f.mostLive), most, target)
	}
}
