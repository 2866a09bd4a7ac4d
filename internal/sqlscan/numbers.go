package sqlscan

import (
	"slices"
	"strconv"
	"strings"
)

// NumberedParam is a parameter $2, $1 or ?2 at one of its places in a text.
type NumberedParam struct {
	Number int
	beside [2]string // the names that stand before it, with its operator or list between, and behind it; empty: there is none
}

// NumberedParams are those of a text in their order, each as often as it stands there. Those without a number are not among them.
func NumberedParams(sql string) (params []NumberedParam) {
	l := lexer{d: standardDialect, sql: sql}
	toks := l.scan()
	before := ""
	for i, t := range toks[:max(len(toks)-1, 0)] {
		before = nameBefore(before, t, sql)
		next := toks[i+1]
		if !t.isPunct("$") && !t.isPunct("?") || next.kind != numberToken || next.start != t.end {
			continue
		}
		if number, err := strconv.Atoi(next.text); err == nil {
			params = append(params, NumberedParam{number, [2]string{before, comparedWith(toks[i+2:], sql)}})
		}
	}
	return params
}

// IsBeside reports whether a column stands beside the parameter, as that which it is set to or compared with.
func (p NumberedParam) IsBeside(column string) bool {
	return column != "" && slices.ContainsFunc(p.beside[:], func(name string) bool { return strings.EqualFold(unquote(name), column) })
}

// nameBefore is the name that stands before what comes next, behind a token: what is in parentheses and words that lead to a parameter
// are none, and other parameters may stand between.
func nameBefore(before string, t token, sql string) string {
	switch {
	case t.isPunct(")") || t.kind == stringToken:
		return ""
	case t.isName() && !t.is("IN", "BETWEEN", "AND", "CAST", "TRY_CAST"):
		return sql[t.start:t.end]
	default:
		return before
	}
}

// comparedWith is the name that the parameter before the tokens is compared with, without what it is qualified with.
func comparedWith(toks []token, sql string) string {
	at := 0
	for at < len(toks) && toks[at].kind == punctToken && strings.Contains("<=>!", toks[at].text) {
		at++
	}
	if at == 0 || at == len(toks) || !toks[at].isName() {
		return ""
	}
	last := toks[nameEnd(toks, at)]
	return sql[last.start:last.end]
}
