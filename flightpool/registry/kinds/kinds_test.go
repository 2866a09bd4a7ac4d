package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/flightpool/registry/kinds"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func postgres(t *testing.T, users ...string) *localdeps.Postgres {
	t.Helper()
	server, err := localdeps.StartPostgres(t.Context(), localdeps.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	admin, err := pgx.Connect(t.Context(), server.DSN())
	require.NoError(t, err)
	for _, user := range users {
		_, err = admin.Exec(t.Context(), "CREATE USER "+user)
		require.NoError(t, err)
	}
	require.NoError(t, admin.Close(t.Context()))
	return server
}

func newRegistry(t *testing.T, all ...registry.Kind) *registry.Registry {
	t.Helper()
	r, err := registry.NewWith(registry.Config{Kinds: all})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close(context.WithoutCancel(t.Context()))) })
	return r
}

// whoami asks the server three times, so that a connection is used again.
func whoami(t *testing.T, r *registry.Registry, server, user, want string) {
	t.Helper()
	for range 3 {
		c, err := r.Acquire(t.Context(), server, user)
		require.NoError(t, err)
		defer func() { _ = c.Release() }() // where a check fails, and Close would wait for it
		var name string
		require.NoError(t, c.SQL().QueryRowContext(t.Context(), "SELECT current_user::text").Scan(&name))
		require.Equal(t, want, name)
		require.NoError(t, c.Release())
	}
}

func TestPostgreSQLCountsItsBytes(t *testing.T) {
	server := postgres(t, "app", "report")
	r := newRegistry(t, kinds.PostgreSQL())
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER pg FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%d', dbname 'postgres', sslmode 'disable', application_name 'counted');
		CREATE USER MAPPING FOR ann SERVER pg OPTIONS (user 'app');
		CREATE USER MAPPING FOR PUBLIC SERVER pg OPTIONS (user 'report')`, server.Host, server.Port)))
	whoami(t, r, "pg", "ann", "app")
	whoami(t, r, "pg", "bob", "report")
	users, err := r.UserStats("pg")
	require.NoError(t, err)
	for _, u := range users {
		require.True(t, u.BytesCounted, u.User)
		require.Greater(t, u.BytesSent, uint64(200), u.User)
		require.Greater(t, u.BytesRead, uint64(500), u.User)
	}
	require.NoError(t, r.ApplyDDL(t.Context(), "CREATE SERVER x FOREIGN DATA WRAPPER postgres_fdw OPTIONS (target 'postgres://u:secret@:x/'); CREATE USER MAPPING FOR a SERVER x"))
	_, err = r.Acquire(t.Context(), "x", "a")
	require.ErrorContains(t, err, "target")
	require.NotContains(t, err.Error(), "secret")
}

func TestDSQLKeepsItsConnectionsAndClosesThem(t *testing.T) {
	server := postgres(t, "app")
	key := dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret", SessionToken: "token"}
	gate, err := dsqlgate.Start(t.Context(), dsqlgate.Options{Upstream: server.DSN(), Credentials: []dsqlgate.Credential{key}})
	require.NoError(t, err)
	defer func() { require.NoError(t, gate.Close()) }()
	r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{kinds.DSQL(dsql.Config{
		TLS: gate.ClientTLS(), Dial: gate.Dial, Logger: slog.New(slog.DiscardHandler),
		Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, key.SessionToken),
	})}})
	require.NoError(t, err)
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host '%s', max_connections '3', min_connections '0', warmup_connections '0');
		CREATE USER MAPPING FOR ann SERVER d OPTIONS (user 'app');
		CREATE USER MAPPING FOR PUBLIC SERVER d`, gate.Host())))
	whoami(t, r, "d", "ann", "postgres") // the gateway checks the role's token and logs in as itself
	st, err := r.ServerStats("d")
	require.NoError(t, err)
	require.Equal(t, []uint64{3, 1}, []uint64{st.Acquires, st.Created}, "one connection, used again")
	require.True(t, st.BytesCounted)
	require.NoError(t, r.CheckNow(t.Context(), "d"))

	n, err := r.EvictIdle("d")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, r.Close(t.Context()))
	for end := time.Now().Add(10 * time.Second); gate.Stats().Live > 0; runtime.Gosched() { // it learns of it a little later
		require.True(t, time.Now().Before(end), "what the registry closes is closed")
	}
}

