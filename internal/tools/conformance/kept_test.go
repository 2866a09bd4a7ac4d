//go:build duckdb_arrow

package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
)

// replicas are two servers behind one address, with the same tables: every change is made on each.
type replicas struct {
	t *testing.T
	r *rand.Rand

	mu    sync.Mutex
	dials int
	addrs [2]string

	servers [2]*testserver.Server
	admins  [2]*flightpool.FlightSQLPool
	history []string // of changes that went well
}

func (s *replicas) start(i int) {
	srv, err := duckdb.Start(s.t.Context(), duckdb.Config{}, testserver.Options{})
	require.NoError(s.t, err)
	admin, err := flightpool.New(s.t.Context(), "grpc://"+srv.Addr(), flightpool.Config{MaxSize: 1})
	require.NoError(s.t, err)
	s.servers[i], s.admins[i] = srv, admin
	s.mu.Lock()
	s.addrs[i] = srv.Addr()
	s.mu.Unlock()
	for _, sql := range s.history {
		_, err := admin.Update(s.t.Context(), sql)
		require.NoError(s.t, err, sql)
	}
}

func (s *replicas) stop(i int) {
	require.NoError(s.t, s.admins[i].Close(context.WithoutCancel(s.t.Context())))
	require.NoError(s.t, s.servers[i].Close())
}

