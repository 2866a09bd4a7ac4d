package registry_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

func TestAServerThatCannotBeReachedFailsFastWithItsReason(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		f := g.fake("s")
		f.set(func() { f.down = true })
		for g.Healthy("s") {
			_, err := g.Acquire(t.Context(), "s", "a")
			require.ErrorIs(t, err, errDown)
		}
		require.Equal(t, 3, f.read(&f.opens), "the threshold")
		before := time.Now()
		_, err := g.Acquire(t.Context(), "s", "b")
		require.Zero(t, time.Since(before))
		var down *registry.UnhealthyError
		require.ErrorAs(t, err, &down)
		require.ErrorIs(t, err, registry.ErrUnhealthy)
		require.ErrorIs(t, err, errDown)
		require.Equal(t, "s", down.Server)
		require.False(t, down.Since.IsZero())
		require.True(t, down.Next.After(time.Now()))
		st, err := g.ServerStats("s")
		require.NoError(t, err)
		require.False(t, st.Healthy)
		require.Contains(t, st.UnhealthyReason, "refused")
	})
}

func TestWaitersAreFailedWhenTheirServerTurnsUnhealthy(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.AcquireTimeout = time.Hour; d.MaxSize = 4 })
		f := g.fake("s")
		held := []*registry.Conn{acquire(t, g, "a"), acquire(t, g, "a"), acquire(t, g, "a"), acquire(t, g, "a")}
		errs := make(chan error, 5)
		for range 5 {
			go func() {
				_, err := g.Acquire(t.Context(), "s", "a")
				errs <- err
			}()
		}
		synctest.Wait()
		f.set(func() { f.down = true })
		began := time.Now()
		for _, c := range held[1:] { // the first one is still out: the reservoir alone would wait for it
			require.NoError(t, c.Fail(errDown))
		}
		for range 5 {
			require.ErrorIs(t, <-errs, registry.ErrUnhealthy)
		}
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.NoError(t, held[0].Release())
	})
}

func TestProbesBackOffAndRecoveryIsAnnouncedAfterTheThreshold(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.HealthCheck.Interval = 10 * time.Second; d.MinIdle = 1 })
		f := g.fake("s")
		f.set(func() { f.down = true })
		for g.Healthy("s") {
			_, _ = g.Acquire(t.Context(), "s", "a")
		}
		opens := f.read(&f.opens)
		time.Sleep(2 * time.Minute)
		probes := f.read(&f.opens) - opens
		require.InDelta(t, 20, probes, 4, "one every interval at last, a few quick ones first")
		f.set(func() { f.down = false })
		back := time.Now()
		for !g.Healthy("s") {
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(back), 20*time.Second, "two probe intervals")
		require.Equal(t, []string{"s down", "s up"}, g.told())
		require.NoError(t, acquire(t, g, "b").Release())
	})
}

// The pause before the next probe may be hours by the interval of before.
func TestAShorterIntervalBringsTheNextProbeForward(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, func(d *registry.ServerDefinition) { d.HealthCheck.Interval = 10 * time.Hour })
		f := g.fake("s")
		f.set(func() { f.down = true })
		for g.Healthy("s") {
			_, _ = g.Acquire(t.Context(), "s", "a")
		}
		time.Sleep(20 * time.Hour)
		f.set(func() { f.down = false })
		d.HealthCheck.Interval = 5 * time.Second
		require.NoError(t, g.Update(t.Context(), d))
		_, err := g.Acquire(t.Context(), "s", "a")
		var down *registry.UnhealthyError
		require.ErrorAs(t, err, &down)
		require.LessOrEqual(t, time.Until(down.Next), 5*time.Second, "the error tells it")
		time.Sleep(10 * time.Second)
		require.True(t, g.Healthy("s"), "two probes")
	})
}

func TestRecoveryDoesNotStampede(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		f.dial = 50 * time.Millisecond
		define(t, g, func(d *registry.ServerDefinition) {
			d.MaxSize = 60
			d.MinIdle = 20
			d.WarmupConnections = 1
			d.MaxConcurrentOpens = 4
			d.HealthCheck.Interval = time.Second
		})
		time.Sleep(5 * time.Second)
		require.Equal(t, 60, f.read(&f.live))
		f.set(func() { f.down = true })
		for g.Healthy("s") {
			_ = g.CheckNow(t.Context(), "s")
		}
		synctest.Wait()
		f.set(func() { f.down, f.mostOpening = false, 0 })
		time.Sleep(5 * time.Second)
		require.True(t, g.Healthy("s"))
		require.Equal(t, 60, f.read(&f.live), "what is kept ready is back")
		require.LessOrEqual(t, f.read(&f.mostOpening), 4)
	})
}

func TestOnlyFaultsOfTheConnectionCount(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, nil)
		d.Users["x"] = registry.UserMapping{User: "locked out"}
		require.NoError(t, g.Update(t.Context(), d))
		for range 5 {
			_, err := g.Acquire(t.Context(), "s", "x")
			require.ErrorContains(t, err, "password")
		}
		require.True(t, g.Healthy("s"))
		var held []*registry.Conn
		for range 5 {
			held = append(held, acquire(t, g, "a"))
		}
		for _, c := range held {
			require.NoError(t, c.Fail(errors.New("a statement was wrong")))
		}
		synctest.Wait()
		require.True(t, g.Healthy("s"))
	})
}