// The registry is told of the end of sessions, which are an hour long, and of none is kept that nobody waits for.
func TestADSQLConnectionTellsItsEndAndTheClusterKeepsNone(t *testing.T) {
	server := postgres(t)
	key := dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret"}
	gate, err := dsqlgate.Start(t.Context(), dsqlgate.Options{Upstream: server.DSN(), Credentials: []dsqlgate.Credential{key}})
	require.NoError(t, err)
	defer func() { require.NoError(t, gate.Close()) }()
	connector, err := kinds.DSQL(dsql.Config{
		TLS: gate.ClientTLS(), Dial: gate.Dial, Logger: slog.New(slog.DiscardHandler),
		Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, ""),
	}).Connector(registry.ConnectParams{Server: "d", Options: map[string]string{"host": gate.Host()}, CountBytes: func(c net.Conn) net.Conn { return c }})
	require.NoError(t, err)
	defer func() { require.NoError(t, connector.(io.Closer).Close()) }()
	conn, err := connector.Connect(t.Context())
	require.NoError(t, err)
	left := time.Until(conn.(interface{ ExpiresAt() time.Time }).ExpiresAt())
	require.LessOrEqual(t, left, 59*time.Minute)
	require.Greater(t, left, 56*time.Minute)
	require.NoError(t, conn.Close())

	gate.SlowHandshakes(200 * time.Millisecond)
	brief, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	_, err = connector.Connect(brief)
	require.Error(t, err)
	for end := time.Now().Add(10 * time.Second); gate.Stats().Admitted < 2 || gate.Stats().Live > 0; runtime.Gosched() {
		require.True(t, time.Now().Before(end), "what nobody waits for is closed: %+v", gate.Stats())
	}
}

// reclaiming leases ask the latest holder for some of what it has.
type reclaiming struct {
	lease.Leases
	holder atomic.Pointer[lease.Holder]
}

func (r *reclaiming) Acquire(ctx context.Context) (func(), error) {
	if h := lease.HolderOf(ctx); h != nil {
		r.holder.Store(h)
	}
	return r.Leases.Acquire(ctx)
}

func (r *reclaiming) ask(n int) (closing int) {
	r.holder.Load().Ask(n, func(n int, _ error) { closing = n })
	return closing
}

