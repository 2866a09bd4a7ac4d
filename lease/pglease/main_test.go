package pglease_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease/pglease"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

var (
	server *localdeps.Postgres
	admin  *pgxpool.Pool // of the superuser
	quiet  = slog.New(slog.DiscardHandler)
	names  atomic.Int64
)

func TestMain(m *testing.M) {
	if settings := os.Getenv(memberVariable); settings != "" {
		beMember(settings)
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	var err error
	if server, err = localdeps.StartPostgres(ctx, localdeps.PostgresOptions{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Close()
	if admin, err = pgxpool.New(ctx, server.DSN()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer admin.Close()
	return m.Run()
}

// unique is a name that no other test has.
func unique(kind string) string { return fmt.Sprintf("%s%d", kind, names.Add(1)) }

// connect is a pool on the shared server, or on what else leads there.
func connect(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pglease.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// newTable is a table of this test's own.
func newTable(t *testing.T) string {
	t.Helper()
	name := "public." + unique("leases")
	require.NoError(t, pglease.Setup(t.Context(), admin, name))
	return name
}

// sql executes statements as the superuser.
func sql(t *testing.T, statements string, args ...any) {
	t.Helper()
	_, err := admin.Exec(t.Context(), statements, args...)
	require.NoError(t, err)
}

// ask is the one value of a query.
func ask[T any](t *testing.T, query string, args ...any) (value T) {
	t.Helper()
	require.NoError(t, admin.QueryRow(t.Context(), query, args...).Scan(&value), query)
	return value
}

// restart ends the server at once and starts it, or another kind of it.
func restart(t *testing.T, between func()) {
	t.Helper()
	server.Kill()
	if between != nil {
		between()
	}
	require.NoError(t, server.Start(context.WithoutCancel(t.Context())))
	admin.Reset()
}

func newStore(t *testing.T, pool pglease.Pool, table string) *pglease.Store {
	t.Helper()
	s, err := pglease.NewStore(pool, table)
	require.NoError(t, err)
	return s
}
