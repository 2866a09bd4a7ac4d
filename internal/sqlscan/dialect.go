package sqlscan

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// dialect is where families of servers differ in cutting text into tokens.
type dialect struct {
	backslashQuotes    string     // the quotes inside which a backslash guards the next character
	escapeStrings      bool       // E'…' has such backslashes
	dollarQuotes       bool       // $tag$…$tag$ is a string
	bracketNames       bool       // [name] is a quoted identifier
	nestedComments     bool       // block comments nest
	hashComments       bool       // # begins a comment
	slashComments      bool       // // begins a comment
	dashNeedsSpace     bool       // -- begins a comment only before white space
	executableComments bool       // the content of /*! … */ is executed
	crEndsLine         bool       // a carriage return ends a line comment
	whitespace         whitespace // which characters beyond ASCII are white space
}

func (d dialect) escapes(q byte) bool { return strings.IndexByte(d.backslashQuotes, q) >= 0 }

// standardDialect is the dialect of DuckDB and PostgreSQL, by which a text is judged
// first.
var standardDialect = dialect{escapeStrings: true, dollarQuotes: true, nestedComments: true, crEndsLine: true}

// otherDialects are the dialects of further servers that speak Flight SQL. They are
// looked at only for a text that contains something they cut otherwise.
var otherDialects = []dialect{
	{},                   // DataFusion, Calcite (Dremio)
	{bracketNames: true}, // SQLite
	{backslashQuotes: `'"`, hashComments: true, dashNeedsSpace: true, executableComments: true}, // MySQL, Doris, StarRocks
	{backslashQuotes: `'"`, nestedComments: true},                                               // Spark
	{backslashQuotes: `'"`, hashComments: true},                                                 // BigQuery
	{backslashQuotes: "'\"`", hashComments: true, dollarQuotes: true},                           // ClickHouse
	{escapeStrings: true, dollarQuotes: true, nestedComments: true, crEndsLine: true, whitespace: whitespaceDuckDB},
	{escapeStrings: true, dollarQuotes: true, nestedComments: true, crEndsLine: true, whitespace: whitespaceASCII}, // PostgreSQL
}

// snowflakeDialect is looked at only for a text with //, which elsewhere is an operator.
var snowflakeDialect = dialect{backslashQuotes: "'", dollarQuotes: true, slashComments: true}

// whitespace tells the characters beyond ASCII that are white space from those that
// stand in words.
type whitespace uint8

const (
	whitespaceAll    whitespace = iota // all that any server takes for white space
	whitespaceDuckDB                   // without line and paragraph separators
	whitespaceASCII
)

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

// bracket is a [quoted identifier] where the dialect has them. What stands up to
// the first ] is looked at once for all brackets that open before it.
func (l *lexer) bracket(s string) (kind, int) {
	if !l.d.bracketNames && (l.ambiguous || l.at < l.bracketEnd) {
		return punctToken, 1
	}
	end := strings.IndexByte(s, ']')
	if end < 0 || strings.ContainsAny(s[:end], "'\"`;#$") || strings.Contains(s[:end], "--") || strings.Contains(s[:end], "/*") {
		l.ambiguous = true
	}
	l.bracketEnd = l.at + end
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
