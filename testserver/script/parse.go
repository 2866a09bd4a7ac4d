package script

import (
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/testserver/internal/sqltext"
)

// parsed is one statement.
type parsed struct {
	verb string // the first word, in capitals; "CREATE TABLE" and the like in full
	name string // of a table, schema, setting or savepoint

	items     []item   // SELECT without FROM; for UPDATE the new value
	source    string   // SELECT ... FROM: "table", "generate" or "endless"
	args      []item   // of source
	count     bool     // SELECT count(*)
	where     *equals  // WHERE column = value
	set       string   // UPDATE: the column
	rows      [][]item // INSERT
	into      []string // INSERT: columns, nil for all
	returning string   // INSERT: the column of its result, empty for none
	as        *parsed  // CREATE TABLE ... AS
	temp      bool
	own       bool          // SET SESSION, RESET SESSION
	lenient   bool          // IF EXISTS, IF NOT EXISTS
	columns   []arrow.Field // of a new table; the one that ALTER TABLE adds, whose value is the item
	key       int           // column of the primary key, -1 if there is none

	params int // how many parameters it has
}

type equals struct {
	column string
	value  item
}

// item is a value in SQL: a literal, a parameter or a call.
type item struct {
	value any // literal
	param int // parameter, from 1
	call  string
	arg   string
	name  string // AS
}

// parse reads one statement.
func parse(sql string) (*parsed, error) {
	p := &parser{Reader: sqltext.Reader{Tokens: sqltext.Split(sql)}}
	st := p.statement()
	p.Accept(";")
	if p.Err == nil && p.At < len(p.Tokens) {
		p.Fail()
	}
	st.params = p.params
	if p.Err != nil {
		return st, sqlError(p.Err.Error())
	}
	return st, nil
}

// parser reads SQL into statements.
type parser struct {
	sqltext.Reader
	params int
}

// value takes a literal, a parameter or a call.
func (p *parser) value() item {
	if p.Err != nil || p.At >= len(p.Tokens) {
		p.Fail()
		return item{}
	}
	tok := p.Tokens[p.At]
	p.At++
	switch {
	case tok == "?":
		p.params++
		return item{param: p.params}
	case tok[0] == '$':
		n, err := strconv.Atoi(tok[1:])
		if err != nil || n < 1 || n > sqltext.MaxParams {
			p.Fail()
		}
		p.params = max(p.params, n)
		return item{param: n}
	case tok[0] == '\'':
		return item{value: sqltext.Unquote(tok)}
	case p.Accept("("):
		arg := ""
		if !p.Accept(")") {
			arg = p.Text()
			p.Expect(")")
		}
		return item{call: strings.ToLower(tok), arg: arg}
	}
	switch strings.ToUpper(tok) {
	case "NULL":
		return item{}
	case "TRUE", "FALSE":
		return item{value: strings.EqualFold(tok, "true")}
	}
	if n, err := strconv.ParseInt(tok, 10, 64); err == nil {
		return item{value: n}
	}
	if f, err := strconv.ParseFloat(tok, 64); err == nil {
		return item{value: f}
	}
	p.At--
	p.Fail()
	return item{}
}
