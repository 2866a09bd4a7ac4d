package registry_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

// A real PostgreSQL from text: two users, each himself on the server, and a server
// that goes away.
func TestPostgreSQLFromText(t *testing.T) {
	server, err := localdeps.StartPostgres(t.Context(), localdeps.PostgresOptions{})
	require.NoError(t, err)
	defer server.Close()
	admin, err := pgx.Connect(t.Context(), server.DSN())
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "CREATE USER app; CREATE USER report")
	require.NoError(t, err)
	require.NoError(t, admin.Close(t.Context()))

	r := registry.New()
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER pg FOREIGN DATA WRAPPER postgres_fdw
		    OPTIONS (host '%s', port '%d', dbname 'postgres', sslmode 'disable', health_check_type 'full_validate');
		CREATE USER MAPPING FOR ann SERVER pg OPTIONS (user 'app');
		CREATE USER MAPPING FOR PUBLIC SERVER pg OPTIONS (user 'report')`, server.Host, server.Port)))
	defer func() { require.NoError(t, r.Close(t.Context())) }()
	for user, want := range map[string]string{"ann": "app", "bob": "report"} {
		for range 3 {
			c, err := r.Acquire(t.Context(), "pg", user)
			require.NoError(t, err)
			var name, setting string
			require.NoError(t, c.SQL().QueryRowContext(t.Context(), "SELECT current_user, current_setting('my.mark', true)::text IS NULL OR current_setting('my.mark', true) = ''").Scan(&name, &setting))
			require.Equal(t, []string{want, "true"}, []string{name, setting})
			_, err = c.SQL().ExecContext(t.Context(), "SELECT set_config('my.mark', 'left', false)")
			require.NoError(t, err)
			require.NoError(t, c.Release())
		}
	}
	require.NoError(t, r.CheckNow(t.Context(), "pg"))
	st, err := r.ServerStats("pg")
	require.NoError(t, err)
	require.Equal(t, uint64(12), st.Queries)

	server.Close()
	for r.Healthy("pg") {
		require.Error(t, r.CheckNow(t.Context(), "pg"))
	}
	_, err = r.Acquire(t.Context(), "pg", "ann")
	require.ErrorIs(t, err, registry.ErrUnhealthy)
}
