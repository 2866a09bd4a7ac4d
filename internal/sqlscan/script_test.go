package sqlscan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerbsRowsAndReads(t *testing.T) {
	for _, tc := range []struct {
		sql   string
		verb  string
		rows  Rows
		reads bool
	}{
		{"SELECT 1", "SELECT", RowsSome, true},
		{"  -- INSERT\n/* DELETE /* nested */ it */ select 1;", "SELECT", RowsSome, true},
		{"(SELECT 1) UNION (SELECT 2)", "SELECT", RowsSome, true},
		{"VALUES (1), (2)", "VALUES", RowsSome, true},
		{"FROM flights SELECT origin", "FROM", RowsSome, true},
		{"WITH a AS (SELECT 1), b AS (SELECT ')') SELECT * FROM a, b", "SELECT", RowsSome, true},
		{"WITH a AS (SELECT 1) (SELECT * FROM a)", "SELECT", RowsSome, true},
		{"WITH a AS (WITH b AS (SELECT 1) SELECT * FROM b) SELECT * FROM a", "SELECT", RowsSome, true},
		{"WITH update AS (SELECT 1), replace AS MATERIALIZED (SELECT 2) SELECT * FROM update", "SELECT", RowsSome, true},
		{"WITH RECURSIVE update AS (SELECT 1) SELECT * FROM update", "SELECT", RowsSome, true},
		{"WITH 1 AS x SELECT x", "SELECT", RowsSome, true},
		{"WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n+1 FROM t) SELECT n FROM t", "SELECT", RowsSome, true},
		{"WITH RECURSIVE t(n) USING KEY (n) AS (SELECT 1) FROM t", "FROM", RowsSome, true},
		{"WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "INSERT", RowsNone, false},
		{"WITH a AS (SELECT 1) REPLACE INTO t SELECT * FROM a", "REPLACE", RowsNone, false},
		{"WITH a AS (SELECT 1) (DELETE FROM t)", "DELETE", RowsNone, false},
		{"WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone", "SELECT", RowsSome, false},
		{"WITH x AS (WITH y AS (SELECT 1) DELETE FROM t RETURNING *) SELECT * FROM x", "SELECT", RowsSome, false},
		{"WITH x AS (SELECT * FROM (MERGE INTO t USING s ON a = b WHEN MATCHED THEN DELETE RETURNING *)) SELECT * FROM x", "SELECT", RowsSome, false},
		{"INSERT INTO t VALUES ('SELECT')", "INSERT", RowsNone, false},
		{"INSERT INTO t VALUES (1) RETURNING id", "INSERT", RowsSome, false},
		{"INSERT INTO t (a) OUTPUT INSERTED.id VALUES (1)", "INSERT", RowsSome, false},
		{"INSERT INTO t (WITH a AS (SELECT 1) SELECT * FROM a)", "INSERT", RowsNone, false},
		{"FROM query('SELECT 1')", "FROM", RowsSome, true},
		{"FROM query('DELETE FROM t')", "FROM", RowsSome, false},
		{"FROM query(\"DELETE FROM t\")", "FROM", RowsSome, false},
		{"FROM query(\"SELECT nextval('s')\")", "FROM", RowsSome, false},
		{"FROM query(\"SELECT 1\")", "FROM", RowsSome, true},
		{"SELECT * FROM query(\"a column\")", "SELECT", RowsSome, true},
		{"FROM query('SELECT 1', ?)", "FROM", RowsSome, false},
		{"SELECT @v := 1", "SELECT", RowsSome, false},
		{"SELECT f(@v, a := 1)", "SELECT", RowsSome, true},
		{"SELECT @v < = 1", "SELECT", RowsSome, true},
		{"UPDATE t SET a = 'x', output = 1 WHERE t.returning = \"returning\"", "UPDATE", RowsNone, false},
		{"SELECT * INTO copy FROM t", "SELECT", RowsNone, false},
		{"FROM t SELECT * INTO copy", "FROM", RowsNone, false},
		{"FROM src INSERT INTO dst SELECT *", "FROM", RowsNone, false},
		{"SELECT (SELECT 'INTO') AS \"INTO\" FROM t", "SELECT", RowsSome, true},
		{"SELECT INSERT('abc', 1, 2, 'x'), (REPLACE(a, b, c)), (update) FROM t", "SELECT", RowsSome, true},
		{"UNPIVOT t ON a, b INTO NAME n VALUE v", "UNPIVOT", RowsSome, true},
		{"EXPLAIN SELECT 1", "EXPLAIN", RowsSome, true},
		{"EXPLAIN DELETE FROM t", "EXPLAIN", RowsSome, true},
		{"EXPLAIN ANALYZE SELECT 1", "EXPLAIN", RowsSome, true},
		{"EXPLAIN (ANALYZE, FORMAT JSON) (SELECT 1)", "EXPLAIN", RowsSome, true},
		{"EXPLAIN ANALYZE WITH a AS (SELECT 1) SELECT * FROM a", "EXPLAIN", RowsSome, true},
		{"EXPLAIN ANALYZE DELETE FROM t", "EXPLAIN", RowsSome, false},
		{"EXPLAIN (ANALYZE) DELETE FROM t", "EXPLAIN", RowsSome, false},
		{"EXPLAIN (ANALYZE false) DELETE FROM t", "EXPLAIN", RowsSome, false},
		{`EXPLAIN ("analyze") DELETE FROM t`, "EXPLAIN", RowsSome, false},
		{`EXPLAIN (FORMAT 'json', "Analyze" true) DELETE FROM t`, "EXPLAIN", RowsSome, false},
		{`EXPLAIN ("analyze") SELECT 1`, "EXPLAIN", RowsSome, true},
		{`EXPLAIN SELECT "analyze" FROM t`, "EXPLAIN", RowsSome, true},
		{"EXPLAIN ANALYZE VERBOSE DROP TABLE t", "EXPLAIN", RowsSome, false},
		{"EXPLAIN ANALYZE TRUNCATE t", "EXPLAIN", RowsSome, false},
		{"EXPLAIN ANALYZE COPY t TO 'x.csv'", "EXPLAIN", RowsSome, false},
		{"EXPLAIN ANALYZE EXECUTE q", "EXPLAIN", RowsSome, false},
		{"EXPLAIN ANALYZE CALL p()", "EXPLAIN", RowsSome, false},
		{"EXPLAIN ANALYZE REPLACE INTO t VALUES (1)", "EXPLAIN", RowsSome, false},
		{"EXPLAIN ANALYZE frobnicate", "EXPLAIN", RowsSome, false},
		{"EXPLAIN ANALYZE", "EXPLAIN", RowsSome, false},
		{"DESC ANALYZE DELETE FROM t", "DESC", RowsSome, false},
		{"ANALYZE", "ANALYZE", RowsNone, false},
		{"ANALYZE DELETE FROM t", "ANALYZE", RowsSome, false},
		{"DESCRIBE t", "DESCRIBE", RowsSome, true},
		{"SHOW TABLES", "SHOW", RowsSome, true},
		{"PRAGMA version", "PRAGMA", RowsSome, true},
		{"PRAGMA table_info('t')", "PRAGMA", RowsSome, true},
		{"PRAGMA threads = 4", "PRAGMA", RowsNone, false},
		{"PRAGMA enable_profiling", "PRAGMA", RowsNone, false},
		{"PRAGMA whatever", "PRAGMA", RowsUnknown, false},
		{"CALL p()", "CALL", RowsSome, false},
		{"CALL duckdb_settings()", "CALL", RowsSome, true},
		{"COPY t TO 'x'", "COPY", RowsNone, false},
		{"COPY t TO 'x' (RETURN_FILES true)", "COPY", RowsSome, false},
		{"COPY t TO 'x' (\"return_files\")", "COPY", RowsSome, false},
		{"UPDATE EXTENSIONS", "UPDATE", RowsSome, false},
		{"FORCE CHECKPOINT", "FORCE", RowsNone, false},
		{"CREATE TABLE t AS SELECT 1", "CREATE", RowsNone, false},
		{"SELECT nextval('s')", "SELECT", RowsSome, false},
		{"SELECT NEXT VALUE FOR s", "SELECT", RowsSome, false},
		{"VALUES next value FOR s", "VALUES", RowsSome, false},
		{"SELECT s.nextval", "SELECT", RowsSome, false},
		{"VALUES nextval FOR s", "VALUES", RowsSome, false},
		{"SELECT next, value FROM t", "SELECT", RowsSome, true},
		{"SELECT value FOR s", "SELECT", RowsSome, true},
		{"SELECT nextval FROM t", "SELECT", RowsSome, true},
		{"SELECT next x FOR s", "SELECT", RowsSome, true},
		{"SELECT o.due FROM flights o", "SELECT", RowsSome, true},
		{"FROM query(\"\")", "FROM", RowsSome, true},
		{"FROM query('a column')", "FROM", RowsSome, false},
		{"FROM query(", "FROM", RowsSome, true},
		{`SELECT U&"a"`, "SELECT", RowsSome, true},
		{`SELECT "a\b" FROM t`, "SELECT", RowsSome, true},
		{"SELECT @v : 1 = b FROM t", "SELECT", RowsSome, true},
		{"SELECT größer, ÉTÉ FROM t", "SELECT", RowsSome, true},
		{"FROM t x INTO y", "FROM", RowsNone, false},
		{"FROM t SELECT a, INTO, overwrite", "FROM", RowsNone, false},
		{"FROM dbgen(sf = 1)", "FROM", RowsSome, false},
		{`SELECT U&"set_c\006fnfig"('a', 'b', false)`, "SELECT", RowsSome, false},
		{`SELECT u&"set_c!006fnfig" UESCAPE '!'('a', 'b', false)`, "SELECT", RowsSome, false},
		{`EXPLAIN (U&"\0061nalyze") DELETE FROM t`, "EXPLAIN", RowsSome, false},
		{`SELECT U&"set_config"('a', 'b', false)`, "SELECT", RowsSome, false},
		{`SELECT U&"a", U&'\0061', u & "b" FROM t`, "SELECT", RowsSome, true},
		{"SELECT * FROM pg_logical_slot_get_changes('s', NULL, NULL)", "SELECT", RowsSome, false},
		{"SELECT * FROM postgres_query('p', 'DELETE FROM t RETURNING a')", "SELECT", RowsSome, false},
		{"SELECT pg_catalog.\"set_config\"('search_path', 'x', false)", "SELECT", RowsSome, false},
		{"SELECT $$; it $$", "SELECT", RowsSome, true},
		{"SELECT $tag$ $$ ' $tag$, 'it''s', E'\\'; DROP', `a``b`", "SELECT", RowsSome, true},
		{"SELECT $1, $2", "SELECT", RowsSome, true},
		{"SELECT * FROM t WHERE a LIKE 'x\\_%' ESCAPE '\\'", "SELECT", RowsSome, true},
		{"SELECT a #> '{b}', #1, [1, 2], m['it'] FROM t --x", "SELECT", RowsSome, true},
		{"frobnicate everything", "FROBNICATE", RowsUnknown, false},
		{"'text'", "", RowsUnknown, false},
		{"{CALL p()}", "", RowsUnknown, false},
		{"WITH", "WITH", RowsUnknown, false},
		{"OPTIMIZE TABLE t", "OPTIMIZE", RowsUnknown, false},
		{`SHOW TABLES ->> INSERT INTO log SELECT "name" FROM $1`, "SHOW", RowsNone, false},
		{"SELECT id FROM gone ->> DELETE FROM t WHERE id IN (SELECT id FROM $1)", "SELECT", RowsNone, false},
		{"(SELECT 1) ->> UPDATE t SET n = n + 1 ->> SELECT * FROM $1", "SELECT", RowsSome, false},
		{"SHOW TABLES ->> SELECT * FROM $1 ->> TRUNCATE t", "SHOW", RowsNone, false},
		{"SHOW TABLES ->> SELECT * FROM $1", "SHOW", RowsSome, true},
		{"SHOW TABLES ->> SET (a, b) = (SELECT 1, 2)", "SHOW", RowsNone, false},
		{"SELECT 1 ->> WITH a AS (SELECT 1) DELETE FROM t", "SELECT", RowsNone, false},
		{"SELECT j ->> 'a', j ->> key, j->>'x', j ->> insert, j ->> update AS u, j ->> comment FROM t", "SELECT", RowsSome, true},
		{"SELECT j ->> replace('a', 'b', 'c'), (j ->> delete x), j - >> delete x FROM t WHERE j ->> call = '1' AND j ->> set = '2' AND j ->> set", "SELECT", RowsSome, true},
	} {
		s := Parse(tc.sql)
		require.Len(t, s.Statements, 1, tc.sql)
		require.Equal(t, tc.verb, s.Statements[0].Verb, tc.sql)
		require.Equal(t, tc.rows, s.Rows(), "rows: %s", tc.sql)
		require.Equal(t, tc.reads, s.ReadOnly(), "reads: %s", tc.sql)
	}
}

// The operator is one for JSON, too, whose key may be a column of a verb's name. Where it may be either, the rows are
// those of one statement, and it is no read.
func TestAnArrowThatMayBeJSONsKeepsItsRowsAndIsNoRead(t *testing.T) {
	for _, sql := range []string{
		"SELECT j ->> call FROM t", "SELECT j ->> begin FROM t", "SELECT j ->> update, 1 FROM t", "SELECT j ->> comment", "SELECT j ->> $1", "SELECT j ->> ?",
		"SELECT j ->> comment || 'x' note FROM t", "SELECT j ->> comment::INT n FROM t", "SELECT * FROM t WHERE j ->> set IS NULL", "SELECT j ->> \"set\" a FROM t",
		"SELECT CASE WHEN a THEN j ->> truncate END FROM t", "SELECT * FROM t ORDER BY j ->> comment DESC", "SELECT * FROM a JOIN b ON j ->> comment LEFT JOIN c ON d",
		"SELECT j ->> commit ->> author FROM t", "SELECT a ->> list @> b FROM t", "SELECT * FROM t WHERE j ->> create OR a",
	} {
		require.True(t, Parse(sql).PlainRead(), sql)
		require.Equal(t, RowsSome, Parse(sql).Rows(), sql)
	}
	for _, sql := range []string{
		"SELECT j ->> comment note FROM t", "SELECT * FROM t WHERE j ->> comment NOTNULLS", "SELECT j ->> delete FROM t", "SELECT a IS DISTINCT FROM b, j ->> delete FROM t",
		"SELECT 1 FROM t UNION SELECT j ->> delete FROM t", "SELECT j ->> create view FROM t", "SELECT j ->> start transaction FROM t", "SELECT j ->> insert overwrite FROM t",
		"SELECT * FROM t WHERE j ->> create OR replace", "SELECT j ->> create OR replace temp FROM t", "SELECT j ->> use schema FROM t", "SHOW SELECT j ->> truncate x FROM t",
		"SELECT CASE WHEN a THEN j ->> update END set FROM t", "SELECT 1 FROM a JOIN b JOIN c ON j ->> comment ON view IS NULL", "SELECT j ->> begin name FROM t",
		"SELECT 1 ->> UNSET v", "SELECT 1 ->> UNSET (a, b)", "SELECT 1 ->> SET (a, b) = (1, 2)", "SELECT 1 ->> REMOVE @s", "SELECT 1 ->> RM @s/x", "SELECT 1 ->> PUT 'file:///x' @s",
		"SELECT 1 ->> PUT file:///x @s", "SELECT 1 ->> UNDROP TABLE t", "SELECT 1 ->> TRUNCATE end", "SELECT 1 ->> TRUNCATE limit", "SELECT 1 ->> UNSET limit ->> (SELECT 2)", "SELECT j ->> with x FROM t",
		"SELECT CASE WHEN a THEN b END FROM t ->> TRUNCATE end", "SELECT * FROM t ORDER BY a ->> UNSET desc", "SELECT * FROM a JOIN b ON c ->> TRUNCATE left",
		"SELECT 1 ->> UPDATE limit AS l SET a = 1", "SELECT 1 ->> CREATE OR REPLACE frob x", "SELECT 1 ->> {CALL p()}", "SELECT 1 ->> CALL p()", "SELECT 1 ->> EXECUTE IMMEDIATE $$x$$",
		"SELECT 1 ->> GRANT SELECT ON t TO ROLE r", "SELECT 1 ->> DELETE FROM t", "SELECT 1 ->> frob x",
	} {
		s := Parse(sql)
		require.Equal(t, RowsSome, s.Rows(), sql)
		require.False(t, s.ReadOnly(), sql)
		require.Equal(t, []Effect{{Kind: EffectUnknown}}, s.Effects(), sql)
		require.Empty(t, s.TxControl(), sql)
		require.False(t, s.Atomic(), sql)
	}
	require.False(t, Parse("EXPLAIN SELECT 1 ->> COPY INTO @s FROM $1").ReadOnly())
	require.Contains(t, Parse("SELECT j ->> insert INTO TEMP x FROM t").Effects(), Effect{Kind: EffectUnknown})
}

// Words that no expression has make it Snowflake's operator, at all its places.
func TestAChainIsOneByTheFirstWordsOfAnyOfItsStatements(t *testing.T) {
	for sql, want := range map[string]Statement{
		"SHOW TABLES ->> CREATE OR REPLACE TEMP TABLE x AS SELECT * FROM $1": {Effects: []Effect{{Kind: EffectTempTable, Name: "x"}}},
		"SELECT 1 ->> CREATE OR REPLACE TEMP TABLE x AS SELECT 1":            {Effects: []Effect{{Kind: EffectTempTable, Name: "x"}}},
		"SELECT 1 ->> CREATE TABLE x AS SELECT 1":                            {},
		"SELECT 1 ->> CREATE OR ALTER TABLE y (a int)":                       {Effects: []Effect{{Kind: EffectUnknown}}},
		"SELECT 1 ->> COMMENT ON TABLE t IS 'x'":                             {},
		"SELECT 1 ->> COMMENT IF EXISTS ON TABLE t IS 'x'":                   {},
		"SELECT 1 ->> SET limit = 5":                                         {Effects: []Effect{{Kind: EffectSetting, Name: "limit"}}},
		"SELECT 1 ->> UPDATE offset SET a = 1":                               {},
		"SELECT 1 ->> UPDATE a.end SET a = 1":                                {},
		"SELECT 1 ->> INSERT INTO t SELECT 1":                                {},
		"SELECT 1 ->> INSERT OVERWRITE INTO t SELECT 1":                      {},
		"SELECT 1 ->> INSERT ALL INTO t SELECT 1":                            {},
		"SELECT 1 ->> MERGE INTO t USING $1 ON a":                            {},
		"SELECT 1 ->> DROP TABLE t":                                          {},
		"SELECT 1 ->> TRUNCATE TABLE t":                                      {},
		"SELECT 1 FROM t ->> DELETE FROM t":                                  {},
		"SELECT 1 ->> USE SCHEMA s":                                          {Effects: []Effect{{Kind: EffectNamespace}}},
		"SHOW TABLES ->> TRUNCATE end":                                       {},
		"LIST @s ->> TRUNCATE end":                                           {},
		"DESC TABLE t ->> SET x = 1":                                         {Effects: []Effect{{Kind: EffectSetting, Name: "x"}}},
		"SELECT 1 ->> COMMENT x ->> DROP TABLE t":                            {},
	} {
		s := Parse(sql)
		require.Equal(t, RowsNone, s.Rows(), sql)
		require.False(t, s.ReadOnly(), sql)
		require.Equal(t, want.Effects, s.Effects(), sql)
		require.True(t, s.RunsInSteps(), sql)
	}
	for _, sql := range []string{"SHOW TABLES ->> UNSET (a, b)", "SHOW TABLES ->> UNDROP TABLE t", "SHOW TABLES ->> RM @s", "SELECT 1 ->> frob x ->> SELECT 2"} {
		require.False(t, Parse(sql).ReadOnly(), sql)
		require.Equal(t, []Effect{{Kind: EffectUnknown}}, Parse(sql).Effects(), sql)
		require.Equal(t, RowsSome, Parse(sql).Rows(), "it is sent: %s", sql)
	}
}

// Snowflake's comments begin with //, by which others divide.
func TestWhatSnowflakesCommentsHideIsLookedAt(t *testing.T) {
	for _, sql := range []string{
		"SHOW TABLES // a\n ->> // b\n INSERT INTO t SELECT * FROM $1", "SELECT 1 // it's\n ->> INSERT INTO t SELECT * FROM $1 // it's",
		"SELECT 1 // $$\n ->> INSERT INTO t SELECT * FROM $1 // $$", "SELECT 1 // (\n ->> INSERT INTO t SELECT * FROM $1",
		"SELECT 1 // /*\n ->> INSERT INTO t SELECT * FROM $1 // */", "SELECT 1 //* '\n ->> INSERT INTO t SELECT 1 //*/", "SELECT 'a\\' // ' ->> ' \n ->> DROP TABLE t",
		"SELECT 1 // '\n; UNDROP TABLE t // '", "SELECT '\\'', 1 // \"\n ->> DROP TABLE t // \"'", "SELECT $$'$$ // \"\n ->> DROP TABLE t // '\"",
	} {
		require.False(t, Parse(sql).ReadOnly(), sql)
	}
	require.Equal(t, []Effect{{Kind: EffectUnknown}}, Parse("SELECT 1 // '\n ->> SET a = 1 // '").Effects())
	require.Equal(t, []Effect{{Kind: EffectUnknown}}, Parse("SELECT 1 // '\n ->> COMMIT // '").Effects())
	for _, sql := range []string{"SELECT a // b FROM t", "SELECT (a // b) c\nFROM t", "SELECT a // 2, 'x\ny' FROM t", "SELECT j ->> 'a' // 2 FROM t", "SELECT * FROM 's3://a/b'"} {
		require.True(t, Parse(sql).PlainRead(), sql)
		require.True(t, Parse(sql).Atomic(), sql)
		require.Equal(t, RowsSome, Parse(sql).Rows(), sql)
	}
}

// What any of them leaves is left, and one that fails leaves what the ones before have done.
func TestWhatAChainOfStatementsLeavesIsKnown(t *testing.T) {
	for sql, kind := range map[string]EffectKind{
		"SHOW TABLES ->> CREATE TEMP TABLE x AS SELECT * FROM $1": EffectTempTable,
		"SELECT 1 ->> SET a = 1":                                  EffectSetting,
		"SELECT 1 ->> USE other ->> SELECT 1":                     EffectNamespace,
	} {
		s := Parse(sql)
		require.Len(t, s.Effects(), 1, sql)
		require.Equal(t, kind, s.Effects()[0].Kind, sql)
		require.True(t, s.Statements[0].RunsInSteps, sql)
		require.True(t, s.Statements[0].ChangesInsideQuery, sql)
	}
	require.True(t, Parse("SELECT 1 ->> COMMIT").Statements[0].TxControl)
	require.True(t, Parse("INSERT INTO t VALUES (1) ->> COMMIT ->> SELECT 1").Statements[0].TxControl)
	require.False(t, Parse("SELECT j ->> commit ->> 'a' FROM t").Statements[0].TxControl)
	require.False(t, Parse("SHOW TABLES ->> SELECT * FROM $1").Statements[0].RunsInSteps)
}

// A text that ends inside of a quote or comment is not understood, and one that
// some server cuts into a change is no read.
func TestTextThatServersReadDifferentlyIsNoRead(t *testing.T) {
	for _, sql := range []string{
		"SELECT 'never closed ; DELETE FROM t", "SELECT 1 /* never closed", "SELECT 1 /* /* */; DELETE FROM t", `SELECT "a`, "SELECT $x$ a", `SELECT E'\'`,
		`SELECT 'it\'s'; DELETE FROM t`,
	} {
		s := Parse(sql)
		require.NotEmpty(t, s.SyntaxFault, sql)
		require.False(t, s.ReadOnly(), sql)
		require.Equal(t, RowsUnknown, s.Rows(), sql)
		require.Contains(t, s.Effects(), Effect{Kind: EffectUnknown}, sql)
	}
	require.Equal(t, "a quote that opens at byte 7 is never closed", Parse("SELECT 'x").SyntaxFault)
	for dialect, sql := range map[string]string{
		"a backslash before a quote":   `SELECT 'x\', '; DELETE FROM t; -- '`,
		"a hash comment":               "SELECT 1 # it's\n; DELETE FROM t -- '",
		"a comment that is executed":   "SELECT 1 /*! ; DELETE FROM t */",
		"comments that do not nest":    "SELECT 1 /* /* */; DELETE FROM t -- */ */",
		"a quote in brackets":          "SELECT 1 AS [it's]; DELETE FROM t --']",
		"a quote after it has no end":  "SELECT 1 AS [it's]; DELETE FROM t; '",
		"a comment that has no end":    "SELECT 1 AS [it's]; DELETE FROM t /* '",
		"two dashes that are no sign":  "SELECT 1 --1; DELETE FROM t",
		"a dollar that quotes nothing": "SELECT 1 AS $a$; DELETE FROM t; SELECT 1 AS $a$",
		"an E that is a name":          `SELECT E'\'; DELETE FROM t; --'`,
		"a carriage return":            "SELECT 1 --\r; DELETE FROM t",
	} {
		require.False(t, Parse(sql).ReadOnly(), "%s: %s", dialect, sql)
		require.Empty(t, Parse(sql).Effects(), dialect)
		require.False(t, Parse(sql).Atomic(), dialect)
		left := Parse(strings.Replace(sql, "DELETE FROM t", "SET ROLE x", 1))
		require.Equal(t, []Effect{{Kind: EffectUnknown}}, left.Effects(), dialect)
	}
}

// Servers that run one statement after the other have done the first when they find out that they
// do not know the second, or that it does not end.
func TestWhatStandsBeforeAFaultMayBeDone(t *testing.T) {
	for dialect, sql := range map[string]string{
		"a verb that is not known": `SELECT 'x\', '; DELETE FROM t; FROB t; -- '`,
		"a quote without an end":   `SELECT 'x\', '; DELETE FROM t; SELECT "'`,
		"a comment without an end": `SELECT 'x\', '; DELETE FROM t; /*'`,
	} {
		require.Empty(t, Parse(sql).SyntaxFault, dialect)
		require.Len(t, Parse(sql).Statements, 1, dialect)
		require.False(t, Parse(sql).ReadOnly(), dialect)
		change := strings.Replace(strings.Replace(sql, "SELECT", "INSERT INTO t SELECT", 1), "DELETE FROM t; ", "", 1)
		require.False(t, Parse(change).Atomic(), "%s: %s", dialect, change)
	}
	require.True(t, Parse(`INSERT INTO t VALUES ('x\')`).Atomic(), "a single statement without an end is not done")
}

func TestEmptyTextHasNoStatement(t *testing.T) {
	for _, sql := range []string{"", " \n\t", ";", ";;", "-- only a comment", "/* only a comment */;"} {
		s := Parse(sql)
		require.True(t, s.Empty(), sql)
		require.False(t, s.ReadOnly(), sql)
		require.Equal(t, RowsNone, s.Rows(), sql)
	}
}

func TestScriptsAreReadsOnlyWhenEveryStatementIs(t *testing.T) {
	s := Parse("SELECT 1; SELECT 2")
	require.True(t, s.ReadOnly())
	require.Equal(t, RowsSome, s.Rows())
	s = Parse("SELECT 1; DELETE FROM t; SELECT 2")
	require.False(t, s.ReadOnly())
	require.Equal(t, RowsSome, s.Rows())
	require.Len(t, s.Statements, 3)
}

// What servers take for a query although it changes something.
func TestChangesInsideOfQueriesAreWrapped(t *testing.T) {
	for sql, want := range map[string]bool{
		"EXPLAIN ANALYZE DELETE FROM t":                         true,
		"WITH a AS (SELECT 1) INSERT INTO t FROM a RETURNING *": true,
		"ANALYZE UPDATE t SET a = 1":                            true,
		"INSERT INTO t VALUES (1) RETURNING *":                  false,
		"EXPLAIN DELETE FROM t":                                 false,
		"EXPLAIN ANALYZE SELECT 1":                              false,
		"WITH a AS (SELECT 1) SELECT * FROM a":                  false,
	} {
		require.Equal(t, want, Parse(sql).Statements[0].ChangesInsideQuery, sql)
	}
}

// What a server without the engine's grammar takes for a query it may run to prepare it.
func TestChangesThatBeginLikeAQueryAreKnown(t *testing.T) {
	for sql, want := range map[string]bool{
		"WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a": true, "WITH a AS (SELECT 1) DELETE FROM t RETURNING x": true,
		"WITH a AS (SELECT 1) FROBNICATE a": true, "EXPLAIN ANALYZE DELETE FROM t": true, "SELECT nextval('s')": true,
		"FROM t SELECT setseed(0.5)": true, "PRAGMA threads = 1": true, "SELECT 1; SELECT nextval('s')": true,
		"WITH a AS (SELECT 1) SELECT * FROM a": false, "EXPLAIN DELETE FROM t": false, "SELECT 1": false, "PRAGMA table_info('t')": false,
		"INSERT INTO t VALUES (1) RETURNING x": false, "DELETE FROM t": false, "CALL p()": false, "": false,
	} {
		require.Equal(t, want, Parse(sql).ChangesInQuery(), sql)
	}
}

// A server that appends the parameters as rows stores something else where they are not the rows.
func TestAnInsertOfItsParametersIsTold(t *testing.T) {
	for _, sql := range []string{
		"INSERT INTO t VALUES (?)", "INSERT INTO t (a, b) VALUES (?, ?)", "insert into c.s.t(a) values($1), ($2)", "INSERT INTO t VALUES (?1, ?2) RETURNING a",
		"INSERT INTO t VALUES (?::DATE, CAST(? AS DECIMAL(10, 2)), ?::DECIMAL(10, 2))", "INSERT INTO t VALUES (?, ?) ON CONFLICT DO NOTHING", "INSERT INTO t VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = $2 WHERE t.a > 5",
		"INSERT OR IGNORE INTO t VALUES (?)", "INSERT INTO t VALUES (?::VARCHAR[])", "INSERT INTO t (a, b) SELECT ?, ?::INT RETURNING a",
		"INSERT INTO t VALUES (?::DOUBLE PRECISION, ?::TIMESTAMP WITH TIME ZONE, ?::main.kind, ?::INT[3])",
	} {
		require.False(t, Parse(sql).Statements[0].ComputesRows, sql)
	}
	for _, sql := range []string{
		"INSERT INTO t SELECT ? + 100", "INSERT INTO t SELECT ? FROM u", "INSERT INTO t SELECT ? UNION SELECT ?", "INSERT INTO t SELECT ? WHERE 1 = 2", "INSERT INTO t SELECT ?::INT FROM u", "INSERT INTO t SELECT ?::INT u", "INSERT INTO t SELECT a FROM u WHERE b = ?", "INSERT INTO t VALUES (? + 1)", "INSERT INTO t VALUES (upper(?))",
		"INSERT INTO t (a, b) VALUES ($2, $1)", "INSERT INTO t (a, b) VALUES (?, 'x'), (?, 'y')", "INSERT INTO t VALUES (?::INT + 1)", "INSERT INTO t VALUES (?, now())",
		"INSERT INTO t VALUES (CAST(? + 1 AS INT))", "INSERT INTO t VALUES (CAST(? AS INT) + 1)", "INSERT INTO t VALUES ((SELECT a FROM u WHERE b = ?))", "INSERT INTO t WITH a AS (SELECT ?) SELECT * FROM a",
		"INSERT INTO t DEFAULT VALUES", "INSERT INTO t VALUES", "INSERT INTO t VALUES (", "INSERT INTO t VALUES (?::INT || 'x')", "INSERT INTO t VALUES ($1, $1)",
		"INSERT INTO t VALUES (?) UNION ALL SELECT 5", "INSERT INTO t VALUES (?) EXCEPT SELECT a FROM t", "INSERT INTO t VALUES (?), (?) LIMIT 1", "INSERT INTO t VALUES (?), (?) ORDER BY 1 OFFSET 1",
		"INSERT INTO t (a) VALUES (?) ON CONFLICT (a) DO UPDATE SET b = ?", "INSERT INTO t (a) VALUES ($1) ON CONFLICT (a) DO UPDATE SET b = f($2::INT)", "INSERT INTO t VALUES (?1) ON CONFLICT DO UPDATE SET b = ?2 RETURNING a",
		"INSERT INTO t (a) VALUES (?) ON CONFLICT (a) DO UPDATE SET b = ? 1", "INSERT INTO t VALUES (? 1)", "INSERT INTO t VALUES (:1)", "INSERT INTO t VALUES (upper(? AS INT))", "INSERT INTO t VALUES (CAST(AS INT))",
		"INSERT INTO t VALUES (CAST($1", "INSERT INTO t VALUES (?:", "INSERT INTO t VALUES (?::)", "INSERT INTO t VALUES (?:INT INT)", "INSERT INTO t VALUES (?+:INT)", "INSERT INTO t VALUES (?::main.'kind')", "INSERT INTO t VALUES (?::'INT')", "INSERT INTO t VALUES (CAST(? + AS))",
	} {
		require.True(t, Parse(sql).Statements[0].ComputesRows, sql)
	}
}

func TestTheColumnsOfAnInsertAreThoseThatItNames(t *testing.T) {
	for sql, want := range map[string][]string{
		"INSERT INTO t (ID, Name) VALUES (?, ?)":                     {"ID", "Name"},
		`insert or replace into c."s.x".t("a ""b""", b) select ?, ?`: {`a "b"`, "b"},
		"INSERT INTO t VALUES (?)":                                   nil,
		"INSERT INTO t (SELECT ?)":                                   nil,
		"INSERT INTO t (a, 1) VALUES (?, ?)":                         nil,
		"INSERT INTO t () VALUES ()":                                 nil,
		"INSERT INTO t":                                              nil,
		"UPDATE t SET a = ?":                                         nil,
	} {
		require.Equal(t, want, Parse(sql).Statements[0].InsertColumns, sql)
	}
}

func TestTransactionControlIsFoundInAScript(t *testing.T) {
	for sql, verb := range map[string]string{
		"BEGIN": "BEGIN", "start transaction": "START", "COMMIT": "COMMIT", "end": "END", "ROLLBACK TO a": "ROLLBACK", "ABORT": "ABORT",
		"ROLLBACK TABLE a.b TO SNAPSHOT '1'": "", "rollback table t to timestamp '2026-01-01'": "", "ROLLBACK TABLE": "ROLLBACK", "ROLLBACK TO SNAPSHOT": "ROLLBACK",
		"SAVEPOINT a": "SAVEPOINT", "RELEASE SAVEPOINT a": "RELEASE", "INSERT INTO t VALUES (1); /* x */ COMMIT": "COMMIT",
		"SELECT 'COMMIT'": "", "SELECT 1 AS begin": "", "PREPARE q AS SELECT 1": "", "PREPARE TRANSACTION 'x'": "PREPARE",
		"SELECT CASE WHEN a THEN b END": "", "PREPARE q AS COMMIT": "PREPARE", "EXPLAIN ANALYZE COMMIT": "EXPLAIN", "XA START 'x'": "XA",
		"SHOW TABLES ->> START TRANSACTION": "START", "{CALL p()} ->> COMMIT": "COMMIT", "BEGIN ->> COMMIT": "BEGIN", "SELECT 1 ->> BEGIN WORK ->> SELECT 1": "BEGIN",
		"SELECT 1 ->> COMMIT ->> ROLLBACK": "COMMIT", "SELECT 1 ->> BEGIN NAME x": "BEGIN", "SELECT 1 ->> COMMIT ->> UNSET a": "COMMIT", "SHOW TABLES ->> ABORT": "ABORT",
		"EXPLAIN COMMIT": "", "SELECT 1 --\r; COMMIT": "COMMIT",
	} {
		require.Equal(t, verb, Parse(sql).TxControl(), sql)
	}
}

func TestOnlyOneStatementThatRunsNoOthersIsAtomic(t *testing.T) {
	for _, sql := range []string{"SELECT 1", "SELEC 1", "SET a = 1", "WITH a AS (SELECT 1) INSERT INTO t FROM a", "COPY t FROM 'database'", "COPY t TO DATABASE", "COPY FROM", "COPY database FROM x", "COPY from FROM 'x'", "COPY TO DATABASE a",
		"PRAGMA copy_database = 'x'", "PRAGMA frob x",
		"PRAGMA version", "PRAGMA x = 1", "PRAGMA x", "PRAGMA enable_x('a')", "PRAGMA table_info('t')", "INSERT INTO t VALUES (nextval('s'))", "SELECT setseed", "ALTER TABLE t ADD COLUMN b INT", "ALTER TABLE t ALTER b SET DEFAULT 1", "ALTER TABLE t ADD COLUMN \"default\" INT"} {
		require.True(t, Parse(sql).Atomic(), sql)
	}
	for _, sql := range []string{"", "SET a = 1; SELEC 1", "CALL p()", "EXECUTE q", "DO $$ x $$", "EXPLAIN ANALYZE CALL p()", "SELECT 'a", "'a'", "COPY FROM DATABASE a TO b",
		"PRAGMA import_database('x')", "PRAGMA \"copy_database\"('a', 'b')", "FROM enable_profiling(format := 'x')", "SELECT setseed(0.5), error('x')", "SELECT @v := 1",
		"SELECT * FROM (DELETE FROM t RETURNING setseed(0.5))", "WITH a AS (SELECT setseed(0.5)) SELECT error('x') FROM a", "FROM query('FROM enable_logging()')",
		"SELECT * FROM (DELETE FROM t RETURNING setseed(0.5)), (DELETE FROM u RETURNING 1)", "SELECT setseed(0.5), nextval('s')",
		"ALTER TABLE t ADD COLUMN b INT DEFAULT f()", "alter table s.t add if not exists b int default 1"} {
		require.False(t, Parse(sql).Atomic(), sql)
	}
}

func TestWhatDuckDBRunsAsSeveralStatementsIsKnown(t *testing.T) {
	for _, sql := range []string{"ALTER TABLE t ADD b INT DEFAULT f()", "COPY FROM DATABASE a TO b", "CREATE TABLE n AS PIVOT t ON a", "SELECT 1; PIVOT t ON a", "PRAGMA import_database('x')", "CALL p()", "EXECUTE q", "SELECT 1; CALL p()", "SELECT '"} {
		require.True(t, Parse(sql).RunsInSteps(), sql)
	}
	for _, sql := range []string{"", "SELECT 1", "SELECT 1; SELECT 2", "ALTER TABLE t ADD b INT", "PIVOT t ON a IN (1)"} {
		require.False(t, Parse(sql).RunsInSteps(), sql)
	}
}

func TestWhatMayLeaveATransactionIsKnown(t *testing.T) {
	for sql, want := range map[string]bool{
		"ALTER TABLE t ADD b INT DEFAULT f()": true, "CALL p()": true, "INSERT INTO n PIVOT t ON a": true, "SELECT 1; EXPLAIN PIVOT t ON a": true, "EXPLAIN SELECT * FROM (PIVOT t ON a)": true,
		"PIVOT t ON a": false, "EXPLAIN PIVOT t ON a IN (1)": false, "EXPLAIN SELECT 1": false, "SELECT 'a\\'": false, "UPDATE t SET a = 1": false, "": false,
	} {
		require.Equal(t, want, Parse(sql).MayLeaveTx(), sql)
	}
}

func TestTheTargetOfAnInsertIsNamed(t *testing.T) {
	for sql, want := range map[string]string{
		"INSERT INTO t VALUES (?)": "t", `insert or replace into lake."my t" (a) VALUES (?)`: `lake."my t"`,
		"WITH a AS (SELECT 1) INSERT INTO a.b.c FROM a": "a.b.c", "UPDATE t SET a = 1": "", "INSERT": "",
	} {
		require.Equal(t, want, Parse(sql).Statements[0].InsertInto, sql)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"SELECT 1", "WITH a AS (SELECT 1) SELECT", "$a$b$a$", "E'\\", "/*/*", "\"", "1.2e3", "é日本 ; ;", "SET", "SELECT [1", "/*! x */", "SELECT 'a\\' # b",
		"EXPLAIN (ANALYZE) DELETE FROM t", "SELECT 1 --\rx", "(((", "WITH (", "PREPARE a AS", "FROM t INSERT"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		for _, d := range append([]dialect{standardDialect}, otherDialects...) {
			l := lexer{d: d, sql: sql}
			last := 0
			for _, tok := range l.scan() {
				if tok.start < last || tok.end <= tok.start || tok.end > len(sql) {
					t.Fatalf("token %+v out of order in %q", tok, sql)
				}
				last = tok.end
			}
		}
		s := Parse(sql)
		if s.ReadOnly() && (len(s.Effects()) > 0 || s.TxControl() != "") {
			t.Fatalf("a read leaves effects: %q", sql)
		}
		if strings.TrimSpace(sql) == "" && !s.Empty() {
			t.Fatalf("statements in a blank text %q", sql)
		}
		for _, change := range []string{"DELETE FROM t", "SET a = 1", "EXPLAIN (ANALYZE) DROP TABLE t", "nonsense"} {
			if Parse(sql + "\n;" + change).ReadOnly() {
				t.Fatalf("a read although it ends in %s: %q", change, sql)
			}
			if Parse(change + ";" + sql).ReadOnly() {
				t.Fatalf("a read although it begins with %s: %q", change, sql)
			}
		}
		if !s.ReadOnly() {
			return
		}
		for _, more := range []string{"-- c\n" + sql, sql + "\n-- c", "/* a\n */ " + sql, "\t\n;" + sql + "\n;", spaced(sql)} {
			if again := Parse(more); !again.ReadOnly() || again.Rows() != s.Rows() {
				t.Fatalf("%q is a read, %q is not", sql, more)
			}
		}
	})
}

