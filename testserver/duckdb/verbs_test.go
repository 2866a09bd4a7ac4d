//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/sqlscan"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/engine"
)

// tryOut has statements of every verb that DuckDB has. DIR stands for a directory.
var tryOut = []string{
	"SELECT 1", "VALUES (1)", "TABLE t", "FROM t", "FROM t SELECT a", "(SELECT 1) UNION (SELECT 2)", "SELECT 1 AS into", "FROM (SELECT 1 AS insert) SELECT insert", "FROM t insert", "FROM t WHERE a IN (SELECT 1 AS into)", "SUMMARIZE t", "SHOW TABLES", "SHOW ALL TABLES",
	"DESCRIBE t", "DESC t", "DESCRIBE SELECT 1", "PIVOT t ON a IN (1, 2) USING count(*)", "UNPIVOT t ON a INTO NAME n VALUE v",
	"PIVOT t ON a USING count(*)", "PIVOT_WIDER t ON a", "PIVOT_LONGER t ON a INTO NAME n VALUE v", "PIVOT t ON a IN (1), a + 1 IN (2) USING sum(a)", "PIVOT t ON a IN (1), a + 1",
	"PIVOT t ON (a IN (1, 2))", "PIVOT t ON CASE WHEN a IN (1) THEN 2 ELSE a END", "PIVOT t USING sum(a) GROUP BY a", "FROM t PIVOT (sum(a) FOR a IN (1, 2))",
	"SELECT * FROM (PIVOT t ON a)", "WITH p AS (PIVOT t ON a) FROM p", "PIVOT t ON a; PIVOT t ON a", "EXPLAIN PIVOT t ON a", "DESCRIBE PIVOT t ON a", "PREPARE q AS PIVOT t ON a",
	"CREATE TEMP TABLE x AS PIVOT t ON a", "CREATE TABLE n AS PIVOT t ON a", "PIVOT t ON a USING sum(nosuch)", "PIVOT (SELECT a AS \"IN\" FROM t) ON \"IN\" USING sum(1)",
	"SELECT 'x\\_%' LIKE 'y' ESCAPE '\\'", "SELECT E'it\\'s', $$it's$$ -- c", "SELECT 1 --\r; DELETE FROM t",
	"WITH x AS (SELECT 1 AS n) SELECT n FROM x", "WITH x AS (SELECT 1 AS n) (SELECT n FROM x)", "WITH x AS (SELECT 1 AS n) FROM x",
	"WITH x AS (SELECT 9 AS n) INSERT INTO t SELECT n FROM x", "WITH x AS (SELECT 9 AS n) INSERT INTO t SELECT n FROM x RETURNING a",
	"WITH x AS (SELECT 1 AS n) DELETE FROM t USING x WHERE a = n",
	"EXPLAIN SELECT 1", "EXPLAIN INSERT INTO t VALUES (7)", "EXPLAIN (FORMAT JSON) DELETE FROM t", "EXPLAIN SET threads = 2", "EXPLAIN CREATE TEMP TABLE x(a INT)", "EXPLAIN BEGIN",
	"EXPLAIN ANALYZE SELECT 1", "EXPLAIN (ANALYZE) FROM t", "EXPLAIN ANALYZE INSERT INTO t VALUES (7)", "EXPLAIN (ANALYZE) DELETE FROM t",
	"EXPLAIN (ANALYZE false) UPDATE t SET a = 5", "EXPLAIN (ANALYZE, FORMAT JSON) INSERT INTO t VALUES (7)", "EXPLAIN ANALYZE DROP TABLE t",
	"EXPLAIN (\"analyze\") INSERT INTO t VALUES (7)", "EXPLAIN (FORMAT 'json', \"Analyze\" true) UPDATE t SET a = 5", "EXPLAIN (\"analyze\") SET default_null_order = 'nulls_last'",
	"EXPLAIN (\"analyze\") CREATE TEMP TABLE x AS SELECT 1", "EXPLAIN (\"analyze\") PREPARE q AS SELECT 1", "EXPLAIN (\"analyze\") CALL enable_logging()", "EXPLAIN (\"analyze\") FROM t",
	"EXPLAIN ANALYZE CREATE TEMP TABLE x AS SELECT 1", "EXPLAIN ANALYZE SET default_null_order = 'nulls_last'", "EXPLAIN ANALYZE PREPARE q AS SELECT 1",
	"INSERT INTO t VALUES (4)", "INSERT INTO t VALUES (4) RETURNING a", "INSERT INTO t BY NAME SELECT 4 AS a RETURNING a", "UPDATE t SET a = 5", "UPDATE t SET a = 5 RETURNING a",
	"DELETE FROM t", "DELETE FROM t RETURNING a", "TRUNCATE t",
	"MERGE INTO t USING (SELECT 1 AS b) s ON a = b WHEN MATCHED THEN DELETE", "MERGE INTO t USING (SELECT 1 AS b) s ON a = b WHEN MATCHED THEN DELETE RETURNING a",
	"COPY t TO 'DIR/t.csv'", "COPY t TO 'DIR/u.csv' (RETURN_FILES)", "COPY t TO 'DIR/u.csv' (\"return_files\")", "EXPORT DATABASE 'DIR/exported'",
	"CREATE TABLE n (a INT)", "CREATE OR REPLACE TABLE n AS SELECT 1", "CREATE VIEW v AS SELECT 1", "CREATE SCHEMA s", "CREATE SEQUENCE s", "CREATE TYPE e AS ENUM ('a')",
	"CREATE MACRO m() AS 1", "CREATE INDEX i ON t (a)",
	"CREATE TEMP TABLE x(a INT)", "CREATE OR REPLACE TEMP TABLE x AS SELECT 1", "CREATE TEMP VIEW x AS SELECT 1", "CREATE TEMP MACRO m() AS 1", "CREATE TEMP SEQUENCE s",
	"CREATE TEMP TYPE e AS ENUM ('a')", "CREATE TEMP TABLE x(a INT); DROP TABLE x", "CREATE TEMP TABLE x(a INT); INSERT INTO x VALUES (1)",
	"ALTER TABLE t ADD COLUMN b INT", "ALTER TABLE t RENAME TO t2", "DROP TABLE t", "COMMENT ON TABLE t IS 'x'", "DROP TABLE IF EXISTS nosuch",
	"SET default_null_order = 'nulls_last'", "SET SESSION default_null_order = 'nulls_last'", "SET default_null_order TO 'nulls_last'; SET default_null_order = DEFAULT", "RESET default_null_order",
	"RESET SESSION default_null_order", "SET default_null_order = 'nulls_last'; SET SESSION default_null_order = 'nulls_last'", "SET SESSION default_null_order = 'nulls_last'; SET default_null_order = 'nulls_last'",
	"SET errors_as_json = true", "SET custom_user_agent_x = 1; SELECT 1", "PRAGMA errors_as_json = true", "SET threads = 1", "RESET threads", "SET GLOBAL threads = 1", "SET memory_limit = '1GB'", "RESET memory_limit",
	"SET http_proxy_password = 'x'", "RESET http_proxy_password", "SET http_proxy_password = 'x'; SET threads = 1",
	"SET VARIABLE v = 2", "RESET VARIABLE v", "SET TIME ZONE 'Asia/Tokyo'",
	"USE memory", "USE lake.other", "SET schema = 'other'", "SET schema = 'memory.main'", "SET search_path = 'memory.main,lake.other'", "RESET schema", "RESET search_path", "USE lake",
	"PRAGMA version", "PRAGMA database_list", "PRAGMA table_info('t')", "PRAGMA show_tables", "PRAGMA show_tables_expanded", "PRAGMA database_size", "PRAGMA storage_info('t')",
	"PRAGMA functions", "PRAGMA collations", "PRAGMA platform", "PRAGMA user_agent", "PRAGMA metadata_info", "PRAGMA extension_versions", "PRAGMA show_databases",
	"PRAGMA enable_verification", "PRAGMA disable_optimizer", "PRAGMA enable_checkpoint_on_shutdown", "PRAGMA force_checkpoint", "PRAGMA verify_external",
	"CALL duckdb_settings()", "CALL pragma_version()", "CALL pragma_table_info('t')", "CALL checkpoint()", "CALL enable_logging()", "FROM enable_logging()", "SELECT setseed(0.5)",
	"SELECT nextval('seq')", "SELECT write_log('x')", "FROM checkpoint()",
	"CHECKPOINT", "FORCE CHECKPOINT", "VACUUM", "VACUUM ANALYZE t", "ANALYZE", "UPDATE EXTENSIONS",
	"ATTACH ':memory:' AS more", "DETACH lake2", "LOAD icu",
	"PREPARE q AS SELECT 1", "PREPARE q AS INSERT INTO t VALUES (7); EXECUTE q", "DEALLOCATE atstart", "PREPARE q AS SELECT 1; DEALLOCATE q", "EXECUTE atstart", "PREPARE atstart AS SELECT 2", "PREPARE atstart AS SELECT 2; DEALLOCATE atstart", "PREPARE q AS SELECT 1; PREPARE Q AS SELECT 2; DEALLOCATE q",
	"PIVOT t ON a IN (SELECT a FROM t)", "FROM (PIVOT t ON a IN (SELECT a FROM t) USING count(*))", "FROM query('SELECT 1')", "FROM query('FROM enable_logging()')", "FROM query($$SELECT nextval('seq')$$)", "FROM query(\"SELECT nextval('seq')\")", "FROM query(\"FROM enable_logging()\")",
	"FROM query('FROM enable_' || 'logging()')", "FROM query(('FROM enable_logging()'))", "FROM query(concat('SELECT nextval(''seq'')'))", "FROM json_execute_serialized_sql(json_serialize_sql('FROM enable_logging()'))",
	"ALTER DATABASE lake2 SET ALIAS TO lake3", "SELECT setseed\u200b(0.5)", "SET custom_profiling_settings = '{\"CPU_TIME\": \"true\"}'",
	"SET progress_bar_time = 1", "SET enable_http_logging = true", "SET enable_profiling = 'nosuch'", "SET Calendar = NULL",
	"SELECT $😀$'$😀$; CREATE TEMP TABLE x(a INT); SELECT $😀$'$😀$", "SELECT 1 AS é\u0301$$; CREATE TEMP TABLE x(a INT); SELECT 1 AS é\u0301$$",
	"PREPARE q AS SELECT 1; SELECT error('x'); DEALLOCATE q", "PREPARE q AS SELECT 1; FROM nosuch; DEALLOCATE q", "SELECT error('x'); DEALLOCATE atstart",
	"PRAGMA copy_database('lake2', 'nosuch')", "FROM enable_profiling(format := 'nosuch')", "SELECT * FROM enable_profiling(coverage := 'all', mode := 'nosuch')",
	"COPY FROM DATABASE lake2 TO nosuch", "COPY FROM DATABASE lake TO memory (SCHEMA)", "COPY FROM DATABASE lake TO lake2",
	"ALTER TABLE t ADD COLUMN b INT DEFAULT (7 + 1)", "ALTER TABLE t ADD COLUMN b INT DEFAULT error('x')", "ALTER TABLE t ADD b INT DEFAULT error('x')", "CREATE TABLE n AS PIVOT t ON a USING sum(nosuch)", "INSERT INTO t PIVOT t ON a",
	"SELECT 1; SELECT 2", "INSERT INTO t VALUES (4); SELECT 1", "SET default_null_order = 'nulls_last'; SELECT 1", "SET default_null_order = 'nulls_last'; CREATE TEMP TABLE x(a INT); USE lake.other; PREPARE q AS SELECT 1",
}

