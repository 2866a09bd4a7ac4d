package registry_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

// fingerprint is what a session of PostgreSQL may have left.
const fingerprint = `SELECT concat_ws('; ', current_user, session_user, current_schemas(false)::text,
 (SELECT string_agg(name || '=' || setting, ',' ORDER BY name) FROM pg_settings WHERE source = 'session' AND name <> 'transaction_read_only'),
 (SELECT string_agg(name, ',') FROM pg_prepared_statements WHERE from_sql),
 (SELECT string_agg(name, ',') FROM pg_cursors WHERE is_holdable),
 (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
 (SELECT string_agg(c, ',') FROM pg_listening_channels() c),
 (SELECT string_agg(relname, ',') FROM pg_class WHERE relnamespace = pg_my_temp_schema()),
 (SELECT string_agg(proname, ',') FROM pg_proc WHERE pronamespace = pg_my_temp_schema()),
 nullif(current_setting('my.mark', true), ''), current_setting('transaction_read_only'))`

// leaving are statements that leave something, or may end what others left.
var leaving = []string{
	"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "SELECT 1/0", "SELECT pg_sleep(0.01)", "DISCARD ALL", "DEALLOCATE ALL", "SET ROLE other", "SET SESSION AUTHORIZATION other",
	"SET my.mark = 'x'", "SET LOCAL my.mark = 'y'", "SELECT sets()", "SELECT set_config('role', 'other', false)", "SET search_path = elsewhere", "SET timezone = 'Asia/Tokyo'",
	"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET TRANSACTION READ ONLY", "SET default_transaction_read_only = on", "SET statement_timeout = '1ms'", "SET lock_timeout = 1",
	"SET standard_conforming_strings = off", "SET client_encoding = 'LATIN1'", "SET bytea_output = escape", "SET datestyle = 'SQL, DMY'", "SET idle_session_timeout = '300ms'",
	"SET row_security = off", "SET session_replication_role = replica", "SET idle_in_transaction_session_timeout = 1", "SET work_mem = '64kB'", "SET client_min_messages = error",
	"DECLARE held CURSOR WITH HOLD FOR SELECT generate_series(1, 10)", "DECLARE one CURSOR FOR SELECT 1", "PREPARE mine AS SELECT 1", `PREPARE "we;ird ""n" AS SELECT 2`, "LISTEN ch",
	"SELECT pg_advisory_lock(7)", "SELECT pg_advisory_lock_shared(8)", "SELECT pg_advisory_xact_lock(9)", "CREATE TEMP TABLE tmp (n int)", "CREATE TEMP TABLE tt (n int)",
	"CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "SELECT nextval('sq')", "INSERT INTO tt (v) VALUES ('a')",
}

// TestWhatProgramsLeaveInPostgreSQL runs statements at random, from seeds, plainly,
// prepared, as rows that are left open and in transactions whose context ends. The
// next borrower finds a session as good as new, and its driver's statements.
func TestWhatProgramsLeaveInPostgreSQL(t *testing.T) {
	server, err := localdeps.StartPostgres(t.Context(), localdeps.PostgresOptions{})
	require.NoError(t, err)
	defer server.Close()
	r := registry.New()
	defer func() { require.NoError(t, r.Close(t.Context())) }()
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER pg FOREIGN DATA WRAPPER postgres_fdw
		    OPTIONS (host '%s', port '%d', dbname 'postgres', sslmode 'disable', warmup_connections '0', min_connections '0', max_connections '1');
		CREATE USER MAPPING FOR ann SERVER pg OPTIONS (user 'postgres')`, server.Host, server.Port)))
	use := func(f func(c *sql.Conn)) {
		c, err := r.Acquire(t.Context(), "pg", "ann")
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Release()) }()
		f(c.SQL())
	}
	fresh := ""
	use(func(c *sql.Conn) {
		_, err := c.ExecContext(t.Context(), `CREATE ROLE other; CREATE TABLE tt (id serial, v text); CREATE SEQUENCE sq; CREATE SCHEMA elsewhere;
			CREATE FUNCTION sets() RETURNS void LANGUAGE sql AS $$ SELECT set_config('my.mark', 'x', false) $$`)
		require.NoError(t, err)
		require.NoError(t, c.QueryRowContext(t.Context(), fingerprint).Scan(&fresh))
	})
	began, length := time.Now(), stressLength(t, 0)
	for seed := uint64(1); seed <= 40 || time.Since(began) < length; seed++ {
		rnd, program := rand.New(rand.NewPCG(seed, 1)), []string{}
		use(func(c *sql.Conn) {
			for range 1 + rnd.IntN(5) {
				program = append(program, leave(t.Context(), c, rnd, leaving[rnd.IntN(len(leaving))]))
			}
		})
		use(func(c *sql.Conn) {
			var now, arg string
			require.NoError(t, c.QueryRowContext(t.Context(), fingerprint).Scan(&now), "seed %d: %q", seed, program)
			require.NoError(t, c.QueryRowContext(t.Context(), "SELECT $1::text || coalesce(current_setting('my.mark', true), '')", "é€").Scan(&arg), "seed %d: %q", seed, program)
			require.Equal(t, []string{fresh, "é€"}, []string{now, arg}, "seed %d: %q", seed, program)
		})
	}
}

// leave runs one statement in one of several ways, and says which.
func leave(ctx context.Context, c *sql.Conn, rnd *rand.Rand, statement string) string {
	switch rnd.IntN(8) {
	case 0:
		stmt, err := c.PrepareContext(ctx, statement)
		if err == nil {
			_, _ = stmt.ExecContext(ctx)
		}
		return "prepared: " + statement
	case 1:
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		rows, err := c.QueryContext(ctx, statement) //nolint:rowserrcheck,sqlclosecheck // that is the point
		if err == nil {
			rows.Next()
		}
		return "unread: " + statement
	case 2:
		ctx, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(5))*time.Millisecond)
		defer cancel()
		if tx, err := c.BeginTx(ctx, nil); err == nil {
			_, _ = tx.ExecContext(ctx, statement)
			if rnd.IntN(2) == 0 {
				_ = tx.Commit()
			}
		}
		return "in a transaction: " + statement
	default:
		_, _ = c.ExecContext(ctx, statement)
		return statement
	}
}
