package registry_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

const (
	manyServers = 1000
	manyUsers   = 10
)

// crowd registers many servers and makes every user's pool, with a connection
// that is then evicted if cold.
func crowd(t testing.TB, g *rig, servers, users int, cold bool) {
	t.Helper()
	for i := range servers {
		d := registry.ServerDefinition{
			Name: fmt.Sprint("server", i), Kind: "fake", MinConnections: -1, WarmupConnections: -1, KeepSession: true,
			UserIdleTimeout: -1, Users: map[string]registry.UserMapping{},
		}
		for j := range users {
			d.Users[fmt.Sprint("user", j)] = registry.UserMapping{User: "u"}
		}
		require.NoError(t, g.Register(t.Context(), d))
		for user := range d.Users {
			c, err := g.Acquire(t.Context(), d.Name, user)
			require.NoError(t, err)
			require.NoError(t, c.Release())
		}
		if cold {
			_, err := g.EvictIdle(d.Name)
			require.NoError(t, err)
		}
	}
}

func settled() (heap uint64, goroutines int) {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
		for range 1000 {
			runtime.Gosched() // closers end
		}
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse, runtime.NumGoroutine()
}

// BenchmarkIdlePool reports what an idle user's pool without connections costs.
func BenchmarkIdlePool(b *testing.B) {
	for b.Loop() {
		g := newRig(b)
		before, _ := settled()
		crowd(b, g, manyServers, manyUsers, true)
		after, goroutines := settled()
		b.ReportMetric(float64(after-before)/(manyServers*manyUsers), "B/pool")
		b.ReportMetric(float64(goroutines), "goroutines")
		require.NoError(b, g.Close(b.Context()))
	}
}

// BenchmarkAcquire borrows a warm connection and gives it back, from a registry of
// one pool and of many.
func BenchmarkAcquire(b *testing.B) {
	for _, size := range []struct{ servers, users int }{{1, 1}, {manyServers, manyUsers}} {
		b.Run(fmt.Sprintf("%dx%d", size.servers, size.users), func(b *testing.B) {
			g := newRig(b)
			crowd(b, g, size.servers, size.users, false)
			server, user := fmt.Sprint("server", size.servers/2), fmt.Sprint("user", size.users/2)
			b.ReportAllocs()
			for b.Loop() {
				c, err := g.Acquire(b.Context(), server, user)
				if err != nil {
					b.Fatal(err)
				}
				_ = c.Release()
			}
			b.StopTimer()
			require.NoError(b, g.Close(b.Context()))
		})
	}
}

// BenchmarkSinglePool does the same with one reservoir, without a registry.
func BenchmarkSinglePool(b *testing.B) {
	hub := sqlconn.NewHub()
	target, err := sqlconn.New(hub, sqlconn.Config{Connector: connector{&fake{byUser: map[string]int{}}, "u"}, KeepState: true})
	require.NoError(b, err)
	pool, err := reservoir.New(reservoir.Config[*sqlconn.Conn]{Open: target.Open, Close: target.Close, Check: target.Check, Reset: target.Reset})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		loan, err := pool.Acquire(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		c, err := loan.Value().Lend(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		_ = sqlconn.Return(b.Context(), c)
		_ = loan.Release()
	}
	b.StopTimer()
	require.NoError(b, pool.Close(b.Context()))
	require.NoError(b, hub.Close())
}
