package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/pglease"
)

// What is unfit is refused by New, NewLimiter and Setup, by its name and with
// what to do.
func TestUnfitTablesAndRolesAreRefused(t *testing.T) {
	const rest = "key text primary key, record json not null, expires timestamptz"
	u := unique("u")
	sql(t, fmt.Sprintf(`create schema %[1]s; create role %[1]s_none login; create role %[1]s_read login;
		create table %[1]s.good (`+rest+`); grant usage on schema %[1]s to %[1]s_read; grant select on %[1]s.good to %[1]s_read;
		create table %[1]s.nokey (key text, record json not null, expires timestamptz);
		create table %[1]s.two (key text, record json, expires timestamptz, other int default 1, primary key (key, other));
		create table %[1]s.jsonb (key text primary key, record jsonb not null, expires timestamptz);
		create table %[1]s.later (key text, record json not null, expires timestamptz, unique (key) deferrable);
		create unlogged table %[1]s.forgets (`+rest+`);
		create view %[1]s.view as select * from %[1]s.good;
		create table %[1]s.parts (`+rest+`) partition by hash (key);
		create table %[1]s.hidden (`+rest+`); alter table %[1]s.hidden enable row level security; alter table %[1]s.hidden force row level security;
		grant all on %[1]s.hidden to %[1]s_read;
		create table %[1]s.rules (`+rest+`); create rule r as on update to %[1]s.rules do instead nothing`, u))
	as := func(role string) string { return strings.Replace(server.DSN(), "postgres@", u+"_"+role+"@", 1) }
	for _, v := range []struct{ dsn, table, text string }{
		{server.DSN(), "missing", "does not exist"},
		{server.DSN(), u + "_no.good", "does not exist"},
		{server.DSN(), "nokey", "with a primary key on key alone"},
		{server.DSN(), "two", "with a primary key on key alone"},
		{server.DSN(), "jsonb", "has not the columns"},
		{server.DSN(), "later", "with a primary key on key alone"},
		{server.DSN(), "forgets", "is not logged"},
		{server.DSN(), "view", "is not an ordinary table"},
		{server.DSN(), "parts", "is not an ordinary table"},
		{as("read"), "hidden", "row-level security"},
		{server.DSN(), "rules", "or rules"},
		{as("none"), "good", "permission denied for the schema"},
		{as("read"), "good", "permission denied for table \"" + u + "\".\"good\": INSERT, UPDATE, DELETE"},
		{server.DSN() + "&options=-c%20default_transaction_read_only%3Don", "good", "default_transaction_read_only"},
		{server.DSN() + "&client_encoding=LATIN1", "good", "client_encoding"},
		{strings.Replace(server.DSN(), "postgres@", "nobody:secret@", 1), "good", "the pool's user, password or database"},
		{strings.Replace(server.DSN(), "/postgres?", "/nowhere?", 1), "good", "the pool's user, password or database"},
	} {
		t.Run(v.table+" "+v.text, func(t *testing.T) {
			table, pool := v.table, connect(t, v.dsn)
			if !strings.Contains(table, ".") {
				table = u + "." + table
			}
			check := func(err error, setting string) {
				var wrong *fleet.ConfigError
				require.ErrorAs(t, err, &wrong)
				require.ErrorContains(t, err, v.text[strings.LastIndex(v.text, ": ")+1:])
				require.NotContains(t, err.Error(), "secret")
				require.NotContains(t, err.Error(), "\n")
			}
			_, err := pglease.New(t.Context(), pool, fleet.Config{Table: table, Budget: "b", Limit: 1, Logger: quiet})
			check(err, "Config")
			_, err = pglease.NewLimiter(t.Context(), pool, fleet.LimiterConfig{Table: table, Budget: "b", Logger: quiet})
			check(err, "LimiterConfig")
			if !strings.Contains(v.text, "does not exist") {
				require.Error(t, pglease.Setup(t.Context(), pool, table))
			}
		})
	}
	l, err := pglease.New(t.Context(), connect(t, server.DSN()), fleet.Config{Table: u + ".good", Budget: "b", Limit: 1, Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, l.Close(t.Context()))

	// To look, it is enough to be allowed to read.
	f, err := fleet.Inspect(t.Context(), newStore(t, connect(t, as("read")), u+".good"), "b")
	require.NoError(t, err)
	require.Equal(t, 1, f.Limit)
	all, err := newStore(t, connect(t, as("read")), u+".good").Budgets(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, all)
	err = fleet.SetLimit(t.Context(), newStore(t, connect(t, as("read")), u+".good"), "b", 5)
	require.ErrorContains(t, err, "grant the role SELECT, INSERT, UPDATE and DELETE")
	require.ErrorIs(t, err, fs.ErrPermission)
	_, err = newStore(t, connect(t, as("none")), u+".no").Read(t.Context(), "k")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// A connection string that cannot be used may have its password anywhere.
func TestNoWordOfAConnectionStringThatIsWrongIsTold(t *testing.T) {
	for dsn, tells := range map[string]string{
		"postgres://u:secret@h:1/x?sslmode=nonsense":          "configure TLS (sslmode is invalid)",
		"postgres://u:my@secret@h/x":                          "@",
		"postgres://u:my/secret@h/x":                          "invalid port",
		"postgres://u:my secret@h/x":                          "parse as URL",
		"postgres://u:secret@h/x?connect_timeout=s":           "invalid connect_timeout",
		"host=h password=my secret":                           "keyword/value",
		"host=h password=my secret port=5432":                 "keyword/value",
		"host=h Password = secret x":                          "keyword/value",
		`host=h password="my secret"`:                         "keyword/value",
		"host=h password='my secret":                          "keyword/value",
		"host=h pwd=my secret":                                "keyword/value",
		"Postgres://u:my:secret@h/x":                          "keyword/value",
		"u:secret":                                            "keyword/value",
		"host=h target_session_attrs='x password=secret'":     "target_session_attrs",
		"postgres://h/x?password=my;secret&pool_max_conns=no": "pool_max_conns",
	} {
		_, err := pglease.Connect(t.Context(), dsn)
		require.ErrorContains(t, err, tells, dsn)
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), "secret", dsn)
		require.False(t, errors.As(err, new(*pgconn.ParseConfigError)), "which has it all")
	}
}

