package registry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

func TestStatisticsAtEveryLevel(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 1; d.AcquireTimeout = time.Second })
		held := acquire(t, g, "a")
		_, err := held.SQL().ExecContext(t.Context(), "100ms")
		require.NoError(t, err)
		_, err = g.Acquire(t.Context(), "s", "a")
		require.ErrorIs(t, err, registry.ErrExhausted)
		time.Sleep(9 * time.Second)

		s, err := g.ServerStats("s")
		require.NoError(t, err)
		require.Equal(t, []int{1, 1, 0, 1, 1}, []int{s.Total, s.Active, s.Idle, s.UserPools, s.MaxSize})
		require.Equal(t, []uint64{1, 0, 1, 1, 1}, []uint64{s.Acquires, s.Releases, s.AcquireTimeouts, s.Created, s.Queries})
		require.Equal(t, 100*time.Millisecond, s.MeanQuery)
		require.InDelta(t, 10.1, s.MeanLifetime.Seconds(), .01)
		require.False(t, s.LastActivity.IsZero())

		require.NoError(t, held.Release())
		users, err := g.UserStats("s")
		require.NoError(t, err)
		require.Equal(t, []string{"s", "a", "remote a"}, []string{users[0].ServerName, users[0].User, users[0].RemoteUser})
		require.Equal(t, uint64(1), users[0].Releases)

		conns, err := g.Connections("s")
		require.NoError(t, err)
		require.Len(t, conns, 1)
		require.Equal(t, []uint64{1, 1, 0}, []uint64{conns[0].Uses, conns[0].Queries, conns[0].Failures})
		require.False(t, conns[0].InUse)

		all := g.Stats()
		require.Equal(t, []int{1, 1, 0, 1, 1}, []int{all.Servers, all.HealthyServers, all.UnhealthyServers, all.Users, all.Total})
		require.Equal(t, uint64(1), all.Errors)
	})
}

func TestPercentilesOfTheWait(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 1 })
		for range 98 {
			require.NoError(t, acquire(t, g, "a").Release())
		}
		held := acquire(t, g, "a")
		got := make(chan error, 1)
		go func() {
			_, err := work(t.Context(), g, "s", "a", 0)
			got <- err
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		require.NoError(t, held.Release())
		require.NoError(t, <-got)
		users, err := g.UserStats("s")
		require.NoError(t, err)
		w := users[0].Wait
		require.Zero(t, w.P50)
		require.GreaterOrEqual(t, w.P999, time.Second)
		require.LessOrEqual(t, w.P999, 1250*time.Millisecond)
		require.InDelta(t, 10, w.Mean.Seconds()*1000, .5, "one second of a hundred callers")
	})
}

func TestCountersDoNotGoBackWhenAPoolIsRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.UserIdleTimeout = time.Minute })
		require.NoError(t, acquire(t, g, "a").Release())
		time.Sleep(3 * time.Minute)
		s, err := g.ServerStats("s")
		require.NoError(t, err)
		require.Zero(t, s.UserPools)
		require.Equal(t, []uint64{1, 1, 1}, []uint64{s.Acquires, s.Created, s.Destroyed})
	})
}

func TestTablesHoldWhatTheStatisticsSay(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
		defer mem.AssertSize(t, 0)
		define(t, g, nil)
		a, b := acquire(t, g, "a"), acquire(t, g, "b")
		require.NoError(t, b.Release())
		for name, want := range map[string]struct {
			rows  int64
			texts map[string][]string
			ints  map[string]int64
		}{
			registry.TablePools: {1, map[string][]string{"server_name": {"s"}, "db_type": {"fake"}},
				map[string]int64{"total_conns": 2, "active": 1, "idle": 1, "waiting": 0, "acquires": 2, "timeouts": 0}},
			registry.TableUsers:       {2, map[string][]string{"local_user": {"a", "b"}, "remote_user": {"remote a", "remote b"}}, map[string]int64{"active": 1}},
			registry.TableConnections: {2, map[string][]string{"local_user": {"a", "b"}, "state": {"active", "idle"}}, map[string]int64{"use_count": 1}},
		} {
			batch, err := g.Table(name, mem)
			require.NoError(t, err)
			require.Equal(t, want.rows, batch.NumRows(), name)
			for column, values := range want.texts {
				at := batch.Schema().FieldIndices(column)[0]
				for i, v := range values {
					require.Equal(t, v, batch.Column(at).(*array.String).Value(i), "%s.%s", name, column)
				}
			}
			for column, v := range want.ints {
				at := batch.Schema().FieldIndices(column)[0]
				require.Equal(t, v, batch.Column(at).(*array.Int64).Value(0), "%s.%s", name, column)
			}
			batch.Release()
		}
		_, err := g.Table("sys.nothing", nil)
		require.Error(t, err)
		require.NoError(t, a.Release())
	})
}

// Checks that are no calls of the user's do not make the waits look shorter.
func TestProbesAreNoWaits(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.UserIdleTimeout = -1 })
		f := g.fake("s")
		f.set(func() { f.dial = time.Second })
		use(t, g, "a")
		use(t, g, "a")
		before, err := g.UserStats("s")
		require.NoError(t, err)
		for range 99 {
			require.NoError(t, g.CheckNow(t.Context(), "s"))
		}
		after, err := g.UserStats("s")
		require.NoError(t, err)
		require.Equal(t, 500*time.Millisecond, before[0].Wait.Mean)
		require.Equal(t, before[0].Wait, after[0].Wait)
	})
}

// A driver's Close that takes long is counted until it returns, and not for ever.
func TestConnectionsThatCloseLateAreCountedUntilThen(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		g.fake("s").set(func() { g.servers["s"].slow = time.Minute })
		out := acquire(t, g, "a")
		require.NoError(t, acquire(t, g, "b").Release())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var drain *registry.DrainError
		require.ErrorAs(t, g.CloseAll(ctx, "s"), &drain)
		require.ErrorIs(t, out.Release(), registry.ErrReleased)
		numbers := func() []int {
			st, err := g.ServerStats("s")
			require.NoError(t, err)
			return []int{st.Total, st.Closing, st.Idle, st.Active, int(st.Created), int(st.Destroyed), int(st.Acquires), int(st.Releases)} //nolint:gosec // small
		}
		require.Equal(t, []int{2, 2, 0, 0, 2, 0, 2, 2}, numbers())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []int{0, 0, 0, 0, 2, 2, 2, 2}, numbers())

		require.NoError(t, acquire(t, g, "a").Release())
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, g.CloseAll(ctx, "s"))
		require.ErrorContains(t, g.Close(t.Context()), "1 connections remain", "nil says that none is left")
		time.Sleep(time.Minute)
	})
}

// 300 connections for more than a year.
func TestMeansOfManyLongTimesDoNotOverflow(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) {
			d.MaxSize, d.HealthCheck.Disabled, d.IdleTTL, d.UserIdleTimeout = 900, true, -1, -1
		})
		require.NoError(t, g.Warmup(t.Context(), "s", 300))
		const month = 30 * 24 * time.Hour
		for n := range time.Duration(14) {
			time.Sleep(month)
			require.InEpsilon(t, (n+1)*month, g.Stats().MeanLifetime, .001)
		}
	})
}
