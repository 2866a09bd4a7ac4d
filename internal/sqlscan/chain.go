package sqlscan

// classifyChain is classifyWhole for statements that Snowflake's operator ->> makes one of: it runs each behind the
// one before, whose rows it reads by $1, and answers with those of the last.
func classifyChain(toks []token, sql string) Statement {
	at := nextOfChain(toks)
	st := classifyWhole(toks[:at], sql)
	for at < len(toks) {
		toks = toks[at+len(chainOperator):]
		at = nextOfChain(toks)
		next := classifyWhole(toks[:at], sql)
		st.Rows = next.Rows
		st.ReadOnly = st.ReadOnly && next.ReadOnly
		st.TxControl = st.TxControl || next.TxControl
		st.Effects = append(st.Effects, next.Effects...)
		st.ChangesInsideQuery = !st.ReadOnly
		st.RunsInSteps = !st.ReadOnly
	}
	return st
}

const chainOperator = "->>" // a token each

// nextOfChain is where the first ->> outside of parentheses stands before another statement, or the end. PostgreSQL and others
// have it for a member of a JSON value, whose name may be a verb's: what follows such a name goes on with the expression.
func nextOfChain(toks []token) int {
	for i := range outsideParens(toks) {
		if isChainOperator(toks[i:]) && beginsStatement(toks[i+len(chainOperator):]) {
			return i
		}
	}
	return len(toks)
}

func isChainOperator(toks []token) bool {
	if len(toks) < len(chainOperator) {
		return false
	}
	for i, c := range chainOperator {
		if !toks[i].isPunct(string(c)) || toks[i].start != toks[0].start+i {
			return false
		}
	}
	return true
}

// beginsStatement tells "INSERT INTO t" from a name that an expression goes on behind. A text that is neither for sure is taken for a statement.
func beginsStatement(toks []token) bool {
	if len(toks) == 0 || toks[0].kind != wordToken {
		return false
	}
	if _, isVerb := verbs[toks[0].text]; !isVerb && !toks[0].is("WITH", "PREPARE") {
		return false
	}
	if len(toks) == 1 || isChainOperator(toks[1:]) && beginsStatement(toks[1+len(chainOperator):]) {
		return toks[0].is("COMMIT", "ROLLBACK", "BEGIN")
	}
	switch next := toks[1]; next.kind {
	case punctToken:
		return next.isPunct("@") || toks[0].is("SELECT") || toks[0].is("VALUES", "SET") && next.isPunct("(") // else a function of the name, or its end
	case wordToken:
		return toks[0].is("WITH", "SELECT", "DELETE", "BEGIN", "CALL") || !next.is("AS", "AND", "OR", "IS", "IN", "NOT", "LIKE", "ILIKE", "SIMILAR", "BETWEEN", "COLLATE",
			"FROM", "WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH", "UNION", "INTERSECT", "EXCEPT", "ASC", "DESC", "NULLS",
			"THEN", "WHEN", "ELSE", "END", "JOIN", "LEFT", "RIGHT", "INNER", "CROSS", "FULL", "RETURNING", "FOR", "ON")
	default:
		return true
	}
}
