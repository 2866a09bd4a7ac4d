package ormtest

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

var server *localdeps.Postgres

func TestMain(m *testing.M) {
	var err error
	if server, err = localdeps.StartPostgres(context.Background(), localdeps.PostgresOptions{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	server.Close()
	// gorm never ends the goroutine of its cache of statements.
	if err := goleak.Find(goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A world is a cluster with two connections, and its gateway.
type world struct {
	gate    *dsqlgate.Gate
	cluster *dsql.Cluster
	db      *sql.DB
	ctx     context.Context
}

func newWorld(t *testing.T, table string) *world {
	t.Helper()
	key := dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret"}
	g, err := dsqlgate.Start(t.Context(), dsqlgate.Options{Upstream: server.DSN(), Credentials: []dsqlgate.Credential{key}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	c, err := dsql.NewCluster(ctx, dsql.Config{
		Host: g.Host(), TLS: g.ClientTLS(), Dial: g.Dial, MaxSize: 2, CancelGrace: 20 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, ""),
	})
	require.NoError(t, err)
	db, err := c.OpenDB(dsql.View{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		require.NoError(t, c.Close(closing))
	})
	w := &world{gate: g, cluster: c, db: db, ctx: ctx}
	if table != "" {
		w.exec(t, "drop table if exists "+table)
		w.exec(t, "create table "+table+" (id uuid primary key default gen_random_uuid(), owner text not null, amount int not null)")
	}
	return w
}

func (w *world) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := w.db.ExecContext(w.ctx, statement)
	require.NoError(t, err)
}

// timesOut makes a call of 20 s with 100 ms to live, and sees that it costs no
// connection.
func (w *world) timesOut(t *testing.T, call func(context.Context) error) {
	t.Helper()
	require.NoError(t, w.cluster.WaitReady(w.ctx, 2))
	before := w.gate.Stats().Admitted
	ctx, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	require.ErrorIs(t, call(ctx), context.DeadlineExceeded)
	require.Less(t, time.Since(began), 15*time.Second)
	require.NoError(t, w.db.PingContext(w.ctx))
	require.Equal(t, before, w.gate.Stats().Admitted)
}

// sum is what a table holds.
func (w *world) sum(t *testing.T, table string) (n int) {
	t.Helper()
	require.NoError(t, w.db.QueryRowContext(w.ctx, "select coalesce(sum(amount), 0) from "+table).Scan(&n))
	return n
}
