package ddl

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is what a token is.
type tokenKind uint8

const (
	end    tokenKind = iota
	word             // a name, folded to lower case
	quoted           // a name in double quotes, as it is
	text             // in single quotes
	mark             // one of ( ) , ;
)

type token struct {
	kind  tokenKind
	value string
	at    Position
}

// keywords are those of the statements.
var keywords = []string{"add", "alter", "cascade", "create", "data", "drop", "exists", "for", "foreign", "if", "mapping", "not", "options", "restrict", "server", "set", "type", "user", "version", "wrapper"}

// described is what an error calls a token. A password may stand anywhere, in double
// quotes or in none, so that only what the grammar itself has is repeated.
func (t token) described() string {
	switch {
	case t.kind == end:
		return "the end"
	case t.kind == text:
		return "a text"
	case t.kind == quoted:
		return "a name in double quotes"
	case t.kind == word && !slices.Contains(keywords, t.value):
		return "a name"
	}
	return fmt.Sprintf("%q", t.value)
}

// lexer takes SQL text apart.
type lexer struct {
	rest string
	at   Position
}

// step takes one character.
func (l *lexer) step() rune {
	r, size := utf8.DecodeRuneInString(l.rest)
	l.rest = l.rest[size:]
	l.at.Column++
	if r == '\n' {
		l.at = Position{l.at.Line + 1, 1}
	}
	return r
}

// checkUTF8 finds the first place that is not UTF-8.
func checkUTF8(sql string) error {
	if utf8.ValidString(sql) {
		return nil
	}
	for l := (lexer{rest: sql, at: Position{1, 1}}); ; l.step() {
		if r, size := utf8.DecodeRuneInString(l.rest); r == utf8.RuneError && size <= 1 {
			return &Error{l.at, "the text is not UTF-8"}
		}
	}
}

func (l *lexer) skip(n int) {
	for range n {
		l.step()
	}
}

// next finds the next token.
func (l *lexer) next() (token, error) {
	if err := l.blank(); err != nil {
		return token{}, err
	}
	t := token{at: l.at}
	if l.rest == "" {
		return t, nil
	}
	r, _ := utf8.DecodeRuneInString(l.rest)
	switch {
	case strings.ContainsRune("(),;", r):
		t.kind, t.value = mark, string(l.step())
		return t, nil
	case r == '\'':
		t.kind = text
		return l.until(t, '\'', "text")
	case r == '"':
		t.kind = quoted
		t, err := l.until(t, '"', "quoted name")
		if err == nil && t.value == "" {
			err = &Error{t.at, "a quoted name is empty"}
		}
		return t, err
	case inWord(r):
		var b strings.Builder
		for l.rest != "" {
			if r, _ := utf8.DecodeRuneInString(l.rest); !inWord(r) {
				break
			}
			b.WriteRune(l.step())
		}
		t.kind, t.value = word, strings.ToLower(b.String())
		return t, nil
	}
	return t, &Error{t.at, fmt.Sprintf("unexpected %q", r)}
}

func inWord(r rune) bool {
	return r == '_' || r == '$' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// blank skips white space and comments; those in /* */ nest.
func (l *lexer) blank() error {
	for l.rest != "" {
		r, _ := utf8.DecodeRuneInString(l.rest)
		switch {
		case unicode.IsSpace(r):
			l.step()
		case strings.HasPrefix(l.rest, "--"):
			for l.rest != "" && l.step() != '\n' {
				continue
			}
		case strings.HasPrefix(l.rest, "/*"):
			if err := l.comment(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

func (l *lexer) comment() error {
	began := l.at
	for depth := 0; ; {
		switch {
		case l.rest == "":
			return &Error{began, "a comment has no end"}
		case strings.HasPrefix(l.rest, "/*"):
			depth++
			l.skip(2)
		case strings.HasPrefix(l.rest, "*/"):
			depth--
			l.skip(2)
			if depth == 0 {
				return nil
			}
		default:
			l.step()
		}
	}
}

// until reads what is in quotes; a quote in it is written twice.
func (l *lexer) until(t token, quote rune, what string) (token, error) {
	l.step()
	var b strings.Builder
	for l.rest != "" {
		r := l.step()
		if r == 0 {
			return t, &Error{t.at, "a " + what + " contains a NUL"}
		}
		if r != quote {
			b.WriteRune(r)
			continue
		}
		if !strings.HasPrefix(l.rest, string(quote)) {
			t.value = b.String()
			return t, nil
		}
		b.WriteRune(l.step())
	}
	return t, &Error{t.at, "a " + what + " has no end"}
}
