package sqlscan

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind uint8

const (
	wordToken   kind = iota // an unquoted identifier or keyword, in upper case
	quotedToken             // a quoted identifier, as written
	stringToken             // a string literal, as written
	numberToken
	punctToken // one character
)

type token struct {
	kind  kind
	text  string // upper case for words
	start int    // byte offset in the SQL text
	end   int
}

func (t token) is(words ...string) bool {
	if t.kind != wordToken {
		return false
	}
	for _, w := range words {
		if t.text == w {
			return true
		}
	}
	return false
}

func (t token) isPunct(c string) bool { return t.kind == punctToken && t.text == c }

// isName reports whether the token can name an object.
func (t token) isName() bool { return t.kind == wordToken || t.kind == quotedToken }

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

	openExecutable int // how many /*! comments are open, in dialects that execute them
}

// scan cuts sql into tokens, without comments and white space. An unclosed
// quote or comment runs to the end of the text.
func (l *lexer) scan() []token {
	var out []token
	for l.at < len(l.sql) {
		if n := l.blankLen(); n > 0 {
			l.at += n
			continue
		}
		k, n := l.nextToken()
		t := token{kind: k, text: l.sql[l.at : l.at+n], start: l.at, end: l.at + n}
		if k == wordToken {
			t.text = strings.ToUpper(t.text)
		}
		out = append(out, t)
		l.at += n
	}
	if l.openExecutable > 0 {
		l.markUnclosed("comment")
	}
	return out
}

// markUnclosed notes that the text ends inside of something that begins here.
func (l *lexer) markUnclosed(what string) {
	if l.unclosed == "" {
		l.unclosed, l.unclosedAt = what, l.at
	}
}

// blankLen is the length of the white space or comment at the current place.
func (l *lexer) blankLen() int {
	s := l.sql[l.at:]
	switch {
	case strings.HasPrefix(s, "--"):
		return l.dashComment(s)
	case strings.HasPrefix(s, "/*"):
		return l.blockComment(s)
	case l.openExecutable > 0 && strings.HasPrefix(s, "*/"):
		l.openExecutable--
		return 2
	case s[0] == '#':
		l.ambiguous = true
		if l.d.hashComments {
			return l.lineEnd(s)
		}
		return 0
	}
	r, n := utf8.DecodeRuneInString(s)
	if !l.d.whitespace.isSpace(r) {
		return 0
	}
	l.ambiguous = l.ambiguous || n > 1
	return n
}

func (l *lexer) dashComment(s string) int {
	spaced := len(s) == 2 || s[2] <= ' '
	l.ambiguous = l.ambiguous || !spaced
	if l.d.dashNeedsSpace && !spaced {
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
		if l.d.executableComments {
			l.openExecutable++
			return mark
		}
	}
	depth := 0
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "/*") && (depth == 0 || l.d.nestedComments):
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
	l.markUnclosed("comment")
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

// nextToken is the kind and length of the token at the current place, which is not
// blank.
func (l *lexer) nextToken() (kind, int) {
	s := l.sql[l.at:]
	switch c := s[0]; {
	case c == '\'':
		return stringToken, l.quoteLen(s, 0, l.d.escapes(c))
	case (c == 'E' || c == 'e') && len(s) > 1 && s[1] == '\'':
		return stringToken, l.quoteLen(s, 1, l.d.escapeStrings || l.d.escapes('\''))
	case strings.ContainsRune("BbNnXx", rune(c)) && len(s) > 1 && s[1] == '\'':
		return stringToken, l.quoteLen(s, 1, l.d.escapes('\''))
	case c == '"' || c == '`':
		return quotedToken, l.quoteLen(s, 0, l.d.escapes(c))
	case c == '[':
		return l.bracket(s)
	case c == '$':
		if n := l.dollarQuote(s); n > 0 {
			return stringToken, n
		}
		return punctToken, 1
	case c >= '0' && c <= '9':
		return numberToken, prefixLen(s, func(r rune) bool { return r == '.' || r == '_' || l.d.whitespace.isWordRune(r) })
	}
	if r, n := utf8.DecodeRuneInString(s); !l.d.whitespace.isWordRune(r) {
		return punctToken, n
	}
	return wordToken, prefixLen(s, func(r rune) bool { return r == '$' || l.d.whitespace.isWordRune(r) })
}

// quoteLen is the length of the literal whose opening quote is s[open]. A doubled
// quote stands for one; with escapes, a backslash guards the next character.
func (l *lexer) quoteLen(s string, open int, escapes bool) int {
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
	l.markUnclosed("quote")
	return len(s)
}

// bracket is a [quoted identifier] where the dialect has them.
func (l *lexer) bracket(s string) (kind, int) {
	end := strings.IndexByte(s, ']')
	if end < 0 || strings.ContainsAny(s[:end], "'\"`;#$") || strings.Contains(s[:end], "--") || strings.Contains(s[:end], "/*") {
		l.ambiguous = true
	}
	if !l.d.bracketNames {
		return punctToken, 1
	}
	if end < 0 {
		l.markUnclosed("quote")
		return quotedToken, len(s)
	}
	return quotedToken, end + 1
}

// dollarQuote is the length of the $tag$…$tag$ literal s begins with, or zero.
func (l *lexer) dollarQuote(s string) int {
	n := 1
	for n < len(s) && s[n] != '$' {
		r, size := utf8.DecodeRuneInString(s[n:])
		if !l.d.whitespace.isWordRune(r) || (n == 1 && unicode.IsDigit(r)) {
			return 0
		}
		n += size
	}
	if n >= len(s) {
		return 0
	}
	l.ambiguous = true
	if !l.d.dollarQuotes {
		return 0
	}
	tag := s[:n+1]
	if end := strings.Index(s[len(tag):], tag); end >= 0 {
		return end + 2*len(tag)
	}
	l.markUnclosed("quote")
	return len(s)
}