// spaced is sql with a comment before each token.
func spaced(sql string) string {
	l := lexer{d: standardDialect, sql: sql}
	var b strings.Builder
	last := 0
	for _, tok := range l.scan() {
		b.WriteString(sql[last:tok.start])
		if tok.start > last || tok.kind != numberToken && (tok.start == 0 || !standardDialect.whitespace.isWordRune(rune(sql[tok.start-1]))) {
			b.WriteString(" /* c */ ")
		}
		b.WriteString(sql[tok.start:tok.end])
		last = tok.end
	}
	return b.String() + sql[last:]
}

func TestChangesWithinTooManyParenthesesAreNotUnderstood(t *testing.T) {
	nested := func(n int) string {
		return strings.Repeat("SELECT * FROM (DELETE FROM a WHERE b IN ", n) + "1" + strings.Repeat(")", n)
	}
	require.Empty(t, Parse(nested(maxNesting)).Effects())
	require.False(t, Parse(nested(maxNesting)).ReadOnly())
	require.Equal(t, "SELECT a b", Summary(nested(maxNesting)+strings.Repeat(" JOIN b", 1<<20)))
	require.Equal(t, []Effect{{Kind: EffectUnknown}}, Parse(nested(maxNesting+1)).Effects())
	require.False(t, Parse(nested(maxNesting+1)).ReadOnly())
	require.Equal(t, "?", Summary(nested(maxNesting+1)))
}

