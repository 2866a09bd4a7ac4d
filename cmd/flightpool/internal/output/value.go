package output

import (
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/rowscan"
)

// text is a value as CSV and tables have it: what rowscan has for JSON, without the
// quotes of a string. It is false for NULL, wherever in the encodings of the column that
// stands. Arrow's own texts are not used: they make 00:00:00 of 24:00:00, a text of
// NULL in a dictionary, and no time at all of one in a zone that this machine does not know.
func text(col arrow.Array, row int) (string, bool) {
	text := string(rowscan.AppendJSON(nil, col, row))
	switch {
	case text == "null":
		return "", false
	case text[0] == '"':
		text, _ = strconv.Unquote(text) // the escapes of JSON are some of Go's
	}
	return text, true
}
