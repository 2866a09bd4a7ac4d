package sqlscan

import "iter"

// classify tells what one statement, which is not empty, does.
func classify(toks []token, sql string) Statement {
	for len(toks) > 0 && toks[0].isPunct("(") { // (SELECT …) UNION …
		toks = toks[1:]
	}
	if len(toks) == 0 || toks[0].kind != wordToken {
		return unknownStatement("")
	}
	switch toks[0].text {
	case "WITH":
		return classifyWith(toks, sql)
	case "EXPLAIN", "DESCRIBE", "DESC":
		return classifyExplain(toks, sql)
	case "PREPARE":
		return classifyPrepare(toks, sql)
	default:
		st := classifyByVerb(toks, sql)
		st.addNested(toks, sql)
		return st
	}
}

// classifyByVerb tells what a statement does by its verb's line in the table.
func classifyByVerb(toks []token, sql string) Statement {
	v, ok := verbs[toks[0].text]
	if !ok {
		return unknownStatement(toks[0].text)
	}
	st := Statement{Verb: toks[0].text, KnownVerb: true, Rows: v.rows, ReadOnly: v.readOnly, TxControl: v.tx}
	if v.refine != nil {
		v.refine(&st, toks, sql)
	}
	if v.effects != nil && !st.ReadOnly {
		st.Effects = append(st.Effects, v.effects(toks, sql)...)
	}
	return st
}

// addNested finds what stands inside of a statement and does more than read: a
// change in a subquery or common table expression, or a function.
func (st *Statement) addNested(toks []token, sql string) {
	for i := 1; i < len(toks); i++ {
		switch {
		case toks[i-1].isPunct("(") && beginsChange(toks[i:]):
			inner := classify(toks[i:closingParen(toks, i)], sql)
			st.ReadOnly = st.ReadOnly && inner.ReadOnly
			st.Effects = append(st.Effects, inner.Effects...)
		case toks[i].isPunct("(") && toks[i-1].isName():
			if effects, changes := functionEffects(toks[i-1], toks[i+1:]); changes {
				st.ReadOnly = false
				st.Effects = append(st.Effects, effects...)
			}
		case i > 2 && toks[i].isPunct("=") && toks[i-1].isPunct(":") && toks[i-3].isPunct("@"): // SELECT @v := 1
			st.ReadOnly = false
			st.Effects = append(st.Effects, Effect{Kind: EffectUnknown})
		}
	}
}

// beginsChange tells "(DELETE FROM t" from a function or column of the name. A
// group that begins with WITH may end in a change.
func beginsChange(toks []token) bool {
	return toks[0].is("WITH") ||
		len(toks) > 1 && toks[1].isName() && toks[0].is("INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "UPSERT")
}

// closingParen is the index of the parenthesis that closes the group of which
// toks[from] is the first token, or the number of tokens.
func closingParen(toks []token, from int) int {
	depth := 0
	for i := from; i < len(toks); i++ {
		switch {
		case toks[i].isPunct("("):
			depth++
		case toks[i].isPunct(")"):
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return len(toks)
}

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
// statement is executed: DuckDB does so for (ANALYZE false) too.
func classifyExplain(toks []token, sql string) Statement {
	st := Statement{Verb: toks[0].text, KnownVerb: true, Rows: RowsSome, ReadOnly: true}
	if !hasAny(toks[1:], "ANALYZE", "ANALYSE") {
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

// hasOutsideParens reports whether one of the words stands outside parentheses.
func hasOutsideParens(toks []token, words ...string) bool {
	return indexOutsideParens(toks, words...) >= 0
}

// indexOutsideParens is the index of the first of the words outside parentheses, or -1.
func indexOutsideParens(toks []token, words ...string) int {
	for i, t := range outsideParens(toks) {
		if t.is(words...) && (i == 0 || !toks[i-1].isPunct(".")) {
			return i
		}
	}
	return -1
}

// outsideParens are the tokens that stand outside parentheses, with their indices.
func outsideParens(toks []token) iter.Seq2[int, token] {
	return func(yield func(int, token) bool) {
		depth := 0
		for i, t := range toks {
			switch {
			case t.isPunct("("):
				depth++
			case t.isPunct(")"):
				depth--
			case depth <= 0 && !yield(i, t):
				return
			}
		}
	}
}

func hasAny(toks []token, words ...string) bool {
	for _, t := range toks {
		if t.is(words...) {
			return true
		}
	}
	return false
}
