package bind

import (
	"fmt"
	"reflect"
	"slices"

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
	for i := range l.items {
		item, err := valueOf(v.Index(i).Interface(), depth+1)
		if err != nil {
			return Value{}, fmt.Errorf("element %d: %w", i, err)
		}
		l.items[i] = item
	}
	if typed := l.typedItem(); typed.v != nil {
		l.element = typed.arrowType()
	}
	for i, item := range l.items {
		if !item.isOf(l.element) {
			return Value{}, fmt.Errorf("element %d is %v, others are %v: a list has elements of one type", i, item.arrowType(), l.element)
		}
	}
	return Value{v: l}, nil
}

// typedItem is the first element that tells the type of all: a list without any value
// tells it only where no other does. It is NULL when all are.
func (l list) typedItem() (typed Value) {
	for _, item := range l.items {
		if item.hasType() {
			return item
		}
		if typed.v == nil {
			typed = item
		}
	}
	return typed
}

// hasType reports whether the value is of one type alone: NULL is of each, a list without
// any value is one of whatever.
func (v Value) hasType() bool {
	if l, ok := v.v.(list); ok {
		return slices.ContainsFunc(l.items, Value.hasType)
	}
	return v.v != nil
}

// isOf reports whether the value can be appended to a column of a type.
func (v Value) isOf(t arrow.DataType) bool {
	l, isList := v.v.(list)
	switch {
	case v.v == nil:
		return true
	case !isList || v.hasType():
		return arrow.TypeEqual(v.arrowType(), t)
	}
	of, ok := t.(*arrow.ListType)
	return ok && !slices.ContainsFunc(l.items, func(item Value) bool { return !item.isOf(of.Elem()) })
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
