package registry_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// flightKind reaches servers in memory.
func flightKind(srv *testserver.Server) registry.Kind {
	return registry.Kind{Name: "flightsql", Flight: func(ctx context.Context, r registry.ConnectParams) (*flightpool.FlightSQLPool, error) {
		cfg := r.Config
		cfg.Dialer = srv.Dial
		return flightpool.New(ctx, "grpc://mem:1", cfg)
	}}
}

func TestCallsOfTheFlightPoolGoByServerAndUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{flightKind(srv)}})
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close(t.Context())) }()
		require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{
			Name: "s", Kind: "flightsql_fdw", Users: map[string]registry.UserMapping{"a": {}, "b": {}},
		}))
		for _, user := range []string{"a", "b", "a"} {
			res, err := r.Query(t.Context(), "s", user, "SELECT 1")
			require.NoError(t, err)
			rows := int64(0)
			for res.Next() {
				rows += res.RecordBatch().NumRows()
			}
			require.NoError(t, res.Err())
			require.Equal(t, int64(1), rows)
			res.Release()
		}
		c, err := r.Acquire(t.Context(), "s", "a")
		require.NoError(t, err)
		require.NotNil(t, c.Session())
		require.Nil(t, c.SQL())
		require.NoError(t, c.Session().Ping(t.Context()))
		require.NoError(t, c.Fail(nil))
		require.NoError(t, r.Do(t.Context(), "s", "b", func(p *flightpool.FlightSQLPool) error { return p.Ping(t.Context()) }))
		require.NoError(t, r.CheckNow(t.Context(), "s"))
		synctest.Wait()
		st, err := r.ServerStats("s")
		require.NoError(t, err)
		require.Equal(t, uint64(3), st.Queries, "neither a session nor Do is a statement")
		require.Equal(t, uint64(1), st.Destroyed, "the one that was marked as failed")
		_, err = r.Query(t.Context(), "s", "z", "SELECT 1")
		require.ErrorIs(t, err, registry.ErrNoMapping)
	})
}

func TestCallsOfTheFlightPoolAreRefusedOnOtherKinds(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		_, err := g.Query(t.Context(), "s", "a", "SELECT 1")
		require.ErrorIs(t, err, registry.ErrWrongKind)
	})
}

func TestARegistryTakesGoValues(t *testing.T) {
	doing(t, func(*registry.ServerDefinition) {}, func(t *testing.T, r *registry.Registry) {
		_, err := r.ExecuteUpdate(t.Context(), "s", "a", "CREATE TABLE t (a BIGINT)")
		require.NoError(t, err)
		done, err := r.ExecuteUpdate(t.Context(), "s", "a", "INSERT INTO t VALUES (?)", 7)
		require.NoError(t, err)
		require.EqualValues(t, 1, done.RowsAffected)
		var n int
		require.NoError(t, r.QueryRow(t.Context(), "s", "a", "SELECT * FROM t WHERE a = ?", 7).Scan(&n))
		require.Equal(t, 7, n)
		require.ErrorIs(t, r.QueryRow(t.Context(), "s", "a", "SELECT * FROM t WHERE a = ?", 8).Scan(&n), flightpool.ErrNoRows)
		result, err := r.Execute(t.Context(), "s", "a", "INSERT INTO t VALUES (?)", 8)
		require.NoError(t, err)
		result.Release()
		require.ErrorIs(t, r.QueryRow(t.Context(), "s", "z", "SELECT 1").Scan(&n), registry.ErrNoMapping)
	})
}

// doing is a registry of Flight SQL servers with server s and user a.
func doing(t *testing.T, change func(d *registry.ServerDefinition), test func(t *testing.T, r *registry.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{flightKind(srv)}})
		require.NoError(t, err)
		defer func() {
			if err := r.Close(t.Context()); !errors.Is(err, registry.ErrClosed) { // the test has closed it
				require.NoError(t, err)
			}
		}()
		d := registry.ServerDefinition{Name: "s", Kind: "flightsql", Users: map[string]registry.UserMapping{"a": {}}, MinIdle: -1, WarmupConnections: -1}
		change(&d)
		require.NoError(t, r.Register(t.Context(), d))
		test(t, r)
	})
}

