package sqlscan

// Script is what a SQL text of one or more statements does.
type Script struct {
	Statements []Statement
}

// Statement is one statement of a Script.
type Statement struct {
	Verb string // leading verb in upper case, of the main statement behind a WITH; empty for an empty statement

	// ReturnsRows says that the statement answers with a result set.
	ReturnsRows bool

	// ReadOnly says that running it twice is the same as running it once,
	// as far as its text tells: functions may still have effects.
	ReadOnly bool

	// TxControl says that it begins or ends a transaction or savepoint.
	TxControl bool

	// Effects is what it leaves behind in the session.
	Effects []Effect
}

// Parse judges sql.
func Parse(sql string) Script {
	var s Script
	for _, toks := range split(scan(sql)) {
		s.Statements = append(s.Statements, judge(toks, sql))
	}
	return s
}

// Empty reports whether there is no statement in the text.
func (s Script) Empty() bool { return len(s.Statements) == 0 }

// ReadOnly reports whether every statement only reads.
func (s Script) ReadOnly() bool {
	for _, st := range s.Statements {
		if !st.ReadOnly {
			return false
		}
	}
	return len(s.Statements) > 0
}

// ReturnsRows reports whether the text answers with a result set: a single
// statement that does, or several that all only read. A script that changes
// anything is run for its effect, once.
func (s Script) ReturnsRows() bool {
	switch len(s.Statements) {
	case 0:
		return false
	case 1:
		return s.Statements[0].ReturnsRows
	default:
		return s.ReadOnly() && s.Statements[len(s.Statements)-1].ReturnsRows
	}
}

// TxControl is the verb of the first statement that begins or ends a
// transaction or savepoint, or empty.
func (s Script) TxControl() string {
	for _, st := range s.Statements {
		if st.TxControl {
			return st.Verb
		}
	}
	return ""
}

// Effects is what the whole text leaves behind in the session, in order.
func (s Script) Effects() []Effect {
	var out []Effect
	for _, st := range s.Statements {
		out = append(out, st.Effects...)
	}
	return out
}

// split cuts the tokens at the semicolons; empty statements are dropped.
func split(toks []token) [][]token {
	var out [][]token
	start := 0
	for i, t := range toks {
		if t.punct(";") {
			if i > start {
				out = append(out, toks[start:i])
			}
			start = i + 1
		}
	}
	if start < len(toks) {
		out = append(out, toks[start:])
	}
	return out
}

// judge tells what one statement, which is not empty, does.
func judge(toks []token, sql string) Statement {
	for len(toks) > 0 && toks[0].punct("(") { // (SELECT …) UNION …
		toks = toks[1:]
	}
	if len(toks) == 0 || toks[0].kind != word {
		return Statement{Effects: []Effect{{Kind: EffectUnknown}}}
	}
	main, writes := mainStatement(toks)
	if len(main) == 0 {
		return Statement{Verb: toks[0].text, Effects: []Effect{{Kind: EffectUnknown}}}
	}
	st := Statement{Verb: main[0].text}
	st.ReturnsRows, st.ReadOnly = rowsAndReads(main)
	if writes {
		st.ReadOnly = false
	}
	st.TxControl = txControl(main)
	if !st.ReadOnly && !st.TxControl {
		st.Effects = effects(main, sql)
	}
	return st
}

// mainStatement skips the common table expressions of a WITH. It reports
// whether one of them writes.
func mainStatement(toks []token) (main []token, writes bool) {
	if !toks[0].is("WITH") {
		return toks, false
	}
	depth := 0
	for i, t := range toks {
		switch {
		case t.punct("("):
			depth++
			if i+1 < len(toks) && toks[i+1].is("INSERT", "UPDATE", "DELETE", "MERGE") {
				writes = true
			}
		case t.punct(")"):
			depth--
		case depth == 0 && i > 0 && t.is("SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "VALUES", "TABLE", "FROM", "PIVOT", "UNPIVOT") &&
			!toks[i-1].is("WITH", "RECURSIVE") && !toks[i-1].punct(","):
			return toks[i:], writes
		}
	}
	return nil, writes
}

var (
	readVerbs  = set("SELECT", "VALUES", "TABLE", "FROM", "SHOW", "DESCRIBE", "DESC", "SUMMARIZE", "PIVOT", "UNPIVOT")
	writeVerbs = set("INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE")
	rowVerbs   = set("EXPLAIN", "CALL", "PRAGMA", "EXECUTE", "EXEC", "FETCH", "CHECKPOINT")
	noTrace    = set("INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "TRUNCATE", "ALTER", "DROP", "COPY", "EXPORT",
		"VACUUM", "ANALYZE", "COMMENT", "GRANT", "REVOKE", "REFRESH", "EXPLAIN", "CHECKPOINT", "UPSERT", "OPTIMIZE", "REINDEX", "CLUSTER")
)

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

func rowsAndReads(main []token) (rows, reads bool) {
	verb := main[0].text
	switch {
	case verb == "EXPLAIN":
		return true, !hasTop(main, "ANALYZE", "ANALYSE") || !hasAny(main, "INSERT", "UPDATE", "DELETE", "MERGE", "CREATE")
	case readVerbs[verb]:
		if verb == "SELECT" && hasTop(main, "INTO") {
			return false, false // SELECT … INTO makes a table
		}
		return true, true
	case writeVerbs[verb]:
		return hasTop(main, "RETURNING", "OUTPUT"), false
	default:
		return rowVerbs[verb], false
	}
}

// hasTop reports whether one of the words stands outside parentheses.
func hasTop(toks []token, words ...string) bool {
	depth := 0
	for i, t := range toks {
		switch {
		case t.punct("("):
			depth++
		case t.punct(")"):
			depth--
		case depth <= 0 && t.is(words...) && (i == 0 || !toks[i-1].punct(".")):
			return true
		}
	}
	return false
}

func hasAny(toks []token, words ...string) bool {
	for _, t := range toks {
		if t.is(words...) {
			return true
		}
	}
	return false
}

func txControl(main []token) bool {
	switch main[0].text {
	case "BEGIN", "COMMIT", "ROLLBACK", "ABORT", "SAVEPOINT":
		return true
	case "END":
		return true
	case "START":
		return len(main) > 1 && main[1].is("TRANSACTION")
	case "RELEASE":
		return true
	case "PREPARE":
		return len(main) > 1 && main[1].is("TRANSACTION")
	default:
		return false
	}
}
