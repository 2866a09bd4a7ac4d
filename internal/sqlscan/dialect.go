package sqlscan

import "strings"

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