// elsewhere are the verbs that DuckDB does not have, or not without a file or
// network, and those that begin and end transactions.
var elsewhere = strings.Fields(`EXISTS LIST HELP REPLACE UPSERT IMPORT RENAME GRANT REVOKE REINDEX CLUSTER REFRESH NOTIFY OPTIMIZE MSCK INSTALL EXEC DO DECLARE
	FETCH MOVE CLOSE LISTEN UNLISTEN DISCARD LOCK UNLOCK KILL BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE XA`)

// atStart is what every session begins with: none of it is DuckDB's default.
const atStart = `ATTACH ':memory:' AS lake; ATTACH ':memory:' AS lake2; CREATE SCHEMA lake.other; USE lake; CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2), (3);
	CREATE SEQUENCE seq; SET default_null_order = 'nulls_first'; SET errors_as_json = false; SET threads = 3; SET memory_limit = '2GB'; SET VARIABLE v = 1; PREPARE atstart AS SELECT 41 + 1`

// startEngine gives each session a database of its own, with atStart run in it.
type startEngine struct{ *Engine }

func (e startEngine) Open(ctx context.Context) (engine.Session, error) {
	s, err := e.Engine.Open(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = s.Update(ctx, atStart, nil); err != nil { // the pool may end an open
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// inSession are the queries that show what a session has of its own.
var inSession = []string{
	"SELECT name, value, CASE WHEN name LIKE '%null_order' THEN scope END FROM duckdb_settings() WHERE name NOT LIKE 'profil%' ORDER BY 1",
	"SELECT current_database(), current_schema(), current_setting('search_path')",
	"SELECT database_name FROM duckdb_databases() ORDER BY 1",
	"SELECT table_name, sql FROM duckdb_tables() WHERE temporary ORDER BY 1",
	"SELECT index_name FROM duckdb_indexes() WHERE database_name = 'temp' ORDER BY 1",
	"SELECT view_name FROM duckdb_views() WHERE temporary AND NOT internal ORDER BY 1",
	"SELECT sequence_name FROM duckdb_sequences() WHERE temporary ORDER BY 1",
	"SELECT type_name FROM duckdb_types() WHERE database_name = 'temp' AND NOT internal ORDER BY 1",
	"SELECT temp.main.m()", // duckdb_functions() takes 100 ms
	"SELECT temp.main.mine_macro()",
	"SELECT * FROM duckdb_prepared_statements() ORDER BY 1",
	"SELECT * FROM duckdb_variables() ORDER BY 1",
	"SELECT * FROM duckdb_secrets() ORDER BY 1",
}

// inDatabase are the queries that show what is stored.
var inDatabase = []string{
	"SELECT database_name, schema_name, table_name, sql, comment FROM duckdb_tables() ORDER BY ALL",
	"SELECT view_name, sql FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
	"SELECT schema_name FROM duckdb_schemas() ORDER BY ALL",
	"SELECT sequence_name, last_value FROM duckdb_sequences() ORDER BY ALL",
	"SELECT index_name FROM duckdb_indexes() ORDER BY ALL",
	"SELECT lake.main.m()",
	"SELECT type_name FROM duckdb_types() WHERE NOT internal AND database_name <> 'temp' ORDER BY ALL",
	"SELECT a FROM lake.main.t ORDER BY ALL",
}

func TestEveryVerbOfTheTableIsTried(t *testing.T) {
	tried := slices.Clone(elsewhere)
	for _, sql := range tryOut {
		for _, st := range sqlscan.Parse(sql).Statements {
			tried = append(tried, st.Verb)
		}
	}
	tried = append(tried, "WITH") // named by its main statement
	for _, v := range sqlscan.Verbs() {
		require.Contains(t, tried, v)
	}
}

// What the table of verbs says of a statement is what DuckDB does.
func TestStatementsDoWhatTheTableSays(t *testing.T) {
	e := startEngine{newEngine(t, Config{PerSession: true})}
	var s *session // a fresh one after every statement that does more than read
	end := func() {
		if s != nil {
			require.NoError(t, s.Close())
			s = nil
		}
	}
	defer end()
	for _, text := range tryOut {
		if s == nil {
			open, err := e.Open(t.Context())
			require.NoError(t, err)
			s = open.(*session)
		}
		sql := strings.ReplaceAll(text, "DIR", filepath.ToSlash(t.TempDir()))
		script := sqlscan.Parse(sql)
		before := s.look(t, inSession)
		stored := s.look(t, inDatabase)
		fields, rows, err := s.count(t.Context(), sql)
		if err != nil {
			require.Contains(t, refusedHere, text, "%v", err)
			end() // it may have done a part
			continue
		}
		switch last := script.Statements[len(script.Statements)-1]; {
		case last.Verb == "EXECUTE": // has rows if what it executes has
		case text == "EXPLAIN PIVOT t ON a": // of which DuckDB tells nothing
		case last.Rows == sqlscan.RowsSome:
			require.Positive(t, fields, "%s: it returns rows", text)
		case last.Rows == sqlscan.RowsNone:
			require.Zero(t, rows, "%s: it returns no rows", text)
		default:
			require.Fail(t, "known in DuckDB", text)
		}
		if script.ReadOnly() {
			require.Equal(t, stored, s.look(t, inDatabase), "%s: it only reads", text)
		}
		if len(script.Effects()) == 0 {
			require.Equal(t, before, s.look(t, inSession), "%s: it leaves nothing in the session", text)
		}
		require.Equal(t, script.TxControl() != "", s.InTx(), "%s: of a transaction", text)
		if !script.ReadOnly() {
			end()
		}
	}
}

// look is what the queries answer.
func (s *session) look(t *testing.T, queries []string) string {
	var b strings.Builder
	for _, q := range queries {
		rows, err := s.query(t.Context(), q, nil)
		fmt.Fprintln(&b, q, rows, err != nil)
	}
	return b.String()
}

// count runs a text to its end.
func (s *session) count(ctx context.Context, sql string) (fields int, rows int64, err error) {
	r, err := s.Query(ctx, sql, nil)
	if err != nil {
		return 0, 0, err
	}
	defer r.Release()
	for r.Next() {
		rows += r.RecordBatch().NumRows()
	}
	return r.Schema().NumFields(), rows, r.Err()
}

// refusedHere are statements that DuckDB refuses for reasons of this place.
var refusedHere = []string{"LOAD icu", "PIVOT t ON a USING sum(nosuch)", "SET enable_profiling = 'nosuch'", "SET Calendar = NULL", "UPDATE EXTENSIONS", "SET custom_user_agent_x = 1; SELECT 1",
	"PREPARE q AS SELECT 1; SELECT error('x'); DEALLOCATE q", "PREPARE q AS SELECT 1; FROM nosuch; DEALLOCATE q", "SELECT error('x'); DEALLOCATE atstart", "COPY FROM DATABASE lake2 TO nosuch",
	"PRAGMA copy_database('lake2', 'nosuch')", "FROM enable_profiling(format := 'nosuch')", "SELECT * FROM enable_profiling(coverage := 'all', mode := 'nosuch')",
	"ALTER TABLE t ADD COLUMN b INT DEFAULT error('x')", "ALTER TABLE t ADD b INT DEFAULT error('x')", "CREATE TABLE n AS PIVOT t ON a USING sum(nosuch)", "INSERT INTO t PIVOT t ON a"}

// Whatever a borrower runs, the next one finds the session as it was, and the
// connection is kept where the table says that the effect can be undone.
func TestTheNextBorrowerFindsTheSessionAsItWas(t *testing.T) {
	findsItAsItWas(t, tryOut, nil)
}

// What OnConnect has made of temporary tables and views is no borrower's to take away.
func TestTheNextBorrowerFindsTheSessionAsOnConnectHasLeftIt(t *testing.T) {
	findsItAsItWas(t, []string{
		"DROP TABLE mine", "DROP VIEW yours", "CREATE TEMP TABLE IF NOT EXISTS mine (a INT)", "CREATE OR REPLACE TEMP TABLE mine (b INT)", "CREATE OR REPLACE TEMP VIEW yours AS SELECT 2",
		"DROP TABLE mine; CREATE TEMP TABLE mine (b INT)", "CREATE TEMP TABLE another (a INT)", "CREATE TEMP VIEW another AS SELECT 1", "DROP TABLE t", "DROP TABLE IF EXISTS nosuch", "SET threads = 3",
		"ALTER TABLE mine RENAME TO hers", "ALTER TABLE mine ADD COLUMN b INT", "ALTER VIEW yours RENAME TO hers", "CREATE UNIQUE INDEX i ON mine (a)", "DROP INDEX mine_a",
		"DROP SEQUENCE mine_seq", "DROP TYPE mine_type", "DROP MACRO mine_macro", "ALTER TABLE t ADD COLUMN b INT", "CREATE TABLE n (a INT)", "CREATE INDEX i ON t (a)", "DROP SEQUENCE seq",
		"CREATE TEMP TABLE x (a INT); ALTER TABLE x ADD COLUMN b INT", "EXPLAIN ANALYZE DROP TABLE mine", "EXPLAIN (\"analyze\") DROP VIEW yours", "EXPLAIN ANALYZE ALTER TABLE mine ADD COLUMN b INT",
		"SELECT 1 --\r; DROP TABLE mine",
	}, func(ctx context.Context, s *flightpool.SessionHandle) error {
		_, err := s.Update(ctx, "CREATE TEMP TABLE mine (a INT); CREATE TEMP VIEW yours AS SELECT 1; CREATE INDEX mine_a ON mine (a); "+
			"CREATE TEMP SEQUENCE mine_seq; CREATE TEMP TYPE mine_type AS ENUM ('a'); CREATE TEMP MACRO mine_macro() AS 1; SET threads = 2")
		return err
	})
}

// Nor does it find what was run in a transaction, however that ends.
func TestTheNextBorrowerFindsTheSessionAsItWasBeforeATransaction(t *testing.T) {
	_, pool, session := startAtStart(t, nil)
	start := session()
	for i, text := range tryOut {
		h, err := pool.AcquireSession(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.BeginTransaction(t.Context()))
		_ = run(t, h, strings.ReplaceAll(text, "DIR", filepath.ToSlash(t.TempDir()))) // DuckDB refuses some in a transaction
		switch i % 3 {
		case 0:
			_ = h.Commit(t.Context())
		case 1:
			_ = h.Rollback(t.Context())
		}
		_ = h.Close() // its error says that the connection was discarded
		require.Equal(t, start, session(), "%s, in a transaction", text)
		pool.Reset() // what is stored is gone with the session
	}
}

// What fails in a transaction while DuckDB runs it as several statements leaves the server as it was.
func TestAFailureInATransactionLeavesTheSettingsOfTheServer(t *testing.T) {
	srv, err := Start(t.Context(), Config{}, testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1, HealthCheck: flightpool.HealthCheck{Interval: -1}})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(t.Context())) }()
	_, err = pool.Update(t.Context(), "CREATE TABLE t AS SELECT 1 AS a")
	require.NoError(t, err)
	const ask = "SELECT current_setting('current_transaction_invalidation_policy')"
	start, err := allRows(t.Context(), pool, ask)
	require.NoError(t, err)
	for _, sql := range []string{
		"ALTER TABLE t ADD COLUMN b INT DEFAULT error('x')", "CREATE TABLE n AS PIVOT t ON a USING sum(nosuch)", "COPY FROM DATABASE memory TO nosuch", "PRAGMA copy_database('memory', 'nosuch')",
	} {
		for name, end := range map[string]func(*flightpool.SessionHandle) error{
			"Commit": func(h *flightpool.SessionHandle) error { return h.Commit(t.Context()) }, "Rollback": func(h *flightpool.SessionHandle) error { return h.Rollback(t.Context()) },
			"Close": (*flightpool.SessionHandle).Close, "Discard": func(h *flightpool.SessionHandle) error { return h.Discard(errors.New("not wanted any more")) },
		} {
			h, err := pool.AcquireSession(t.Context())
			require.NoError(t, err)
			require.NoError(t, h.BeginTransaction(t.Context()))
			require.True(t, run(t, h, sql), sql)
			_ = end(h)
			_ = h.Close()
			now, err := allRows(t.Context(), pool, ask)
			require.NoError(t, err)
			require.Equal(t, start, now, "%s, %s", sql, name)
		}
	}
}

