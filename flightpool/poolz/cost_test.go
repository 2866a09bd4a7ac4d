package poolz

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// A stub is a connection that does nothing.
type stub struct{}

var errStub = errors.New("a stub")

func (stub) Prepare(string) (driver.Stmt, error)                   { return nil, errStub }
func (stub) Begin() (driver.Tx, error)                             { return nil, errStub }
func (stub) Close() error                                          { return nil }
func (stub) Connect(context.Context) (driver.Conn, error)          { return stub{}, nil }
func (stub) Driver() driver.Driver                                 { return stub{} }
func (stub) Open(string) (driver.Conn, error)                      { return stub{}, nil }
func (stub) Ping(context.Context) error                            { return nil }
func connectStub(registry.ConnectParams) (driver.Connector, error) { return stub{}, nil }

// manyServers is a page of so many servers with ten users each, who have a connection each.
func manyServers(t testing.TB, servers int) *Page {
	ctx := context.WithoutCancel(t.Context())
	reg, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{{Name: "stub", Connector: connectStub}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reg.Close(ctx)) })
	users := map[string]registry.UserMapping{}
	for i := range 10 {
		users[fmt.Sprint("user", i)] = registry.UserMapping{}
	}
	for i := range servers {
		name := fmt.Sprintf("server%04d", i)
		require.NoError(t, reg.Register(ctx, registry.ServerDefinition{
			Name: name, Kind: "stub", MinIdle: -1, WarmupConnections: -1, KeepSession: true, HealthCheck: registry.HealthCheck{Disabled: true}, Users: users,
		}))
		for user := range users {
			c, err := reg.Acquire(ctx, name, user)
			require.NoError(t, err)
			require.NoError(t, c.Release())
		}
	}
	page := New(Config{})
	page.Close() // the benchmark itself looks
	page.AddRegistry("all", reg)
	for range 70 {
		page.began = page.began.Add(-time.Second)
		page.sample()
	}
	return page
}

func BenchmarkAThousandServers(b *testing.B) {
	page := manyServers(b, 1000)
	b.Run("sample", func(b *testing.B) {
		for b.Loop() {
			page.sample()
		}
	})
	b.Run("state", func(b *testing.B) {
		size := 0
		for b.Loop() {
			size = get(b, page, "/state.json").Body.Len()
		}
		b.ReportMetric(float64(size), "bytes")
	})
}

// What the page's tracer adds to a call, beside a page that is looked at.
func BenchmarkACallThatIsTraced(b *testing.B) {
	page := manyServers(b, 10)
	w := page.Tracer("main").(*watcher) //nolint:forcetypeassert // else the benchmark fails
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		id := uint64(time.Now().UnixNano())
		for pb.Next() {
			ctx := w.TraceQueryStart(b.Context(), flightpool.QueryStartData{Op: "Query", SQL: "SELECT origin, count(*) FROM flights WHERE day = 7 GROUP BY origin"})
			w.TraceAcquireEnd(ctx, flightpool.AcquireEndData{ConnectionID: id%1000 + 1})
			w.TraceQueryEnd(ctx, flightpool.QueryEndData{Outcome: flightpool.Outcome{Took: time.Millisecond}})
			id++
		}
	})
}
