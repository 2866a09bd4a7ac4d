package session

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/sqlscan"
)

func effectsOf(texts ...string) (d sideEffects) {
	for _, sql := range texts {
		d.add(sqlscan.Parse(sql), true, false)
	}
	return d
}

func TestWhatMayHaveChangedObjectsIsRemembered(t *testing.T) {
	for sql, changed := range map[string]bool{
		"CREATE TABLE t (a INT)": true, "ALTER TABLE t ADD b INT": true, "DROP TABLE t": true, "SELECT 1; DROP VIEW v": true,
		"INSERT INTO t VALUES (1)": false, "SELECT 1": false, "SET threads = 1": false, "EXPLAIN ANALYZE DROP TABLE t": true, `EXPLAIN ("analyze") DROP VIEW v`: true, "EXPLAIN DROP TABLE t": false,
		"SELECT 1 --\r; DROP TABLE t": true, "FROM (PIVOT t ON a)": false,
	} {
		require.Equal(t, changed, effectsOf(sql).changedObjects, sql)
		require.Equal(t, changed, effectsOf(sql, "SELECT 1", "INSERT INTO t VALUES (1)").changedObjects, "%s, and others behind it", sql)
	}
}

func TestASessionDiffersFromANewOneByAnyOfItsEffects(t *testing.T) {
	e := []sqlscan.Effect{{Kind: sqlscan.EffectSetting, Name: "threads"}}
	one := map[string]any{"a": 1}
	for name, d := range map[string]sideEffects{
		"an effect":            {effects: e},
		"a refused setting":    {refusedSettings: e},
		"an option":            {options: one},
		"effect and refusal":   {effects: e, refusedSettings: e},
		"effect and option":    {effects: e, options: one},
		"refusal and option":   {refusedSettings: e, options: one},
		"a move":               {mayHaveMoved: true},
		"a move and an option": {mayHaveMoved: true, options: one},
	} {
		require.True(t, d.any(), name)
	}
	require.False(t, (&sideEffects{used: true, changedObjects: true}).any())
}

func TestTheCallerChangesTheNamespaceByOptionsAndStatements(t *testing.T) {
	for sql, changed := range map[string]bool{"USE lake": true, "SET schema = 'a'": true, "SET threads = 1": false, "CREATE TEMP TABLE t (a INT)": false} {
		d := effectsOf(sql)
		require.Equal(t, changed, d.namespaceChangedByCaller(), sql)
	}
	require.True(t, (&sideEffects{options: map[string]any{"schema": "a"}}).namespaceChangedByCaller())
}

// DEALLOCATE takes one back that the session has prepared itself. Another one was there
// before, and cannot be had again.
func TestDeallocateTakesBackWhatWasPrepared(t *testing.T) {
	kinds := func(d sideEffects) (kinds []sqlscan.EffectKind) {
		for _, e := range d.effects {
			kinds = append(kinds, e.Kind)
		}
		return kinds
	}
	const p, replaced, unknown = sqlscan.EffectPrepared, sqlscan.EffectDeallocate, sqlscan.EffectUnknown
	begunWith := func(had string) sideEffects {
		return sideEffects{initial: map[string]stateValues{"(prepared) a": {{text: had}}}}
	}
	require.Equal(t, []sqlscan.EffectKind{p}, kinds(effectsOf("PREPARE a AS SELECT 1")))
	for had, want := range map[string][]sqlscan.EffectKind{"0": nil, "1": {replaced}} {
		d := begunWith(had)
		d.add(sqlscan.Parse("PREPARE a AS SELECT 1"), true, false)
		d.add(sqlscan.Parse("DEALLOCATE A"), true, false)
		require.Equal(t, want, kinds(d), "it began with %s", had)
	}
	require.Equal(t, []sqlscan.EffectKind{replaced}, kinds(effectsOf("PREPARE a AS SELECT 1", "DEALLOCATE a")), "nobody knows what it began with")
	require.Equal(t, []sqlscan.EffectKind{replaced}, kinds(effectsOf("PREPARE a AS SELECT 1", "DEALLOCATE a", "PREPARE a AS SELECT 1", "DEALLOCATE a")), "once is enough")
	require.Equal(t, []sqlscan.EffectKind{p, unknown}, kinds(effectsOf("PREPARE a AS SELECT 1", "DEALLOCATE b")))
	require.Equal(t, []sqlscan.EffectKind{p, replaced}, kinds(effectsOf("PREPARE b AS SELECT 1", "PREPARE a AS SELECT 1", "DEALLOCATE a")))
	require.Equal(t, []sqlscan.EffectKind{sqlscan.EffectTempTable, unknown}, kinds(effectsOf("CREATE TEMP TABLE a (x INT)", "DEALLOCATE a")))
	left := effectsOf("PREPARE a AS SELECT 1")
	left.add(sqlscan.Parse("DEALLOCATE a"), false, false)
	require.Equal(t, []sqlscan.EffectKind{p}, kinds(left), "it may not have run")
}