// startAtStart is a pool of one connection, and what shows its session.
func startAtStart(t *testing.T, onConnect func(context.Context, *flightpool.SessionHandle) error) (*testserver.Server, *flightpool.FlightSQLPool, func() string) {
	srv, err := testserver.Start(testserver.Options{Engine: startEngine{newEngine(t, Config{PerSession: true})}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1, OnConnect: onConnect, HealthCheck: flightpool.HealthCheck{Interval: -1}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
	return srv, pool, func() string {
		var b strings.Builder
		for _, q := range inSession {
			rows, err := allRows(t.Context(), pool, q)
			fmt.Fprintln(&b, q, rows, err != nil)
		}
		return b.String()
	}
}

func findsItAsItWas(t *testing.T, texts []string, onConnect func(context.Context, *flightpool.SessionHandle) error) {
	srv, pool, session := startAtStart(t, onConnect)
	start := session()
	for _, text := range texts {
		sql := strings.ReplaceAll(text, "DIR", filepath.ToSlash(t.TempDir()))
		script := sqlscan.Parse(sql)
		require.NoError(t, pool.Ping(t.Context())) // the connection is there
		opened := srv.Ledger().Snapshot().SessionsOpened
		h, err := pool.AcquireSession(t.Context())
		require.NoError(t, err)
		refused := run(t, h, sql)
		_ = h.Close() // its error says that the connection was discarded
		require.Equal(t, start, session(), text)
		kept := srv.Ledger().Snapshot().SessionsOpened == opened
		if !refused && !strings.Contains(text, "memory_limit") { // which DuckDB tells rounded, so that it is not put back exactly
			lost := slices.ContainsFunc(script.Effects(), func(e sqlscan.Effect) bool {
				return slices.Contains([]sqlscan.EffectKind{sqlscan.EffectUnknown, sqlscan.EffectLinkedSettings, sqlscan.EffectSecret}, e.Kind)
			}) || strings.Contains(text, " atstart") || strings.Contains(text, " mine") || strings.Contains(text, " yours")
			require.Equal(t, !lost, kept, "%s: the connection is kept", text)
		}
		if !script.ReadOnly() && kept {
			pool.Reset() // what is stored is gone with the session
		}
	}
}

// Settings of the whole server are what its operator has set when a borrower has changed them, and
// those that DuckDB tells rounded within a tenth. None is the default of the server instead.
func TestASettingOfTheWholeServerIsPutBack(t *testing.T) {
	srv, err := Start(t.Context(), Config{Settings: map[string]string{"memory_limit": "2GB", "threads": "2", "max_temp_directory_size": "3GB", "checkpoint_threshold": "20MB"}}, testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1, HealthCheck: flightpool.HealthCheck{Interval: -1}})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(t.Context())) }()
	settings := func() string {
		now, err := allRows(t.Context(), pool, "SELECT name, value FROM duckdb_settings() WHERE name NOT LIKE 'profil%' AND name <> 'write_buffer_row_group_memory_limit' ORDER BY 1") // a twentieth of the memory_limit
		require.NoError(t, err)
		return now
	}
	start := settings()
	for range 3 { // what is put back is what is read the next time
		for _, sql := range []string{
			"SET memory_limit = '1GB'", "SET max_memory = '1GB'", "RESET memory_limit", "PRAGMA memory_limit = '1GB'", "SET max_temp_directory_size = '1GB'", "RESET max_temp_directory_size",
			"SET checkpoint_threshold = '1GB'", "SET threads = 1", "RESET threads",
			"SET threads = 1; SET worker_threads = 4; CREATE TEMP MACRO m() AS 1", "SET threads = 1; CREATE TEMP MACRO m() AS 1", "CREATE TEMP MACRO m() AS 1; SET threads = 1", "SET threads = 1; SELECT setseed(0.5)", "SET http_proxy_password = 'x'", "SET http_proxy_password = 'x'; SET threads = 1; CREATE TEMP MACRO m() AS 1", "SET threads = 1; SET checkpoint_threshold = '1GB'; SET VARIABLE v = 1",
		} {
			for _, discard := range []bool{false, true} {
				h, err := pool.AcquireSession(t.Context())
				require.NoError(t, err)
				require.False(t, run(t, h, sql), sql)
				if discard {
					_ = h.Discard(errors.New("not wanted any more")) // its error is the reason
				} else {
					_ = h.Close() // its error says that the connection was discarded
				}
				require.Equal(t, start, settings(), "%s, discarded by its borrower: %t", sql, discard)
			}
		}
	}
}

