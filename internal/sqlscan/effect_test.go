package sqlscan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEffectsNameWhatTheSessionKeeps(t *testing.T) {
	unknown := []Effect{{Kind: EffectUnknown}}
	namespace := []Effect{{Kind: EffectNamespace}}
	path := []Effect{{EffectNamespace, SearchPath}}
	for sql, want := range map[string][]Effect{
		"SELECT 1":                                                        nil,
		"INSERT INTO t VALUES (1)":                                        nil,
		"CREATE TABLE t (a INT)":                                          nil,
		"CREATE OR REPLACE VIEW v AS SELECT 1":                            nil,
		"CREATE MATERIALIZED VIEW v AS SELECT 1":                          nil,
		"CREATE UNIQUE INDEX i ON t (a)":                                  nil,
		"CREATE SCHEMA IF NOT EXISTS temp2":                               nil,
		"DROP TABLE t":                                                    nil,
		"UPDATE t SET setting = pg_settings.x FROM pg_settings":           nil,
		"UPDATE pg_settings SET setting = 'x' WHERE name = 'search_path'": unknown,
		"update only pg_catalog.\"pg_settings\" AS s SET setting = 'x'":   unknown,
		"WITH u AS (UPDATE Pg_Settings SET setting = 'x' WHERE name = 'a' RETURNING 1) SELECT * FROM u": unknown,
		"ALTER TABLE t ADD COLUMN b INT":             nil,
		"CHECKPOINT":                                 nil,
		"SET CONSTRAINTS ALL DEFERRED":               nil,
		"SET threads = 2":                            {{EffectSetting, "threads"}},
		"SET SESSION s3_region TO 'x'":               {{EffectSessionSetting, "s3_region"}},
		"SET LOCAL a = 1":                            {{EffectSessionSetting, "a"}},
		"set \"Odd Name\"=1":                         {{EffectSetting, `"Odd Name"`}},
		"SET TIME ZONE 'UTC'":                        {{EffectSetting, "TimeZone"}},
		"SET a.b.c = 1":                              {{EffectSetting, "a.b.c"}},
		"SET x = [1, 2]":                             {{EffectSetting, "x"}},
		"RESET threads":                              {{EffectSetting, "threads"}},
		"RESET SESSION threads":                      {{EffectSessionSetting, "threads"}},
		"PRAGMA threads=4":                           {{EffectSetting, "threads"}},
		"EXPLAIN ANALYZE SET threads = 4":            {{EffectSetting, "threads"}},
		"EXPLAIN SET threads = 4":                    nil,
		"SET enable_http_logging = true":             append(impliedSettings("enable_logging"), Effect{EffectLinkedSettings, "enable_http_logging"}),
		"FROM enable_logging()":                      append(impliedSettings("enable_logging"), unknown...),
		"FROM query('FROM disable_logging()')":       append(impliedSettings("enable_logging"), unknown...),
		"SELECT 1 FROM \"Enable_Peg_Parser\"()":      {{EffectImpliedSetting, "allow_parser_override_extension"}, {EffectUnknown, ""}},
		"SET s3_secret_access_key = 'x'":             {{EffectSecret, "s3_secret_access_key"}},
		"RESET s3_session_token":                     {{EffectSecret, "s3_session_token"}},
		"SET progress_bar_time = 1":                  {{EffectLinkedSettings, "progress_bar_time"}},
		"SET enable_profiling = 'json'":              {{EffectLinkedSettings, "enable_profiling"}},
		"CREATE TABLE pg_temp_3.x (a INT)":           {{EffectTempTable, "pg_temp_3.x"}},
		"CREATE FOREIGN TABLE pg_temp.x (a INT)":     {{EffectTempTable, "pg_temp.x"}},
		"CREATE FOREIGN TABLE x (a INT) SERVER s":    nil,
		"CREATE FOREIGN DATA WRAPPER x":              nil,
		"CREATE TABLE temp (a INT, b INT)":           nil,
		"CREATE VIEW temp AS SELECT 1":               nil,
		"USE a.b":                                    namespace,
		"SET schema = 'x'":                           namespace,
		"SET SCHEMA 'x'":                             namespace,
		"SET search_path TO a, b":                    path,
		"SET CATALOG x":                              namespace,
		"RESET schema":                               namespace,
		"PRAGMA search_path='a'":                     path,
		"CREATE TEMP TABLE t(a int)":                 {{EffectTempTable, "t"}},
		"create or replace temporary table T2(a)":    {{EffectTempTable, "T2"}},
		"CREATE TEMP TABLE IF NOT EXISTS s.t(a)":     {{EffectTempTable, "s.t"}},
		"CREATE TABLE temp.main.x AS SELECT 1":       {{EffectTempTable, "temp.main.x"}},
		"CREATE TEMPORARY VIEW \"v w\" AS SELECT 1":  {{EffectTempView, `"v w"`}},
		"EXPLAIN ANALYZE CREATE TEMP TABLE t(a)":     {{EffectTempTable, "t"}},
		"PREPARE q AS SELECT 1":                      {{EffectPrepared, "q"}},
		"DEALLOCATE PREPARE q":                       {{EffectDeallocate, "q"}},
		"DEALLOCATE q":                               {{EffectDeallocate, "q"}},
		"SET a=1; CREATE TEMP TABLE b(c INT)":        {{EffectSetting, "a"}, {EffectTempTable, "b"}},
		"SELECT nextval('s')":                        nil,
		"INSERT INTO query (a, \"b\") VALUES (1, 2)": nil,
		"WITH query (a) AS (SELECT 1) FROM query":    nil,
		"FROM query('SELECT 1')":                     nil,
	} {
		require.Equal(t, want, Parse(sql).Effects(), sql)
	}
	for _, sql := range []string{
		"FROM query('FROM enable_' || 'logging()')", "FROM query(('FROM enable_logging()'))", "FROM query(concat('SELECT 1'))", "FROM query(?)",
		"FROM json_execute_serialized_sql(json_serialize_sql('FROM enable_logging()'))",
		"CREATE TEMP MACRO m() AS 1", "CREATE TEMP SEQUENCE s", "CREATE TEMP TABLE", "CREATE TABLE #t (a INT)", "CREATE SECRET s (TYPE s3)",
		"CREATE OR REPLACE PERSISTENT SECRET x (TYPE s3)", "CREATE TEMPORARY FUNCTION f AS 'x'", "CREATE VOLATILE SEQUENCE s", "DROP SECRET s",
		"ALTER SESSION SET \"planner.x\" = true", "ATTACH 'x.db'", "DETACH lake", "LOAD icu", "INSTALL icu", "CALL p()", "EXECUTE q", "IMPORT DATABASE 'x'",
		"PRAGMA enable_profiling", "SET", "SET x", "SET @a = 1", "SET @@session.a = 1", "SET GLOBAL threads=1", "SET VARIABLE x = 1", "SET ROLE admin",
		"SET PERSIST x = 1", "SET TRANSACTION READ ONLY", "SET SESSION AUTHORIZATION x", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
		"SET NAMES utf8", "SET a = 1, b = 2", "RESET ALL", "RESET VARIABLE x", "RESET GLOBAL threads",
		"USE ROLE admin", "USE BRANCH dev IN nessie", "USE REFERENCE dev IN nessie", "USE main@branch_dev", "USE db@compute", "USE @compute", "USE a, b", "DEALLOCATE ALL", "DISCARD ALL", "DISCARD TEMP", "LISTEN c", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "LOCK TABLE t", "DO $$ x $$",
		"SELECT set_config('search_path', 'x', false)", "SELECT pg_advisory_lock(1)", "SELECT setseed(0.5)", "SELECT set_limit(0.8)", "SELECT load_extension('x')", "SELECT dblink_open('c', 'SELECT 1')",
		"SELECT pg_replication_origin_session_setup('x')", `EXPLAIN ("analyze") SET VARIABLE v = 1`,
		`SELECT U&"set_c\006fnfig"('a', 'b', false)`, `EXPLAIN (U&"\0061nalyze") DELETE FROM t`, "SELECT * INTO TEMP x FROM t", "SELECT * INTO pg_temp.x FROM t", "SELECT * INTO TABLE pg_temp.x FROM t", "SELECT 1 INTO UNLOGGED TABLE pg_temp.x", "UPDATE ONLY (pg_settings) SET setting = 'x'", "SET seed TO 0.5", "SET LOCAL seed = 0.5", "RESET seed", "SET search_path TO pg_temp, public", "SET search_path = 'a, pg_temp'", "SET SCHEMA 'pg_temp'", `SET SESSION search_path = "PG_temp_3"`, "SELECT a INTO @v FROM t",
		"INSERT INTO t SELECT set_config('a', 'b', false)", "FROM enable_profiling()", "frobnicate", "'text'", "WITH a AS (CREATE TEMP TABLE t(a)) SELEC",
	} {
		require.Equal(t, unknown, Parse(sql).Effects(), sql)
	}
}

