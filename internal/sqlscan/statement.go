package sqlscan

// judge tells what one statement, which is not empty, does.
func judge(toks []token, sql string) Statement {
	for len(toks) > 0 && toks[0].punct("(") { // (SELECT …) UNION …
		toks = toks[1:]
	}
	if len(toks) == 0 || toks[0].kind != word {
		return unknown("")
	}
	switch toks[0].text {
	case "WITH":
		return judgeWith(toks, sql)
	case "EXPLAIN", "DESCRIBE", "DESC":
		return judgeExplain(toks, sql)
	case "PREPARE":
		return judgePrepare(toks, sql)
	default:
		st := judgeVerb(toks, sql)
		st.lookInside(toks, sql)
		return st
	}
}

// judgeVerb tells what a statement does by its verb's line in the table.
func judgeVerb(toks []token, sql string) Statement {
	v, ok := verbs[toks[0].text]
	if !ok {
		return unknown(toks[0].text)
	}
	st := Statement{Verb: toks[0].text, Known: true, Rows: v.rows, ReadOnly: v.reads, TxControl: v.tx}
	if v.look != nil {
		v.look(&st, toks, sql)
	}
	if v.leaves != nil && !st.ReadOnly {
		st.Effects = append(st.Effects, v.leaves(toks, sql)...)
	}
	return st
}

// lookInside finds what stands inside of a statement and does more than read: a
// change in a subquery or common table expression, or a function.
func (st *Statement) lookInside(toks []token, sql string) {
	for i := 1; i < len(toks); i++ {
		switch {
		case toks[i-1].punct("(") && beginsChange(toks[i:]):
			inner := judge(toks[i:closing(toks, i)], sql)
			st.ReadOnly = st.ReadOnly && inner.ReadOnly
			st.Effects = append(st.Effects, inner.Effects...)
		case toks[i].punct("(") && toks[i-1].name():
			if effects, changes := calls(toks[i-1], toks[i+1:]); changes {
				st.ReadOnly = false
				st.Effects = append(st.Effects, effects...)
			}
		case i > 2 && toks[i].punct("=") && toks[i-1].punct(":") && toks[i-3].punct("@"): // SELECT @v := 1
			st.ReadOnly = false
			st.Effects = append(st.Effects, Effect{Kind: EffectUnknown})
		}
	}
}

// beginsChange tells "(DELETE FROM t" from a function or column of the name. A
// group that begins with WITH may end in a change.
func beginsChange(toks []token) bool {
	return toks[0].is("WITH") ||
		len(toks) > 1 && toks[1].name() && toks[0].is("INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "UPSERT")
}

// closing is the index of the parenthesis that closes the group of which
// toks[from] is the first token, or the number of tokens.
func closing(toks []token, from int) int {
	depth := 0
	for i := from; i < len(toks); i++ {
		switch {
		case toks[i].punct("("):
			depth++
		case toks[i].punct(")"):
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return len(toks)
}

// judgeWith tells what a statement behind common table expressions does.
func judgeWith(toks []token, sql string) Statement {
	main := behindWith(toks)
	if main < 0 {
		return unknown("WITH")
	}
	st := judge(toks[main:], sql)
	st.Wrapped = !st.ReadOnly
	st.lookInside(toks[:main], sql)
	return st
}

// behindWith is the index of the main statement, or -1. The list is
//
//	WITH [RECURSIVE] name [(column, …)] [USING KEY (…)] AS [[NOT] MATERIALIZED] (…) [SEARCH … | CYCLE …], …
//
// and in ClickHouse also WITH expression AS name. So the main statement begins
// with the first word outside of parentheses that can begin one and that does
// not stand where a name does: behind WITH, a comma or AS.
func behindWith(toks []token) int {
	depth := 0
	for i, t := range toks {
		switch {
		case t.punct("("):
			if depth == 0 && i > 0 && toks[i-1].punct(")") {
				return i // WITH a AS (…) (SELECT …)
			}
			depth++
		case t.punct(")"):
			depth--
		case depth == 0 && i > 1 && t.kind == word && verbs[t.text].follows &&
			!toks[i-1].is("WITH", "RECURSIVE", "AS") && !toks[i-1].punct(","):
			return i
		}
	}
	return -1
}

// judgeExplain tells what an EXPLAIN does. With ANALYZE in any form the
// statement is executed: DuckDB does so for (ANALYZE false) too.
func judgeExplain(toks []token, sql string) Statement {
	st := Statement{Verb: toks[0].text, Known: true, Rows: RowsSome, ReadOnly: true}
	if !hasAny(toks[1:], "ANALYZE", "ANALYSE") {
		return st
	}
	inner := unknown("")
	for i := 1; i < len(toks); i++ {
		if toks[i].punct("(") && (i+1 >= len(toks) || !verbs[toks[i+1].text].follows) {
			i = closing(toks, i+1) // of options
			continue
		}
		if _, ok := verbs[toks[i].text]; (ok && toks[i].kind == word && !toks[i].is("ANALYZE", "ANALYSE")) || toks[i].is("WITH", "PREPARE") {
			inner = judge(toks[i:], sql)
			break
		}
	}
	st.ReadOnly, st.Effects, st.TxControl = inner.ReadOnly, inner.Effects, inner.TxControl
	st.Wrapped = !inner.ReadOnly
	return st
}

// judgePrepare tells PREPARE name AS statement from the first half of a commit
// in two phases.
func judgePrepare(toks []token, sql string) Statement {
	st := Statement{Verb: "PREPARE", Known: true, Rows: RowsNone, Effects: named(EffectPrepared, toks, 1, sql)}
	for i, t := range toks {
		if t.is("AS", "FROM") && i+1 < len(toks) && toks[i+1].kind == word {
			st.TxControl = judge(toks[i+1:], sql).TxControl
			break
		}
	}
	st.TxControl = st.TxControl || len(toks) > 1 && toks[1].is("TRANSACTION")
	return st
}

// hasTop reports whether one of the words stands outside parentheses.
func hasTop(toks []token, words ...string) bool { return top(toks, words...) >= 0 }

// top is the index of the first of the words outside parentheses, or -1.
func top(toks []token, words ...string) int {
	depth := 0
	for i, t := range toks {
		switch {
		case t.punct("("):
			depth++
		case t.punct(")"):
			depth--
		case depth <= 0 && t.is(words...) && (i == 0 || !toks[i-1].punct(".")):
			return i
		}
	}
	return -1
}

func hasAny(toks []token, words ...string) bool {
	for _, t := range toks {
		if t.is(words...) {
			return true
		}
	}
	return false
}
