package sqlscan

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind uint8

const (
	word   kind = iota // an unquoted identifier or keyword, in upper case
	quoted             // a quoted identifier, as written
	text               // a string literal, as written
	number
	punct // one character
)

type token struct {
	kind  kind
	text  string // upper case for words
	start int    // byte offset in the SQL text
	end   int
}

func (t token) is(words ...string) bool {
	if t.kind != word {
		return false
	}
	for _, w := range words {
		if t.text == w {
			return true
		}
	}
	return false
}

func (t token) punct(c string) bool { return t.kind == punct && t.text == c }

// scan cuts sql into tokens, without comments and white space. An unclosed
// quote or comment runs to the end of the text.
func scan(sql string) []token {
	var out []token
	for i := 0; i < len(sql); {
		if n := blank(sql[i:]); n > 0 {
			i += n
			continue
		}
		k, n := next(sql[i:])
		t := token{kind: k, text: sql[i : i+n], start: i, end: i + n}
		if k == word {
			t.text = strings.ToUpper(t.text)
		}
		out = append(out, t)
		i += n
	}
	return out
}

// blank is the length of the white space or comment that s begins with.
func blank(s string) int {
	switch {
	case strings.HasPrefix(s, "--"):
		if n := strings.IndexByte(s, '\n'); n >= 0 {
			return n + 1
		}
		return len(s)
	case strings.HasPrefix(s, "/*"):
		return blockComment(s)
	}
	r, n := utf8.DecodeRuneInString(s)
	if unicode.IsSpace(r) || r == '\ufeff' || r == 0 {
		return n
	}
	return 0
}

// blockComment is the length of the comment s begins with. Comments nest, as
// in the standard.
func blockComment(s string) int {
	depth := 0
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "/*"):
			depth++
			i += 2
		case strings.HasPrefix(s[i:], "*/"):
			depth--
			i += 2
			if depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return len(s)
}

// next is the kind and length of the token that s, which is not blank, begins
// with.
func next(s string) (kind, int) {
	switch c := s[0]; {
	case c == '\'':
		return text, quoteEnd(s, 0, '\'', false)
	case (c == 'E' || c == 'e') && len(s) > 1 && s[1] == '\'':
		return text, quoteEnd(s, 1, '\'', true)
	case strings.ContainsRune("BbNnXx", rune(c)) && len(s) > 1 && s[1] == '\'':
		return text, quoteEnd(s, 1, '\'', false)
	case c == '"' || c == '`':
		return quoted, quoteEnd(s, 0, c, false)
	case c == '$':
		if n := dollarQuote(s); n > 0 {
			return text, n
		}
		return punct, 1
	case c >= '0' && c <= '9':
		return number, run(s, func(r rune) bool { return r == '.' || r == '_' || isWord(r) })
	}
	if r, n := utf8.DecodeRuneInString(s); !isWord(r) {
		return punct, n
	}
	return word, run(s, func(r rune) bool { return r == '$' || isWord(r) })
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

func run(s string, in func(rune) bool) int {
	for i, r := range s {
		if i > 0 && !in(r) {
			return i
		}
	}
	return len(s)
}

// quoteEnd is the length of the literal whose opening quote is s[at]. A doubled
// quote stands for one; with backslash, a backslash guards the next character.
func quoteEnd(s string, at int, q byte, backslash bool) int {
	for i := at + 1; i < len(s); i++ {
		switch {
		case backslash && s[i] == '\\':
			i++
		case s[i] == q && i+1 < len(s) && s[i+1] == q:
			i++
		case s[i] == q:
			return i + 1
		}
	}
	return len(s)
}

// dollarQuote is the length of the $tag$…$tag$ literal s begins with, or zero.
func dollarQuote(s string) int {
	n := 1
	for n < len(s) && s[n] != '$' {
		r, size := utf8.DecodeRuneInString(s[n:])
		if !isWord(r) || (n == 1 && unicode.IsDigit(r)) {
			return 0
		}
		n += size
	}
	if n >= len(s) {
		return 0
	}
	tag := s[:n+1]
	if end := strings.Index(s[len(tag):], tag); end >= 0 {
		return end + 2*len(tag)
	}
	return len(s)
}