// What Do calls runs once, whatever happens to the pool meanwhile. A pool with a
// successor lets it go on, with new connections as well, but keeps no idle ones from
// the successor.
func TestDoIsNotRepeatedWhenItsPoolIsReplaced(t *testing.T) {
	doing(t, func(d *registry.ServerDefinition) { d.MaxSize = 1 }, func(t *testing.T, r *registry.Registry) {
		calls := 0
		require.NoError(t, r.Do(t.Context(), "s", "a", func(p *flightpool.FlightSQLPool) error {
			calls++
			require.NoError(t, p.Ping(t.Context()))
			require.NoError(t, r.ApplyDDL(t.Context(), "ALTER SERVER s OPTIONS (ADD host 'x')"))
			synctest.Wait()
			for range 3 {
				began := time.Now()
				c, err := r.Acquire(t.Context(), "s", "a")
				require.NoError(t, err, "the only connection goes to the successor")
				require.LessOrEqual(t, time.Since(began), 2*time.Second)
				require.NoError(t, c.Fail(nil))
				require.NoError(t, p.Ping(t.Context()))
			}
			return nil
		}))
		require.Equal(t, 1, calls)
		require.ErrorIs(t, r.Do(t.Context(), "s", "a", func(*flightpool.FlightSQLPool) error { calls++; return registry.ErrClosed }), registry.ErrClosed)
		require.Equal(t, 2, calls)
		synctest.Wait()
		st, err := r.ServerStats("s")
		require.NoError(t, err)
		require.LessOrEqual(t, st.Total, 1, "the old pool is closed")
	})
}

// The calls of a function are told of a pool that was removed at once, those as well
// that wait for a connection, and it is not repeated.
func TestDoIsToldThatItsPoolWasRemoved(t *testing.T) {
	removals := map[string]func(ctx context.Context, r *registry.Registry) error{
		"close all":  func(ctx context.Context, r *registry.Registry) error { return r.CloseAll(ctx, "s") },
		"unregister": func(ctx context.Context, r *registry.Registry) error { return r.Unregister(ctx, "s") },
		"no mapping": func(ctx context.Context, r *registry.Registry) error {
			return r.ApplyDDL(ctx, "DROP USER MAPPING FOR a SERVER s")
		},
		"close": func(ctx context.Context, r *registry.Registry) error { return r.Close(ctx) },
	}
	for name, remove := range removals {
		for _, replaced := range []bool{false, true} {
			t.Run(fmt.Sprint(name, replaced), func(t *testing.T) {
				doing(t, func(d *registry.ServerDefinition) { d.MaxSize = 1 }, func(t *testing.T, r *registry.Registry) {
					began, calls, removed := time.Now(), 0, make(chan error, 1)
					err := r.Do(t.Context(), "s", "a", func(p *flightpool.FlightSQLPool) error {
						calls++
						held, err := p.AcquireSession(t.Context())
						require.NoError(t, err)
						defer func() { _ = held.Close() }()
						if replaced {
							require.NoError(t, r.ApplyDDL(t.Context(), "ALTER SERVER s OPTIONS (ADD host 'x')"))
						}
						go func() {
							synctest.Wait()
							removed <- remove(t.Context(), r)
						}()
						_, err = p.AcquireSession(t.Context())
						require.ErrorIs(t, err, registry.ErrClosed)
						require.NoError(t, held.Ping(t.Context()), "what is on loan is not taken")
						return p.Ping(t.Context())
					})
					require.ErrorIs(t, err, registry.ErrClosed)
					require.Equal(t, 1, calls)
					require.NoError(t, <-removed)
					require.Zero(t, time.Since(began))
				})
			})
		}
	}
}

