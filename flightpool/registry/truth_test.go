package registry_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
)

// truth is what really happened to a user's callers.
type truth struct {
	mu                    sync.Mutex
	got, gaveBack, failed uint64
	waited                time.Duration
	statements            uint64
}

// TestStatisticsAreWhatHappened lets users call at random, from seeds, while
// credentials change, idle connections are evicted and the server is checked. No
// counter ever goes back, and at the end all are what happened.
func TestStatisticsAreWhatHappened(t *testing.T) {
	began, length := time.Now(), stressLength(t, 0)
	for seed := uint64(1); seed <= 3 || time.Since(began) < length; seed++ {
		bubble(t, func(t *testing.T, g *rig) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			happens(t, g, seed)
		})
	}
}

func happens(t *testing.T, g *rig, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	f := g.fake("s")
	f.dial, f.ping, f.slow = time.Duration(rnd.IntN(30))*time.Millisecond, time.Duration(rnd.IntN(30))*time.Millisecond, time.Duration(rnd.IntN(30))*time.Millisecond
	checks := seed%2 == 0 // probes wait, too, and so are in the times of waits
	d := define(t, g, func(d *registry.ServerDefinition) {
		d.MaxSize, d.AcquireTimeout, d.UserIdleTimeout = 1+rnd.IntN(5), time.Duration(20+rnd.IntN(500))*time.Millisecond, -1
		d.HealthCheck.Interval = 500 * time.Millisecond
	})
	all := map[string]*truth{"a": {}, "b": {}, "c": {}}
	until := time.Now().Add(10 * time.Second)
	var wg sync.WaitGroup
	for i := range 12 {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)+1))
		wg.Go(func() {
			for time.Now().Before(until) {
				user := []string{"a", "b", "c"}[rnd.IntN(3)]
				all[user].call(t, g, user, rnd)
				time.Sleep(time.Duration(rnd.IntN(60_000)) * time.Microsecond)
			}
		})
	}
	wg.Go(func() { watch(t, g, until) })
	for n := 0; time.Now().Before(until); n++ {
		time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
		switch rnd.IntN(4) {
		case 0:
			d.Users["a"] = registry.UserMapping{User: "remote a", Password: string(rune('a' + n%26))}
			assert.NoError(t, g.Update(t.Context(), d))
		case 1:
			_, _ = g.EvictIdle("s")
		case 2:
			if checks {
				_ = g.CheckNow(t.Context(), "s") // others may have everything
			}
		}
	}
	wg.Wait()
	time.Sleep(time.Second)
	synctest.Wait()
	users, err := g.UserStats("s")
	require.NoError(t, err)
	for _, u := range users {
		h := all[u.User]
		require.Equal(t, []uint64{h.got, h.gaveBack, h.failed, h.statements}, []uint64{u.Acquires, u.Releases, u.AcquireTimeouts, u.Queries}, "user %s", u.User)
		require.Equal(t, []int{0, 0, 0, 0}, []int{u.Active, u.Waiting, u.Opening, u.Closing}, "user %s", u.User)
		mean := h.waited / time.Duration(max(1, h.got)) //nolint:gosec // some thousand
		switch {
		case checks:
		case u.User == "a": // whose pools are replaced
			require.LessOrEqual(t, u.Wait.Mean, mean+time.Microsecond)
		default:
			require.InDelta(t, mean, u.Wait.Mean, float64(time.Microsecond), "user %s", u.User)
		}
		require.LessOrEqual(t, u.Wait.Mean, 2*u.Wait.P999+time.Microsecond)
	}
	st, err := g.ServerStats("s")
	require.NoError(t, err)
	made, live := f.read(&f.made), f.read(&f.live)
	require.Equal(t, []int{made, made - live, live, live}, []int{int(st.Created), int(st.Destroyed), st.Total, st.Idle})
	require.Equal(t, []uint64{0, 0}, []uint64{st.ConnectionErrors, st.ValidationFailures})
	require.LessOrEqual(t, f.read(&f.mostLive), d.MaxSize)
}

