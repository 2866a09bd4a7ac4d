//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/internal/sqlscan"
	"github.com/flightpool/flightpool/testserver"
)

// Many borrowers of one DuckDB who change settings of the whole server and of their sessions, fail
// and discard: in the end all of it is as it was. PROVE_SEED and PROVE_SCENES repeat it and make it longer.
func TestManyBorrowersLeaveTheSettingsOfTheServer(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	scenes, _ := strconv.ParseUint(os.Getenv("PROVE_SCENES"), 10, 64)
	srv, err := Start(t.Context(), Config{Settings: map[string]string{"threads": "3", "checkpoint_threshold": "20MB", "preserve_insertion_order": "false", "index_scan_max_count": "5", "default_order": "DESC"}}, testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 5, HealthCheck: flightpool.HealthCheck{Interval: -1}})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(t.Context())) }()
	settings := func() map[string]string {
		type setting struct{ Name, Value string }
		rows, err := flightpool.CollectRows[setting](pool.Query(t.Context(), "SELECT name, coalesce(value, '') AS value FROM duckdb_settings()"))
		require.NoError(t, err)
		all := map[string]string{}
		for _, r := range rows {
			all[r.Name] = r.Value
		}
		return all
	}
	start := settings()
	for scene := range max(scenes, 3) {
		var wg sync.WaitGroup
		for i := range 5 {
			rnd := rand.New(rand.NewPCG(seed+scene, uint64(i))) //nolint:gosec // a repeatable sequence
			wg.Go(func() {
				for range 6 {
					borrowSettings(t.Context(), pool, rnd)
				}
			})
		}
		wg.Wait()
		require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
		var handles []*flightpool.SessionHandle // all of them, so that what goes on behind callers has ended
		for range 5 {
			h, err := pool.AcquireSession(t.Context())
			require.NoError(t, err)
			handles = append(handles, h)
		}
		var own []string
		for _, h := range handles {
			found, err := flightpool.CollectRows[string](h.Query(t.Context(), "SELECT name FROM duckdb_settings() WHERE scope = 'LOCAL' AND name IN ('"+strings.Join(ofBothKinds, "', '")+"')"))
			assert.NoError(t, err)
			own = append(own, found...)
		}
		for _, h := range handles {
			require.NoError(t, h.Close())
		}
		require.Empty(t, own, "hidden by a value of a session's own, seed %d", seed+scene)
		for name, now := range settings() {
			require.Equal(t, start[name], now, "%s, seed %d", name, seed+scene)
		}
	}
}

// ofBothKinds are settings of which a session can have a value of its own, and of which a plain SET
// changes the server's.
var ofBothKinds = []string{"default_null_order", "null_order", "default_order", "preserve_insertion_order", "arrow_large_buffer_size", "index_scan_max_count"}

// A setting counts as one by all of the names that DuckDB has for it.
func TestNamesOfASettingAreKnown(t *testing.T) {
	s := openSession(t, newEngine(t, Config{}))
	names := s.mustQuery(t, "SELECT name, unnest(aliases) FROM duckdb_settings() WHERE name NOT LIKE '%profil%'") // those are not put back
	require.Greater(t, len(names), 3)
	for _, of := range names {
		require.Equal(t, sqlscan.Effect{Name: of[0]}.SettingKey(), sqlscan.Effect{Name: of[1]}.SettingKey())
	}
}

