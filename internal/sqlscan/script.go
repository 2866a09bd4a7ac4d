package sqlscan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Rows says whether a statement answers with a result set.
type Rows uint8

// The answers of a statement.
const (
	RowsUnknown Rows = iota // cannot be told from the text
	RowsNone                // it is run for its effect
	RowsSome                // it has a result set, perhaps an empty one
)

// Script is what a SQL text of one or more statements does.
type Script struct {
	Statements []Statement

	// SyntaxFault says why the text cannot be cut: it ends inside of a quote or comment. Empty otherwise.
	SyntaxFault string

	// othersReadSeveral says that it is no single statement to servers that cut it otherwise.
	othersReadSeveral bool
}

// Statement is one statement of a Script.
type Statement struct {
	Verb string // leading verb in upper case, of the main statement behind a WITH; empty when the text begins with none

	// KnownVerb says that the verb is in the table.
	KnownVerb bool

	// Rows says whether it answers with a result set.
	Rows Rows

	// ReadOnly says that running it twice is the same as running it once, as
	// far as its text tells.
	ReadOnly bool

	// TxControl says that it begins or ends a transaction or savepoint.
	TxControl bool

	// txVerb is the verb by which it does so where that is not Verb: of a later part of a chain.
	txVerb string

	// Effects is what it leaves behind in the session.
	Effects []Effect

	// ChangesInsideQuery says that its change stands inside of something that servers
	// take for a query: an EXPLAIN ANALYZE, or a main statement behind a WITH.
	ChangesInsideQuery bool

	// RunsInSteps says that a server that refuses it may have done a part of it. It is run as
	// several statements, in a transaction of its own, which servers leave open when
	// one fails; or a function in it changes the session before the rest fails.
	RunsInSteps bool

	// Sets is the name of the setting that a SET changes, as written, in whatever scope; empty otherwise.
	Sets string

	// InsertInto is the target of an INSERT as written, empty otherwise.
	InsertInto string

	// InsertColumns are the columns that an INSERT names, without quotes; nil where it names none.
	InsertColumns []string

	// ComputesRows says of an INSERT that its rows are not its parameters alone, in their order.
	ComputesRows bool
}

// unknownStatement is a statement of which nothing can be told.
func unknownStatement(verb string) Statement {
	return Statement{Verb: verb, Effects: []Effect{{Kind: EffectUnknown}}}
}

// judge is Parse of a text that is not remembered.
func judge(sql string) Script {
	s, ambiguous := parse(sql, standardDialect)
	if !ambiguous || s.SyntaxFault != "" {
		return s
	}
	for _, d := range otherDialects {
		s.mergeOtherReading(parseAccepted(sql, d))
	}
	if strings.Contains(sql, "//") {
		s.mergeOtherReading(parseAccepted(sql, snowflakeDialect))
	}
	return s
}

func parse(sql string, d dialect) (s Script, ambiguous bool) {
	l := lexer{d: d, sql: sql}
	for _, toks := range split(l.scan()) {
		s.Statements = append(s.Statements, statementOf(toks, sql))
	}
	if l.unclosed != "" {
		s.SyntaxFault = fmt.Sprintf("a %s that opens at byte %d is never closed", l.unclosed, l.unclosedAt)
		for i := range s.Statements {
			st := &s.Statements[i]
			st.ReadOnly, st.Rows, st.Effects = false, RowsUnknown, []Effect{{Kind: EffectUnknown}}
		}
	}
	return s, l.ambiguous
}