// A function that is running uses its pool, however long it pauses, one that has a
// successor as well.
func TestDoKeepsAPoolThatIsNotUsed(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		doing(t, func(d *registry.ServerDefinition) { d.UserIdleTimeout, d.IdleTTL = time.Minute, time.Second }, func(t *testing.T, r *registry.Registry) {
			require.NoError(t, r.Do(t.Context(), "s", "a", func(p *flightpool.FlightSQLPool) error {
				if replaced {
					require.NoError(t, r.ApplyDDL(t.Context(), "ALTER SERVER s OPTIONS (ADD host 'x')"))
				}
				time.Sleep(10 * time.Minute)
				return p.Ping(t.Context())
			}))
			time.Sleep(10 * time.Minute)
			users, err := r.UserStats("s")
			require.NoError(t, err)
			require.Empty(t, users, "then it is drained")
		})
	}
}

// A call that waits hears at once that the server cannot be reached, also one of a function whose pool has a successor.
func TestDoIsToldThatItsServerIsUnhealthy(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
			require.NoError(t, err)
			defer func() { require.NoError(t, srv.Close()) }()
			var away atomic.Bool
			kind := registry.Kind{Name: "flightsql", Flight: func(ctx context.Context, p registry.ConnectParams) (*flightpool.FlightSQLPool, error) {
				cfg := p.Config
				cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
					if away.Load() {
						return nil, errors.New("connection refused")
					}
					return srv.Dial(ctx, address)
				}
				return flightpool.New(ctx, "grpc://mem:1", cfg)
			}}
			r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{kind}})
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close(t.Context())) }()
			require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{
				Name: "s", Kind: "flightsql", Users: map[string]registry.UserMapping{"a": {}, "b": {}}, MinIdle: -1, WarmupConnections: -1, AcquireTimeout: -1,
				HealthCheck: registry.HealthCheck{FailureThreshold: 1},
			}))
			require.NoError(t, r.Do(t.Context(), "s", "a", func(p *flightpool.FlightSQLPool) error {
				if replaced {
					require.NoError(t, r.ApplyDDL(t.Context(), "ALTER SERVER s OPTIONS (ADD host 'x')"))
				}
				require.True(t, r.Healthy("s"))
				away.Store(true)
				require.Error(t, r.Do(t.Context(), "s", "b", func(p *flightpool.FlightSQLPool) error { return p.Ping(t.Context()) }))
				synctest.Wait() // for the hook of the failed open
				require.False(t, r.Healthy("s"))
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				began := time.Now()
				require.ErrorIs(t, p.Ping(ctx), registry.ErrUnhealthy)
				require.LessOrEqual(t, time.Since(began), 10*time.Second, "no longer than a probe takes")
				return nil
			}))
		})
	}
}

// Nor does one wait under FailFast for what others have.
func TestDoIsRefusedAtOnceUnderFailFast(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		doing(t, func(d *registry.ServerDefinition) {
			d.MaxSize, d.OnExhausted, d.AcquireTimeout = 1, flightpool.FailFast, -1
			d.Users = map[string]registry.UserMapping{"a": {}, "b": {}}
		}, func(t *testing.T, r *registry.Registry) {
			held, err := r.Acquire(t.Context(), "s", "b")
			require.NoError(t, err)
			require.NoError(t, r.Do(t.Context(), "s", "a", func(p *flightpool.FlightSQLPool) error {
				if replaced {
					require.NoError(t, r.ApplyDDL(t.Context(), "ALTER SERVER s OPTIONS (ADD host 'x')"))
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				began := time.Now()
				require.ErrorIs(t, p.Ping(ctx), registry.ErrExhausted)
				require.Zero(t, time.Since(began))
				return nil
			}))
			require.NoError(t, held.Release())
		})
	}
}