// The users of a registry have pools of their own on one server: they, too, leave what its operator has set.
func TestUsersOfARegistryLeaveTheSettingsOfTheServer(t *testing.T) {
	srv, err := Start(t.Context(), Config{Settings: map[string]string{"threads": "3"}}, testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	host, port, err := net.SplitHostPort(srv.Addr())
	require.NoError(t, err)
	r := registry.New()
	defer func() { require.NoError(t, r.Close(t.Context())) }()
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER lake FOREIGN DATA WRAPPER flight_sql OPTIONS (host '%s', port '%s');
		CREATE USER MAPPING FOR ann SERVER lake; CREATE USER MAPPING FOR ben SERVER lake`, host, port)))
	for first := range 2 {
		var handles [2]*flightpool.SessionHandle
		for i, user := range []string{"ann", "ben"} {
			handles[i], err = r.AcquireSession(t.Context(), "lake", user)
			require.NoError(t, err)
			_, err = handles[i].Update(t.Context(), fmt.Sprintf("SET threads = %d", i+1))
			require.NoError(t, err)
		}
		_ = handles[first].Close()
		_ = handles[1-first].Close()
		threads, err := flightpool.CollectOneRow[int64](r.Query(t.Context(), "lake", "ann", "SELECT current_setting('threads')"))
		require.NoError(t, err)
		require.Equal(t, int64(3), threads)
	}
}

// What turns the log of the whole server on or off, or its other parser, names none of the settings that it changes.
// They, too, are what the server's operator has set when a borrower has done so.
func TestTheLogOfTheWholeServerIsPutBack(t *testing.T) {
	for name, operator := range map[string]string{"off": "SELECT 1", "on": "CALL enable_logging('HTTP', level = 'error'); SET allow_parser_override_extension = 'fallback'"} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, Config{})
			s, err := e.Open(t.Context())
			require.NoError(t, err)
			_, err = s.Update(t.Context(), operator, nil)
			require.NoError(t, err)
			require.NoError(t, s.Close())
			srv, err := testserver.Start(testserver.Options{Engine: e})
			require.NoError(t, err)
			defer func() { require.NoError(t, srv.Close()) }()
			pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1, HealthCheck: flightpool.HealthCheck{Interval: -1}})
			require.NoError(t, err)
			defer func() { require.NoError(t, pool.Close(t.Context())) }()
			settings := func() string {
				now, err := allRows(t.Context(), pool, "SELECT name, value FROM duckdb_settings() WHERE name LIKE '%log%' OR name = 'allow_parser_override_extension' ORDER BY 1")
				require.NoError(t, err)
				return now
			}
			start := settings()
			for _, sql := range []string{
				"CALL enable_logging()", "CALL enable_logging('QueryLog')", "CALL enable_logging(level = 'debug')", "CALL disable_logging()", "FROM query('FROM enable_logging()')", "CALL enable_logging(); SELECT error('x')",
				"SET logging_level = 'WARN'; CALL enable_logging('QueryLog'); SET enabled_log_types = 'FileSystem'", "SET enable_http_logging = true", "RESET enable_http_logging", "CALL enable_peg_parser()", "CALL enable_peg_parser(); CALL disable_peg_parser()",
			} {
				for how, end := range map[string]func(*flightpool.SessionHandle) error{
					"Close": (*flightpool.SessionHandle).Close, "Discard": func(h *flightpool.SessionHandle) error { return h.Discard(errors.New("not wanted any more")) },
				} {
					h, err := pool.AcquireSession(t.Context())
					require.NoError(t, err)
					run(t, h, sql)
					_ = end(h) // its error says that the connection was discarded
					require.Equal(t, start, settings(), "%s, %s", sql, how)
				}
			}
		})
	}
}

// borrowSettings is one session of a borrower, who changes some settings.
func borrowSettings(ctx context.Context, pool *flightpool.FlightSQLPool, rnd *rand.Rand) {
	statements := []string{
		"SET threads = 1", "SET threads = 2", "RESET threads", "SET checkpoint_threshold = '1MB'", "SET preserve_insertion_order = true", "SET TimeZone = 'Asia/Tokyo'", "SET default_null_order = 'nulls_first'",
		"SET worker_threads = 2", "RESET worker_threads", "SET wal_autocheckpoint = '2MB'", "SET null_order = 'nulls_first'", "SET SESSION default_null_order = 'nulls_first'", "RESET SESSION null_order",
		"SET SESSION null_order = 'nulls_last'; SET default_null_order = 'nulls_first'", "RESET null_order", "SET default_order = 'ASC'", "SET SESSION default_order = 'ASC'", "RESET default_order", "RESET SESSION default_order", "SET SESSION default_order = 'nosuch'",
		"SET index_scan_max_count = 7", "SET SESSION index_scan_max_count = 8", "SET SESSION index_scan_max_count = 'nosuch'", "SET SESSION threads = 2", "RESET SESSION threads", "EXPLAIN ANALYZE SET SESSION default_order = 'ASC'",
		"SET SESSION TimeZone = 'Asia/Tokyo'", "RESET TimeZone", "SET integer_division = true", "SET SESSION integer_division = true", "SET SESSION streaming_buffer_size = '2MB'", "SET streaming_buffer_size = '3MB'",
		"PREPARE q AS SELECT 1; SET SESSION preserve_insertion_order = true; DEALLOCATE q", "SET SESSION default_order = 'ASC'; SELECT error('x')", "SET default_order = 'ASC'; SELECT error('x')", "SET http_proxy_password = 'x'", "SET threads = 'nosuch'", "CREATE TEMP TABLE x (a INT)", "SET VARIABLE v = 1", "SELECT error('x')", "SELECT 1", "SET threads = 4; SELECT error('x')",
	}
	if rnd.IntN(3) == 0 {
		_, _ = pool.Update(ctx, statements[rnd.IntN(len(statements))])
		return
	}
	h, err := pool.AcquireSession(ctx)
	if err != nil {
		return
	}
	for range 1 + rnd.IntN(4) {
		_, _ = h.Update(ctx, statements[rnd.IntN(len(statements))])
	}
	switch rnd.IntN(5) {
	case 0:
		_ = h.Discard(errors.New("not wanted any more"))
	case 1:
		_ = h.BeginTransaction(ctx)
		_, _ = h.Update(ctx, fmt.Sprintf("SET threads = %d", 1+rnd.IntN(4)))
		_ = h.Close()
	default:
		_ = h.Close()
	}
}
