package sqlscan

import (
	"strings"
	"unicode/utf8"
)

// Bounds of a summary, and of what is read for it, in bytes.
const (
	maxSummary    = 200
	maxSummarized = 16 << 10
)

// Summary is what a text does, to what, without a value in it: "SELECT flights airports",
// "INSERT orders; SELECT". It has the verbs that are known, and the unquoted names that
// stand behind FROM, JOIN, INTO, UPDATE and TABLE.
//
// A text that a server may cut otherwise has its first verb only, since what is a name
// here may be part of a literal there. So may a quoted name be. What is not known is "?".
// A text that is not UTF-8 is one of these, and its summary is UTF-8 like any other:
// exporters of telemetry refuse all that they have been given for one text that is not.
func Summary(sql string) string {
	l := lexer{d: standardDialect, sql: sql[:beginning(sql)]}
	toks := l.scan()
	if len(l.sql) < len(sql) && len(toks) > 0 {
		toks = toks[:len(toks)-1] // it may be cut short
	}
	unclear := l.ambiguous || l.unclosed != "" || !utf8.ValidString(l.sql) || isCutOtherwise(toks, sql)
	var out strings.Builder
	out.Grow(32) // of most
	for i, toks := range split(toks) {
		if i > 0 {
			if unclear || out.Len() > maxSummary {
				return out.String() + "; …"
			}
			out.WriteString("; ")
		}
		st := classifyWhole(toks, sql)
		if !st.KnownVerb {
			out.WriteString("?")
			continue
		}
		out.WriteString(st.Verb)
		if !unclear {
			writeNames(&out, toks, sql)
		}
	}
	return out.String()
}

// beginning is how much of a text is looked at: no character is cut in two.
func beginning(sql string) int {
	n := min(len(sql), maxSummarized)
	for n < len(sql) && n > maxSummarized-utf8.UTFMax && !utf8.RuneStart(sql[n]) {
		n--
	}
	return n
}

// isCutOtherwise finds what no dialect here has: literals with a prefix (BigQuery's r'…',
// Oracle's q'[…]') or three quotes, [names], // comments, and the rows of ClickHouse's
// INSERT … FORMAT.
func isCutOtherwise(toks []token, sql string) bool {
	for i := 1; i < len(toks); i++ {
		t, next := toks[i-1], toks[i]
		comment := t.isPunct("/") && sql[t.end] == '/' // also of what is the beginning of /* here
		prefix := t.end == next.start && t.kind == wordToken && (next.kind == stringToken || next.kind == quotedToken)
		if t.isPunct("[") || comment || prefix {
			return true
		}
	}
	return strings.Contains(sql, `'''`) || strings.Contains(sql, `"""`) || hasAny(toks, "INSERT") && hasAny(toks, "FORMAT")
}

// writeNames writes the names of a statement, each once.
func writeNames(out *strings.Builder, toks []token, sql string) {
	written := map[string]bool{}
	for i := range toks {
		name := nameBehind(toks[i:], sql)
		if name == "" || written[name] || i > 0 && toks[i-1].is("DISTINCT") { // IS DISTINCT FROM value
			continue
		}
		if out.Len()+len(name) > maxSummary {
			out.WriteString(" …")
			return
		}
		written[name] = true
		out.WriteByte(' ')
		out.WriteString(name)
	}
}

// nameBehind is the name that stands behind the first token, or empty.
func nameBehind(toks []token, sql string) string {
	if !toks[0].is("FROM", "JOIN", "INTO", "UPDATE", "TABLE") {
		return ""
	}
	toks = toks[1:]
	for len(toks) > 0 && toks[0].is("TABLE", "ONLY", "IF", "NOT", "EXISTS") {
		toks = toks[1:]
	}
	if len(toks) == 0 || toks[0].kind != wordToken || toks[0].is("SELECT", "SET", "VALUES", "LATERAL") {
		return ""
	}
	n := 1
	for n+1 < len(toks) && toks[n].isPunct(".") && toks[n+1].kind == wordToken {
		n += 2
	}
	return sql[toks[0].start:toks[n-1].end]
}
