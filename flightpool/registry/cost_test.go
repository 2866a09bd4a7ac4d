package registry_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
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
			Name: fmt.Sprint("server", i), Kind: "fake", MinIdle: -1, WarmupConnections: -1, KeepSession: true,
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

// single is one reservoir without a registry.
func single(b *testing.B) (borrow func(ctx context.Context) error, end func()) {
	hub := sqlconn.NewWrapper()
	target, err := sqlconn.New(hub, sqlconn.Config{Connector: sqlConnector{&fake{byUser: map[string]int{}}, "u"}, KeepState: true})
	require.NoError(b, err)
	pool, err := reservoir.New(reservoir.Config[*sqlconn.Conn]{Open: target.Open, Close: target.Close, Check: target.Check, Reset: target.Reset})
	require.NoError(b, err)
	borrow = func(ctx context.Context) error {
		loan, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		c, err := loan.Value().Lend(ctx)
		if err != nil {
			return err
		}
		return errors.Join(sqlconn.ReturnWithin(time.Second, c), loan.Release())
	}
	return borrow, func() {
		require.NoError(b, pool.Close(b.Context()))
		require.NoError(b, hub.Close())
	}
}

// BenchmarkAcquire borrows a warm connection of one among many pools and gives it
// back, by turns with the same on a reservoir without a registry, in one process:
// the garbage collector looks at all pools either way. It reports the medians of
// the turns.
func BenchmarkAcquire(b *testing.B) {
	const turns, each = 101, 200
	g := newRig(b)
	crowd(b, g, manyServers, manyUsers, false)
	server, user := fmt.Sprint("server", manyServers/2), fmt.Sprint("user", manyUsers/2)
	borrow, end := single(b)
	defer end()
	work := []func(ctx context.Context) error{borrow, func(ctx context.Context) error {
		c, err := g.Acquire(ctx, server, user)
		if err != nil {
			return err
		}
		return c.Release()
	}}
	for b.Loop() {
		var took [2][]time.Duration
		for range turns {
			for i, f := range work {
				began := time.Now()
				for range each {
					if err := f(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				took[i] = append(took[i], time.Since(began)/each)
			}
		}
		slices.Sort(took[0])
		slices.Sort(took[1])
		one, many := took[0][turns/2], took[1][turns/2]
		b.ReportMetric(float64(one), "ns/single")
		b.ReportMetric(float64(many), "ns/registry")
		b.ReportMetric(float64(many)/float64(one), "ratio")
	}
	b.StopTimer()
	require.NoError(b, g.Close(b.Context()))
}

// BenchmarkIdleFlightPool is BenchmarkIdlePool for Flight SQL servers: pools that
// were made and have no connection.
func BenchmarkIdleFlightPool(b *testing.B) {
	for b.Loop() {
		r := registry.New()
		before, _ := settled()
		for i := range manyServers / 10 {
			d := registry.ServerDefinition{
				Name: fmt.Sprint("server", i), Kind: "flightsql", Target: "grpc://127.0.0.1:1", MinIdle: -1, WarmupConnections: -1,
				UserIdleTimeout: -1, Users: map[string]registry.UserMapping{},
			}
			for j := range manyUsers {
				d.Users[fmt.Sprint("user", j)] = registry.UserMapping{}
			}
			require.NoError(b, r.Register(b.Context(), d))
			for user := range d.Users {
				require.NoError(b, r.Do(b.Context(), d.Name, user, func(*flightpool.FlightSQLPool) error { return nil }))
			}
		}
		after, goroutines := settled()
		b.ReportMetric(float64(after-before)/(manyServers/10*manyUsers), "B/pool")
		b.ReportMetric(float64(goroutines), "goroutines")
		require.NoError(b, r.Close(b.Context()))
	}
}
