package sqlscan

import "cmp"

// classifyChain is classifyWhole for statements that Snowflake's operator ->> makes one of: it runs each behind the
// one before, whose rows it reads by $1, and answers with those of the last. PostgreSQL, DuckDB and SQLite have the operator
// for a member of a JSON value. Where it may be either, the rows are those of one statement, of which nothing else is known.
func classifyChain(toks []token, sql string) Statement {
	places, role := findChain(toks)
	if role != startsStatement {
		st := classifyWhole(toks, sql)
		if role == startsEither {
			st.addFunction(Effect{Kind: EffectUnknown})
		}
		return st
	}
	places = append(places, len(toks))
	st := classifyWhole(toks[:places[0]], sql)
	for i, at := range places[:len(places)-1] {
		next := classifyWhole(toks[at+len(chainOperator):places[i+1]], sql)
		st.Rows = cmp.Or(next.Rows, st.Rows) // a query, where it cannot be told
		st.ReadOnly = st.ReadOnly && next.ReadOnly
		if next.TxControl && !st.TxControl {
			st.TxControl, st.txVerb = true, next.Verb
		}
		st.Effects = append(st.Effects, next.Effects...)
		st.ChangesInsideQuery = !st.ReadOnly
		st.RunsInSteps = !st.ReadOnly
	}
	return st
}

const chainOperator = "->>" // a token each

// findChain is where ->> stands outside of parentheses, and what it is there: no server has it in both meanings, so that all are what
// one is for sure.
func findChain(toks []token) (places []int, role startRole) {
	before := chainContext{}
	for i, t := range outsideParens(toks) {
		if isChainOperator(toks[i:]) {
			places = append(places, i)
			before.hasNoExpressions = before.hasNoExpressions || len(places) == 1 && hasNoExpressions(toks[:i])
			role = max(role, before.roleOf(toks[i+len(chainOperator):]))
		}
		before.note(t, i > 0 && toks[i-1].is("DISTINCT"))
	}
	return places, role
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

// hasNoExpressions knows statements in which no JSON value can stand: DuckDB has SHOW and DESCRIBE of a query, too.
func hasNoExpressions(toks []token) bool {
	return len(toks) > 1 && toks[0].is("SHOW", "DESC", "DESCRIBE", "LIST", "LS") &&
		!hasAny(toks, "SELECT", "FROM", "VALUES", "WITH", "PIVOT", "UNPIVOT", "WHERE", "SUMMARIZE")
}

// chainContext is what stands before a ->>, outside of parentheses.
type chainContext struct {
	hasNoExpressions bool
	hasFrom          bool // of the last SELECT: it has no other one
	openCases        int
	hasOrder         bool
	hasJoin          bool
}

func (c *chainContext) note(t token, behindDistinct bool) {
	switch {
	case t.is("SELECT"):
		c.hasFrom = false
	case t.is("FROM"):
		c.hasFrom = c.hasFrom || !behindDistinct // a IS DISTINCT FROM b
	case t.is("CASE"):
		c.openCases++
	case t.is("END"):
		c.openCases--
	case t.is("ORDER"):
		c.hasOrder = true
	case t.is("JOIN"):
		c.hasJoin = true
	}
}