// Borrowers who change a setting of the whole server at the same time leave what its operator has set, not
// what one of them had found.
func TestASettingOfTheWholeServerIsPutBackByAllWhoChangeIt(t *testing.T) {
	srv, err := Start(t.Context(), Config{Settings: map[string]string{"threads": "3"}}, testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 2, HealthCheck: flightpool.HealthCheck{Interval: -1}})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(t.Context())) }()
	for scene := range 4 {
		first, name := scene%2, [...]string{"threads", "worker_threads"}[scene/2]
		var handles [2]*flightpool.SessionHandle
		for i := range handles {
			handles[i], err = pool.AcquireSession(t.Context())
			require.NoError(t, err)
			require.False(t, run(t, handles[i], fmt.Sprintf("SET %s = %d", [...]string{"threads", name}[i], i+1)))
		}
		_ = handles[first].Close()
		_ = handles[1-first].Close()
		rows, err := allRows(t.Context(), pool, "SELECT current_setting('threads')")
		require.NoError(t, err)
		require.Equal(t, "[3]", rows)
	}
}

type querying interface {
	QueryWithOptions(ctx context.Context, sql string, opts flightpool.QueryOptions) (*flightpool.QueryResult, error)
}

// run runs a statement to its end, and reports whether the server refused it.
func run(t *testing.T, q querying, sql string) (refused bool) {
	res, err := q.QueryWithOptions(t.Context(), sql, flightpool.QueryOptions{Route: flightpool.RouteQuery})
	if err != nil {
		return true
	}
	defer res.Release()
	for res.Next() {
		continue
	}
	return res.Err() != nil
}

