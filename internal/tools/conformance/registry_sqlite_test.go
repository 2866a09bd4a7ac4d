package conformance

import (
	"context"
	sqldriver "database/sql/driver"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

type sqliteConnector struct {
	dsn    string
	driver *sqlite.Driver
}

func (c sqliteConnector) Connect(context.Context) (sqldriver.Conn, error) {
	return c.driver.Open(c.dsn)
}
func (c sqliteConnector) Driver() sqldriver.Driver { return c.driver }

// A kind of which the registry knows nothing, and whose server refuses ROLLBACK where
// no transaction is open: its connections are used again, without what a borrower
// left open.
func TestARegistryOverSQLite(t *testing.T) {
	connector := sqliteConnector{filepath.Join(t.TempDir(), "x.db"), &sqlite.Driver{}}
	r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{{
		Name: "sqlite", Connector: func(registry.ConnectParams) (sqldriver.Connector, error) { return connector, nil },
	}}})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close(t.Context())) }()
	require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{
		Name: "s", Kind: "sqlite", MinIdle: -1, WarmupConnections: -1, Users: map[string]registry.UserMapping{"a": {}},
		HealthCheck: registry.HealthCheck{Kind: flightpool.FullValidate},
	}))
	loan := func(statements ...string) (rows int) {
		c, err := r.Acquire(t.Context(), "s", "a")
		require.NoError(t, err)
		for _, s := range statements {
			_, err := c.SQL().ExecContext(t.Context(), s)
			require.NoError(t, err, s)
		}
		require.NoError(t, c.SQL().QueryRowContext(t.Context(), "SELECT count(*) FROM c").Scan(&rows))
		require.NoError(t, c.Release())
		return rows
	}
	require.Equal(t, 1, loan("CREATE TABLE c (v INTEGER)", "INSERT INTO c VALUES (1)"))
	for range 5 {
		require.Equal(t, 2, loan("BEGIN", "INSERT INTO c VALUES (2)"), "and left open")
		require.Equal(t, 1, loan())
		require.NoError(t, r.CheckNow(t.Context(), "s"))
	}
	st, err := r.ServerStats("s")
	require.NoError(t, err)
	require.True(t, st.Healthy)
	require.Equal(t, []uint64{1, 0, 0}, []uint64{st.Created, st.Destroyed, st.ResetFailures}, "one connection, used again")
}
