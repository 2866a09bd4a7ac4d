package sqlscan

import "strings"

// dialect is where families of servers differ in cutting text into tokens.
type dialect struct {
	quotes     string // the quotes inside which a backslash guards the next character
	eStrings   bool   // E'…' has such backslashes
	dollar     bool   // $tag$…$tag$ is a string
	brackets   bool   // [name] is a quoted identifier
	nested     bool   // block comments nest
	hash       bool   // # begins a comment
	dashSpace  bool   // -- begins a comment only before white space
	executable bool   // the content of /*! … */ is executed
	crEndsLine bool   // a carriage return ends a line comment
	blanks     blanks // which characters beyond ASCII are white space
}

func (d dialect) escapes(q byte) bool { return strings.IndexByte(d.quotes, q) >= 0 }

// standard is the dialect of DuckDB and PostgreSQL, by which a text is judged
// first.
var standard = dialect{eStrings: true, dollar: true, nested: true, crEndsLine: true}

// others are the dialects of further servers that speak Flight SQL. They are
// looked at only for a text that contains something they cut otherwise.
var others = []dialect{
	{},               // DataFusion, Calcite (Dremio)
	{brackets: true}, // SQLite
	{quotes: `'"`, hash: true, dashSpace: true, executable: true}, // MySQL, Doris, StarRocks
	{quotes: `'"`, nested: true},                                  // Spark
	{quotes: `'"`, hash: true},                                    // BigQuery
	{quotes: "'\"`", hash: true, dollar: true},                    // ClickHouse
	{eStrings: true, dollar: true, nested: true, crEndsLine: true, blanks: blanksDuckDB},
	{eStrings: true, dollar: true, nested: true, crEndsLine: true, blanks: blanksNone}, // PostgreSQL
}