func allRows(ctx context.Context, pool *flightpool.FlightSQLPool, sql string) (string, error) {
	res, err := pool.Query(ctx, sql)
	if err != nil {
		return "", err
	}
	defer res.Release()
	var b strings.Builder
	for res.Next() {
		eachRow(res.RecordBatch(), func(row []string) { fmt.Fprint(&b, row) })
	}
	return b.String(), res.Err()
}

// A session option leads to another place, and erased it leads to the server's
// default, which need not be where the session began.
func TestTheNextBorrowerIsWhereItsSessionBeganAfterAnOption(t *testing.T) {
	srv, err := testserver.Start(testserver.Options{Engine: startEngine{newEngine(t, Config{PerSession: true})}})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1, HealthCheck: flightpool.HealthCheck{Interval: -1}})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(t.Context())) }()
	const place = "SELECT current_database(), current_schema(), current_setting('search_path')"
	for _, options := range [][]string{{"catalog", "memory"}, {"catalog", "lake2"}, {"schema", "other"}, {"schema", "other", "catalog", "memory"}, {"catalog", "nosuch"}} {
		for _, inTx := range []bool{false, true} {
			h, err := pool.AcquireSession(t.Context())
			require.NoError(t, err)
			if inTx {
				require.NoError(t, h.BeginTransaction(t.Context()))
			}
			for i := 0; i < len(options); i += 2 {
				err := h.SetOption(t.Context(), options[i], options[i+1])
				require.Equal(t, options[i+1] == "nosuch", err != nil, "%v", err)
			}
			require.NoError(t, h.Close())
			rows, err := allRows(t.Context(), pool, place)
			require.NoError(t, err)
			require.Equal(t, "[lake main lake.main]", rows, "%v, in a transaction: %t", options, inTx)
		}
	}
	require.EqualValues(t, 1, srv.Ledger().Snapshot().SessionsOpened, "no connection was lost by it")
}