// call borrows, works and gives back, and keeps account.
func (h *truth) call(t *testing.T, g *rig, user string, rnd *rand.Rand) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rnd.IntN(400_000))*time.Microsecond)
	if rnd.IntN(4) == 0 {
		time.AfterFunc(time.Duration(1+rnd.IntN(200_000))*time.Microsecond, cancel)
	}
	defer cancel()
	began := time.Now()
	c, err := g.Acquire(ctx, "s", user)
	waited := time.Since(began)
	if err == nil {
		_, err := c.SQL().ExecContext(t.Context(), (time.Duration(rnd.IntN(50_000)) * time.Microsecond).String())
		assert.NoError(t, err)
		if rnd.IntN(10) == 0 {
			_ = c.Fail(errors.New("so it is"))
		} else {
			assert.NoError(t, c.Release())
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.failed++
		return
	}
	h.got++
	h.gaveBack++
	h.statements++
	h.waited += waited
}

// watch looks at the statistics all the time.
func watch(t *testing.T, g *rig, until time.Time) {
	counters := func(p registry.PoolStats) []uint64 {
		return []uint64{p.Acquires, p.Releases, p.AcquireTimeouts, p.Rejected, p.ConnectionErrors, p.ValidationFailures, p.Created, p.Destroyed, p.Queries}
	}
	last := make([]uint64, 9)
	for time.Now().Before(until) {
		time.Sleep(777 * time.Microsecond)
		st, err := g.ServerStats("s")
		if !assert.NoError(t, err) {
			return
		}
		now := counters(st.PoolStats)
		for i := range now {
			if now[i] < last[i] {
				t.Errorf("counter %d went back from %d to %d", i, last[i], now[i])
				return
			}
		}
		last = now
		if st.Releases > st.Acquires || st.Active < 0 || st.Total != st.Active+st.Idle+st.Opening+st.Closing {
			t.Errorf("%+v", st.PoolStats)
			return
		}
	}
}

func TestAConnectionOfAPoolThatDrainsIsAmongTheConnections(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, nil)
		one := acquire(t, g, "a")
		d.Users["a"] = registry.UserMapping{User: "remote a", Password: "new"}
		require.NoError(t, g.Update(t.Context(), d))
		two := acquire(t, g, "b")
		delete(d.Users, "b")
		require.NoError(t, g.Update(t.Context(), d))
		synctest.Wait()
		all, err := g.Connections("s")
		require.NoError(t, err)
		require.Len(t, all, 2, "one of an old pool, one of a user who is gone")
		require.Equal(t, []string{"a", "b"}, []string{all[0].User, all[1].User})
		require.NoError(t, one.Release())
		require.NoError(t, two.Release())
	})
}

func TestNobodyBorrowsDuringChecksAndProbes(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) {
			d.HealthCheck.Interval = 10 * time.Second
			d.UserIdleTimeout = time.Minute
		})
		require.NoError(t, acquire(t, g, "a").Release())
		f := g.fake("s")
		f.set(func() { f.ping = 2 * time.Second })
		for n := range 120 {
			time.Sleep(500 * time.Millisecond)
			if n%9 == 0 {
				go func() { _ = g.CheckNow(t.Context(), "s") }()
			}
			st, err := g.ServerStats("s")
			require.NoError(t, err)
			require.Equal(t, []int{0, 1, 1}, []int{st.Active, int(st.Acquires), int(st.Releases)})
		}
		time.Sleep(time.Minute)
		users, err := g.UserStats("s")
		require.NoError(t, err)
		require.Empty(t, users, "probes are no calls of the user's")
	})
}

func TestACallThatSentNothingIsNoQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{flightKind(srv)}})
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close(t.Context())) }()
		require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{Name: "s", Kind: "flightsql", Users: map[string]registry.UserMapping{"a": {}}, MaxSize: 1, AcquireTimeout: time.Second}))
		s, err := r.AcquireSession(t.Context(), "s", "a")
		require.NoError(t, err)
		_, err = r.Query(t.Context(), "s", "a", "SELECT 1")
		require.ErrorIs(t, err, registry.ErrExhausted)
		require.NoError(t, s.Close())
		res, err := r.Query(t.Context(), "s", "a", "SELECT 1")
		require.NoError(t, err)
		for res.Next() {
			continue
		}
		res.Release()
		_, err = r.Query(t.Context(), "s", "a", "SELEC")
		require.Error(t, err)
		require.NotErrorIs(t, err, registry.ErrExhausted)
		st, err := r.ServerStats("s")
		require.NoError(t, err)
		require.Equal(t, []uint64{1, 0}, []uint64{st.Queries, st.QueryFailures}, "neither a session, nor a call that got none, nor a text that is refused here")
	})
}
