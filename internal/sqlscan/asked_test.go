package sqlscan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Some servers run what they prepare, or begin a transaction for it.
func TestWhatRunsWhenItIsPreparedIsKnown(t *testing.T) {
	for sql, want := range map[string]struct{ leavesTx, runs bool }{
		"ALTER TABLE t ADD b INT DEFAULT f()": {true, true}, "IMPORT DATABASE 'x'": {true, true}, "COPY FROM DATABASE a TO b": {true, true}, "CREATE TABLE n AS PIVOT t ON a": {true, true},
		"EXPLAIN PIVOT t ON a": {true, true}, "EXPLAIN ANALYZE DELETE FROM t": {true, true}, "SELECT 1; IMPORT DATABASE 'x'": {true, true},
		"PIVOT t ON a":   {false, true},
		"EXPLAIN SELECT": {}, "CALL p()": {}, "EXECUTE q": {}, "SELECT 1": {}, "INSERT INTO t VALUES (1)": {}, "SELECT '": {}, "": {}, "PIVOT t ON a IN (1)": {}, "frobnicate": {},
	} {
		require.Equal(t, want.leavesTx, Parse(sql).MayLeaveTxWhenPrepared(), sql)
		require.Equal(t, want.runs, Parse(sql).RunsWhenPrepared(), sql)
	}
}

func TestWhichTextsMayChangeObjectsIsKnown(t *testing.T) {
	for sql, want := range map[string]struct{ objects, shared bool }{
		"CREATE TABLE t (a INT)": {true, true}, "ALTER TABLE t ADD b INT": {true, true}, "DROP TABLE t": {true, true}, "SELECT 1; DROP VIEW v": {true, true}, "CREATE VIEW v AS SELECT 1": {true, true},
		"CALL p()": {true, true}, "EXPLAIN ANALYZE CREATE TABLE t (a INT)": {true, true}, "CREATE TEMP TABLE a (b INT); CREATE TABLE c (d INT)": {true, true},
		"CREATE TEMP TABLE a AS PIVOT t ON b": {true, true}, "ATTACH 'x.db'": {false, true}, "SELECT 1; DETACH x": {false, true},
		"CREATE TEMP TABLE a (b INT)": {true, false}, "CREATE TEMPORARY VIEW v AS SELECT 1": {true, false},
		"INSERT INTO t VALUES (1)": {}, "SELECT 1": {}, "PIVOT t ON a": {}, "EXPLAIN DROP TABLE t": {}, "SET a = 1": {}, "": {},
	} {
		require.Equal(t, want.objects, Parse(sql).MayChangeObjects(), sql)
		require.Equal(t, want.shared, Parse(sql).MayChangeSharedObjects(), sql)
	}
}

func TestWhetherATextIsSQLIsKnown(t *testing.T) {
	for sql, want := range map[string]bool{
		"SELECT 1": true, "WITH a AS (SELECT 1) FROM a": true, "SELECT 1; DELETE FROM t": true, "PREPARE q AS SELECT 1": false,
		"flights": false, "SELECT 1; flights": false, "": false, "'x'": false,
	} {
		require.Equal(t, want, Parse(sql).IsSQL(), sql)
	}
}

func TestAScriptComputesRowsIfOneOfItsStatementsDoes(t *testing.T) {
	for sql, want := range map[string]bool{
		"INSERT INTO t SELECT ? + 1": true, "SELECT 1; INSERT INTO t SELECT ? + 1": true, "INSERT INTO t VALUES (?)": false, "SELECT ? + 1": false, "": false,
	} {
		require.Equal(t, want, Parse(sql).ComputesRows(), sql)
	}
}

func TestTheSettingThatATextBeginsWithMayRunAlone(t *testing.T) {
	for sql, want := range map[string]string{
		"SET gizmosql.query_timeout = 1; SELECT 1": "gizmosql.query_timeout", "SET SESSION GizmoSQL.x TO 1; DELETE FROM t; SELECT 1": "GizmoSQL.x", `SET LOCAL "gizmosql.x" = 1; SELECT 1`: `"gizmosql.x"`,
		"SET gizmosql.query_timeout = 1": "", "SELECT 1; SET gizmosql.query_timeout = 1": "", "SET threads = 1; SELECT 1": "", "SELECT 1; SELECT 2": "", "": "",
	} {
		require.Equal(t, want, Parse(sql).SettingRunAlone(), sql)
	}
}

func TestWhichEffectsAreSettings(t *testing.T) {
	settings := []EffectKind{EffectSetting, EffectSessionSetting, EffectImpliedSetting}
	for kind := EffectUnknown; kind <= EffectDeallocate; kind++ {
		require.Equal(t, kind == settings[0] || kind == settings[1] || kind == settings[2], Effect{Kind: kind}.IsSetting(), kind)
	}
	for name, key := range map[string]string{"Worker_Threads": "threads", "THREADS": "threads", `"max_memory"`: "memory_limit", "memory_limit": "memory_limit", "s3_region": "s3_region"} {
		require.Equal(t, key, Effect{Name: name}.SettingKey(), name)
	}
}
