package registry_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
)

// flightKind reaches servers in memory.
func flightKind(srv *testserver.Server) registry.Kind {
	return registry.Kind{Name: "flightsql", Flight: func(ctx context.Context, r registry.Reach) (*flightpool.FlightSQLPool, error) {
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

// What Do calls runs once, whatever happens to the pool meanwhile.
func TestDoIsNotRepeatedWhenItsPoolIsReplaced(t *testing.T) {
	changes := map[string]func(t *testing.T, r *registry.Registry) error{
		"update": func(t *testing.T, r *registry.Registry) error {
			return r.ApplyDDL(t.Context(), "ALTER SERVER s OPTIONS (ADD host 'x')")
		},
		"close all": func(t *testing.T, r *registry.Registry) error {
			go func() { _ = r.CloseAll(context.Background(), "s") }() // waits for Do
			return nil
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
				require.NoError(t, err)
				defer func() { require.NoError(t, srv.Close()) }()
				r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{flightKind(srv)}})
				require.NoError(t, err)
				defer func() { require.NoError(t, r.Close(t.Context())) }()
				require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{Name: "s", Kind: "flightsql", Users: map[string]registry.UserMapping{"a": {}}}))
				calls := 0
				require.NoError(t, r.Do(t.Context(), "s", "a", func(p *flightpool.FlightSQLPool) error {
					calls++
					require.NoError(t, p.Ping(t.Context()))
					require.NoError(t, change(t, r))
					synctest.Wait()
					return p.Ping(t.Context())
				}))
				require.Equal(t, 1, calls)
				require.ErrorIs(t, r.Do(t.Context(), "s", "a", func(*flightpool.FlightSQLPool) error { calls++; return registry.ErrClosed }), registry.ErrClosed)
				require.Equal(t, 2, calls)
				synctest.Wait()
				st, err := r.ServerStats("s")
				require.NoError(t, err)
				require.LessOrEqual(t, st.Total, 1, "the old pool is closed")
			})
		})
	}
}