// What the sessions of a server that drains have changed is known to those of the one that is
// registered by its name meanwhile: none takes it for the operator's.
func TestAServerRegisteredAgainLeavesTheSettingsAsTheyWere(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		synctest.Test(t, func(t *testing.T) {
			engine := script.New()
			engine.ServerSetting("threads", "3", "8")
			srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory, Engine: engine})
			require.NoError(t, err)
			defer func() { require.NoError(t, srv.Close()) }()
			r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{flightKind(srv)}})
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close(t.Context())) }()
			var handles []*flightpool.SessionHandle
			for i := range 3 {
				require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{
					Name: "s", Kind: "flightsql_fdw", Users: map[string]registry.UserMapping{"a": {}},
				}))
				h, err := r.AcquireSession(t.Context(), "s", "a")
				require.NoError(t, err)
				_, err = h.Update(t.Context(), fmt.Sprintf("SET threads = %d", 10+i))
				require.NoError(t, err)
				if handles = append(handles, h); i < 2 {
					go func() { _ = r.Unregister(t.Context(), "s") }()
					synctest.Wait()
				}
			}
			for _, i := range order {
				_ = handles[i].Close()
				synctest.Wait()
			}
			threads, err := flightpool.CollectOneRow[string](r.Query(t.Context(), "s", "a", "SELECT current_setting('threads')"))
			require.NoError(t, err)
			require.Equal(t, "3", threads)
		})
	}
}

// What refuses the credentials does so again: Warmup waits for nothing then.
func TestWarmupEndsWhereNoOpenCanSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory, Users: map[string]string{"me": "right"}})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{flightKind(srv)}})
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close(t.Context())) }()
		d := registry.ServerDefinition{Name: "s", Kind: "flightsql", Users: map[string]registry.UserMapping{"a": {User: "me", Password: "wrong"}}, MinIdle: -1, WarmupConnections: -1}
		require.NoError(t, r.Register(t.Context(), d))
		start := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		require.ErrorContains(t, r.Warmup(ctx, "s", 1), "Unauthenticated")
		require.Less(t, time.Since(start), time.Second)
	})
}

// A connection that cannot be lent even once is opened and closed, and a failed open; others follow it.
func TestAConnectionThatCannotBeLentCountsOnceAsEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		lasts := -time.Hour
		kind := registry.Kind{Name: "flightsql", Flight: func(ctx context.Context, r registry.ConnectParams) (*flightpool.FlightSQLPool, error) {
			cfg := r.Config
			cfg.Dialer = srv.Dial
			cfg.Auth = flightpool.TokenAuth(func(context.Context) (string, time.Time, error) { return "t", time.Now().Add(lasts), nil })
			return flightpool.New(ctx, "grpc://mem:1", cfg)
		}}
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{kind}})
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close(t.Context())) }()
		d := registry.ServerDefinition{Name: "s", Kind: "flightsql", Users: map[string]registry.UserMapping{"a": {}}, MinIdle: -1, WarmupConnections: -1, MaxSize: 1}
		require.NoError(t, r.Register(t.Context(), d))
		for range 2 {
			_, err = r.Query(t.Context(), "s", "a", "SELECT 1")
			require.ErrorContains(t, err, "a new connection ends in")
			time.Sleep(2 * time.Second)
		}
		users, err := r.UserStats("s")
		require.NoError(t, err)
		stats := users[0]
		require.EqualValues(t, 2, stats.ConnectionErrors)
		require.EqualValues(t, 2, stats.Created)
		require.EqualValues(t, 2, stats.Destroyed)
		require.Less(t, stats.MeanLifetime, time.Second)
		lasts = time.Hour
		v, err := flightpool.CollectOneRow[int64](r.Query(t.Context(), "s", "a", "SELECT 1"))
		require.NoError(t, err)
		require.EqualValues(t, 1, v)
	})
}
