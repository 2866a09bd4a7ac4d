package rowscan

import (
	"fmt"
	"iter"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
)

// Maps iterates the rows of r as maps from column name to value, for a quick
// look at a result whose shape is not known, and releases r at the end of the
// loop, however that comes. An error is the last pair: ErrHandleClosed where r was
// released or closed before.
//
// Values are as Value gives them, but own their memory: a row may be kept.
// Every column has its key; NULL is nil. A name that comes again gets "#2",
// "#3" and so on added. Rows is several times faster where the columns are
// known.
//
// Each row is a map of its own. Columns need no plan: the kind of a value
// decides what it is in the map, and it may differ from row to row in a union.
func Maps(r Result) iter.Seq2[map[string]any, error] { return Rows[map[string]any](r) }

var mapType = reflect.TypeFor[map[string]any]()

// mapOf is one row as a map, with memory of its own.
func mapOf(names []string, batch arrow.RecordBatch, row int) map[string]any {
	values := make(map[string]any, len(names))
	for c, name := range names {
		values[name] = valueOf(batch.Column(c), row).goValue()
	}
	return values
}

// uniqueNames is a key for each field. The first field of a name has it as it
// is. Names that are made up are compared with those of the columns too: a
// column may be called "a#2" by itself. The keys of structs and of their JSON
// are made in the same way.
func uniqueNames(fields []arrow.Field) []string {
	names := make([]string, len(fields))
	taken := make(map[string]bool, len(names))
	last := make(map[string]int) // number given to a name
	for i, f := range fields {
		name := f.Name
		if taken[name] {
			n := max(2, last[f.Name]+1)
			for ; ; n++ {
				if name = fmt.Sprintf("%s#%d", f.Name, n); !taken[name] {
					break
				}
			}
			last[f.Name] = n
		}
		taken[name] = true
		names[i] = name
	}
	return names
}
