package sqlscan

// pivotsByData reports whether a PIVOT of the statement, wherever it stands,
// takes its columns from the data. DuckDB makes a temporary type of their values
// then, before anything else of the statement, and keeps it.
func pivotsByData(toks []token) bool {
	for i, t := range toks {
		if t.is("PIVOT", "PIVOT_WIDER") && takesColumnsFromData(toks[i+1:closingParen(toks, i+1)]) {
			return true
		}
	}
	return false
}

// takesColumnsFromData reports whether a column behind ON has no list of values. toks
// is what follows a PIVOT in its parentheses.
func takesColumnsFromData(toks []token) bool {
	at := indexOutsideParens(toks, "ON")
	if at < 0 {
		return false
	}
	toks = toks[at+1:]
	if end := indexOutsideParens(toks, "USING", "GROUP", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT"); end >= 0 {
		toks = toks[:end]
	}
	start := 0
	for i, t := range outsideParens(toks) {
		if !t.isPunct(",") {
			continue
		}
		if !endsInValues(toks[start:i]) {
			return true
		}
		start = i + 1
	}
	return !endsInValues(toks[start:])
}

// endsInValues tells "a IN (1, 2)", or "a IN type", from an expression that only
// contains an IN, and from "a IN (SELECT …)".
func endsInValues(toks []token) bool {
	at := indexOutsideParens(toks, "IN")
	if at < 0 || at+1 == len(toks) {
		return false
	}
	if toks[at+1].isPunct("(") {
		return closingParen(toks, at+2) == len(toks)-1 && !hasAny(toks[at+2:], "SELECT", "FROM", "VALUES", "TABLE", "WITH")
	}
	return nameEnd(toks, at+1) == len(toks)-1
}
