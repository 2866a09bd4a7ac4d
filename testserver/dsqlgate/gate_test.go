package dsqlgate_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/dsql/auth"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

var key = dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret/with+signs", SessionToken: "session=token/+"}

func start(t *testing.T, set func(*dsqlgate.Options)) *dsqlgate.Gate {
	t.Helper()
	o := dsqlgate.Options{Upstream: postgres.DSN(), Credentials: []dsqlgate.Credential{key}}
	if set != nil {
		set(&o)
	}
	g, err := dsqlgate.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

// A client says who connects, and how.
type client struct {
	user, region, secret, session, host string
	lifetime                            time.Duration
	set                                 func(*pgx.ConnConfig)
}

func (c client) connect(t *testing.T, g *dsqlgate.Gate) (*pgx.Conn, error) {
	t.Helper()
	or := func(s, byDefault string) string {
		if s == "" {
			return byDefault
		}
		return s
	}
	user, host := or(c.user, "admin"), or(c.host, g.Host())
	provider := credentials.NewStaticCredentialsProvider(key.AccessKeyID, or(c.secret, key.SecretAccessKey), or(c.session, key.SessionToken))
	generate := auth.GenerateDbConnectAuthToken
	if user == "admin" {
		generate = auth.GenerateDBConnectAdminAuthToken
	}
	token, err := generate(t.Context(), host, or(c.region, "us-east-1"), aws.CredentialsProvider(provider), func(o *auth.TokenOptions) { o.ExpiresIn = c.lifetime })
	require.NoError(t, err)
	config, err := pgx.ParseConfig("sslmode=disable database=postgres password=x")
	require.NoError(t, err)
	config.Host, config.User, config.Password, config.Fallbacks = g.Host(), user, token, nil
	config.TLSConfig = g.ClientTLS()
	config.TLSConfig.ServerName = g.Host()
	config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	config.DialFunc = g.Dial
	if c.set != nil {
		c.set(config)
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	}
	return conn, err
}

func connect(t *testing.T, g *dsqlgate.Gate) *pgx.Conn {
	t.Helper()
	conn, err := client{}.connect(t, g)
	require.NoError(t, err)
	return conn
}

func requireCode(t *testing.T, err error, code, message string) {
	t.Helper()
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, code, pg.Code)
	require.Contains(t, pg.Message, message)
}

func TestATokenOfTheSDKLetsIn(t *testing.T) {
	g := start(t, nil)
	for _, user := range []string{"admin", "app"} {
		conn, err := client{user: user}.connect(t, g)
		require.NoError(t, err)
		var isolation string
		require.NoError(t, conn.QueryRow(t.Context(), "show transaction_isolation").Scan(&isolation))
		require.Equal(t, "repeatable read", isolation)
	}
	require.Equal(t, 2, g.Stats().Admitted)
}

func TestDirectTLSLetsIn(t *testing.T) {
	conn, err := client{set: func(c *pgx.ConnConfig) {
		c.SSLNegotiation = "direct"
		c.TLSConfig.NextProtos = []string{"postgresql"}
	}}.connect(t, start(t, nil))
	require.NoError(t, err)
	require.NoError(t, conn.Ping(t.Context()))
}