func TestKeysCompareNamesAsServersDo(t *testing.T) {
	require.Equal(t, "odd name", Effect{Name: `"Odd Name"`}.Key())
	require.Equal(t, `a"b`, Effect{Name: `"a""b"`}.Key())
	require.Equal(t, "threads", Effect{Name: "THREADS"}.Key())
}

func TestEffectsOfStatementsThatEndEarlyOrLookAlike(t *testing.T) {
	for sql, want := range map[string]Effect{
		"SET x = (1, 2)":                        {EffectSetting, "x"},
		"SET x = [1, 2], 3":                     {EffectSetting, "x"},
		"SET x = {'a': 1, 'b': 2}":              {EffectSetting, "x"},
		"SET x = (a = 1, b = 2)":                {EffectSetting, "x"},
		"SET x = (1, 2) = y":                    {EffectSetting, "x"},
		"SET x = 1, (a = 2)":                    {EffectSetting, "x"},
		"ALTER DATABASE a SET ALIAS TO b":       {EffectUnknown, ""},
		"DROP MACRO m":                          {EffectUnknown, ""},
		"DROP FUNCTION f":                       {EffectUnknown, ""},
		"SET x = (1), y = (2)":                  {EffectUnknown, ""},
		"SET x = [1], y = 2":                    {EffectUnknown, ""},
		"SET x = {}, y = 2":                     {EffectUnknown, ""},
		"SET TIME = 1":                          {EffectSetting, "TIME"},
		"SET TIME":                              {EffectUnknown, ""},
		"SET ZONE = 1":                          {EffectSetting, "ZONE"},
		"SET 'a' = 1":                           {EffectSetting, "'a'"},
		"SET 5 = 1":                             {EffectUnknown, ""},
		"SET (a) = 1":                           {EffectUnknown, ""},
		"RESET":                                 {EffectUnknown, ""},
		"RESET a b":                             {EffectUnknown, ""},
		"USE":                                   {EffectUnknown, ""},
		"DEALLOCATE":                            {EffectUnknown, ""},
		"DEALLOCATE PREPARE":                    {EffectDeallocate, "PREPARE"},
		"DEALLOCATE PREPARE ALL":                {EffectUnknown, ""},
		"CREATE":                                {EffectUnknown, ""},
		"CREATE TEMP":                           {EffectUnknown, ""},
		"CREATE TABLE":                          {EffectUnknown, ""},
		"CREATE TABLE IF NOT EXISTS temp.x (a)": {EffectTempTable, "temp.x"},
		"CREATE VIEW temp.v AS SELECT 1":        {EffectTempView, "temp.v"},
		"CREATE SEQUENCE temp.s":                {EffectUnknown, ""},
		"CREATE TEMP TABLE if (a INT)":          {EffectTempTable, "if"},
		"ALTER":                                 {EffectUnknown, ""},
		"DROP":                                  {EffectUnknown, ""},
		"PRAGMA":                                {EffectUnknown, ""},
		"PRAGMA 'x'":                            {EffectUnknown, ""},
		"PREPARE":                               {EffectUnknown, ""},
		"FORCE":                                 {EffectUnknown, ""},
		"SELECT 1 # it's\n; COMMIT -- '":        {EffectUnknown, ""},
		"SET a = 1 # it's\n; SET ROLE x -- '":   {EffectSetting, "a"},
		"INSERT INTO t VALUES ('\\'); SET ROLE x": {EffectUnknown, ""},
	} {
		require.Equal(t, []Effect{want}, Parse(sql).Effects()[:1], sql)
	}
	for _, sql := range []string{"SET y = 2 /*! ; SET x = 1 */", "SET a = 1 # it's\n; SET ROLE x -- '", "USE a /*! ; USE b; SET x = 1 */"} {
		require.Equal(t, Effect{Kind: EffectUnknown}, Parse(sql).Effects()[1], "another server does more: %s", sql)
	}
	require.Len(t, Parse("SET a = 1 /* /* */ */").Effects(), 1, "no server does more")
	for _, sql := range []string{"CREATE TABLE IF NOT EXISTS x (a)", "CREATE VIEW v AS SELECT 1", "ALTER VIEW v RENAME TO w", "DROP MATERIALIZED VIEW v", "CREATE SEQUENCE s", "PRAGMA force_checkpoint"} {
		require.Empty(t, Parse(sql).Effects(), sql)
	}
}

