package sqlscan

import "strings"

// classifyWith tells what a statement behind common table expressions does.
func classifyWith(toks []token, sql string) Statement {
	main := mainAfterWith(toks)
	if main < 0 {
		return unknownStatement("WITH")
	}
	st := classify(toks[main:], sql)
	st.ChangesInsideQuery = !st.ReadOnly
	st.addNested(toks[:main], sql)
	return st
}

// mainAfterWith is the index of the main statement, or -1. The list is
//
//	WITH [RECURSIVE] name [(column, …)] [USING KEY (…)] AS [[NOT] MATERIALIZED] (…) [SEARCH … | CYCLE …], …
//
// and in ClickHouse also WITH expression AS name. So the main statement begins
// with the first word outside of parentheses that can begin one and that does
// not stand where a name does: behind WITH, a comma or AS.
func mainAfterWith(toks []token) int {
	depth := 0
	for i, t := range toks {
		switch {
		case t.isPunct("("):
			if depth == 0 && i > 0 && toks[i-1].isPunct(")") {
				return i // WITH a AS (…) (SELECT …)
			}
			depth++
		case t.isPunct(")"):
			depth--
		case depth == 0 && i > 1 && t.kind == wordToken && verbs[t.text].afterWith &&
			!toks[i-1].is("WITH", "RECURSIVE", "AS") && !toks[i-1].isPunct(","):
			return i
		}
	}
	return -1
}

// classifyExplain tells what an EXPLAIN does. With ANALYZE in any form the
// statement is executed: DuckDB does so for (ANALYZE false) and ("analyze") too.
func classifyExplain(toks []token, sql string) Statement {
	st := Statement{Verb: toks[0].text, KnownVerb: true, Rows: RowsSome, ReadOnly: true}
	if !namesAny(toks[1:], "ANALYZE", "ANALYSE") {
		return st
	}
	inner := unknownStatement("")
	for i := 1; i < len(toks); i++ {
		if toks[i].isPunct("(") && (i+1 >= len(toks) || !verbs[toks[i+1].text].afterWith) {
			i = closingParen(toks, i+1) // of options
			continue
		}
		if _, ok := verbs[toks[i].text]; (ok && toks[i].kind == wordToken && !toks[i].is("ANALYZE", "ANALYSE")) || toks[i].is("WITH", "PREPARE") {
			inner = classify(toks[i:], sql)
			break
		}
	}
	st.ReadOnly, st.Effects, st.TxControl = inner.ReadOnly, inner.Effects, inner.TxControl
	st.ChangesInsideQuery = !inner.ReadOnly
	return st
}

// classifyPrepare tells PREPARE name AS statement from the first half of a commit
// in two phases.
func classifyPrepare(toks []token, sql string) Statement {
	st := Statement{Verb: "PREPARE", KnownVerb: true, Rows: RowsNone, Effects: namedEffect(EffectPrepared, toks, 1, sql)}
	for i, t := range toks {
		if t.is("AS", "FROM") && i+1 < len(toks) && toks[i+1].kind == wordToken {
			st.TxControl = classify(toks[i+1:], sql).TxControl
			break
		}
	}
	st.TxControl = st.TxControl || len(toks) > 1 && toks[1].is("TRANSACTION")
	return st
}

// hasEscapedName reports whether a name is written by the numbers of its characters, as PostgreSQL has
// it: U&"nextv\0061l", U&"nextv!0061l" UESCAPE '!'. What it names is not looked into.
func hasEscapedName(toks []token) bool {
	for i, t := range toks {
		if t.kind == quotedToken && unicodePrefix(t.text) > 0 && (strings.Contains(t.text, `\`) || i+1 < len(toks) && toks[i+1].is("UESCAPE")) {
			return true
		}
	}
	return false
}

// beginsChange tells "(DELETE FROM t" from a function or column of the name. A
// group that begins with WITH may end in a change.
func beginsChange(toks []token) bool {
	return toks[0].is("WITH") ||
		len(toks) > 1 && toks[1].isName() && toks[0].is("INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "UPSERT")
}