func TestAFaultyTokenIsRefused(t *testing.T) {
	limited := key
	limited.Users = []string{"admin"}
	for name, c := range map[string]struct {
		client
		credential dsqlgate.Credential
		denial     string
	}{
		"wrong secret":              {client{secret: "other"}, key, "signature is wrong"},
		"wrong region":              {client{region: "eu-west-1"}, key, "scope is"},
		"wrong host":                {client{host: "other.dsql.us-east-1.on.aws"}, key, "is for host"},
		"wrong session token":       {client{session: "other"}, key, "session token"},
		"too long":                  {client{lifetime: 8 * 24 * time.Hour}, key, "X-Amz-Expires"},
		"credentials that expired":  {client{}, dsqlgate.Credential{AccessKeyID: key.AccessKeyID, SecretAccessKey: key.SecretAccessKey, SessionToken: key.SessionToken, Expires: time.Now().Add(-time.Second)}, "has expired"},
		"another's role":            {client{user: "app"}, limited, "may not be user"},
		"admin with a user's token": {client{user: "app", set: func(c *pgx.ConnConfig) { c.User = "admin" }}, key, "action is"},
		"a changed token": {client{set: func(c *pgx.ConnConfig) {
			c.Password = strings.Replace(c.Password, "X-Amz-Expires=900", "X-Amz-Expires=901", 1)
		}}, key, "signature is wrong"},
		"a token of yesterday": {client{set: func(c *pgx.ConnConfig) {
			c.Password = strings.ReplaceAll(c.Password, time.Now().UTC().Format("20060102"), time.Now().UTC().Add(-24*time.Hour).Format("20060102"))
		}}, key, "is valid for"},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, func(o *dsqlgate.Options) { o.Credentials = []dsqlgate.Credential{c.credential} })
			_, err := c.connect(t, g)
			requireCode(t, err, "08006", "unable to accept connection, access denied")
			require.Contains(t, g.Stats().LastDenial, c.denial)
			require.Equal(t, 1, g.Stats().Refused["08006"])
		})
	}
}

func TestARevokedKeyIsRefusedAndItsConnectionsLive(t *testing.T) {
	g := start(t, nil)
	conn := connect(t, g)
	g.Revoke(key.AccessKeyID)
	_, err := client{}.connect(t, g)
	requireCode(t, err, "08006", "access denied")
	require.NoError(t, conn.Ping(t.Context()))
}

func TestPlainTextAndMissingSNIAreRefused(t *testing.T) {
	g := start(t, nil)
	_, err := client{set: func(c *pgx.ConnConfig) { c.TLSConfig = nil }}.connect(t, g)
	requireCode(t, err, "28000", "TLS is required")
	_, err = client{set: func(c *pgx.ConnConfig) {
		c.TLSConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the server must refuse it
	}}.connect(t, g)
	requireCode(t, err, "08006", "unable to accept connection, sni was not received")
}

func TestOnlyTheDatabasePostgresExists(t *testing.T) {
	_, err := client{set: func(c *pgx.ConnConfig) { c.Database = "other" }}.connect(t, start(t, nil))
	requireCode(t, err, "3D000", "postgres")
}

func TestTheBucketRefusesWhoComesTooFast(t *testing.T) {
	g := start(t, func(o *dsqlgate.Options) { o.Rate, o.Burst = 0.001, 2 })
	connect(t, g)
	connect(t, g)
	_, err := client{}.connect(t, g)
	requireCode(t, err, "53400", "Unable to accept connection, rate exceeded.")
	require.Equal(t, 1, g.Stats().Refused["53400"])
	require.Len(t, g.Admissions(), 2)
}

func TestTheLimitOfConnectionsCountsThoseThatLive(t *testing.T) {
	g := start(t, func(o *dsqlgate.Options) { o.MaxConns = 1 })
	conn := connect(t, g)
	_, err := client{}.connect(t, g)
	requireCode(t, err, "53300", "Unable to accept connection, too many open connections.")
	require.NoError(t, conn.Close(t.Context()))
	for g.Stats().Live > 0 { // the server notices a little later
		runtime.Gosched()
	}
	connect(t, g)
	require.Equal(t, 1, g.Stats().Peak)
}