// What a server runs as several statements leaves the setting that it makes between them, if it
// fails in a transaction.
func TestWhatFailsBetweenItsStepsLeavesASetting(t *testing.T) {
	const steps = "ALTER TABLE t ADD b INT DEFAULT f()"
	for sql, want := range map[string]bool{steps: true, "SELECT 1; SELECT error('x')": false} {
		for _, done := range []bool{false, true} {
			for _, inTx := range []bool{false, true} {
				var d sideEffects
				d.add(sqlscan.Parse(sql), done, inTx)
				require.Equal(t, want && !done && inTx, slices.Contains(d.effects, sqlscan.TxPolicy()), "%s, done: %t, in a transaction: %t", sql, done, inTx)
			}
		}
	}
}

// A refused SET may have changed its setting all the same, where the server has the setting.
func TestARefusedStatementLeavesSettingsAtMost(t *testing.T) {
	known := map[string]stateValues{}
	for _, e := range sqlscan.Parse("SET threads = 1; USE lake; PREPARE a AS SELECT 1").Effects() {
		known[settingQuery(e).key] = nil
	}
	for sql, want := range map[string]int{"SET threads = 1": 1, "SET memory = 1": 0, "USE lake": 0, "PREPARE a AS SELECT 1": 0} {
		d := sideEffects{initial: known}
		d.addRefused(sqlscan.Parse(sql), false)
		require.Len(t, d.refusedSettings, want, sql)
		require.Empty(t, d.effects, sql)
		require.False(t, d.used, sql)
	}
}

// Where nothing is read before, a refused SET leaves what it names, and nothing else does; what a refused read has not done
// takes nothing from what was done before.
func TestARefusedStatementWhereNothingIsReadBefore(t *testing.T) {
	for sql, want := range map[string]struct {
		effects int
		used    bool
	}{"SET threads = 1": {1, true}, "USE lake": {0, true}, "PREPARE a AS SELECT 1": {0, true}, "INSERT INTO t VALUES (1)": {0, true}, "SELECT 1": {}} {
		var d sideEffects
		d.addRefused(sqlscan.Parse(sql), true)
		require.Len(t, d.effects, want.effects, sql)
		require.Equal(t, want.used, d.used, sql)
		d = sideEffects{used: true}
		d.addRefused(sqlscan.Parse(sql), true)
		require.True(t, d.used, sql)
	}
}

// A prepared statement or a table may have the name of a setting.
func TestWhatIsNamedLikeASettingIsNone(t *testing.T) {
	d := effectsOf("PREPARE threads AS SELECT 1", "CREATE TEMP TABLE threads (a INT)")
	d.initial = map[string]stateValues{"threads": {{text: "3"}}}
	require.Empty(t, d.leftSettings())
	require.Equal(t, changedValues{}, d.changedValues("threads"))
	d = effectsOf("PREPARE zone AS SELECT 1", "SET SESSION zone = 'Oslo'", "SET threads = 1")
	require.Equal(t, changedValues{own: true}, d.changedValues("zone"))
	require.Equal(t, changedValues{anyones: true}, d.changedValues("threads"))
}

// PostgreSQL sets any name with a dot, so that having told another setting says nothing of it.
func TestANameWithADotNeedBeNoSettingOfTheServers(t *testing.T) {
	for sql, want := range map[string]bool{"SET threads = 1": true, "SET my.app = 1": false} {
		require.Equal(t, want, settingQuery(sqlscan.Parse(sql).Effects()[0]).setting, sql)
	}
}
