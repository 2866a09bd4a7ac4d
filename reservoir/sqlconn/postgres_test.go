package sqlconn_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

// On a real PostgreSQL: nothing of a session is left for the next borrower of the
// same connection, what the driver prepared for itself goes on working, and a
// backend that was killed is not lent again.
func TestPostgreSQLSessionsAreClean(t *testing.T) {
	server, err := localdeps.StartPostgres(t.Context(), localdeps.PostgresOptions{})
	require.NoError(t, err)
	defer server.Close()
	cfg, err := pgx.ParseConfig(server.DSN())
	require.NoError(t, err)
	wrapper := sqlconn.NewWrapper()
	defer func() { require.NoError(t, wrapper.Close()) }()
	target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: stdlib.GetConnector(*cfg), Kind: sqlconn.PostgreSQL, Check: sqlconn.FullValidate})
	require.NoError(t, err)
	pool, err := reservoir.New(reservoir.Config[*sqlconn.Conn]{Open: target.Open, Close: target.Close, Check: target.Check, Reset: target.Reset, MaxSize: 1})
	require.NoError(t, err)
	defer func() {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.NoError(t, pool.Close(ctx))
	}()
	use := func(f func(c *sql.Conn)) uint64 {
		loan, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		c, err := loan.Value().Lend(t.Context())
		require.NoError(t, err)
		f(c)
		require.NoError(t, sqlconn.Return(t.Context(), c))
		require.NoError(t, loan.Release())
		return loan.Value().ID()
	}
	ask := func(c *sql.Conn, query string, args ...any) (answer string) {
		require.NoError(t, c.QueryRowContext(t.Context(), query, args...).Scan(&answer))
		return answer
	}
	first := use(func(c *sql.Conn) {
		require.Equal(t, "x", ask(c, "SELECT $1::text", "x"))
		for _, s := range []string{
			"SET application_name = 'mine'", "CREATE TEMP TABLE mine (n int)", "PREPARE mine AS SELECT 1", "LISTEN mine",
			"SELECT pg_advisory_lock(7)", "BEGIN", "CREATE TABLE never_committed (n int)", "DECLARE mine CURSOR FOR SELECT 1",
		} {
			_, err := c.ExecContext(t.Context(), s)
			require.NoError(t, err, s)
		}
	})
	second := use(func(c *sql.Conn) {
		require.Equal(t, "y", ask(c, "SELECT $1::text", "y"), "prepared by the driver before")
		for query, want := range map[string]string{
			"SELECT current_setting('application_name')":                       "",
			"SELECT coalesce(to_regclass('mine')::text, '-')":                  "-",
			"SELECT coalesce(to_regclass('never_committed')::text, '-')":       "-",
			"SELECT count(*)::text FROM pg_prepared_statements WHERE from_sql": "0",
			"SELECT count(*)::text FROM pg_listening_channels()":               "0",
			"SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory'":  "0",
			"SELECT count(*)::text FROM pg_cursors WHERE name = 'mine'":        "0",
		} {
			require.Equal(t, want, ask(c, query), query)
		}
	})
	require.Equal(t, first, second, "the same connection")
	require.NoError(t, pool.CheckOne(t.Context()))
	killed := use(func(c *sql.Conn) {
		_, err := c.ExecContext(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())")
		require.True(t, sqlconn.Broken(err), "%v", err)
	})
	require.NotEqual(t, killed, use(func(c *sql.Conn) { require.Equal(t, "1", ask(c, "SELECT '1'")) }))
}
