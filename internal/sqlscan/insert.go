package sqlscan

import "strconv"

// insertsParams reports whether the rows of an INSERT are its parameters, one behind the other, which may be cast.
func insertsParams(toks []token) bool {
	at := indexOutsideParens(toks, "VALUES") + 1
	if at == 0 {
		return false
	}
	params := 0
	for at < len(toks) && toks[at].isPunct("(") {
		end := closingParen(toks, at+1)
		for from := at + 1; from <= end; params++ {
			to := itemEnd(toks[:end], from)
			if !isParam(toks[from:to], params+1) {
				return false
			}
			from = to + 1
		}
		if at = end + 1; at < len(toks) && toks[at].isPunct(",") {
			at++
		}
	}
	return params > 0
}

// itemEnd is the index of the comma that ends the item of a list which begins at from, or the number of tokens.
func itemEnd(toks []token, from int) int {
	for i, t := range outsideParens(toks[from:]) {
		if t.isPunct(",") {
			return from + i
		}
	}
	return len(toks)
}

// isParam reports whether an item is the parameter of a number: ?, $1, ?1, CAST(? AS type) or ?::type.
func isParam(item []token, number int) bool {
	if len(item) > 3 && item[0].is("CAST", "TRY_CAST") && item[1].isPunct("(") {
		rest := paramEnd(item[2:], number)
		return rest > 0 && 2+rest < len(item) && item[2+rest].is("AS") && closingParen(item, 2) == len(item)-1
	}
	end := paramEnd(item, number)
	return end > 0 && (end == len(item) || len(item) > end+2 && item[end].isPunct(":") && item[end+1].isPunct(":") && isTypeName(item[end+2:]))
}

// paramEnd is how many tokens the parameter of a number takes at the beginning, or 0.
func paramEnd(toks []token, number int) int {
	numbered := len(toks) > 1 && toks[1].kind == numberToken && toks[1].start == toks[0].end
	switch {
	case numbered && (toks[0].isPunct("$") || toks[0].isPunct("?")):
		if toks[1].text == strconv.Itoa(number) {
			return 2
		}
		return 0
	case len(toks) > 0 && toks[0].isPunct("?"):
		return 1
	default:
		return 0
	}
}

// isTypeName reports whether the tokens can be a type: a name, with numbers in parentheses or brackets behind it.
func isTypeName(toks []token) bool {
	for i, t := range toks {
		if i == 0 && !t.isName() || i > 0 && t.kind == stringToken || t.isPunct("+") || t.isPunct("-") || t.isPunct("*") || t.isPunct("/") || t.isPunct("|") || t.isPunct("?") || t.isPunct("%") {
			return false
		}
	}
	return true
}
