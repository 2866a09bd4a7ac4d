package sqlscan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// render is everything that is known of a text, one statement after the other:
// its verb, its rows, then what holds of it.
func render(s Script) string {
	var out []string
	for _, st := range s.Statements {
		words := []string{st.Verb, map[Rows]string{RowsUnknown: "rows?", RowsNone: "none", RowsSome: "rows"}[st.Rows]}
		for _, flag := range []struct {
			word  string
			holds bool
		}{{"reads", st.ReadOnly}, {"tx", st.TxControl}, {"wrapped", st.ChangesInsideQuery}} {
			if flag.holds {
				words = append(words, flag.word)
			}
		}
		if st.InsertInto != "" {
			words = append(words, "into="+st.InsertInto)
		}
		for _, e := range st.Effects {
			kind := map[EffectKind]string{
				EffectUnknown: "unknown", EffectSetting: "setting", EffectSessionSetting: "session setting", EffectNamespace: "namespace", EffectTempTable: "table",
				EffectTempView: "view", EffectPrepared: "prepared", EffectDeallocate: "forgotten", EffectSecret: "secret",
			}[e.Kind]
			words = append(words, strings.TrimSuffix("+"+kind+":"+e.Name, ":"))
		}
		out = append(out, strings.Join(words, " "))
	}
	if s.SyntaxFault != "" {
		out = append(out, "fault: "+s.SyntaxFault)
	}
	return strings.Join(out, "; ")
}

// cut is the tokens of a text in one dialect, and what the lexer notes.
func cut(sql string, d dialect) string {
	l := lexer{d: d, sql: sql}
	var out []string
	for _, t := range l.scan() {
		out = append(out, fmt.Sprintf("%c%s", "wqtnp"[t.kind], t.text))
	}
	if l.ambiguous {
		out = append(out, "ambiguous")
	}
	if l.unclosed != "" {
		out = append(out, "unclosed "+l.unclosed)
	}
	return strings.Join(out, " ")
}