func TestNamesAreUnquotedOnlyByTheirOwnQuotes(t *testing.T) {
	for name, want := range map[string]string{"\"a'": "\"a'", "'a\"": "'a\"", "`a``b`": "a`b", "'a''b'": "a'b", `"`: `"`, "a\"": "a\"", `""`: ""} {
		require.Equal(t, want, Effect{Name: name}.Unquoted(), name)
	}
}

// Every beginning of a statement can be judged.
func TestNoStatementIsTooShort(t *testing.T) {
	for v := range verbs {
		for _, rest := range []string{"", " (", " )", " .", " TEMP", " SESSION", " PREPARE", " TIME", " a", " a.", " a =", " INTO", " OUTPUT", " AS", " ANALYZE", " (ANALYZE", " 'a'"} {
			s := Parse(v + rest)
			require.Len(t, s.Statements, 1, v+rest)
			require.Equal(t, v, s.Statements[0].Verb, v+rest)
		}
	}
	for _, sql := range []string{"WITH a", "WITH a AS", "WITH a AS (", "WITH a AS ()", "WITH a AS () (", "WITH )", "PREPARE a AS", "PREPARE", "(", "((", "VALUE FOR s", "NEXTVAL", "CREATE FOREIGN", "v = 1", "x := 1", "EXPLAIN ANALYZE ("} {
		require.False(t, Parse(sql).ReadOnly(), sql)
	}
}

