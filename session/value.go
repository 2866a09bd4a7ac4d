package session

import "github.com/apache/arrow-go/v18/arrow"

// Value is the value of col at row as a field of type any gets it from Rows:
// nil, a bool, a number, string, []byte, time.Time, time.Duration or Decimal,
// a []any for a list, a map[string]any for a struct or map. Strings may share
// the memory of col: clone those that outlive it.
func Value(col arrow.Array, row int) any { return plain(col, row) }
