package sqltext

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Reader reads the tokens of a text one after another, until one is not what
// was expected.
type Reader struct {
	Tokens []string
	At     int   // the next
	Err    error // the first
}

// Fail says that the next token is not what was expected.
func (p *Reader) Fail() {
	if p.Err == nil {
		near := "the end"
		if p.At < len(p.Tokens) {
			near = strconv.Quote(p.Tokens[p.At])
		}
		p.Err = fmt.Errorf("parser error: syntax error at or near %s", near)
	}
}

// Peek is the next word in capitals, or "".
func (p *Reader) Peek() string {
	if p.Err != nil || p.At >= len(p.Tokens) || p.Tokens[p.At][0] == '\'' { // a text may be of megabytes
		return ""
	}
	return strings.ToUpper(p.Tokens[p.At])
}

// Accept takes the words if they come next.
func (p *Reader) Accept(words ...string) bool {
	for i, w := range words {
		if p.Err != nil || p.At+i >= len(p.Tokens) || !strings.EqualFold(p.Tokens[p.At+i], w) {
			return false
		}
	}
	p.At += len(words)
	return true
}

// Expect takes the words, or fails.
func (p *Reader) Expect(words ...string) {
	if !p.Accept(words...) {
		p.Fail()
	}
}

// Ident takes a name.
func (p *Reader) Ident() string {
	if p.Err != nil || p.At >= len(p.Tokens) || !isWord(p.Tokens[p.At]) {
		p.Fail()
		return ""
	}
	p.At++
	name := p.Tokens[p.At-1]
	// The tokens of "a"."b" are three, those of a.b one.
	for p.At < len(p.Tokens) && (strings.HasSuffix(name, ".") || strings.HasPrefix(p.Tokens[p.At], ".")) {
		name += p.Tokens[p.At]
		p.At++
	}
	return strings.ReplaceAll(name, `"`, "")
}

// Text takes the argument of a call as it is written.
func (p *Reader) Text() string {
	if p.Err != nil || p.At >= len(p.Tokens) {
		p.Fail()
		return ""
	}
	p.At++
	return Unquote(p.Tokens[p.At-1])
}

// Unquote takes the quotes off a text.
func Unquote(tok string) string {
	if len(tok) < 2 || tok[0] != '\'' {
		return tok
	}
	return strings.ReplaceAll(tok[1:len(tok)-1], "''", "'")
}

func isWord(tok string) bool {
	first := rune(tok[0])
	return first == '"' || first == '_' || unicode.IsLetter(first)
}

// Split takes SQL apart, into words, numbers, quoted texts and signs.
func Split(sql string) []string {
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
			for {
				quote := strings.IndexByte(sql[end:], c)
				if quote < 0 {
					return append(toks, "?unterminated text?")
				}
				if end += quote + 1; end == len(sql) || sql[end] != c {
					break
				}
				end++ // a doubled quote
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

// Statements splits a text at its semicolons. What is empty is left out.
func Statements(sql string) []string {
	var parts []string
	for {
		end := endOfStatement(sql)
		if part := strings.TrimSpace(sql[:end]); len(Split(part)) > 0 {
			parts = append(parts, part)
		}
		if end == len(sql) {
			return parts
		}
		sql = sql[end+1:]
	}
}

// endOfStatement is where the first semicolon outside quotes and comments is.
func endOfStatement(sql string) int {
	for i := 0; i < len(sql); i++ {
		switch c := sql[i]; {
		case c == ';':
			return i
		case c == '\'' || c == '"':
			end := strings.IndexByte(sql[i+1:], c)
			if end < 0 {
				return len(sql)
			}
			i += end + 1
		case strings.HasPrefix(sql[i:], "--"):
			end := strings.IndexByte(sql[i:], '\n')
			if end < 0 {
				return len(sql)
			}
			i += end
		}
	}
	return len(sql)
}

// MaxParams is the highest number that a parameter may have.
const MaxParams = 1000

// CountParams is how many parameters a text has.
func CountParams(sql string) int {
	n, highest := 0, 0
	for _, tok := range Split(sql) {
		if tok == "?" {
			n++
		} else if tok[0] == '$' {
			if number, err := strconv.Atoi(tok[1:]); err == nil {
				highest = max(highest, min(number, MaxParams))
			}
		}
	}
	return n + highest
}