func statementOf(toks []token, sql string) Statement {
	st := classifyChain(toks, sql)
	if hasEscapedName(toks) {
		st.addFunction(Effect{Kind: EffectUnknown})
	}
	if pivotsByData(toks) {
		st.Effects = append(st.Effects, Effect{Kind: EffectPivotType})
	}
	return st
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

// PlainRead reports whether the text only reads, and leaves nothing behind.
func (s Script) PlainRead() bool { return s.ReadOnly() && len(s.Effects()) == 0 }

// Rows says whether the text answers with a result set: servers answer a text
// of several statements with that of the last.
func (s Script) Rows() Rows {
	if s.Empty() {
		return RowsNone
	}
	return s.Statements[len(s.Statements)-1].Rows
}

// TxControl is the verb of the first statement that begins or ends a
// transaction or savepoint, or empty.
func (s Script) TxControl() string {
	for _, st := range s.Statements {
		if st.TxControl {
			return cmp.Or(st.txVerb, st.Verb)
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

// Atomic reports whether a server that refuses the text has done nothing of it:
// it is one statement, and none that runs others.
func (s Script) Atomic() bool { return len(s.Statements) == 1 && !s.RunsInSteps() }

// RunsInSteps reports whether a server may run a statement of the text as several: it is known
// to, runs what is not in the text, or is not understood.
func (s Script) RunsInSteps() bool {
	return s.SyntaxFault != "" || s.othersReadSeveral || slices.ContainsFunc(s.Statements, Statement.mayRunOthers)
}

// MayChangeObjects reports whether the text makes, alters or drops something, or may in what a server runs
// as several statements, such as the one that it explains.
func (s Script) MayChangeObjects() bool {
	return !s.ReadOnly() && (s.RunsInSteps() || slices.ContainsFunc(s.Statements, func(st Statement) bool {
		return st.Verb == "CREATE" || st.Verb == "ALTER" || st.Verb == "DROP"
	}))
}

// MayChangeSharedObjects is MayChangeObjects of what statements of other sessions may name. Another database may come or go
// by a name, with all its tables.
func (s Script) MayChangeSharedObjects() bool {
	temporary := s.Atomic() && slices.ContainsFunc(s.Effects(), func(e Effect) bool { return e.Kind == EffectTempTable || e.Kind == EffectTempView })
	return s.MayChangeObjects() && !temporary ||
		slices.ContainsFunc(s.Statements, func(st Statement) bool { return st.Verb == "ATTACH" || st.Verb == "DETACH" })
}

// IsSQL reports whether each statement of the text begins with a verb that is known. Some servers take other texts, such as names
// of what they have.
func (s Script) IsSQL() bool {
	return !s.Empty() && !slices.ContainsFunc(s.Statements, func(st Statement) bool { _, known := verbs[st.Verb]; return !known })
}

// split cuts the tokens at the semicolons; empty statements are dropped.
func split(toks []token) [][]token {
	var out [][]token
	start := 0
	for i, t := range toks {
		if t.isPunct(";") {
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

// maxNesting bounds what is read again for each change that stands inside of another,
// so that the work grows with the length of a text alone.
const maxNesting = 50

// classifyWhole is classify for a whole statement. Of one with a change within more
// parentheses than maxNesting nothing is told.
func classifyWhole(toks []token, sql string) Statement {
	depth := 0
	for i, t := range toks {
		switch {
		case depth > maxNesting && toks[i-1].isPunct("(") && beginsChange(toks[i:]):
			return unknownStatement("")
		case t.isPunct("("):
			depth++
		case t.isPunct(")"):
			depth--
		}
	}
	return classify(toks, sql)
}

// classify tells what one statement, or a part of one, which is not empty, does.
func classify(toks []token, sql string) Statement {
	for len(toks) > 0 && toks[0].isPunct("(") { // (SELECT …) UNION …
		toks = toks[1:]
	}
	if len(toks) == 0 || toks[0].kind != wordToken {
		return unknownStatement("")
	}
	switch toks[0].text {
	case "WITH":
		return classifyWith(toks, sql)
	case "EXPLAIN", "DESCRIBE", "DESC":
		return classifyExplain(toks, sql)
	case "PREPARE":
		return classifyPrepare(toks, sql)
	default:
		st := classifyByVerb(toks, sql)
		st.addNested(toks, sql)
		return st
	}
}

// classifyByVerb tells what a statement does by its verb's line in the table.
func classifyByVerb(toks []token, sql string) Statement {
	v, ok := verbs[toks[0].text]
	if !ok {
		return unknownStatement(toks[0].text)
	}
	st := Statement{Verb: toks[0].text, KnownVerb: true, Rows: v.rows, ReadOnly: v.readOnly, TxControl: v.tx}
	if v.refine != nil {
		v.refine(&st, toks, sql)
	}
	if v.effects != nil && !st.ReadOnly {
		st.Effects = append(st.Effects, v.effects(toks, sql)...)
	}
	return st
}

// addNested finds what stands inside of a statement and does more than read: a
// change in a subquery or common table expression, or a function.
func (st *Statement) addNested(toks []token, sql string) {
	for i := 1; i < len(toks); i++ {
		switch {
		case toks[i-1].isPunct("(") && beginsChange(toks[i:]):
			end := closingParen(toks, i)
			inner := classify(toks[i:end], sql)
			st.ReadOnly = st.ReadOnly && inner.ReadOnly
			st.RunsInSteps = st.RunsInSteps || inner.RunsInSteps
			st.Effects = append(st.Effects, inner.Effects...)
			i = end // inner has looked at what stands inside of it
		case toks[i].isPunct("(") && toks[i-1].isName():
			if effects, changes := functionEffects(toks[i-1], toks[i+1:]); changes {
				st.addFunction(effects...)
			}
		case takesFromSequence(toks, i):
			st.addFunction()
		case i > 2 && toks[i].isPunct("=") && toks[i-1].isPunct(":") && toks[i-3].isPunct("@"): // SELECT @v := 1
			st.addFunction(Effect{Kind: EffectUnknown})
		}
	}
}
