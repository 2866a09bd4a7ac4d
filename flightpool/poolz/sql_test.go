package poolz

import (
	"context"
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// A plain connection is one of a driver that takes its time.
type plain struct{ stub }

func (plain) Connect(context.Context) (driver.Conn, error) { return plain{}, nil }
func (plain) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if query == "UPDATE missing SET a = 'm4rker'" {
		return nil, errStub
	}
	time.Sleep(2 * time.Second)
	return driver.RowsAffected(1), ctx.Err()
}

func TestCallsOnServersOfDatabaseSQLAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := New(Config{})
		defer page.Close()
		reg, err := registry.NewWith(registry.Config{Tracer: page.RegistryTracer("all"), Kinds: []registry.Kind{
			{Name: "plain", Connector: func(registry.ConnectParams) (driver.Connector, error) { return plain{}, nil }},
		}})
		require.NoError(t, err)
		defer func() { require.NoError(t, reg.Close(t.Context())) }()
		require.NoError(t, reg.Register(t.Context(), registry.ServerDefinition{
			Name: "db", Kind: "plain", MinIdle: -1, WarmupConnections: -1, KeepSession: true, HealthCheck: registry.HealthCheck{Disabled: true},
			Users: map[string]registry.UserMapping{"ana": {}},
		}))
		page.AddRegistry("all", reg)
		c, err := reg.Acquire(t.Context(), "db", "ana")
		require.NoError(t, err)
		_, err = c.SQL().ExecContext(t.Context(), "UPDATE missing SET a = 'm4rker'")
		require.Error(t, err)
		_, err = c.SQL().ExecContext(t.Context(), "UPDATE orders SET note = 'm4rker'")
		require.NoError(t, err)
		st := (&rig{T: t, page: page}).told("?source=all/db")
		require.True(t, st.Details.Traced)
		row := st.Details.Connections[0]
		require.Equal(t, []string{inUse, "ana", "Acquire", "Exec", "UPDATE orders"}, []string{row.State, row.User, row.Borrower, row.Op, row.Statement})
		require.Len(t, st.Slow, 1)
		require.Equal(t, []string{"all/db", "ana", "Exec", "UPDATE orders"}, []string{st.Slow[0].Source, st.Slow[0].User, st.Slow[0].Op, st.Slow[0].Statement})
		require.InDelta(t, 2, float64(st.Slow[0].Took), 1e-3)
		require.Empty(t, st.Events, "a statement that fails is its caller's")
		require.NotContains(t, get(t, page, "/state.json?source=all/db").Body.String(), "m4rker")
		require.NoError(t, c.Release())
	})
}
