package sqlscan

import "strings"

// maxSummary bounds a summary, in bytes.
const maxSummary = 200

// Summary is what a text does, to what, without a value in it: "SELECT flights airports",
// "INSERT orders; SELECT". It has the verbs that are known, and the unquoted names that
// stand behind FROM, JOIN, INTO, UPDATE and TABLE.
//
// A text that a dialect may cut otherwise has its first verb only, since what is a name
// here may be part of a literal there. So may a quoted name be. What is not known is "?".
func Summary(sql string) string {
	l := lexer{d: standardDialect, sql: sql}
	statements := split(l.scan())
	unclear := l.ambiguous || l.unclosed != "" || strings.Contains(sql, `'''`) || strings.Contains(sql, `"""`)
	var out strings.Builder
	for i, toks := range statements {
		if i > 0 {
			if unclear || out.Len() > maxSummary {
				return out.String() + "; …"
			}
			out.WriteString("; ")
		}
		st := classify(toks, sql)
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

// writeNames writes the names of a statement, each once.
func writeNames(out *strings.Builder, toks []token, sql string) {
	written := map[string]bool{}
	for i := range toks {
		name := nameBehind(toks[i:], sql)
		if name == "" || written[name] {
			continue
		}
		if out.Len()+len(name) > maxSummary {
			out.WriteString(" …")
			return
		}
		written[name] = true
		out.WriteString(" " + name)
	}
}

// nameBehind is the name that stands behind the first token, or empty. A word that is
// joined to a literal is a part of it.
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
	end := toks[n-1].end
	if n < len(toks) && toks[n].kind == stringToken && toks[n].start == end {
		return ""
	}
	return sql[toks[0].start:end]
}
