package testserver

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/apache/arrow-go/v18/arrow"
)

// parsed is one statement.
type parsed struct {
	verb string // the first word, in capitals; "CREATE TABLE" and the like in full
	name string // of a table, schema, setting or savepoint

	items   []item   // SELECT without FROM; for UPDATE the new value
	source  string   // SELECT ... FROM: "table", "generate" or "endless"
	args    []item   // of source
	count   bool     // SELECT count(*)
	where   *equals  // WHERE column = value
	set     string   // UPDATE: the column
	rows    [][]item // INSERT
	into    []string // INSERT: columns, nil for all
	as      *parsed  // CREATE TABLE ... AS
	temp    bool
	lenient bool // IF EXISTS, IF NOT EXISTS
	columns []arrow.Field
	key     int // column of the primary key, -1 if there is none

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
	p := &parser{toks: tokens(sql)}
	st := p.statement()
	p.accept(";")
	if p.err == nil && p.at < len(p.toks) {
		p.fail()
	}
	st.params = p.params
	return st, p.err
}

type parser struct {
	toks   []string
	at     int
	params int
	err    error // the first
}

func (p *parser) fail() {
	if p.err == nil {
		near := "the end"
		if p.at < len(p.toks) {
			near = strconv.Quote(p.toks[p.at])
		}
		p.err = parseError("syntax error at or near %s", near)
	}
}

// peek is the next word in capitals, or "".
func (p *parser) peek() string {
	if p.err != nil || p.at >= len(p.toks) {
		return ""
	}
	return strings.ToUpper(p.toks[p.at])
}

// accept takes the words if they come next.
func (p *parser) accept(words ...string) bool {
	for i, w := range words {
		if p.err != nil || p.at+i >= len(p.toks) || strings.ToUpper(p.toks[p.at+i]) != w {
			return false
		}
	}
	p.at += len(words)
	return true
}

func (p *parser) expect(words ...string) {
	if !p.accept(words...) {
		p.fail()
	}
}

// ident takes a name.
func (p *parser) ident() string {
	if p.err != nil || p.at >= len(p.toks) || !isWord(p.toks[p.at]) {
		p.fail()
		return ""
	}
	p.at++
	name := p.toks[p.at-1]
	// The tokens of "a"."b" are three, those of a.b one.
	for p.at < len(p.toks) && (strings.HasSuffix(name, ".") || strings.HasPrefix(p.toks[p.at], ".")) {
		name += p.toks[p.at]
		p.at++
	}
	return strings.ReplaceAll(name, `"`, "")
}

// value takes a literal, a parameter or a call.
func (p *parser) value() item {
	if p.err != nil || p.at >= len(p.toks) {
		p.fail()
		return item{}
	}
	tok := p.toks[p.at]
	p.at++
	switch {
	case tok == "?":
		p.params++
		return item{param: p.params}
	case tok[0] == '$':
		n, err := strconv.Atoi(tok[1:])
		if err != nil || n < 1 || n > maxParams {
			p.fail()
		}
		p.params = max(p.params, n)
		return item{param: n}
	case tok[0] == '\'':
		return item{value: unquote(tok)}
	case p.accept("("):
		arg := ""
		if !p.accept(")") {
			arg = p.text()
			p.expect(")")
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
	p.at--
	p.fail()
	return item{}
}

const maxParams = 1000

// text takes the argument of a call as it is written.
func (p *parser) text() string {
	if p.err != nil || p.at >= len(p.toks) {
		p.fail()
		return ""
	}
	p.at++
	return unquote(p.toks[p.at-1])
}

func unquote(tok string) string {
	if len(tok) < 2 || tok[0] != '\'' {
		return tok
	}
	return strings.ReplaceAll(tok[1:len(tok)-1], "''", "'")
}

func isWord(tok string) bool {
	first := rune(tok[0])
	return first == '"' || first == '_' || unicode.IsLetter(first)
}

// tokens splits SQL into words, numbers, quoted texts and signs.
func tokens(sql string) []string {
	var toks []string
	for i := 0; i < len(sql); {
		c := sql[i]
		end := i + 1
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
			continue
		case strings.HasPrefix(sql[i:], "--"):
			if nl := strings.IndexByte(sql[i:], '\n'); nl >= 0 {
				i += nl
			} else {
				i = len(sql)
			}
			continue
		case c == '\'' || c == '"':
			for end < len(sql) && (sql[end] != c || end+1 < len(sql) && sql[end+1] == c) {
				if sql[end] == c {
					end++ // a doubled quote
				}
				end++
			}
			end = min(end+1, len(sql))
			if sql[end-1] != c || end == i+1 {
				return append(toks, "?unterminated text?")
			}
		case isPart(c):
			for end < len(sql) && isPart(sql[end]) {
				end++
			}
		case c == '-' && end < len(sql) && sql[end] >= '0' && sql[end] <= '9':
			for end < len(sql) && isPart(sql[end]) {
				end++
			}
		}
		toks = append(toks, sql[i:end])
		i = end
	}
	return toks
}

func isPart(c byte) bool {
	return c == '_' || c == '$' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
