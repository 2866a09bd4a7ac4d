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
	var before leadingName
	for i, t := range toks[:max(len(toks)-1, 0)] {
		before.read(t, sql)
		next := toks[i+1]
		if !t.isPunct("$") && !t.isPunct("?") || next.kind != numberToken || next.start != t.end {
			continue
		}
		if number, err := strconv.Atoi(next.text); err == nil {
			params = append(params, NumberedParam{number, [2]string{before.ofParam(), comparedWith(toks[i+2:], sql)}})
		}
	}
	return params
}

// IsBeside reports whether a column stands beside the parameter, as that which it is set to or compared with.
func (p NumberedParam) IsBeside(column string) bool {
	return column != "" && slices.ContainsFunc(p.beside[:], func(name string) bool { return strings.EqualFold(unquote(name), column) })
}

// leadingName is the name that stands before what comes next in a text, while nothing but an operator, or what leads into a list or range,
// stands between the two.
type leadingName struct {
	name          string
	leads         bool // such a one is there: else what comes next stands beside nothing
	list, between bool // the list may go on behind a comma, the range behind an AND
}

func (l *leadingName) ofParam() string {
	if !l.leads {
		return ""
	}
	return l.name
}

// read takes in the next token. Other parameters, and numbers, may stand between. The arguments of a function, and what another condition
// begins with, have no name before them.
func (l *leadingName) read(t token, sql string) {
	switch {
	case t.is("CAST", "TRY_CAST"), t.kind == numberToken, t.isPunct("."), t.isPunct("$"), t.isPunct("?"), t.isPunct("(") && l.leads, t.isPunct(",") && l.list:
	case t.is("IN"):
		l.leads, l.list = true, true
	case t.is("BETWEEN"):
		l.leads, l.between = true, true
	case t.is("AND") && l.between:
		l.between = false
	case t.isName() && !t.is("AND"):
		*l = leadingName{name: sql[t.start:t.end]}
	case t.kind == punctToken && strings.Contains("<=>!+-*/%|&^~", t.text):
		l.leads = true
	default:
		*l = leadingName{}
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