// What leaves something in the session is no plain read, although it reads only.
func TestAPlainReadLeavesNothing(t *testing.T) {
	for sql, plain := range map[string]bool{
		"SELECT 1": true, "SELECT 1; FROM t": true, "PIVOT t ON a IN (1)": true,
		"PIVOT t ON a": false, "SELECT setseed(0.5)": false, "INSERT INTO t VALUES (1)": false, "SET a = 1": false, "SELECT 1; DELETE FROM t": false,
	} {
		require.Equal(t, plain, Parse(sql).PlainRead(), sql)
	}
}

func TestVerbsAreThoseOfTheTable(t *testing.T) {
	all := Verbs()
	require.Len(t, all, len(verbs)+2)
	for _, v := range all {
		_, known := verbs[v]
		require.True(t, known || v == "WITH" || v == "PREPARE", v)
	}
}

// Only changes are counted, within parentheses that are open.
func TestDeepTextWithoutChangesIsUnderstood(t *testing.T) {
	deep := func(inner string) string {
		return "SELECT " + strings.Repeat("(", maxNesting+9) + inner + strings.Repeat(")", maxNesting+9)
	}
	require.True(t, Parse(deep("1")).ReadOnly())
	require.True(t, Parse(deep("CAST(a AS TIMESTAMP WITH TIME ZONE)")).ReadOnly())
	require.True(t, Parse("SELECT "+strings.Repeat("f() + ", maxNesting+9)+"(WITH a AS (SELECT 1) FROM a)").ReadOnly())
	require.False(t, Parse(deep("(WITH a AS (SELECT 1) FROM a)")).ReadOnly())
}
