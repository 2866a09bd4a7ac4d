package bind

import (
	"fmt"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// list is a value of several, with the type of its elements, which a list without any
// has as well.
type list struct {
	items   []Value
	element arrow.DataType
}

// listOf reads the elements of a slice or array, which must be of one type.
func listOf(v reflect.Value, depth int) (Value, error) {
	if isBytes(v.Type()) {
		text := make([]byte, v.Len())
		for i := range text { // whose own type may be another than byte
			text[i] = byte(v.Index(i).Uint())
		}
		return Value{v: text}, nil
	}
	l := list{items: make([]Value, v.Len()), element: elementType(v.Type().Elem(), depth)}
	known := false
	for i := range l.items {
		item, err := valueOf(v.Index(i).Interface(), depth+1)
		if err != nil {
			return Value{}, fmt.Errorf("element %d: %w", i, err)
		}
		l.items[i] = item
		if item.v == nil {
			continue
		}
		t := item.arrowType()
		if known && !arrow.TypeEqual(t, l.element) {
			return Value{}, fmt.Errorf("element %d is %v, the elements before it are %v: a list has elements of one type", i, t, l.element)
		}
		l.element, known = t, true
	}
	return Value{v: l}, nil
}

// isBytes reports whether a slice or array is a binary value. One whose elements have a
// Value method is the list of what that returns.
func isBytes(t reflect.Type) bool {
	return t.Elem().Kind() == reflect.Uint8 && !t.Elem().Implements(valuerType)
}

// elementType is the type of the elements of a list that has none, or only NULLs. No
// method of t is called, since it may not expect a zero value.
func elementType(t reflect.Type, depth int) arrow.DataType {
	if t.Kind() == reflect.Struct && t.PkgPath() == "database/sql" && t.NumField() == 2 {
		return elementType(t.Field(0).Type, depth) // sql.Null and its like
	}
	if depth > maxDepth || t.Implements(valuerType) {
		return nullType
	}
	switch t.Kind() {
	case reflect.Pointer:
		return elementType(t.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		switch {
		case t == rawJSONType || t.Implements(marshalerType):
			return nullType
		case isBytes(t):
			return arrow.BinaryTypes.Binary
		default:
			return arrow.ListOf(elementType(t.Elem(), depth+1))
		}
	case reflect.Struct:
		if t != timeType {
			return nullType
		}
	}
	zero, _ := valueOf(reflect.Zero(t).Interface(), depth) // what cannot be sent is of no type
	return zero.arrowType()
}

func (l list) appendTo(b *array.ListBuilder) error {
	b.Append(true)
	for i, item := range l.items {
		if err := item.AppendTo(b.ValueBuilder()); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}