// Whatever a borrower says is wrong with a connection, such as that the own time was over, is not what the
// connection shows.
func TestABorrowersWordIsNoFaultOfTheServer(t *testing.T) {
	words := []error{context.DeadlineExceeded, io.ErrUnexpectedEOF, driver.ErrBadConn, &flightpool.Error{Fault: flightpool.FaultTransport}, &flightpool.Error{Fault: flightpool.FaultContext}}
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		for _, word := range words {
			require.NoError(t, acquire(t, g, "a").Fail(word))
		}
		synctest.Wait()
		require.True(t, g.Healthy("s"))
		var held []*registry.Conn
		for range 3 {
			held = append(held, acquire(t, g, "a"))
		}
		g.fake("s").set(func() { g.servers["s"].down = true })
		for _, c := range held {
			_, err := c.SQL().ExecContext(t.Context(), "x")
			require.ErrorIs(t, err, errDown)
			require.NoError(t, c.Fail(err))
		}
		synctest.Wait()
		require.False(t, g.Healthy("s"), "what has broken counts, whoever says so")
	})
	doing(t, func(*registry.ServerDefinition) {}, func(t *testing.T, r *registry.Registry) {
		for _, word := range words {
			c, err := r.Acquire(t.Context(), "s", "a")
			require.NoError(t, err)
			require.NoError(t, c.Fail(word))
			lent, err := r.AcquireSession(t.Context(), "s", "a")
			require.NoError(t, err)
			require.NoError(t, lent.Discard(word))
		}
		synctest.Wait()
		require.True(t, r.Healthy("s"))
	})
}

func TestAServerThatDoesNotAnswerIsUnhealthyToo(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.OpenTimeout = time.Second })
		f := g.fake("s")
		f.set(func() { f.stuck = true })
		for g.Healthy("s") {
			_, err := g.Acquire(t.Context(), "s", "a")
			require.Error(t, err)
		}
		f.set(func() { f.stuck = false })
		time.Sleep(time.Minute)
		require.True(t, g.Healthy("s"))
	})
}

func TestIdleConnectionsAreCheckedAndTheDeadReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.HealthCheck.Interval = 5 * time.Second })
		f := g.fake("s")
		require.NoError(t, acquire(t, g, "a").Release())
		f.set(func() { f.down = true })
		time.Sleep(6 * time.Second)
		require.Zero(t, f.read(&f.live))
		require.True(t, g.Healthy("s"), "one fault is below the threshold")
	})
}

func TestADisabledHealthCheckNeverRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.HealthCheck.Disabled = true })
		f := g.fake("s")
		f.set(func() { f.down = true })
		for range 6 {
			_, err := g.Acquire(t.Context(), "s", "a")
			require.ErrorIs(t, err, errDown)
			require.NotErrorIs(t, err, registry.ErrUnhealthy)
		}
		require.True(t, g.Healthy("s"))
	})
}

func TestCheckNowFindsOutWithoutWaitingForAProbe(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.HealthCheck.Interval = time.Hour })
		f := g.fake("s")
		require.NoError(t, g.CheckNow(t.Context(), "s"), "with no user's pool there yet")
		f.set(func() { f.down = true })
		for g.Healthy("s") {
			require.Error(t, g.CheckNow(t.Context(), "s"))
		}
		f.set(func() { f.down = false })
		require.NoError(t, g.CheckNow(t.Context(), "s"))
		require.False(t, g.Healthy("s"), "the recovery threshold is 2")
		require.NoError(t, g.CheckNow(t.Context(), "s"))
		require.True(t, g.Healthy("s"))
		require.ErrorIs(t, g.CheckNow(t.Context(), "nowhere"), registry.ErrUnknownServer)
	})
}

// Twenty rounds of kill and restart under load, beside a server that stays up.
func TestKillAndRestartUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		f.dial = 5 * time.Millisecond
		define(t, g, func(d *registry.ServerDefinition) { d.HealthCheck.Interval = time.Second; d.AcquireTimeout = -1 })
		other := registry.ServerDefinition{Name: "other", Kind: "fake", Users: map[string]registry.UserMapping{"a": {User: "a"}}, KeepSession: true}
		require.NoError(t, g.Register(t.Context(), other))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		slow := time.Duration(0)
		for i := range 30 {
			user := []string{"a", "b", "c"}[i%3]
			wg.Go(func() {
				for ctx.Err() == nil {
					healthy := g.Healthy("s")
					began := time.Now()
					_, err := work(ctx, g, "s", user, 50*time.Millisecond)
					if !healthy && err != nil && time.Since(began) > 5*time.Millisecond {
						t.Errorf("an unhealthy server took %v to refuse", time.Since(began))
					}
					if err != nil {
						_ = sleep(ctx, 20*time.Millisecond)
					}
				}
			})
		}
		for range 3 {
			wg.Go(func() {
				for ctx.Err() == nil {
					waited, err := work(ctx, g, "other", "a", 50*time.Millisecond)
					if err != nil && ctx.Err() == nil {
						t.Errorf("the other server: %v", err)
						return
					}
					mu.Lock()
					slow = max(slow, waited)
					mu.Unlock()
				}
			})
		}
		for range 20 {
			time.Sleep(time.Second)
			f.set(func() { f.down = true })
			time.Sleep(3 * time.Second)
			assert.False(t, g.Healthy("s"))
			f.set(func() { f.down = false })
			time.Sleep(2 * time.Second)
			assert.True(t, g.Healthy("s"), "it serves again within two probe intervals")
		}
		cancel()
		wg.Wait()
		require.Zero(t, slow, "the other server's callers never waited")
		require.LessOrEqual(t, f.mostLive, 10)
		require.Len(t, g.told(), 40)
	})
}
