package sqlscan

import (
	"strings"
	"unicode"
)

// dialect is where families of servers differ in cutting text into tokens.
type dialect struct {
	backslashQuotes    string     // the quotes inside which a backslash guards the next character
	escapeStrings      bool       // E'…' has such backslashes
	dollarQuotes       bool       // $tag$…$tag$ is a string
	bracketNames       bool       // [name] is a quoted identifier
	nestedComments     bool       // block comments nest
	hashComments       bool       // # begins a comment
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

// whitespace tells the characters beyond ASCII that are white space from those that
// stand in words.
type whitespace uint8

const (
	whitespaceAll    whitespace = iota // all that any server takes for white space
	whitespaceDuckDB                   // without line and paragraph separators
	whitespaceASCII
)

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
