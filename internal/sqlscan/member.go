package sqlscan

import (
	"slices"
	"strings"
)

// startRole is what begins behind a ->>.
type startRole uint8

const (
	startsMember    startRole = iota // the name of a member of a JSON value, or another expression
	startsEither                     // that or a statement, or nothing that is known
	startsStatement                  // a statement of Snowflake's
)

// roleOf is what toks, which stand behind a ->>, begin with.
func (c *chainContext) roleOf(toks []token) startRole {
	switch {
	case len(toks) > 0 && toks[0].isPunct("{"):
		return startsEither
	case len(toks) == 0 || toks[0].kind != wordToken:
		return startsMember
	case c.hasNoExpressions || c.beginsStatement(toks):
		return startsStatement
	case c.goesOnAsExpression(toks):
		return startsMember
	default:
		return startsEither
	}
}

// beginsStatement tells whether the first words can be nothing but a statement's. A name that stands
// alone behind another may be its alias: behind that no further name can stand, but the words of clauses.
func (c *chainContext) beginsStatement(toks []token) bool {
	at := func(i int) token {
		if i < len(toks) {
			return toks[i]
		}
		return token{kind: punctToken}
	}
	name := func(i int) bool { return at(i).isName() && !slices.Contains(continuations, at(i).text) }
	switch toks[0].text {
	case "SELECT":
		return len(toks) > 1
	case "WITH":
		return at(1).isName() && (at(2).is("AS") || at(2).isPunct("(") || at(1).is("RECURSIVE"))
	case "INSERT", "MERGE", "COPY", "REPLACE":
		return at(1).is("INTO") && !intoIsTemporary(toks[2:]) || at(1).is("OVERWRITE", "ALL", "FIRST") && at(2).is("INTO", "WHEN")
	case "DELETE":
		return at(1).is("FROM") && c.hasFrom
	case "UPDATE":
		return at(1).isName() && isAssignment(toks[nameEnd(toks, 1)+1:])
	case "SET":
		return isAssignment(toks)
	case "CREATE":
		if at(1).is("OR") && at(2).is("REPLACE", "ALTER") {
			return isObjectWord(at(3)) && name(4)
		}
		return isObjectWord(at(1)) && name(2)
	case "DROP", "ALTER", "TRUNCATE":
		return isObjectWord(at(1)) && name(2)
	case "COMMENT":
		return at(1).is("ON") && isObjectWord(at(2)) && name(3) || at(1).is("IF") && at(2).is("EXISTS") && at(3).is("ON")
	case "USE":
		return at(1).is("ROLE", "WAREHOUSE", "DATABASE", "SCHEMA") && name(2)
	default:
		return beginsTxControl(toks)
	}
}

// isAssignment tells SET name = … and SET name.part = …
func isAssignment(toks []token) bool {
	if len(toks) < 3 || !toks[0].is("SET") || !toks[1].isName() {
		return false
	}
	end := nameEnd(toks, 1) + 1
	return end < len(toks) && toks[end].isPunct("=")
}

// intoIsTemporary reports whether a SELECT … INTO of these words would leave something in the session.
func intoIsTemporary(into []token) bool {
	return len(into) == 0 || !into[0].isName() || nameIsTemporary(into) ||
		into[0].is("TEMP", "TEMPORARY", "LOCAL", "GLOBAL", "UNLOGGED", "TABLE", "OUTFILE", "DUMPFILE")
}

func isObjectWord(t token) bool {
	return t.kind == wordToken && (persistentKinds[t.text] ||
		t.is("TEMP", "TEMPORARY", "LOCAL", "GLOBAL", "TRANSIENT", "VOLATILE", "SECURE", "EXTERNAL", "DYNAMIC", "HYBRID", "ICEBERG", "MATERIALIZED",
			"SESSION", "ACCOUNT", "WAREHOUSE", "STAGE", "STREAM", "TASK", "PIPE", "COLUMN", "TAG", "FILE", "MASKING", "ROW"))
}

// beginsTxControl knows the statements of transactions, which have few words: where a member of the name would end the text it is
// taken for one, too.
func beginsTxControl(toks []token) bool {
	isOne := toks[0].is("BEGIN", "COMMIT", "ROLLBACK")
	rest := toks[1:]
	if len(rest) > 0 && (isOne && rest[0].is("TRANSACTION", "WORK") || toks[0].is("START") && rest[0].is("TRANSACTION")) {
		isOne, rest = true, rest[1:]
	}
	switch {
	case !isOne || len(rest) == 0:
		return isOne
	case toks[0].is("BEGIN", "START") && rest[0].is("NAME") && len(rest) > 1:
		return rest[1].isName() && !slices.Contains(continuations, rest[1].text)
	case !isChainOperator(rest):
		return false
	default:
		next := rest[len(chainOperator):]
		return len(next) > 1 && next[0].kind == wordToken && !isOperator(next[1]) && !slices.Contains(continuations, next[1].text) ||
			len(next) > 0 && next[0].is("BEGIN", "COMMIT", "ROLLBACK") && (len(next) == 1 || isChainOperator(next[1:]))
	}
}

// goesOnAsExpression reports whether what stands behind the first word makes it a name in an expression.
func (c *chainContext) goesOnAsExpression(toks []token) bool {
	if len(toks) == 1 {
		return true
	}
	next := toks[1]
	switch {
	case next.isPunct("("):
		return !toks[0].is("SET", "UNSET")
	case next.isPunct("@"): // REMOVE @stage; a @> b
		return len(toks) > 2 && toks[2].kind == punctToken && toks[2].start == next.end
	case isOperator(next):
		return true
	case toks[0].is("DELETE") && next.is("FROM"), toks[0].is("COMMENT") && next.is("ON"), toks[0].is("INSERT", "MERGE", "COPY", "REPLACE") && next.is("INTO"),
		toks[0].is("UPDATE") && hasAny(toks[:min(len(toks), 5)], "SET"):
		return false
	case next.is("END", "THEN", "WHEN", "ELSE"):
		return c.openCases > 0
	case next.is("ASC", "DESC", "NULLS"):
		return c.hasOrder && !toks[0].is("TRUNCATE", "UNSET", "USE") // of a table or variable of the name
	case next.is("ON", "JOIN", "LEFT", "RIGHT", "INNER", "CROSS", "FULL"):
		return c.hasJoin && len(toks) > 2
	case next.is("OR") && toks[0].is("CREATE"):
		return len(toks) > 2 && !toks[2].is("REPLACE", "ALTER")
	default:
		return len(toks) > 2 && !isChainOperator(toks[2:]) && next.kind == wordToken && slices.Contains(continuations, next.text)
	}
}

func isOperator(t token) bool {
	return t.kind == punctToken && strings.Contains("=<>|+-*/%,)]:[!~^&#.?}", t.text)
}

// continuations are the words that go on with an expression, or end it.
var continuations = []string{
	"AS", "AND", "OR", "IS", "IN", "NOT", "LIKE", "ILIKE", "SIMILAR", "BETWEEN", "COLLATE", "NOTNULL", "ISNULL", "REGEXP", "RLIKE", "GLOB", "MATCH",
	"FROM", "WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH", "UNION", "INTERSECT", "EXCEPT", "MINUS", "ASC", "DESC", "NULLS",
	"THEN", "WHEN", "ELSE", "END", "JOIN", "LEFT", "RIGHT", "INNER", "CROSS", "FULL", "NATURAL", "RETURNING", "FOR", "ON", "INTO", "USING", "SAMPLE", "TABLESAMPLE",
}
