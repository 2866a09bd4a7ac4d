package rowscan

import (
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Column is Value for many rows of one column, best in order: what the column is, is looked
// at once. Texts of neighbouring rows share memory, at most 256 bytes of it.
//
// The function that it returns reads col, so col must not be released before its last
// use, and is for one goroutine at a time.
func Column(col arrow.Array) func(row int) any {
	switch a := col.(type) {
	case *array.Int64:
		return column(a, a.Value)
	case *array.Int32:
		return column(a, a.Value)
	case *array.Int16:
		return column(a, a.Value)
	case *array.Float64:
		return column(a, a.Value)
	case *array.Float32:
		return column(a, a.Value)
	case *array.Boolean:
		return column(a, a.Value)
	case *array.String, *array.LargeString, *array.StringView:
		if texts := textsOf(a); texts != nil {
			return column(a, texts)
		}
	case *array.Timestamp:
		if t := a.DataType().(*arrow.TimestampType); t.Unit != arrow.Second { // see directTime
			zone := zoneOf(t)
			return column(a, func(row int) time.Time { return a.Value(row).ToTime(t.Unit).In(zone) })
		}
	}
	return func(row int) any { return Value(col, row) }
}

// column boxes the values of a column whose NULLs are all in its own bitmap.
func column[T any](col arrow.Array, value func(row int) T) func(row int) any {
	mayBeNull := hasValidity(col)
	return func(row int) any {
		if mayBeNull && col.IsNull(row) {
			return nil
		}
		return value(row)
	}
}
