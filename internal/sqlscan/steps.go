package sqlscan

import (
	"slices"
	"strings"
)

// MayLeaveTx reports whether a server that is cut between the statements as which it runs one of the text may
// have left a transaction of its own open. DuckDB begins none for a PIVOT whose rows are asked for, and one where it
// is to explain it.
func (s Script) MayLeaveTx() bool {
	return s.RunsInSteps() && (!s.ReadOnly() || slices.ContainsFunc(s.Statements, func(st Statement) bool {
		return st.Verb == "EXPLAIN" && slices.Contains(st.Effects, Effect{Kind: EffectPivotType})
	}))
}

// MayLeaveTxWhenPrepared reports the same of a server that runs all but the last of those while it prepares the text, as
// one does that prepares by DuckDB's clients for Rust or Go: then the transaction waits for its COMMIT.
func (s Script) MayLeaveTxWhenPrepared() bool {
	return s.MayLeaveTx() && slices.ContainsFunc(s.Statements, func(st Statement) bool {
		return st.RunsInSteps || st.Verb == "IMPORT" || st.Verb == "EXPLAIN" || slices.Contains(st.Effects, Effect{Kind: EffectPivotType})
	})
}

// RunsWhenPrepared reports whether there are servers that run the text while they prepare it, the same ones, as GizmoSQL does
// whose rows are then those of its first execution, and which executes it no more.
func (s Script) RunsWhenPrepared() bool {
	return s.MayLeaveTxWhenPrepared() || slices.Contains(s.Effects(), Effect{Kind: EffectPivotType})
}

// ChangesInQuery reports whether the text changes something within what servers take for a query, by its first word: behind
// a WITH, in an EXPLAIN ANALYZE, by a function of a SELECT, by a PRAGMA.
func (s Script) ChangesInQuery() bool {
	return slices.ContainsFunc(s.Statements, func(st Statement) bool {
		return !st.ReadOnly && (st.ChangesInsideQuery || verbs[st.Verb].readOnly || st.Verb == "WITH" || st.Verb == "PRAGMA")
	})
}

// ComputesRows reports whether the text is an INSERT whose rows are not its parameters alone, in their order.
func (s Script) ComputesRows() bool {
	return slices.ContainsFunc(s.Statements, func(st Statement) bool { return st.ComputesRows })
}

// SettingRunAlone is the setting of GizmoSQL's own that a text of several statements begins with: of such a text that server
// sets it, and confirms what stands behind without running it. Empty of any other text.
func (s Script) SettingRunAlone() string {
	if len(s.Statements) < 2 {
		return ""
	}
	if name := s.Statements[0].Sets; strings.HasPrefix(Effect{Name: name}.Key(), "gizmosql.") {
		return name
	}
	return ""
}

func (st Statement) mayRunOthers() bool {
	switch st.Verb {
	case "", "CALL", "EXEC", "EXECUTE", "DO", "DECLARE", "IMPORT", "EXPLAIN":
		return true
	default:
		return st.RunsInSteps || slices.Contains(st.Effects, Effect{Kind: EffectPivotType})
	}
}
