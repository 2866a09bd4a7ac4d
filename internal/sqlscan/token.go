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

// name reports whether the token can name an object.
func (t token) name() bool { return t.kind == word || t.kind == quoted }

// lexer cuts one text into tokens, by the rules of one dialect.
type lexer struct {
	d   dialect
	sql string
	at  int

	// unclosed is what the text ends inside of: "quote", "comment", or "".
	unclosed   string
	unclosedAt int

	// ambiguous says that another dialect may cut the text otherwise.
	ambiguous bool

	executable int // how many /*! comments are open, in dialects that execute them
}

// scan cuts sql into tokens, without comments and white space. An unclosed
// quote or comment runs to the end of the text.
func (l *lexer) scan() []token {
	var out []token
	for l.at < len(l.sql) {
		if n := l.blank(); n > 0 {
			l.at += n
			continue
		}
		k, n := l.next()
		t := token{kind: k, text: l.sql[l.at : l.at+n], start: l.at, end: l.at + n}
		if k == word {
			t.text = strings.ToUpper(t.text)
		}
		out = append(out, t)
		l.at += n
	}
	if l.executable > 0 {
		l.unclose("comment")
	}
	return out
}

// unclose notes that the text ends inside of something that begins here.
func (l *lexer) unclose(what string) {
	if l.unclosed == "" {
		l.unclosed, l.unclosedAt = what, l.at
	}
}

// blank is the length of the white space or comment at the current place.
func (l *lexer) blank() int {
	s := l.sql[l.at:]
	switch {
	case strings.HasPrefix(s, "--"):
		return l.dashComment(s)
	case strings.HasPrefix(s, "/*"):
		return l.blockComment(s)
	case l.executable > 0 && strings.HasPrefix(s, "*/"):
		l.executable--
		return 2
	case s[0] == '#':
		l.ambiguous = true
		if l.d.hash {
			return l.lineEnd(s)
		}
		return 0
	}
	r, n := utf8.DecodeRuneInString(s)
	if !l.d.blanks.has(r) {
		return 0
	}
	l.ambiguous = l.ambiguous || n > 1
	return n
}

func (l *lexer) dashComment(s string) int {
	spaced := len(s) == 2 || s[2] <= ' '
	l.ambiguous = l.ambiguous || !spaced
	if l.d.dashSpace && !spaced {
		return 0
	}
	return l.lineEnd(s)
}

// lineEnd is the length of the line that s begins with.
func (l *lexer) lineEnd(s string) int {
	end := len(s)
	if lf := strings.IndexByte(s, '\n'); lf >= 0 {
		end = lf + 1
	}
	if cr := strings.IndexByte(s[:end], '\r'); cr >= 0 && cr+1 < end && s[cr+1] != '\n' {
		l.ambiguous = true
		if l.d.crEndsLine {
			return cr + 1
		}
	}
	return end
}

// blockComment is the length of the comment s begins with, or of the mark that
// opens a comment whose content the dialect executes.
func (l *lexer) blockComment(s string) int {
	if mark := executableMark(s); mark > 0 {
		l.ambiguous = true
		if l.d.executable {
			l.executable++
			return mark
		}
	}
	depth := 0
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "/*") && (depth == 0 || l.d.nested):
			l.ambiguous = l.ambiguous || depth > 0
			depth++
			i += 2
		case strings.HasPrefix(s[i:], "*/"):
			depth--
			i += 2
			if depth == 0 {
				return i
			}
		default:
			l.ambiguous = l.ambiguous || strings.HasPrefix(s[i:], "/*")
			i++
		}
	}
	l.unclose("comment")
	return len(s)
}

// executableMark is the length of the /*! (with its version) that s begins
// with, or zero.
func executableMark(s string) int {
	n := 0
	switch {
	case strings.HasPrefix(s, "/*!"):
		n = 3
	case strings.HasPrefix(s, "/*M!"):
		n = 4
	default:
		return 0
	}
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// next is the kind and length of the token at the current place, which is not
// blank.
func (l *lexer) next() (kind, int) {
	s := l.sql[l.at:]
	switch c := s[0]; {
	case c == '\'':
		return text, l.quote(s, 0, l.d.escapes(c))
	case (c == 'E' || c == 'e') && len(s) > 1 && s[1] == '\'':
		return text, l.quote(s, 1, l.d.eStrings || l.d.escapes('\''))
	case strings.ContainsRune("BbNnXx", rune(c)) && len(s) > 1 && s[1] == '\'':
		return text, l.quote(s, 1, l.d.escapes('\''))
	case c == '"' || c == '`':
		return quoted, l.quote(s, 0, l.d.escapes(c))
	case c == '[':
		return l.bracket(s)
	case c == '$':
		if n := l.dollarQuote(s); n > 0 {
			return text, n
		}
		return punct, 1
	case c >= '0' && c <= '9':
		return number, run(s, func(r rune) bool { return r == '.' || r == '_' || l.d.blanks.word(r) })
	}
	if r, n := utf8.DecodeRuneInString(s); !l.d.blanks.word(r) {
		return punct, n
	}
	return word, run(s, func(r rune) bool { return r == '$' || l.d.blanks.word(r) })
}

// quote is the length of the literal whose opening quote is s[open]. A doubled
// quote stands for one; with escapes, a backslash guards the next character.
func (l *lexer) quote(s string, open int, escapes bool) int {
	q := s[open]
	slashes := 0 // how many backslashes stand directly before s[i]
	for i := open + 1; i < len(s); i++ {
		c := s[i]
		guarded := slashes%2 == 1
		if c == '\\' {
			slashes++
			continue
		}
		slashes = 0
		if c != q {
			continue
		}
		l.ambiguous = l.ambiguous || guarded
		switch {
		case guarded && escapes:
		case i+1 < len(s) && s[i+1] == q:
			i++
		default:
			return i + 1
		}
	}
	l.unclose("quote")
	return len(s)
}

// bracket is a [quoted identifier] where the dialect has them.
func (l *lexer) bracket(s string) (kind, int) {
	end := strings.IndexByte(s, ']')
	if end < 0 || strings.ContainsAny(s[:end], "'\"`;#$") || strings.Contains(s[:end], "--") || strings.Contains(s[:end], "/*") {
		l.ambiguous = true
	}
	if !l.d.brackets {
		return punct, 1
	}
	if end < 0 {
		l.unclose("quote")
		return quoted, len(s)
	}
	return quoted, end + 1
}

// dollarQuote is the length of the $tag$…$tag$ literal s begins with, or zero.
func (l *lexer) dollarQuote(s string) int {
	n := 1
	for n < len(s) && s[n] != '$' {
		r, size := utf8.DecodeRuneInString(s[n:])
		if !l.d.blanks.word(r) || (n == 1 && unicode.IsDigit(r)) {
			return 0
		}
		n += size
	}
	if n >= len(s) {
		return 0
	}
	l.ambiguous = true
	if !l.d.dollar {
		return 0
	}
	tag := s[:n+1]
	if end := strings.Index(s[len(tag):], tag); end >= 0 {
		return end + 2*len(tag)
	}
	l.unclose("quote")
	return len(s)
}