func TestASessionEndsAtItsLimitUnlessInATransaction(t *testing.T) {
	const limit = 2 * time.Second // long enough for a busy machine to connect and begin
	g := start(t, func(o *dsqlgate.Options) { o.SessionLimit, o.TxLimit = limit, limit })
	idle, busy, late := connect(t, g), connect(t, g), connect(t, g)
	began := time.Now()
	tx, err := busy.Begin(t.Context())
	require.NoError(t, err)
	_, err = late.Begin(t.Context())
	require.NoError(t, err)

	_, err = idle.PgConn().ReceiveMessage(t.Context())
	require.Error(t, err)
	require.False(t, pgconn.Timeout(err))
	require.InDelta(t, limit.Seconds(), time.Since(began).Seconds(), 1)

	require.NoError(t, tx.Commit(t.Context()), "a transaction begun before goes on")
	_, err = busy.PgConn().ReceiveMessage(t.Context())
	require.Error(t, err, "and the session ends with it")

	_, err = late.PgConn().ReceiveMessage(t.Context())
	require.Error(t, err, "and at the latest when the transaction's time is over")
	require.InDelta(t, (2 * limit).Seconds(), time.Since(began).Seconds(), 1)
	require.Equal(t, 3, g.Stats().Expired)
}

func TestATransactionThatIsTooOldOrTooLargeFails(t *testing.T) {
	g := start(t, func(o *dsqlgate.Options) { o.TxLimit, o.TxRows = time.Nanosecond, 10 })
	conn := connect(t, g)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "select 1")
	requireCode(t, err, "54000", "transaction age limit")
	require.NoError(t, tx.Rollback(t.Context()))

	g = start(t, func(o *dsqlgate.Options) { o.TxRows = 10 })
	conn = connect(t, g)
	table(t, conn, "large")
	tx, err = conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "insert into large select generate_series(1, 11)")
	require.NoError(t, err)
	requireCode(t, tx.Commit(t.Context()), "54000", "transaction row limit")
	require.Zero(t, rowsOf(t, conn, "large"))
}

func TestCommitsFailOnDemandAndLeaveNothing(t *testing.T) {
	g := start(t, nil)
	conn := connect(t, g)
	table(t, conn, "conflicts")
	for code, message := range map[string]string{
		"OC000": "mutation conflicts with another transaction, retry as needed (OC000)",
		"OC001": "schema has been updated by another transaction, please retry: (OC001)",
	} {
		g.FailCommits(1, code)
		err := insert(t, conn, "conflicts")
		requireCode(t, err, "40001", message)
		require.Zero(t, rowsOf(t, conn, "conflicts"))
	}
	require.NoError(t, insert(t, conn, "conflicts"))
	require.Equal(t, 1, rowsOf(t, conn, "conflicts"))
}

func TestACommitCanVanish(t *testing.T) {
	g := start(t, nil)
	conn := connect(t, g)
	table(t, conn, "vanished")
	g.DropAtCommit(1)
	err := insert(t, conn, "vanished")
	require.Error(t, err)
	require.False(t, errors.As(err, new(*pgconn.PgError)))
	require.Equal(t, 1, rowsOf(t, connect(t, g), "vanished"), "it was committed")
}

func TestAnAnswerCanVanish(t *testing.T) {
	g := start(t, nil)
	conn := connect(t, g)
	table(t, conn, "unanswered")
	g.DropAtAnswer(1)
	_, err := conn.Exec(t.Context(), "insert into unanswered values (1)")
	require.Error(t, err)
	require.Equal(t, 1, rowsOf(t, connect(t, g), "unanswered"))
}

func TestARealConflictHasDSQLsWords(t *testing.T) {
	g := start(t, nil)
	a, b := connect(t, g), connect(t, g)
	table(t, a, "real_conflict")
	require.NoError(t, insert(t, a, "real_conflict"))
	first, err := a.Begin(t.Context())
	require.NoError(t, err)
	var n int
	require.NoError(t, first.QueryRow(t.Context(), "select n from real_conflict").Scan(&n)) // takes its snapshot
	_, err = b.Exec(t.Context(), "update real_conflict set n = n + 1")
	require.NoError(t, err)
	_, err = first.Exec(t.Context(), "update real_conflict set n = n + 1")
	requireCode(t, err, "40001", "(OC000)")
}

func TestWhatDSQLDoesNotHaveIsRefusedInBothProtocols(t *testing.T) {
	g := start(t, nil)
	conn := connect(t, g)
	table(t, conn, "refused")
	for _, sql := range []string{"truncate refused", "create temporary table x (n int)", "savepoint s", "create sequence s", "listen x", "create database x"} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheStatement} {
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), sql, mode)
			requireCode(t, err, "0A000", "not supported")
			require.Equal(t, byte('E'), conn.PgConn().TxStatus(), "the transaction has failed")
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
}

