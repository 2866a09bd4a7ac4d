package sqlscan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerbsRowsAndReads(t *testing.T) {
	for _, tc := range []struct {
		sql         string
		verb        string
		rows, reads bool
	}{
		{"SELECT 1", "SELECT", true, true},
		{"  -- INSERT\n/* DELETE /* nested */ UPDATE */ select 1;", "SELECT", true, true},
		{"(SELECT 1) UNION (SELECT 2)", "SELECT", true, true},
		{"VALUES (1), (2)", "VALUES", true, true},
		{"FROM flights SELECT origin", "FROM", true, true},
		{"WITH a AS (SELECT 1), b AS (SELECT ')') SELECT * FROM a, b", "SELECT", true, true},
		{"WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n+1 FROM t) SELECT n FROM t", "SELECT", true, true},
		{"WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "INSERT", false, false},
		{"WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone", "SELECT", true, false},
		{"INSERT INTO t VALUES ('SELECT')", "INSERT", false, false},
		{"INSERT INTO t VALUES (1) RETURNING id", "INSERT", true, false},
		{"UPDATE t SET a = 'x' WHERE t.returning = \"returning\"", "UPDATE", false, false},
		{"SELECT * INTO copy FROM t", "SELECT", false, false},
		{"SELECT (SELECT 'INTO') AS \"INTO\" FROM t", "SELECT", true, true},
		{"EXPLAIN SELECT 1", "EXPLAIN", true, true},
		{"EXPLAIN ANALYZE DELETE FROM t", "EXPLAIN", true, false},
		{"DESCRIBE t", "DESCRIBE", true, true},
		{"SHOW TABLES", "SHOW", true, true},
		{"PRAGMA version", "PRAGMA", true, false},
		{"CALL p()", "CALL", true, false},
		{"CREATE TABLE t AS SELECT 1", "CREATE", false, false},
		{"SELECT $$; DELETE FROM t; $$", "SELECT", true, true},
		{"SELECT $tag$ $$ ' $tag$, 'it''s', E'\\'; DROP', `a``b`", "SELECT", true, true},
		{"SELECT $1, $2", "SELECT", true, true},
		{"frobnicate everything", "FROBNICATE", false, false},
		{"'text'", "", false, false},
		{"WITH", "WITH", false, false},
		{"SELECT 'never closed ; DELETE FROM t", "SELECT", true, true},
		{"SELECT 1 /* never closed", "SELECT", true, true},
	} {
		s := Parse(tc.sql)
		require.Len(t, s.Statements, 1, tc.sql)
		require.Equal(t, tc.verb, s.Statements[0].Verb, tc.sql)
		require.Equal(t, tc.rows, s.ReturnsRows(), "rows: %s", tc.sql)
		require.Equal(t, tc.reads, s.ReadOnly(), "reads: %s", tc.sql)
	}
}

func TestEmptyTextHasNoStatement(t *testing.T) {
	for _, sql := range []string{"", " \n\t", ";", ";;", "-- only a comment", "/* only a comment */;"} {
		s := Parse(sql)
		require.True(t, s.Empty(), sql)
		require.False(t, s.ReadOnly(), sql)
		require.False(t, s.ReturnsRows(), sql)
	}
}

func TestScriptsAreReadsOnlyWhenEveryStatementIs(t *testing.T) {
	s := Parse("SELECT 1; SELECT 2")
	require.True(t, s.ReadOnly() && s.ReturnsRows())
	s = Parse("SELECT 1; DELETE FROM t; SELECT 2")
	require.False(t, s.ReadOnly())
	require.False(t, s.ReturnsRows(), "a script that writes runs for its effect")
	require.Len(t, s.Statements, 3)
}

func TestTransactionControlIsFoundInAScript(t *testing.T) {
	for sql, verb := range map[string]string{
		"BEGIN": "BEGIN", "start transaction": "START", "COMMIT": "COMMIT", "end": "END", "ROLLBACK TO a": "ROLLBACK", "ABORT": "ABORT",
		"SAVEPOINT a": "SAVEPOINT", "RELEASE SAVEPOINT a": "RELEASE", "INSERT INTO t VALUES (1); /* x */ COMMIT": "COMMIT",
		"SELECT 'COMMIT'": "", "SELECT 1 AS begin": "", "PREPARE q AS SELECT 1": "", "PREPARE TRANSACTION 'x'": "PREPARE",
		"SELECT CASE WHEN a THEN b END": "",
	} {
		require.Equal(t, verb, Parse(sql).TxControl(), sql)
	}
}

func TestEffectsNameWhatTheSessionKeeps(t *testing.T) {
	unknown := []Effect{{Kind: EffectUnknown}}
	for sql, want := range map[string][]Effect{
		"SELECT 1":                                  nil,
		"INSERT INTO t VALUES (1)":                  nil,
		"CREATE TABLE t (a INT)":                    nil,
		"CREATE OR REPLACE VIEW v AS SELECT 1":      nil,
		"DROP TABLE t":                              nil,
		"RESET threads":                             nil,
		"SET LOCAL a = 1":                           nil,
		"SET threads = 2":                           {{EffectSetting, "threads"}},
		"SET SESSION s3_region TO 'x'":              {{EffectSetting, "s3_region"}},
		"set \"Odd Name\"=1":                        {{EffectSetting, `"Odd Name"`}},
		"SET GLOBAL threads=1":                      unknown,
		"SET VARIABLE x = 1":                        unknown,
		"SET ROLE admin":                            unknown,
		"CREATE TEMP TABLE t(a int)":                {{EffectTempTable, "t"}},
		"create or replace temporary table T2(a)":   {{EffectTempTable, "T2"}},
		"CREATE TEMP TABLE IF NOT EXISTS s.t(a)":    {{EffectTempTable, "s.t"}},
		"CREATE TEMPORARY VIEW \"v w\" AS SELECT 1": {{EffectTempView, `"v w"`}},
		"CREATE TEMP MACRO m() AS 1":                unknown,
		"PREPARE q AS SELECT 1":                     {{EffectPrepared, "q"}},
		"USE a.b":                                   {{EffectUse, "a.b"}},
		"ATTACH 'x.db'":                             unknown,
		"LOAD icu":                                  unknown,
		"PRAGMA threads=4":                          unknown,
		"CALL p()":                                  unknown,
		"SET":                                       unknown,
		"CREATE TEMP TABLE":                         unknown,
		"SET a=1; CREATE TEMP TABLE b(c INT)":       {{EffectSetting, "a"}, {EffectTempTable, "b"}},
	} {
		require.Equal(t, want, Parse(sql).Effects(), sql)
	}
}

func FuzzParseNeverPanicsAndCoversTheText(f *testing.F) {
	for _, s := range []string{"SELECT 1", "WITH a AS (SELECT 1) SELECT", "$a$b$a$", "E'\\", "/*/*", "\"", "1.2e3", "é日本 ; ;", "SET"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		last := 0
		for _, tok := range scan(sql) {
			if tok.start < last || tok.end <= tok.start || tok.end > len(sql) {
				t.Fatalf("token %+v out of order in %q", tok, sql)
			}
			last = tok.end
		}
		s := Parse(sql)
		if s.ReadOnly() && len(s.Effects()) > 0 {
			t.Fatalf("a read leaves effects: %q", sql)
		}
		if strings.TrimSpace(sql) == "" && !s.Empty() {
			t.Fatalf("statements in a blank text %q", sql)
		}
	})
}
