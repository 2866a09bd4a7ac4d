package flightpool_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
)

// ends counts the calls that have begun and those that have ended, by their texts.
type ends struct {
	mu     sync.Mutex
	begun  map[string]int
	ended  map[string]int
	latest map[string]flightpool.Outcome
}

func (e *ends) TraceQueryStart(ctx context.Context, d flightpool.QueryStartData) context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begun[d.SQL]++
	return ctx
}

func (e *ends) TraceQueryEnd(_ context.Context, d flightpool.QueryEndData) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended[d.SQL]++
	e.latest[d.SQL] = d.Outcome
}

// ways run a statement by another API than the pool's own, and read what it returns.
var ways = map[string]func(ctx context.Context, p *flightpool.FlightSQLPool, r *registry.Registry, sql string) error{
	"sql.DB.Query": func(ctx context.Context, p *flightpool.FlightSQLPool, _ *registry.Registry, sql string) error {
		db := openDB(p)
		defer func() { _ = db.Close() }()
		rows, err := db.QueryContext(ctx, sql)
		if err != nil {
			return err
		}
		for rows.Next() {
			continue
		}
		_ = rows.Close()
		return rows.Err()
	},
	"sql.DB.Exec": func(ctx context.Context, p *flightpool.FlightSQLPool, _ *registry.Registry, sql string) error {
		db := openDB(p)
		_, err := db.ExecContext(ctx, sql)
		_ = db.Close()
		return err
	},
	"sql.Tx.QueryRow": func(ctx context.Context, p *flightpool.FlightSQLPool, _ *registry.Registry, sql string) error {
		db := openDB(p)
		tx := must(db.BeginTx(ctx, nil))
		var n int64
		err := tx.QueryRowContext(ctx, sql).Scan(&n)
		_, _ = tx.Rollback(), db.Close()
		return err
	},
	"ADBC": func(ctx context.Context, p *flightpool.FlightSQLPool, _ *registry.Registry, sql string) error {
		conn := must(adbcpool.Database(p).Open(ctx))
		stmt := must(conn.NewStatement())
		defer func() { _, _ = stmt.Close(), conn.Close() }()
		if err := stmt.SetSqlQuery(sql); err != nil {
			return err
		}
		rows, _, err := stmt.ExecuteQuery(ctx)
		if err != nil {
			return err
		}
		defer rows.Release()
		for rows.Next() {
			continue
		}
		return rows.Err()
	},
	"registry.Query": func(ctx context.Context, _ *flightpool.FlightSQLPool, r *registry.Registry, sql string) error {
		res, err := r.Query(ctx, "s", "ana", sql)
		if err != nil {
			return err
		}
		defer res.Release()
		for res.Next() {
			continue
		}
		return res.Err()
	},
	"registry.AcquireSession": func(ctx context.Context, _ *flightpool.FlightSQLPool, r *registry.Registry, sql string) error {
		s := must(r.AcquireSession(ctx, "s", "ana"))
		defer func() { _ = s.Close() }()
		return s.QueryRow(ctx, sql).Scan(new(int64))
	},
	"registry.Do": func(ctx context.Context, _ *flightpool.FlightSQLPool, r *registry.Registry, sql string) error {
		return r.Do(ctx, "s", "ana", func(p *flightpool.FlightSQLPool) error { return p.QueryRow(ctx, sql).Scan(new(int64)) })
	},
}

// A statement that comes by another API is one call, with its rows and its error.
func TestATracerSeesCallsOfOtherAPIsOnce(t *testing.T) {
	for name, run := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
				require.NoError(t, err)
				defer func() { require.NoError(t, server.Close()) }()
				seen := &ends{begun: map[string]int{}, ended: map[string]int{}, latest: map[string]flightpool.Outcome{}}
				p, err := flightpool.New(t.Context(), server.URI(), flightpool.Config{Dialer: server.Dial, Tracer: seen})
				require.NoError(t, err)
				reg, err := registry.NewWith(registry.Config{
					Tracer: func(server, user string) any { require.Equal(t, "s ana", server+" "+user); return seen },
					Kinds: []registry.Kind{{Name: "memory", Flight: func(ctx context.Context, r registry.ConnectParams) (*flightpool.FlightSQLPool, error) {
						r.Config.Dialer = server.Dial
						return flightpool.New(ctx, server.URI(), r.Config)
					}}},
				})
				require.NoError(t, err)
				require.NoError(t, reg.Register(t.Context(), registry.ServerDefinition{Name: "s", Kind: "memory", Users: map[string]registry.UserMapping{"ana": {}}}))
				const good, bad = "SELECT 42", "SELECT error('no')"
				require.NoError(t, run(t.Context(), p, reg, good))
				require.Error(t, run(t.Context(), p, reg, bad))
				time.Sleep(time.Minute)
				synctest.Wait()
				require.NoError(t, reg.Close(t.Context()))
				require.NoError(t, p.Close(t.Context()))
				require.Equal(t, seen.begun, seen.ended)
				require.Equal(t, []int{1, 1}, []int{seen.begun[good], seen.begun[bad]})
				require.NoError(t, seen.latest[good].Err)
				require.Error(t, seen.latest[bad].Err)
				if !strings.Contains(name, "Exec") {
					require.EqualValues(t, 1, seen.latest[good].Rows)
				}
			})
		})
	}
}