// dsqlRegistry is a registry with a server d of kinds.DSQL that has leases, with these options.
func dsqlRegistry(t *testing.T, leases lease.Leases, options string) (*registry.Registry, *dsqlgate.Gate) {
	server := postgres(t, "app")
	key := dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret"}
	gate, err := dsqlgate.Start(t.Context(), dsqlgate.Options{Upstream: server.DSN(), Credentials: []dsqlgate.Credential{key}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, gate.Close()) })
	r := newRegistry(t, kinds.DSQL(dsql.Config{
		TLS: gate.ClientTLS(), Dial: gate.Dial, Leases: leases, Logger: slog.New(slog.DiscardHandler),
		Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, ""),
	}))
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host '%s', %s);
		CREATE USER MAPPING FOR PUBLIC SERVER d`, gate.Host(), options)))
	return r, gate
}

// What a user of the registry keeps idle is given up for others of the fleet, which are short.
func TestIdleDSQLConnectionsAreGivenUpForTheFleet(t *testing.T) {
	leases := &reclaiming{Leases: lease.NewLeases("fleet", 2)}
	r, _ := dsqlRegistry(t, leases, "min_connections '0', warmup_connections '0'")
	busy, err := r.Acquire(t.Context(), "d", "ann")
	require.NoError(t, err)
	whoami(t, r, "d", "ann", "postgres") // leaves one idle
	require.Equal(t, 2, leases.ask(2), "one is idle, one will come back")
	for range 2 {
		release, err := leases.Acquire(t.Context())
		require.NoError(t, err)
		defer release()
		_ = busy.Release()
	}
	require.NoError(t, r.CloseAll(t.Context(), "d"))
	require.Zero(t, leases.ask(2))
}

// Users of one process share a budget: what one keeps idle another need not wait for.
func TestIdleDSQLConnectionsAreGivenUpForOtherUsers(t *testing.T) {
	r, gate := dsqlRegistry(t, lease.NewLeases("fleet", 2), "min_connections '2'")
	for _, user := range []string{"ann", "bob", "ann"} {
		c, err := r.Acquire(t.Context(), "d", user)
		require.NoError(t, err)
		require.NoError(t, c.Release())
		for end := time.Now().Add(10 * time.Second); gate.Stats().Live < 2; runtime.Gosched() { // it wants two
			require.True(t, time.Now().Before(end))
		}
	}
}

// revoking leases can be taken back.
type revoking struct {
	lease.Leases
	tell func(lease.Revocation)
}

func (r *revoking) OnRevoke(f func(lease.Revocation)) func() {
	r.tell = f
	return func() { r.tell = nil }
}

func (r *revoking) Valid() error { return nil }

// Whose leases are revoked is cut by the deadline. What users of the registry keep idle is closed, and not lent when it is.
func TestNoDSQLConnectionIsLentThatARevocationHasCut(t *testing.T) {
	leases := &revoking{Leases: lease.NewLeases("fleet", 9)}
	r, gate := dsqlRegistry(t, leases, "min_connections '0', warmup_connections '0'")
	for _, late := range []bool{false, true} { // one comes back before the deadline
		c, err := r.Acquire(t.Context(), "d", "ann")
		require.NoError(t, err)
		if !late {
			require.NoError(t, c.Release())
		}
		leases.tell(lease.Revocation{Deadline: time.Now().Add(200 * time.Millisecond), Cause: errors.New("the table is gone")})
		if late {
			require.NoError(t, c.Release())
		}
		for end := time.Now().Add(10 * time.Second); gate.Stats().Live > 0; runtime.Gosched() {
			require.True(t, time.Now().Before(end))
		}
		whoami(t, r, "d", "ann", "postgres")
	}
}

// A loan sees nothing of the session of the one before, and the connection is kept
// where the server can take back what was set.
func TestDSQLSessionsAreClean(t *testing.T) {
	server := postgres(t, "app")
	key := dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret", SessionToken: "token"}
	gate, err := dsqlgate.Start(t.Context(), dsqlgate.Options{Upstream: server.DSN(), Credentials: []dsqlgate.Credential{key}})
	require.NoError(t, err)
	defer func() { require.NoError(t, gate.Close()) }()
	r := newRegistry(t, kinds.DSQL(dsql.Config{
		TLS: gate.ClientTLS(), Dial: gate.Dial, Logger: slog.New(slog.DiscardHandler),
		Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, key.SessionToken),
	}))
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host '%s', max_connections '1', min_connections '0', warmup_connections '0');
		CREATE USER MAPPING FOR ann SERVER d OPTIONS (user 'app')`, gate.Host())))
	loan := func(statement string) (path string, pid int) {
		c, err := r.Acquire(t.Context(), "d", "ann")
		require.NoError(t, err)
		require.NoError(t, c.SQL().QueryRowContext(t.Context(), "SELECT current_setting('search_path'), pg_backend_pid()").Scan(&path, &pid))
		_, err = c.SQL().ExecContext(t.Context(), statement)
		require.NoError(t, err)
		require.NoError(t, c.Release())
		return path, pid
	}
	loan("UPDATE pg_settings SET setting = 'evil' WHERE name = 'search_path'")
	before, first := loan("SET search_path = 'evil'")
	path, second := loan("SET ROLE app")
	require.Equal(t, []any{"\"$user\", public", first}, []any{path, second})
	require.Equal(t, path, before)
	_, third := loan("SELECT 1")
	require.NotEqual(t, first, third, "a role is not taken back by RESET ALL")
	require.ErrorContains(t, r.ApplyDDL(t.Context(), "ALTER SERVER d OPTIONS (ADD sslmode 'disable')"), "sslmode: unknown option")
}

func TestADBCGoesByServerAndUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, srv.Close()) })
		adbc := kinds.ADBC()
		open := adbc.Flight
		adbc.Flight = func(ctx context.Context, r registry.ConnectParams) (*flightpool.FlightSQLPool, error) {
			r.Config.Dialer = srv.Dial
			return open(ctx, r)
		}
		r := newRegistry(t, adbc)
		require.NoError(t, r.ApplyDDL(t.Context(), `
			CREATE SERVER f TYPE 'adbc' FOREIGN DATA WRAPPER flightsql_fdw OPTIONS (host '127.0.0.1', port '1', min_connections '0', warmup_connections '0');
			CREATE USER MAPPING FOR ann SERVER f; CREATE USER MAPPING FOR bob SERVER f`))
		for _, user := range []string{"ann", "bob", "ann"} {
			res, err := r.Query(t.Context(), "f", user, "SELECT 1")
			require.NoError(t, err)
			rows := int64(0)
			for res.Next() {
				rows += res.RecordBatch().NumRows()
			}
			require.NoError(t, res.Err())
			require.Equal(t, int64(1), rows)
			res.Release()
		}
		require.NoError(t, r.CheckNow(t.Context(), "f"))
		st, err := r.ServerStats("f")
		require.NoError(t, err)
		require.Equal(t, []uint64{3, 2}, []uint64{st.Queries, st.Created})
		require.True(t, st.BytesCounted)
		require.NotZero(t, st.BytesSent)
		require.NotZero(t, st.BytesRead)
	})
}
