package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// Values of an Engine are int64, float64, string, bool and nil.

func typeOf(v any) arrow.DataType {
	switch v.(type) {
	case float64:
		return arrow.PrimitiveTypes.Float64
	case string:
		return arrow.BinaryTypes.String
	case bool:
		return arrow.FixedWidthTypes.Boolean
	default:
		return arrow.PrimitiveTypes.Int64
	}
}

// zeroOf reports whether columns can have a type.
func zeroOf(t arrow.DataType) (zero any, known bool) {
	switch t.ID() {
	case arrow.INT64:
		return int64(0), true
	case arrow.FLOAT64:
		return float64(0), true
	case arrow.STRING:
		return "", true
	case arrow.BOOL:
		return false, true
	default:
		return nil, false
	}
}

// convert makes a value fit a column.
func convert(v any, t arrow.DataType) (any, error) {
	if n, ok := v.(int64); ok && t.ID() == arrow.FLOAT64 {
		return float64(n), nil
	}
	if v == nil || arrow.TypeEqual(typeOf(v), t) {
		return v, nil
	}
	return nil, fmt.Errorf("conversion error: %v does not fit a column of type %s", v, t)
}

// typed evaluates a row of VALUES for the columns of t that into names, or all.
func (t *table) typed(into []string, items []item, row []any) ([]any, error) {
	values := make([]any, len(items))
	for i, it := range items {
		values[i] = it.bound(row)
	}
	if into == nil {
		return t.typedValues(values)
	}
	if len(into) != len(items) {
		return nil, catalogError("INSERT names %d columns but %d values were supplied", len(into), len(items))
	}
	all := make([]any, t.columns.NumFields())
	for i, name := range into {
		c, err := t.column(name)
		if err != nil {
			return nil, err
		}
		all[c] = values[i]
	}
	return t.typedValues(all)
}

// typedValues makes a row fit t.
func (t *table) typedValues(values []any) ([]any, error) {
	if len(values) != t.columns.NumFields() {
		return nil, catalogError("table %s has %d columns but %d values were supplied", t.name, t.columns.NumFields(), len(values))
	}
	row := make([]any, len(values))
	var err error
	for i, v := range values {
		f := t.columns.Field(i)
		if v == nil && i == t.key {
			return nil, fmt.Errorf("constraint error: column %s must not be null", f.Name)
		}
		if row[i], err = convert(v, f.Type); err != nil {
			return nil, err
		}
	}
	return row, nil
}

// column finds a column by its name, in whatever case.
func (t *table) column(name string) (int, error) {
	if i := slices.IndexFunc(t.columns.Fields(), func(f arrow.Field) bool { return strings.EqualFold(f.Name, name) }); i >= 0 {
		return i, nil
	}
	return -1, catalogError("catalog error: table %s has no column %s", t.name, name)
}

// filter makes a test of WHERE.
func (t *table) filter(where *equals, row []any) (func([]any) bool, error) {
	if where == nil {
		return func([]any) bool { return true }, nil
	}
	c, err := t.column(where.column)
	if err != nil {
		return nil, err
	}
	want, err := convert(where.value.bound(row), t.columns.Field(c).Type)
	return func(r []any) bool { return want != nil && r[c] == want }, err
}