func TestAPivotByDataLeavesItsTypes(t *testing.T) {
	pivot := []Effect{{Kind: EffectPivotType}}
	for _, sql := range []string{
		"PIVOT t ON a", "PIVOT t ON a USING sum(b)", "pivot_wider t on a", "PIVOT t ON a IN (1), b", "PIVOT t ON a, b IN (1)", "PIVOT t ON (a IN (1))", "PIVOT t ON a = (b IN (1))",
		"PIVOT t ON CASE WHEN a IN (1) THEN 2 END", "PIVOT (SELECT * FROM t WHERE a IN (1)) ON a", "PIVOT t ON a USING sum(b) FILTER (b IN (1))", "PIVOT t ON a GROUP BY b", "PIVOT t ON f(a, b)",
		"PIVOT t ON \"IN\"", "SELECT * FROM (PIVOT t ON a)", "WITH p AS (PIVOT t ON a) FROM p", "WITH p AS (SELECT 1) PIVOT t ON a", "EXPLAIN PIVOT t ON a", "CREATE TABLE n AS PIVOT t ON a",
		"PIVOT t ON a IN", "PIVOT t ON", "PIVOT t ON a UNION SELECT b IN (1)",
		"PIVOT ON a", "PIVOT t ON USING sum(a)", "PIVOT t ON a, IN (1), b",
	} {
		s := Parse(sql)
		require.Equal(t, pivot, s.Effects(), sql)
		require.False(t, s.Atomic(), "the types are made first: %s", sql)
		require.NotEqual(t, RowsUnknown, s.Rows(), sql)
	}
	for _, sql := range []string{
		"PIVOT t ON a IN (1, 2)", "PIVOT t ON a IN (1, 2) USING sum(a)", "PIVOT t ON a IN (1), (b) IN (f(2), 3) USING sum(a) GROUP BY c", "PIVOT t ON a IN e", "PIVOT t ON a IN s.e USING sum(b)",
		"PIVOT a JOIN b USING (x) ON c IN (1)", "PIVOT t ON IN (1)", "PIVOT t USING sum(a)", "FROM t PIVOT (sum(a) FOR b IN (1, 2))", "SELECT pivot FROM t", "UNPIVOT t ON a", "PIVOT_LONGER t ON a", "SELECT \"PIVOT\" FROM a JOIN b ON a.x = b.x", "PIVOT t", "PIVOT",
	} {
		require.Empty(t, Parse(sql).Effects(), sql)
	}
}
