package sqlscan

import (
	"iter"
	"slices"
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

	bracketEnd     int // where the ] stands up to which brackets have been looked at
	openExecutable int // how many /*! comments are open, in dialects that execute them

	words strings.Builder // words in upper case, one after the other: an allocation for all
}

// scan cuts sql into tokens, without comments and white space. An unclosed
// quote or comment runs to the end of the text.
func (l *lexer) scan() []token {
	out := make([]token, 0, min(len(l.sql)/4+2, 64)) // a long text may be one token
	for l.at < len(l.sql) {
		if n := l.blankLen(); n > 0 {
			l.at += n
			continue
		}
		k, n := l.nextToken()
		t := token{kind: k, text: l.sql[l.at : l.at+n], start: l.at, end: l.at + n}
		if k == wordToken {
			t.text = l.upper(t.text)
		}
		out = append(out, t)
		l.at += n
	}
	if l.openExecutable > 0 {
		l.markUnclosed("comment")
	}
	return out
}

// upper is strings.ToUpper of a word. What the Builder has given stays as it is while more is
// written behind it.
func (l *lexer) upper(word string) string {
	small := false
	for i := range len(word) {
		if word[i] >= utf8.RuneSelf {
			return strings.ToUpper(word)
		}
		small = small || 'a' <= word[i] && word[i] <= 'z'
	}
	if !small {
		return word
	}
	if l.words.Cap() == 0 {
		l.words.Grow(min(len(l.sql)-l.at, 256))
	}
	from := l.words.Len()
	for i := range len(word) {
		c := word[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		l.words.WriteByte(c)
	}
	return l.words.String()[from:]
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
	case strings.HasPrefix(s, "//"):
		l.ambiguous = true
		if l.d.slashComments {
			return l.lineEnd(s)
		}
		return 0
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
	case unicodePrefix(s) > 0:
		return quotedToken, l.quoteLen(s, unicodePrefix(s), l.d.escapes('"'))
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

// isSpace reports whether r is white space.
func (b whitespace) isSpace(r rune) bool {
	switch {
	case r <= unicode.MaxASCII:
		return unicode.IsSpace(r)
	case b == whitespaceASCII:
		return false
	case b == whitespaceDuckDB && (r == '\u0085' || r == '\u1680' || r == '\u2028' || r == '\u2029'):
		return false
	default:
		return unicode.IsSpace(r) || isZeroWidth(r)
	}
}

// isZeroWidth are further characters that DuckDB takes for white space.
func isZeroWidth(r rune) bool {
	return r >= '\u200b' && r <= '\u200d' || r == '\u2060' || r == '\ufeff'
}

// isWordRune reports whether r can stand in a word: beyond ASCII, whatever is no white
// space can.
func (b whitespace) isWordRune(r rune) bool {
	if r > unicode.MaxASCII {
		return !b.isSpace(r)
	}
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

func prefixLen(s string, in func(rune) bool) int {
	for i, r := range s {
		if i > 0 && !in(r) {
			return i
		}
	}
	return len(s)
}

// outsideParens are the tokens that stand outside parentheses, with their indices.
func outsideParens(toks []token) iter.Seq2[int, token] {
	return func(yield func(int, token) bool) {
		depth := 0
		for i, t := range toks {
			switch {
			case t.isPunct("("):
				depth++
			case t.isPunct(")"):
				depth--
			case depth <= 0 && !yield(i, t):
				return
			}
		}
	}
}

// indexOutsideParens is the index of the first of the words outside parentheses, or -1. What stands behind
// a dot or an AS is a name.
func indexOutsideParens(toks []token, words ...string) int {
	for i, t := range outsideParens(toks) {
		if t.is(words...) && (i == 0 || !toks[i-1].isPunct(".") && !toks[i-1].is("AS")) {
			return i
		}
	}
	return -1
}

// hasOutsideParens reports whether one of the words stands outside parentheses.
func hasOutsideParens(toks []token, words ...string) bool {
	return indexOutsideParens(toks, words...) >= 0
}

func hasAny(toks []token, words ...string) bool {
	for _, t := range toks {
		if t.is(words...) {
			return true
		}
	}
	return false
}

// namesAny is hasAny with words that may stand in quotes, as the options of EXPLAIN and COPY
// may.
func namesAny(toks []token, words ...string) bool {
	for _, t := range toks {
		if t.isName() && slices.Contains(words, upperName(t)) {
			return true
		}
	}
	return false
}

// closingParen is the index of the parenthesis that closes the group of which
// toks[from] is the first token, or the number of tokens.
func closingParen(toks []token, from int) int {
	depth := 0
	for i := from; i < len(toks); i++ {
		switch {
		case toks[i].isPunct("("):
			depth++
		case toks[i].isPunct(")"):
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return len(toks)
}
