package output

import (
	"encoding/json"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/rowscan"
)

// text is a value that is not NULL, as CSV and tables have it.
func text(col arrow.Array, row int) string {
	if !hasDecimals(col.DataType()) {
		return col.ValueStr(row)
	}
	switch v := rowscan.Value(col, row).(type) {
	case []any, map[string]any:
		if all, err := json.Marshal(v); err == nil {
			return string(all)
		}
		return fmt.Sprint(v)
	default:
		return fmt.Sprint(v)
	}
}

// jsonValue is a value as JSON. Decimals are strings, since most readers make floats of numbers.
func jsonValue(col arrow.Array, row int) ([]byte, error) {
	if hasDecimals(col.DataType()) {
		return json.Marshal(rowscan.Value(col, row))
	}
	return json.Marshal(col.GetOneForMarshal(row))
}

// hasDecimals reports whether values of a type are, or hold, decimals: Arrow makes
// texts of these through a floating-point number, which rounds them.
func hasDecimals(t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return hasDecimals(t.ValueType)
	case *arrow.RunEndEncodedType:
		return hasDecimals(t.Encoded())
	case arrow.ExtensionType:
		return hasDecimals(t.StorageType())
	case arrow.NestedType:
		for _, f := range t.Fields() {
			if hasDecimals(f.Type) {
				return true
			}
		}
	}
	return arrow.IsDecimal(t.ID())
}