// dial takes one after the other.
func (s *replicas) dial(ctx context.Context, _ string) (net.Conn, error) {
	s.mu.Lock()
	s.dials++
	addr := s.addrs[s.dials%2]
	s.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

func (s *replicas) change(sql string) {
	var failed [2]error
	for i, admin := range s.admins {
		_, failed[i] = admin.Update(s.t.Context(), sql)
	}
	require.Equal(s.t, failed[0] == nil, failed[1] == nil, "%s: %v, %v", sql, failed[0], failed[1])
	if failed[0] == nil {
		s.history = append(s.history, sql)
	}
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// anyChange is a change of the tables, of which some fail.
func anyChange(r *rand.Rand) string {
	table, typ := oneOf(r, "t0", "t1"), oneOf(r, "BIGINT", "VARCHAR", "DOUBLE", "INTEGER", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIME", "DECIMAL(10,2)")
	switch r.IntN(10) {
	case 0:
		return fmt.Sprintf("CREATE OR REPLACE TABLE %s (a %s, b VARCHAR)", table, typ)
	case 1:
		return fmt.Sprintf("CREATE OR REPLACE TABLE %s AS SELECT %s AS a, range AS b FROM range(%d)", table, oneOf(r, "range", "range::VARCHAR", "NULL::INTEGER", "range / 2"), 1+r.IntN(5))
	case 2:
		return fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", table, oneOf(r, "c", "d"), typ)
	case 3:
		return fmt.Sprintf("ALTER TABLE %s DROP COLUMN %s", table, oneOf(r, "b", "c", "d"))
	case 4:
		return fmt.Sprintf("ALTER TABLE %s ALTER a TYPE %s", table, typ)
	case 5:
		return fmt.Sprintf("ALTER TABLE %s RENAME %s TO %s", table, oneOf(r, "b", "c"), oneOf(r, "b", "c", "d"))
	case 6:
		return "DROP TABLE " + table
	case 7:
		return fmt.Sprintf("CREATE OR REPLACE VIEW v AS SELECT * FROM %s", table)
	case 8:
		return fmt.Sprintf("INSERT INTO %s (a) VALUES (%s)", table, oneOf(r, "'1970-01-01'", "'1970-01-01 06:00:00'", "'1970-01-01 12:00:00'", "'06:00:00'"))
	default:
		return fmt.Sprintf("INSERT INTO %s (a) VALUES (%d), (%d)", table, r.IntN(3), r.IntN(3))
	}
}

var keptTexts = []string{
	"SELECT * FROM t0 WHERE a = ?", "SELECT a, b FROM t0 WHERE a = ?", "SELECT * FROM t1 WHERE a = ?", "SELECT * FROM v WHERE a = ?", "SELECT count(*) FROM t0 WHERE a > ?",
	"SELECT ?, * FROM t1", "SELECT ? AS x", "SELECT t0.a, t1.* FROM t0, t1 WHERE t0.a = ?", "SELECT sum(a) FROM t1 WHERE b <> ?", "SELECT b FROM t0 WHERE a = CAST(? AS BIGINT)",
	"SELECT count(*) FROM t0 WHERE a < ?", "SELECT count(*) FROM t0 WHERE a <= 2 AND b IS NULL AND a >= ?",
}

// seen is what a call has come to: its rows, or the kind of its failure.
func seen(ctx context.Context, pool *flightpool.FlightSQLPool, sql string, arg any) string {
	res, err := pool.Query(ctx, sql, arg)
	var all *rows
	if err == nil {
		all, err = readAll(res)
	}
	if err != nil {
		var e *flightpool.Error
		if !errors.As(err, &e) {
			return "an error of no type: " + err.Error()
		}
		return fmt.Sprintf("%v %v %v", e.Fault, status.Code(e.Err), e.Partial)
	}
	slices.Sort(all.rows)
	return all.schema + "\n" + strings.Join(all.rows, "\n")
}

func release(held []*flightpool.SessionHandle) {
	for _, session := range held {
		_ = session.Close() // it may be lost
	}
}

// Pools with kept statements and without say the same, whatever becomes of the tables and of the
// replicas. PROVE says for how long.
func TestKeptStatementsSayWhatOthersSay(t *testing.T) {
	limit, seed := 3*time.Second, rand.Uint64()
	if text := os.Getenv("PROVE"); text != "" {
		var err error
		limit, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	if text := os.Getenv("PROVE_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	calls, rowsSeen, errorsSeen := 0, 0, 0
	for began := time.Now(); time.Since(began) < limit && !t.Failed(); seed++ {
		s := &replicas{t: t, r: rand.New(rand.NewPCG(seed, 0))}
		s.start(0)
		s.start(1)
		var pools [2]*flightpool.FlightSQLPool
		for i, size := range []int{0, 1 + s.r.IntN(4)} {
			var err error
			pools[i], err = flightpool.New(t.Context(), "grpc://127.0.0.1:1", flightpool.Config{Dialer: s.dial, MaxSize: 2, StatementCache: size})
			require.NoError(t, err)
		}
		var held []*flightpool.SessionHandle
		for range 150 {
			switch n := s.r.IntN(60); {
			case n < 12:
				s.change(anyChange(s.r))
			case n == 12:
				i := s.r.IntN(2)
				s.stop(i)
				s.start(i)
			case n == 13:
				pools[0].Reset()
				pools[1].Reset()
			case n == 14:
				if release(held); len(held) > 0 {
					held = nil
					continue
				}
				for _, pool := range pools {
					session, err := pool.AcquireSession(t.Context())
					require.NoError(t, err)
					_, _ = session.Update(t.Context(), "SET threads = 1")
					held = append(held, session)
				}
			default:
				sql, arg := oneOf(s.r, keptTexts...), oneOf[any](s.r, 1, 0, "1", 1.5, nil, "x", time.Unix(0, 0).UTC(), time.Unix(0, 0).UTC().Add(12*time.Hour), 6*time.Hour)
				plain, kept := seen(t.Context(), pools[0], sql, arg), seen(t.Context(), pools[1], sql, arg)
				calls++
				if strings.Contains(plain, "=") {
					rowsSeen++
				} else {
					errorsSeen++
				}
				assert.Equal(t, plain, kept, "seed %d: %s with %v, after %q", seed, sql, arg, s.history)
			}
		}
		release(held)
		for _, pool := range pools {
			require.NoError(t, pool.Close(context.WithoutCancel(t.Context())))
		}
		s.stop(0)
		s.stop(1)
	}
	fmt.Printf("PROVE kept calls=%d rows=%d errors=%d seed=%d\n", calls, rowsSeen, errorsSeen, seed)
}

// A time is sent as what the server has told of its parameter, which another may have changed since: a date
// that has become a timestamp would be compared with midnight.
func TestAKeptStatementKnowsWhatAColumnHasBecome(t *testing.T) {
	srv, err := duckdb.Start(t.Context(), duckdb.Config{}, testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	pool, err := flightpool.New(t.Context(), "grpc://"+srv.Addr(), flightpool.Config{MaxSize: 1, StatementCache: 4})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) }()
	other, err := flightpool.New(t.Context(), "grpc://"+srv.Addr(), flightpool.Config{MaxSize: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close(context.WithoutCancel(t.Context()))) }()
	change := func(sql string) {
		_, err := other.Update(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	noon := time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, types := range [][2]string{{"DATE", "TIMESTAMP"}, {"TIMESTAMP", "DATE"}, {"TIMESTAMPTZ", "DATE"}, {"DATE", "TIMESTAMPTZ"}} {
		change("CREATE OR REPLACE TABLE events (ts " + types[0] + ")")
		for _, sql := range []string{"SELECT count(*) FROM events WHERE ts = ?", "SELECT count(*) FROM events WHERE ts < ?", "SELECT count(*) FROM events WHERE ts IN (?)"} {
			require.Equal(t, seen(t.Context(), other, sql, noon), seen(t.Context(), pool, sql, noon))
		}
		change("ALTER TABLE events ALTER ts TYPE " + types[1])
		change("INSERT INTO events VALUES ('2024-01-01 06:00:00'), ('2024-01-01 12:00:00')")
		for _, sql := range []string{"SELECT count(*) FROM events WHERE ts = ?", "SELECT count(*) FROM events WHERE ts < ?", "SELECT count(*) FROM events WHERE ts IN (?)"} {
			assert.Equal(t, seen(t.Context(), other, sql, noon), seen(t.Context(), pool, sql, noon), "%s, %v", sql, types)
		}
	}
}

// Nor what a macro, a view and what is counted have become: DuckDB plans a statement anew where it can.
func TestAKeptStatementKnowsWhatAMacroHasBecome(t *testing.T) {
	srv, err := duckdb.Start(t.Context(), duckdb.Config{}, testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	pool, err := flightpool.New(t.Context(), "grpc://"+srv.Addr(), flightpool.Config{MaxSize: 1, StatementCache: 8})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) }()
	other, err := flightpool.New(t.Context(), "grpc://"+srv.Addr(), flightpool.Config{MaxSize: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close(context.WithoutCancel(t.Context()))) }()
	texts := []string{
		"SELECT f(?::INTEGER)", "SELECT f(?::BIGINT)", "SELECT f(1) + ?::BIGINT", "SELECT f(a), ?::BIGINT FROM range(3) t(a)",
		"SELECT f(a) FROM o.t WHERE a = ?", "SELECT a FROM v WHERE a > ?", "SELECT count(*) + ?::BIGINT FROM o.t", "SELECT count(*) FROM o.t WHERE a = 200 AND a > ?",
		"SELECT current_setting('threads'), ?::BIGINT", "SELECT unnest([2, NULL, ?::BIGINT]) AS x ORDER BY x", "SELECT g(?::BIGINT)",
	}
	for _, sql := range []string{"ATTACH ':memory:' AS o", "CREATE TABLE o.t AS SELECT range AS a FROM range(100)", "CREATE VIEW v AS SELECT a FROM o.t", "CREATE MACRO f(x) AS x + 1", "CREATE MACRO g(x) AS (SELECT max(a) + x FROM o.t)"} {
		_, err := other.Update(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	both := func() {
		for _, sql := range texts {
			assert.Equal(t, seen(t.Context(), other, sql, 1), seen(t.Context(), pool, sql, 1), sql)
		}
	}
	both()
	both()
	for _, sql := range []string{"CREATE OR REPLACE MACRO f(x) AS x + 100", "CREATE OR REPLACE VIEW v AS SELECT a * 10 AS a FROM o.t", "INSERT INTO o.t VALUES (200)", "CREATE OR REPLACE MACRO g(x) AS (SELECT min(a) + x FROM o.t)", "SET GLOBAL threads = 3", "SET GLOBAL default_null_order = 'nulls_first'"} {
		_, err := other.Update(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	both()
}