// What is written within somebody else's transaction may come to nothing,
// though it was answered.
func TestAConnectionWithinATransactionIsRefused(t *testing.T) {
	cfg, err := pgxpool.ParseConfig(server.DSN())
	require.NoError(t, err)
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "begin")
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer pool.Close()
	_, err = newStore(t, pool, newTable(t)).Write(t.Context(), create("k"))
	var wrong *fleet.ConfigError
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "transaction")
}

func TestNamesThatPostgreSQLCannotHold(t *testing.T) {
	for _, name := range []string{"a.b.c", ".a", "a.", strings.Repeat("x", 64), "x\x00y", "\xff"} {
		_, err := pglease.NewStore(connect(t, server.DSN()), name)
		require.ErrorContains(t, err, "is not schema.table", "%q", name)
		_, err = pglease.DDL(name)
		require.Error(t, err)
	}
	_, err := pglease.NewStore(nil, "t")
	require.ErrorContains(t, err, "the pool is nil")
	_, err = pglease.NewStore((*pgxpool.Pool)(nil), "t")
	require.ErrorContains(t, err, "the pool is nil")
	odd := `Odd "ns".We're \ odd;--`
	sql(t, `create schema "Odd ""ns"""`)
	pool := connect(t, server.DSN()+"&options=-c%20standard_conforming_strings%3Doff")
	require.NoError(t, pglease.Setup(t.Context(), pool, odd))
	store := newStore(t, pool, odd)
	for _, key := range []string{`it's \`, `\' or true --`, "ü ☃ \u2028", "", strings.Repeat("k", 1999)} {
		answer, err := store.Write(t.Context(), create(key))
		require.NoError(t, err, "%q", key)
		require.True(t, answer.Done)
		got, err := store.Read(t.Context(), key, "other")
		require.NoError(t, err)
		require.Len(t, got.Records, 1)
		require.NotNil(t, got.Records[key])
	}
	for _, key := range []string{"a\x00b", "a\xff", strings.Repeat("k", 2001)} {
		var wrong *fleet.ConfigError
		_, err := store.Write(t.Context(), create(key))
		require.ErrorAs(t, err, &wrong)
		_, err = store.Read(t.Context(), key)
		require.ErrorAs(t, err, &wrong)
	}
}