func TestTokensOfEachDialect(t *testing.T) {
	mysql, sqlite, bigquery := otherDialects[2], otherDialects[1], otherDialects[4]
	for _, tc := range []struct {
		sql  string
		d    dialect
		want string
	}{
		{"--\nx", standardDialect, "wX"},
		{"--", standardDialect, ""},
		{"-- a", standardDialect, ""},
		{"--a\nx", standardDialect, "wX ambiguous"},
		{"--a\nx", mysql, "p- p- wA wX ambiguous"},
		{"--\ta\nx", mysql, "wX"},
		{"-- a\n--b", standardDialect, "ambiguous"},
		{"--a b\n-- c", standardDialect, "ambiguous"},
		{"# a\nx", mysql, "wX ambiguous"},
		{"# a\nx", standardDialect, "p# wA wX ambiguous"},
		{"\ufeffx", standardDialect, "wX ambiguous"},
		{"-- a\rx", standardDialect, "wX ambiguous"},
		{"-- a\rx", mysql, "ambiguous"},
		{"-- a\r\nx", standardDialect, "wX"},
		{"-- a\r", standardDialect, ""},
		{"--\rx", standardDialect, "wX ambiguous"},
		{"-- a\nb\rc", standardDialect, "wB wC"},
		{"--\n", standardDialect, ""},
		{"\n--", standardDialect, ""},
		{"-- \rx\ny", standardDialect, "wX wY ambiguous"},
		{"#\rx", mysql, "ambiguous"},
		{"#\nx", bigquery, "wX ambiguous"},
		{"/*! x */ y", mysql, "wX wY ambiguous"},
		{"/*!50100 x */ y", mysql, "wX wY ambiguous"},
		{"/*M!100 x */ y", mysql, "wX wY ambiguous"},
		{"/*!9x*/", mysql, "wX ambiguous"},
		{"/*!0x*/", mysql, "wX ambiguous"},
		{"/*!", mysql, "ambiguous unclosed comment"},
		{"/*!5", mysql, "ambiguous unclosed comment"},
		{"/*! x", mysql, "wX ambiguous unclosed comment"},
		{"/*! x */ y", standardDialect, "wY ambiguous"},
		{"x */ y", mysql, "wX p* p/ wY"},
		{"/*! a /*! b */ c */ d", mysql, "wA wB wC wD ambiguous"},
		{"/*!:x*/", mysql, "p: wX ambiguous"},
		{"/*!/x*/", mysql, "p/ wX ambiguous"},
		{"/* a", standardDialect, "unclosed comment"},
		{"/**/x", standardDialect, "wX"},
		{"/* /* */ x */ y", standardDialect, "wY ambiguous"},
		{"/* /* */ x", bigquery, "wX ambiguous"},
		{"/* * / */x", standardDialect, "wX"},
		{"/*", standardDialect, "unclosed comment"},
		{"e'a\\'b' c", standardDialect, "te'a\\'b' wC ambiguous"},
		{"E'a\\'b' c", standardDialect, "tE'a\\'b' wC ambiguous"},
		{"E'a' c", mysql, "tE'a' wC"},
		{"E'a\\'b' c", mysql, "tE'a\\'b' wC ambiguous"},
		{"E'a\\'b' c", sqlite, "tE'a\\' tb' c ambiguous unclosed quote"},
		{"e", standardDialect, "wE"},
		{"e 'a'", standardDialect, "wE t'a'"},
		{"x'00' b'1' N'a'", standardDialect, "tx'00' tb'1' tN'a'"},
		{"`a``b` c", standardDialect, "q`a``b` wC"},
		{"\"a\"\"b\" c", standardDialect, "q\"a\"\"b\" wC"},
		{"'a''b' c", standardDialect, "t'a''b' wC"},
		{"'a'", standardDialect, "t'a'"},
		{"''", standardDialect, "t''"},
		{"'''", standardDialect, "t''' unclosed quote"},
		{"'a''", standardDialect, "t'a'' unclosed quote"},
		{"'a\\\\' b", mysql, "t'a\\\\' wB"},
		{"\"a\\\"b\" c", mysql, "q\"a\\\"b\" wC ambiguous"},
		{"`a\\` c", mysql, "q`a\\` wC ambiguous"},
		{"'a' 'b'", standardDialect, "t'a' t'b'"},
		{"'a'\\'b'", mysql, "t'a' p\\ t'b'"},
		{"0x1F 9 1.5e3 1_000 10a.b /", standardDialect, "n0x1F n9 n1.5e3 n1_000 n10a.b p/"},
		{"a$b $1 a.b", standardDialect, "wA$B p$ n1 wA p. wB"},
		{":9", standardDialect, "p: n9"},
		{"/0", standardDialect, "p/ n0"},
		{"é1 ü", standardDialect, "wÉ1 wÜ"},
		{"(a", standardDialect, "p( wA"},
		{"€a", standardDialect, "w€A"},
		{"[a b] c", sqlite, "q[a b] wC"},
		{"[a", sqlite, "q[a ambiguous unclosed quote"},
		{"[a] b", standardDialect, "p[ wA p] wB"},
		{"['a'] b", standardDialect, "p[ t'a' p] wB ambiguous"},
		{"[-- a] b", standardDialect, "p[ ambiguous"},
		{"[/* a] b", standardDialect, "p[ ambiguous unclosed comment"},
		{"[]x", sqlite, "q[] wX"},
		{"[a", standardDialect, "p[ wA ambiguous"},
		{"]", sqlite, "p]"},
		{"$$a$$ b", standardDialect, "t$$a$$ wB ambiguous"},
		{"$t$a$$b$t$ c", standardDialect, "t$t$a$$b$t$ wC ambiguous"},
		{"$1$ a", standardDialect, "p$ n1 p$ wA"},
		{"$a", standardDialect, "p$ wA"},
		{"$$a", standardDialect, "t$$a ambiguous unclosed quote"},
		{"$a b$c", standardDialect, "p$ wA wB$C"},
		{"$a1$x$a1$ y", standardDialect, "t$a1$x$a1$ wY ambiguous"},
		{"$$$$ x", standardDialect, "t$$$$ wX ambiguous"},
		{"$$a$$ b", mysql, "p$ p$ wA$$ wB ambiguous"},
		{"$é$a$é$ b", standardDialect, "t$é$a$é$ wB ambiguous"},
		{"$", standardDialect, "p$"},
		{"$a$", standardDialect, "t$a$ ambiguous unclosed quote"},
		{"$-$", standardDialect, "p$ p- p$"},
	} {
		require.Equal(t, tc.want, cut(tc.sql, tc.d), "%q", tc.sql)
	}
}

