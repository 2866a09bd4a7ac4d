package session

import (
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Value is the value of col at row as a field of type any gets it from Rows:
// nil, a bool, a number, string, []byte, time.Time, time.Duration or Decimal,
// a []any for a list, a map[string]any for a struct or map; intervals are text.
// Dictionaries, run-ends, unions and extensions are the value that they stand
// for. Strings may share the memory of col: clone those that outlive it.
func Value(col arrow.Array, row int) any { return plain(col, row) }

// asString is the value as text: strings as they are, all else as Arrow
// prints it.
func asString(col arrow.Array, row int) string {
	switch a := col.(type) {
	case *array.String:
		return a.Value(row)
	case *array.LargeString:
		return a.Value(row)
	case *array.StringView:
		return a.Value(row)
	default:
		return col.ValueStr(row)
	}
}

// plain is the value as the nearest Go type: int64, uint64, float64, bool,
// string, []byte, time.Time, time.Duration, Decimal, []any, map[string]any, or
// nil. Small integers keep their width.
func plain(col arrow.Array, row int) any {
	if isNull(col, row) {
		return nil
	}
	if v, ok := plainScalar(col, row); ok {
		return v
	}
	switch a := col.(type) {
	case *array.Dictionary:
		return plain(a.Dictionary(), a.GetValueIndex(row))
	case *array.RunEndEncoded:
		return plain(a.Values(), a.GetPhysicalIndex(row))
	case *array.DenseUnion:
		return plain(a.Field(a.ChildID(row)), int(a.ValueOffset(row)))
	case *array.SparseUnion:
		return plain(a.Field(a.ChildID(row)), row)
	case array.ExtensionArray:
		if t, ok := a.DataType().(arrow.ExtensionType); ok && t.ExtensionName() == "arrow.uuid" {
			return a.ValueStr(row)
		}
		return plain(a.Storage(), row)
	case *array.Map:
		from, to := a.ValueOffsets(row)
		out := make(map[string]any, to-from)
		for i := int(from); i < int(to); i++ {
			out[asString(a.Keys(), i)] = plain(a.Items(), i)
		}
		return out
	case array.ListLike:
		from, to := a.ValueOffsets(row)
		out := make([]any, 0, to-from)
		for i := int(from); i < int(to); i++ {
			out = append(out, plain(a.ListValues(), i))
		}
		return out
	case *array.Struct:
		t := a.DataType().(*arrow.StructType)
		out := make(map[string]any, a.NumField())
		for i := range a.NumField() {
			out[t.Field(i).Name] = plain(a.Field(i), row)
		}
		return out
	default:
		return col.ValueStr(row)
	}
}

func plainScalar(col arrow.Array, row int) (any, bool) {
	switch a := col.(type) {
	case *array.Int8:
		return a.Value(row), true
	case *array.Int16:
		return a.Value(row), true
	case *array.Int32:
		return a.Value(row), true
	case *array.Int64:
		return a.Value(row), true
	case *array.Uint8:
		return a.Value(row), true
	case *array.Uint16:
		return a.Value(row), true
	case *array.Uint32:
		return a.Value(row), true
	case *array.Uint64:
		return a.Value(row), true
	case *array.Float16:
		return a.Value(row).Float32(), true
	case *array.Float32:
		return a.Value(row), true
	case *array.Float64:
		return a.Value(row), true
	case *array.Boolean:
		return a.Value(row), true
	case *array.String, *array.LargeString, *array.StringView:
		return asString(col, row), true
	case *array.Binary:
		return append([]byte(nil), a.Value(row)...), true
	case *array.LargeBinary:
		return append([]byte(nil), a.Value(row)...), true
	case *array.BinaryView:
		return append([]byte(nil), a.Value(row)...), true
	case *array.FixedSizeBinary:
		return append([]byte(nil), a.Value(row)...), true
	default:
		return plainTime(col, row)
	}
}

func plainTime(col arrow.Array, row int) (any, bool) {
	switch a := col.(type) {
	case *array.Date32:
		return a.Value(row).ToTime(), true
	case *array.Date64:
		return a.Value(row).ToTime(), true
	case *array.Timestamp:
		toTime, err := a.DataType().(*arrow.TimestampType).GetToTimeFunc()
		if err != nil {
			return a.ValueStr(row), true
		}
		return toTime(a.Value(row)), true
	case *array.Time32:
		t := a.DataType().(*arrow.Time32Type)
		return time.Duration(a.Value(row)) * t.Unit.Multiplier(), true
	case *array.Time64:
		t := a.DataType().(*arrow.Time64Type)
		return time.Duration(a.Value(row)) * t.Unit.Multiplier(), true
	case *array.Duration:
		t := a.DataType().(*arrow.DurationType)
		return time.Duration(a.Value(row)) * t.Unit.Multiplier(), true
	case *array.Decimal128:
		t := a.DataType().(*arrow.Decimal128Type)
		return Decimal{text: a.ValueStr(row), value: a.Value(row).ToFloat64(t.Scale)}, true
	case *array.Decimal256:
		t := a.DataType().(*arrow.Decimal256Type)
		return Decimal{text: a.ValueStr(row), value: a.Value(row).ToFloat64(t.Scale)}, true
	default:
		return nil, false
	}
}

// Decimal is a decimal number as an any field or a Scanner gets it.
type Decimal struct {
	text  string
	value float64
}

// String is the exact number.
func (d Decimal) String() string { return d.text }

// Float64 is the nearest float64.
func (d Decimal) Float64() float64 { return d.value }

// isNull is what Arrow's own IsNull should be: a column of type null has no
// bitmap to look at, and calls its values valid.
func isNull(col arrow.Array, row int) bool {
	return col.DataType().ID() == arrow.NULL || col.IsNull(row)
}