func TestSetupMayRunOftenAndAtOnce(t *testing.T) {
	table := "public." + unique("leases")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := pglease.Setup(t.Context(), admin, table); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	ddl, err := pglease.DDL(table)
	require.NoError(t, err)
	sql(t, ddl) // what is shown is what is there
}

// A standby shows what was. It is refused at first, and when it takes the
// place of the primary under a store that runs.
func TestAStandbyIsNotBelieved(t *testing.T) {
	table := newTable(t)
	pool := connect(t, server.DSN())
	store := newStore(t, pool, table)
	_, err := store.Write(t.Context(), create("k"))
	require.NoError(t, err)
	signal := filepath.Join(ask[string](t, "show data_directory"), "standby.signal")
	restart(t, func() { require.NoError(t, os.WriteFile(signal, nil, 0o600)) })
	defer restart(t, func() { require.NoError(t, os.Remove(signal)) })
	for errors.Is(err, nil) || !strings.Contains(err.Error(), "is a standby") { // connections of before fail in their own way
		_, err = store.Read(t.Context(), "k")
		require.Error(t, err)
	}
	var wrong *fleet.ConfigError
	require.ErrorAs(t, err, &wrong)
	_, err = store.Write(t.Context(), create("k2"))
	require.ErrorContains(t, err, "is a standby")
	before := pool.Stat().NewConnsCount()
	for range 3 {
		_, err = store.Read(t.Context(), "k")
		require.ErrorContains(t, err, "is a standby")
	}
	require.EqualValues(t, before+3, pool.Stat().NewConnsCount(), "the next connection may lead to the primary")
	_, err = pglease.New(t.Context(), pool, fleet.Config{Table: table, Budget: "b", Limit: 1, Logger: quiet})
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "target_session_attrs=primary")
}

// A server that does not answer is no reason to fail: the Fallback decides,
// and the table is looked at later.
func TestAServerThatDoesNotAnswerIsLookedAtLater(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, dead.Close()) }()
	pool := connect(t, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&connect_timeout=1", dead.Addr()))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err = pglease.New(ctx, pool, fleet.Config{Budget: "b", Limit: 1, Logger: quiet})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begun), 5*time.Second)
}

// Commits are on disk before they are answered, whatever the server's default.
func TestWhatWasAnsweredOutlivesACrash(t *testing.T) {
	table := newTable(t)
	pool := connect(t, server.DSN()+"&options=-c%20synchronous_commit%3Doff")
	store := newStore(t, pool, table)
	sql(t, "alter system set wal_writer_delay = '10s'")
	sql(t, "select pg_reload_conf()")
	for i := range 3 {
		_, err := store.Write(t.Context(), create(fmt.Sprint(i)))
		require.NoError(t, err)
	}
	restart(t, nil)
	require.Equal(t, 3, ask[int](t, "select count(*) from "+table))
}

// Records whose time has passed go when others are written, by the server's
// clock alone.
func TestExpiredRecordsAreRemoved(t *testing.T) {
	table := newTable(t)
	store := newStore(t, connect(t, server.DSN()), table)
	write := func(key string, in time.Duration) {
		c := fleet.Change{Key: key, Set: map[string]int64{"n": 1}}
		if in > 0 {
			c.Expires = time.Now().Add(in)
		}
		answer, err := store.Write(t.Context(), c)
		require.NoError(t, err)
		require.True(t, answer.Done)
	}
	write("stays", 0)
	write("a", time.Hour)
	write("b", 3*time.Hour)
	write("b", 0) // keeps its time
	write("locked", time.Hour)
	sql(t, "update "+table+" set expires = expires - interval '2 hours'")
	tx, err := admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "select * from "+table+" where key = 'locked' for update")
	require.NoError(t, err)
	write("c", time.Hour)
	require.Equal(t, "b c locked stays", ask[string](t, "select string_agg(key, ' ' order by key) from "+table))
	require.NoError(t, tx.Commit(t.Context()))
	write("locked", time.Hour) // lives again
	write("d", time.Hour)
	require.Equal(t, "b c d locked stays", ask[string](t, "select string_agg(key, ' ' order by key) from "+table))
	require.Equal(t, "b c d locked", ask[string](t, "select string_agg(key, ' ' order by key) from "+table+" where expires > now()"))
}
