package registry_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
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

// What a real driver makes of statements is told once each, and as it was.
func TestCallsOnARealPostgreSQLAreTraced(t *testing.T) {
	server, err := localdeps.StartPostgres(t.Context(), localdeps.PostgresOptions{})
	require.NoError(t, err)
	defer server.Close()
	seen := &endsOfCalls{}
	r, err := registry.NewWith(registry.Config{Tracer: func(string, string) any { return seen }})
	require.NoError(t, err)
	defer end(t, r)
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER pg FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%d', dbname 'postgres', sslmode 'disable');
		CREATE USER MAPPING FOR PUBLIC SERVER pg OPTIONS (user 'postgres')`, server.Host, server.Port)))
	c, err := r.Acquire(t.Context(), "pg", "ann")
	require.NoError(t, err)
	ctx, conn := t.Context(), c.SQL()
	_, err = conn.ExecContext(ctx, "CREATE TABLE t (a INT)")
	require.NoError(t, err)
	tx, err := conn.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, "INSERT INTO t SELECT generate_series(1, $1::int)", 5)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	stmt, err := conn.PrepareContext(ctx, "SELECT a FROM t WHERE a > $1")
	require.NoError(t, err)
	require.NoError(t, stmt.QueryRowContext(ctx, 2).Scan(new(int)))
	require.NoError(t, stmt.Close())
	_, err = conn.ExecContext(ctx, "SELECT nothing FROM t")
	require.Error(t, err)
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	_, err = conn.ExecContext(short, "SELECT pg_sleep(60)")
	require.Error(t, err)
	require.NoError(t, c.Release())
	require.Equal(t, []string{
		"Exec CREATE t 0 0 unknown ", "Begin  0 -1 unknown ", "Exec INSERT t 0 5 unknown ", "Commit  0 -1 unknown ",
		"Prepare SELECT t 0 -1 unknown ", "Query SELECT t 1 -1 unknown ", "Exec SELECT t 0 -1 statement 42703", "Exec SELECT 0 -1 context ",
	}, seen.all)
}

// endsOfCalls are calls with their rows and faults.
type endsOfCalls struct{ all []string }

func (*endsOfCalls) TraceQueryStart(ctx context.Context, _ flightpool.QueryStartData) context.Context {
	return ctx
}

func (e *endsOfCalls) TraceQueryEnd(_ context.Context, d flightpool.QueryEndData) {
	fault := &flightpool.Error{}
	if d.Err != nil {
		fault = d.Err.(*flightpool.Error) //nolint:errorlint,forcetypeassert // else the test fails
	}
	e.all = append(e.all, fmt.Sprint(d.Op, " ", d.Summary(), " ", d.Rows, " ", d.RowsAffected, " ", fault.Fault, " ", fault.SQLState))
}
