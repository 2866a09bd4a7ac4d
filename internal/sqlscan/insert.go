package sqlscan

import (
	"strconv"
	"strings"
)

// insertsParams reports whether the rows of an INSERT are its parameters, one behind the other, which may be cast: in its
// VALUES, or in a SELECT of nothing else. Those of an ON CONFLICT behind them are among them, or it has none.
func insertsParams(toks []token) bool {
	if end := indexOutsideParens(toks, "RETURNING"); end >= 0 {
		toks = toks[:end]
	}
	at := indexOutsideParens(toks, "VALUES") + 1
	if at == 0 {
		at = indexOutsideParens(toks, "SELECT") + 1
		return at > 0 && paramsIn(toks[at:], 0) > 0
	}
	params := 0
	for at < len(toks) && toks[at].isPunct("(") {
		end := closingParen(toks, at+1)
		if params = paramsIn(toks[at+1:end], params); params == 0 {
			return false
		}
		if at = end + 1; at < len(toks) && toks[at].isPunct(",") {
			at++
		}
	}
	return params > 0 && (at >= len(toks) || toks[at].is("ON") && !hasParamBeyond(toks[at:], params)) // else a UNION or LIMIT
}

// hasParamBeyond reports whether there is another parameter than the first ones, of this number.
func hasParamBeyond(toks []token, first int) bool {
	for i, t := range toks {
		if !t.isPunct("?") && !t.isPunct("$") {
			continue
		}
		number := 0
		if i+1 < len(toks) && toks[i+1].kind == numberToken && toks[i+1].start == t.end {
			number, _ = strconv.Atoi(toks[i+1].text)
		}
		if number == 0 || number > first {
			return true
		}
	}
	return false
}

// columnList is the columns that an INSERT names behind its table, which begins at the token, without quotes; nil where there are none.
func columnList(toks []token, at int, sql string) (columns []string) {
	at = nameEnd(toks, at) + 1
	if at >= len(toks) || !toks[at].isPunct("(") {
		return nil
	}
	end := closingParen(toks, at+1)
	for at++; at < end; at += 2 {
		if !toks[at].isName() || at+1 < end && !toks[at+1].isPunct(",") {
			return nil
		}
		columns = append(columns, unquote(sql[toks[at].start:toks[at].end]))
	}
	return columns
}

// paramsIn is the number of the last parameter in a list of these alone, of which so many stand before. It is 0 for others.
func paramsIn(list []token, before int) int {
	for from := 0; from <= len(list); before++ {
		to := itemEnd(list, from)
		if !isParam(list[from:to], before+1) {
			return 0
		}
		from = to + 1
	}
	return before
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

// isTypeName reports whether the tokens are a type: a name, with what may stand behind one.
func isTypeName(toks []token) bool {
	for i, t := range toks {
		part := t.kind == numberToken || t.kind == punctToken && strings.Contains("()[],.", t.text) ||
			t.is("PRECISION", "VARYING", "UNSIGNED", "WITH", "WITHOUT", "TIME", "ZONE") || i > 0 && toks[i-1].isPunct(".") && t.isName()
		if i == 0 && !t.isName() || i > 0 && !part {
			return false
		}
	}
	return true
}
