package rowscan

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// sharedTexts is how many bytes texts of neighbouring rows are copied together in. One that is
// kept keeps at most so many alive; a copy for each costs more than the reading.
const sharedTexts = 256

// textsOf gives the texts of a column in memory that is not the column's. It is nil for
// other columns. It is for rows in order: each step back copies again.
func textsOf(col arrow.Array) func(row int) string {
	if col.Len() == 0 { // which may have no offsets
		return nil
	}
	switch a := col.(type) {
	case *array.String:
		return copiedTexts(a.ValueOffsets(), a.ValueBytes())
	case *array.LargeString:
		return copiedTexts(a.ValueOffsets(), a.ValueBytes())
	case *array.StringView: // whose texts may lie anywhere
		return func(row int) string { return strings.Clone(a.Value(row)) }
	}
	return nil
}

// copiedTexts gives the texts between offsets, of which the first is where bytes begins.
func copiedTexts[O int32 | int64](offsets []O, bytes []byte) func(row int) string {
	var copied string   // of rows first to end-1
	var first, end int  //
	var at O            // the offset at which it begins
	begin := offsets[0] //
	return func(row int) string {
		if row < first || row >= end {
			first, end, at = row, row+1, offsets[row]
			for end+1 < len(offsets) && offsets[end+1]-at <= sharedTexts {
				end++
			}
			copied = string(bytes[at-begin : offsets[end]-begin])
		}
		return copied[offsets[row]-at : offsets[row+1]-at]
	}
}