// scripts are texts, whole and broken, and everything that is known of them.
var scripts = []struct{ sql, want string }{
	{"CREATE", "CREATE none +unknown"},
	{"CREATE TEMP", "CREATE none +unknown"},
	{"CREATE OR REPLACE", "CREATE none +unknown"},
	{"CREATE (", "CREATE none +unknown"},
	{"CREATE TEMP \"x\"", "CREATE none +unknown"},
	{"CREATE TEMP TABLE", "CREATE none +unknown"},
	{"CREATE TEMP TABLE IF", "CREATE none +table:IF"},
	{"CREATE TEMP TABLE IF NOT", "CREATE none +table:IF"},
	{"CREATE TEMP TABLE IF NOT EXISTS", "CREATE none +unknown"},
	{"CREATE TEMP TABLE IF NOT EXISTS a.b (i INT)", "CREATE none +table:a.b"},
	{"CREATE TEMP TABLE x NOT EXISTS", "CREATE none +table:x"},
	{"CREATE TEMP TABLE IF x EXISTS", "CREATE none +table:IF"},
	{"CREATE TEMP TABLE IF NOT x", "CREATE none +table:IF"},
	{"CREATE TEMP TABLE 'x' (i INT)", "CREATE none +table:'x'"},
	{"CREATE TEMP VIEW v AS SELECT 1", "CREATE none +view:v"},
	{"CREATE VIEW temp.v AS SELECT 1", "CREATE none +view:temp.v"},
	{"CREATE TEMP SEQUENCE s", "CREATE none +unknown"},
	{"CREATE TABLE #t (i INT)", "CREATE none +unknown"},
	{"CREATE SEQUENCE", "CREATE none"},
	{"CREATE VIEW (", "CREATE none"},
	{"CREATE TABLE t (i INT)", "CREATE none"},
	{"CREATE SECRET s", "CREATE none +unknown"},
	{"CREATE UNIQUE INDEX i ON t (a)", "CREATE none"},
	{"CREATE TABLE temp.t (i INT)", "CREATE none +table:temp.t"},
	{"ALTER", "ALTER none +unknown"},
	{"ALTER TABLE t ADD COLUMN x INT", "ALTER none"},
	{"ALTER SESSION SET x = 1", "ALTER none +unknown"},
	{"DROP", "DROP none +unknown"},
	{"DROP TABLE t", "DROP none"},
	{"DROP SECRET s", "DROP none +unknown"},
	{"SET", "SET none +unknown"},
	{"SET SESSION", "SET none +unknown"},
	{"SET x = 1", "SET none +setting:x"},
	{"SET LOCAL x TO 1", "SET none +session setting:x"},
	{"SET 'x' = 1", "SET none +setting:'x'"},
	{"SET \"x\" = 1", "SET none +setting:\"x\""},
	{"SET @x = 1", "SET none +unknown"},
	{"SET 5 = 1", "SET none +unknown"},
	{"SET x", "SET none +unknown"},
	{"SET x 1", "SET none +unknown"},
	{"SET a.b = 1", "SET none +setting:a.b"},
	{"SET a.5 = 1", "SET none +unknown"},
	{"SET a. = 1", "SET none +unknown"},
	{"SET TIME ZONE 'UTC'", "SET none +setting:TimeZone"},
	{"SET TIME ZONE", "SET none +setting:TimeZone"},
	{"SET TIME = 1", "SET none +setting:TIME"},
	{"SET TIME", "SET none +unknown"},
	{"SET ZONE x", "SET none +unknown"},
	{"SET x ZONE = 1", "SET none +unknown"},
	{"SET x = (1, 2), y = 2", "SET none +unknown"},
	{"SET x = 1, 2", "SET none +setting:x"},
	{"SET x = [1, 2 = 2]", "SET none +setting:x"},
	{"SET x = [1], y = 2", "SET none +unknown"},
	{"SET x = {a: 1, b = 2}", "SET none +setting:x"},
	{"SET x = {a: 1}, y = 2", "SET none +unknown"},
	{"SET x = (1, y = 2)", "SET none +setting:x"},
	{"SET x = f(1), y = 2", "SET none +unknown"},
	{"SET x = 1 = 2", "SET none +setting:x"},
	{"SET x = a, b c", "SET none +setting:x"},
	{"SET SCHEMA 'x'", "SET none +namespace"},
	{"SET search_path = a, b", "SET none +namespace:search_path"},
	{"SET password = 'x'", "SET none +secret:password"},
	{"SET CONSTRAINTS ALL DEFERRED", "SET none"},
	{"RESET", "RESET none +unknown"},
	{"RESET x", "RESET none +setting:x"},
	{"RESET SESSION", "RESET none +setting:SESSION"},
	{"RESET SESSION x", "RESET none +session setting:x"},
	{"RESET SESSION.x", "RESET none +unknown"},
	{"RESET x SESSION", "RESET none +unknown"},
	{"RESET ALL", "RESET none +unknown"},
	{"RESET x y", "RESET none +unknown"},
	{"USE", "USE none +unknown"},
	{"USE x", "USE none +namespace"},
	{"USE 'x'", "USE none +namespace"},
	{"USE x.\"y\".z", "USE none +namespace"},
	{"USE CATALOG x", "USE none +namespace"},
	{"USE DATABASE x.y", "USE none +namespace"},
	{"USE SCHEMA", "USE none +namespace"},
	{"USE schema.x", "USE none +namespace"},
	{"USE BRANCH x", "USE none +unknown"},
	{"USE x y", "USE none +unknown"},
	{"USE x AT BRANCH y", "USE none +unknown"},
	{"USE x@y", "USE none +unknown"},
	{"USE ROLE x", "USE none +unknown"},
	{"USE \"ROLE\"", "USE none +namespace"},
	{"DEALLOCATE", "DEALLOCATE none +unknown"},
	{"DEALLOCATE x", "DEALLOCATE none +forgotten:x"},
	{"DEALLOCATE PREPARE", "DEALLOCATE none +forgotten:PREPARE"},
	{"DEALLOCATE PREPARE x", "DEALLOCATE none +forgotten:x"},
	{"DEALLOCATE x y z", "DEALLOCATE none +forgotten:x"},
	{"DEALLOCATE ALL", "DEALLOCATE none +unknown"},
	{"DEALLOCATE PREPARE ALL", "DEALLOCATE none +unknown"},
	{"DEALLOCATE 'x'", "DEALLOCATE none +forgotten:'x'"},
	{"PRAGMA", "PRAGMA rows? +unknown"},
	{"PRAGMA 5", "PRAGMA rows? +unknown"},
	{"PRAGMA 'x'", "PRAGMA rows? +unknown"},
	{"PRAGMA table_info", "PRAGMA rows reads"},
	{"PRAGMA table_info('t')", "PRAGMA rows reads"},
	{"PRAGMA x = 1", "PRAGMA none +setting:x"},
	{"PRAGMA a.x = 1", "PRAGMA none +setting:x"},
	{"PRAGMA force_checkpoint", "PRAGMA none"},
	{"PRAGMA enable_profiling", "PRAGMA none +unknown"},
	{"PRAGMA frobnicate", "PRAGMA rows? +unknown"},
	{"CALL", "CALL rows +unknown"},
	{"CALL p", "CALL rows +unknown"},
	{"CALL p()", "CALL rows +unknown"},
	{"CALL duckdb_tables()", "CALL rows reads"},
	{"CALL pragma_version()", "CALL rows reads"},
	{"CALL duckdb_tables", "CALL rows +unknown"},
	{"CALL duckdb_tables x", "CALL rows +unknown"},
	{"CALL \"duckdb_tables\"()", "CALL rows reads"},
	{"FORCE", "FORCE rows? +unknown"},
	{"FORCE CHECKPOINT", "FORCE none"},
	{"FORCE x", "FORCE rows? +unknown"},
	{"ANALYZE", "ANALYZE none"},
	{"ANALYZE t", "ANALYZE none"},
	{"ANALYZE SELECT 1", "ANALYZE rows wrapped"},
	{"UPDATE", "UPDATE none"},
	{"UPDATE EXTENSIONS", "UPDATE rows"},
	{"UPDATE t SET a = 1", "UPDATE none"},
	{"INSERT EXTENSIONS", "INSERT none"},
	{"INSERT", "INSERT none"},
	{"INSERT INTO", "INSERT none"},
	{"INSERT INTO t SELECT 1", "INSERT none into=t"},
	{"INSERT INTO a.b.c SELECT 1", "INSERT none into=a.b.c"},
	{"INSERT INTO 'x' SELECT 1", "INSERT none into='x'"},
	{"INSERT INTO (a) SELECT 1", "INSERT none"},
	{"INSERT t OUTPUT", "INSERT none"},
	{"INSERT t OUTPUT INSERTED.a VALUES (1)", "INSERT rows"},
	{"INSERT t OUTPUT x VALUES (1)", "INSERT none"},
	{"OUTPUT INSERTED", "OUTPUT rows? +unknown"},
	{"DELETE FROM t RETURNING *", "DELETE rows"},
	{"DELETE FROM t WHERE (RETURNING)", "DELETE none"},
	{"DELETE FROM t WHERE a.RETURNING", "DELETE none"},
	{"DELETE FROM t WHERE ) RETURNING", "DELETE rows"},
	{"SELECT 1 INTO", "SELECT none +unknown"},
	{"SELECT 1 INTO t", "SELECT none"},
	{"SELECT 1 INTO 'x'", "SELECT none +unknown"},
	{"SELECT 1 INTO OUTFILE 'x'", "SELECT none +unknown"},
	{"SELECT 1 INTO TEMP t", "SELECT none +unknown"},
	{"SELECT (1 INTO t)", "SELECT rows reads"},
	{"SELECT ((1) INTO t)", "SELECT rows reads"},
	{"SELECT (1) INTO t", "SELECT none"},
	{"FROM t INSERT INTO u SELECT *", "FROM none"},
	{"FROM t SELECT a INTO b", "FROM none"},
	{"FROM t", "FROM rows reads"},
	{"FROM t SELECT insert", "FROM rows reads"},
	{"FROM t INSERT OVERWRITE u SELECT *", "FROM none"},
	{"FROM insert INSERT OVERWRITE u SELECT *", "FROM none"},
	{"FROM t AS INSERT INTO u SELECT *", "FROM none"},
	{"SELECT 1 AS INTO", "SELECT rows reads"},
	{"SELECT 1 AS INTO INTO t", "SELECT none"},
	{"INSERT INTO t SELECT 1 AS RETURNING", "INSERT none into=t"},
	{"WITH", "WITH rows? +unknown"},
	{"WITH a", "WITH rows? +unknown"},
	{"WITH a AS (SELECT 1)", "WITH rows? +unknown"},
	{"WITH a AS (SELECT 1) SELECT 1", "SELECT rows reads"},
	{"WITH a AS (SELECT 1) (SELECT 1)", "SELECT rows reads"},
	{"WITH (a) AS x SELECT 1", "SELECT rows reads"},
	{"WITH SELECT 1", "WITH rows? +unknown"},
	{"WITH RECURSIVE SELECT AS (SELECT 1) SELECT 1", "SELECT rows reads"},
	{"WITH a AS (SELECT 1), insert AS (SELECT 2) DELETE FROM t", "DELETE none wrapped"},
	{"WITH a AS (SELECT (1) (2)) SELECT 1", "SELECT rows reads"},
	{"WITH \"a\" AS (SELECT 1) \"SELECT\" SELECT 1", "SELECT rows reads"},
	{"WITH a AS (SELECT 1) 'SELECT' SELECT 1", "SELECT rows reads"},
	{"WITH a AS ((SELECT 1)) DELETE FROM t", "DELETE none wrapped"},
	{"WITH a AS (DELETE FROM t RETURNING *) SELECT nextval('q')", "SELECT rows wrapped"},
	{"(WITH a AS (SELECT 1) DELETE FROM t)", "DELETE none wrapped"},
	{"SELECT * FROM (WITH a AS (SELECT 1) DELETE FROM t RETURNING *)", "SELECT rows"},
	{"SELECT f(DELETE FROM t)", "SELECT rows"},
	{"SELECT * FROM (DELETE FROM t RETURNING set_config('a', 'b', false))", "SELECT rows +unknown"},
	{"SELECT nextval('q')", "SELECT rows"},
	{"SELECT nextval", "SELECT rows reads"},
	{"SELECT 'nextval' ('q')", "SELECT rows reads"},
	{"SELECT nextval = ('q')", "SELECT rows reads"},
	{"SELECT setseed(0.5)", "SELECT rows +unknown"},
	{"SELECT \"setseed\"(0.5)", "SELECT rows +unknown"},
	{"SELECT pg_advisory_lock(1)", "SELECT rows +unknown"},
	{"SELECT lo_create(0)", "SELECT rows"},
	{"SELECT DELETE", "SELECT rows reads"},
	{"SELECT (DELETE)", "SELECT rows reads"},
	{"SELECT (DELETE 'x')", "SELECT rows reads"},
	{"EXPLAIN", "EXPLAIN rows reads"},
	{"EXPLAIN ANALYZE", "EXPLAIN rows wrapped +unknown"},
	{"EXPLAIN (ANALYZE) DELETE FROM t", "EXPLAIN rows wrapped"},
	{"EXPLAIN (ANALYZE", "EXPLAIN rows wrapped +unknown"},
	{"EXPLAIN (FORMAT JSON, ANALYZE true) DELETE FROM t", "EXPLAIN rows wrapped"},
	{"EXPLAIN (ANALYZE, x (1, 2)) UPDATE t SET a = 1", "EXPLAIN rows wrapped"},
	{"EXPLAIN ANALYZE (DELETE FROM t)", "EXPLAIN rows wrapped"},
	{"EXPLAIN ANALYZE (SELECT 1)", "EXPLAIN rows reads"},
	{"EXPLAIN ANALYZE (", "EXPLAIN rows wrapped +unknown"},
	{"EXPLAIN (ANALYZE, SELECT true) DELETE FROM t", "EXPLAIN rows wrapped"},
	{"EXPLAIN (SELECT 1) ANALYZE", "EXPLAIN rows reads"},
	{"EXPLAIN ANALYZE \"SELECT\" SELECT 1", "EXPLAIN rows reads"},
	{"EXPLAIN ANALYZE 'DELETE' SELECT 1", "EXPLAIN rows reads"},
	{"EXPLAIN ANALYZE WITH a AS (SELECT 1) DELETE FROM t", "EXPLAIN rows wrapped"},
	{"EXPLAIN ANALYZE PREPARE p AS SELECT 1", "EXPLAIN rows wrapped +prepared:p"},
	{"EXPLAIN ANALYZE SET x = 1", "EXPLAIN rows wrapped +setting:x"},
	{"EXPLAIN ANALYZE BEGIN", "EXPLAIN rows tx wrapped"},
	{"EXPLAIN ANALYZE VERBOSE SELECT 1; SELECT 2", "EXPLAIN rows reads; SELECT rows reads"},
	{"EXPLAIN ANALYZE DESCRIBE t", "EXPLAIN rows reads"},
	{"EXPLAIN ANALYSE DELETE FROM t", "EXPLAIN rows wrapped"},
	{"EXPLAIN ANALYZE SELECT * FROM (INSERT INTO t VALUES (1) RETURNING *)", "EXPLAIN rows wrapped"},
	{"EXPLAIN SELECT nextval('q')", "EXPLAIN rows reads"},
	{"DESCRIBE t", "DESCRIBE rows reads"},
	{"PREPARE", "PREPARE none +unknown"},
	{"PREPARE p", "PREPARE none +prepared:p"},
	{"PREPARE p AS", "PREPARE none +prepared:p"},
	{"PREPARE p AS SELECT 1", "PREPARE none +prepared:p"},
	{"PREPARE p AS COMMIT", "PREPARE none tx +prepared:p"},
	{"PREPARE p FROM 'COMMIT'", "PREPARE none +prepared:p"},
	{"PREPARE p AS (COMMIT)", "PREPARE none +prepared:p"},
	{"PREPARE p AS SELECT COMMIT AS ROLLBACK", "PREPARE none +prepared:p"},
	{"PREPARE p AS SELECT 1 AS COMMIT", "PREPARE none +prepared:p"},
	{"PREPARE p FROM ROLLBACK", "PREPARE none tx +prepared:p"},
	{"PREPARE TRANSACTION 'x'", "PREPARE none tx +prepared:TRANSACTION"},
	{"PREPARE x TRANSACTION", "PREPARE none +prepared:x"},
	{"BEGIN", "BEGIN none tx"},
	{"COMMIT; SELECT 1", "COMMIT none tx; SELECT rows reads"},
	{"SELECT 1; SELECT 2;; ;", "SELECT rows reads; SELECT rows reads"},
	{"SELECT 1 /*! ; DELETE FROM t */", "SELECT rows"},
	{"SELECT 1 # '", "SELECT rows? +unknown; fault: a quote that opens at byte 11 is never closed"},
	{"SELECT 1 --1 ; SET x = 1", "SELECT rows +unknown"},
	{"SELECT 1 /*! ; SET x = 1 */", "SELECT rows +unknown"},
	{"SELECT 1 /*! ; COMMIT */", "SELECT rows +unknown"},
	{"COMMIT /*! ; ROLLBACK */", "COMMIT none tx"},
	{"SELECT 1; SELECT 2 /*! ; COMMIT */", "SELECT rows +unknown; SELECT rows"},
	{"SELECT 1; SELECT 2 /*! ; SET x = 1 */", "SELECT rows +unknown; SELECT rows"},
	{"SELECT 'a\\' # ; COMMIT", "SELECT rows; COMMIT none tx"},
	{"SELECT '", "SELECT rows? +unknown; fault: a quote that opens at byte 7 is never closed"},
	{"SELECT 1 /*", "SELECT rows? +unknown; fault: a comment that opens at byte 9 is never closed"},
	{"SET x = '", "SET rows? +unknown; fault: a quote that opens at byte 8 is never closed"},
	{"/*! COMMIT */", ""},
	{"/*! SET x = 1 */", ""},
	{"--1 COMMIT", ""},
	{"SELECT $$a$$", "SELECT rows reads"},
	{"SELECT 1; frobnicate # '", "SELECT rows? +unknown; FROBNICATE rows? +unknown; fault: a quote that opens at byte 23 is never closed"},
	{"5", " rows? +unknown"},
	{"'x'", " rows? +unknown"},
	{"(", " rows? +unknown"},
	{"()", " rows? +unknown"},
	{"((SELECT 1", "SELECT rows reads"},
	{"\"SELECT\" 1", " rows? +unknown"},
	{"frobnicate x", "FROBNICATE rows? +unknown"},
	{"VACUUM; SET x = 1; CREATE TEMP TABLE t (i INT)", "VACUUM none; SET none +setting:x; CREATE none +table:t"},
	{"COPY t TO 'x' (RETURN_FILES)", "COPY rows"},
	{"COPY t TO 'x'", "COPY none"},
	{"XA COMMIT 'x'", "XA rows? tx"},
	{"INSERT INTO t SELECT setseed(0.1)", "INSERT none into=t +unknown"},
	{"SELECT duckdb_x()", "SELECT rows reads"},
	{"SELECT ) INTO t", "SELECT none"},
}

func TestWhatIsKnownOfAScript(t *testing.T) {
	for _, tc := range scripts {
		require.Equal(t, tc.want, render(Parse(tc.sql)), "%q", tc.sql)
	}
}

// A text may end anywhere: nothing of it is read beyond its end, and what is cut
// off in a quote or comment is no read.
func TestEveryPrefixOfAScriptIsJudged(t *testing.T) {
	for _, tc := range scripts {
		for end := range len(tc.sql) {
			s := Parse(tc.sql[:end])
			require.False(t, s.SyntaxFault != "" && s.ReadOnly(), "%q", tc.sql[:end])
			for _, d := range otherDialects {
				parse(tc.sql[:end], d)
			}
		}
	}
}

func TestQuotesAreTakenOffNamesOnlyInPairs(t *testing.T) {
	for name, want := range map[string]string{
		`"a"`: "a", "`a`": "a", "'a'": "a", `"a""b"`: `a"b`, `"`: `"`, `"a`: `"a`, `a"`: `a"`, "a": "a", `""`: "", "aba": "aba", "": "", "'a\"": "'a\"", `"a'`: `"a'`, "bb": "bb",
	} {
		require.Equal(t, want, Effect{Name: name}.Unquoted(), name)
	}
}