func TestOneDDLPerTransactionAndNoDMLBesideIt(t *testing.T) {
	conn := connect(t, start(t, nil))
	table(t, conn, "mixed")
	for _, second := range []string{"create table another (n int)", "insert into mixed values (1)"} {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "create table one (n int)")
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), second)
		requireCode(t, err, "0A000", "ddl")
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

func TestConnectionsEndInEveryWay(t *testing.T) {
	for name, end := range map[string]func(*dsqlgate.Gate) int{"FIN": (*dsqlgate.Gate).DropAll, "RST": (*dsqlgate.Gate).ResetAll} {
		t.Run(name, func(t *testing.T) {
			g := start(t, nil)
			conn := connect(t, g)
			require.Equal(t, 1, end(g))
			_, err := conn.PgConn().ReceiveMessage(t.Context())
			require.Error(t, err)
		})
	}
	for name, c := range map[string]struct {
		end  func(*dsqlgate.Gate) int
		live int
	}{"silent": {(*dsqlgate.Gate).FreezeAll, 1}, "half-open": {(*dsqlgate.Gate).HalfOpenAll, 0}} {
		t.Run(name, func(t *testing.T) {
			g := start(t, nil)
			conn := connect(t, g)
			require.Equal(t, 1, c.end(g))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := conn.Exec(ctx, "select 1")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, c.live, g.Stats().Live)
		})
	}
}

func TestRefusalsAndSlowHandshakesOnDemand(t *testing.T) {
	g := start(t, nil)
	g.Refuse(1, "53400")
	_, err := client{}.connect(t, g)
	requireCode(t, err, "53400", "rate exceeded")
	connect(t, g)
	g.SlowHandshakes(100 * time.Millisecond)
	began := time.Now()
	connect(t, g)
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
}

func TestFaultsOfTheOptionsAreToldTogether(t *testing.T) {
	_, err := dsqlgate.Start(t.Context(), dsqlgate.Options{})
	require.ErrorContains(t, err, "Upstream")
	require.ErrorContains(t, err, "Credentials")
}

func TestGarbageIsNoHarm(t *testing.T) {
	g := start(t, nil)
	for _, bytes := range []string{"\x00\x00\x00\x04", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x00\x00", "\xff\xff\xff\xff\xff\xff\xff\xff"} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", g.Addr())
		require.NoError(t, err)
		_, err = conn.Write([]byte(bytes))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	connect(t, g)
}

func table(t *testing.T, conn *pgx.Conn, name string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), "create table if not exists "+name+" (n int)")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "delete from "+name)
	require.NoError(t, err)
}

func insert(t *testing.T, conn *pgx.Conn, table string) error {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "insert into "+table+" values ($1)", 1)
	require.NoError(t, err)
	return tx.Commit(t.Context())
}

func rowsOf(t *testing.T, conn *pgx.Conn, table string) (n int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from "+table).Scan(&n))
	return n
}

// A client that is killed in its handshake was refused by nobody; one that is no
// client of TLS was.
func TestWhoLeavesInTheHandshakeWasNotRefused(t *testing.T) {
	g := start(t, nil)
	begin := func(text string) net.Conn {
		conn, err := net.Dial("tcp", g.Addr())
		require.NoError(t, err)
		_, err = conn.Write([]byte(text))
		require.NoError(t, err)
		return conn
	}
	left := begin("\x16\x03\x01\x00\x80half a greeting")
	require.NoError(t, left.(*net.TCPConn).CloseWrite())
	for _, conn := range []net.Conn{left, begin("\x16\x03\x01\x00\x04nope")} {
		_, err := io.ReadAll(conn) // until the gate has hung up
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	require.Equal(t, map[string]int{"tls": 1}, g.Stats().Refused)
	require.Equal(t, 2, g.Stats().Attempts)
}