// A COPY FROM DATABASE is run in a transaction of its own, which DuckDB leaves
// open when it fails: nothing could be run in the session any more.
func TestAFailedCopyOfADatabaseHitsNobodyElse(t *testing.T) {
	for name, run := range map[string]func(p *flightpool.FlightSQLPool, sql string) error{
		"pool": func(p *flightpool.FlightSQLPool, sql string) error {
			_, err := p.Update(t.Context(), sql)
			return err
		},
		"unknown to the pool": func(p *flightpool.FlightSQLPool, sql string) error {
			_, err := p.UpdateWithOptions(t.Context(), sql+"; SELECT 1", flightpool.QueryOptions{})
			return err
		},
	} {
		srv, err := Start(t.Context(), Config{}, testserver.Options{})
		require.NoError(t, err)
		pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1, HealthCheck: flightpool.HealthCheck{Interval: -1}})
		require.NoError(t, err)
		for _, sql := range []string{"COPY FROM DATABASE memory TO nosuch", "PRAGMA copy_database('memory', 'nosuch')"} {
			require.Error(t, run(pool, sql), name)
			_, err = pool.Update(t.Context(), "CREATE OR REPLACE TABLE t AS SELECT 1")
			require.NoError(t, err, "%s: %s", name, sql)
		}
		require.NoError(t, pool.Close(t.Context()))
		require.NoError(t, srv.Close())
	}
}
