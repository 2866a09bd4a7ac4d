package rowscan

import (
	"encoding"
	"fmt"
	"reflect"
)

var textReaderType = reflect.TypeFor[encoding.TextUnmarshaler]()

// readsText reports whether t takes texts by its UnmarshalText method. Numbers, strings
// and booleans with such a method do not: they are sent as what they are, too.
func readsText(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Array, reflect.Map:
		return reflect.PointerTo(t).Implements(textReaderType)
	default:
		return false
	}
}

// isOpaque reports whether t is a struct of which nobody else can set a field.
func isOpaque(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		if t.Field(i).IsExported() {
			return false
		}
	}
	return true
}

// textSetter gives UnmarshalText the texts, integers, decimals and times of a column, each
// as a string gets it, and UUIDs where t has no bytes to take them. Floats and booleans are
// not given: which text is theirs differs from one program to the next. What else there is
// goes by the kind of t, if that fits: lists, structs, bytes.
func (s setters) textSetter(t reflect.Type) setter {
	byKind, err := s.ofKind(t)
	if err != nil {
		byKind = func(_ reflect.Value, v value) error {
			if v.kind == nullKind {
				return nullMismatch(v, t)
			}
			return v.typeMismatch(t, "")
		}
	}
	return func(dst reflect.Value, v value) error {
		switch v.kind {
		case textKind, intKind, uintKind, decimalKind, timeKind:
		case uuidKind:
			if t.Kind() != reflect.Struct {
				return byKind(dst, v)
			}
		default:
			return byKind(dst, v)
		}
		if err := dst.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(v.text())); err != nil {
			return fmt.Errorf("%w: %w", v.typeMismatch(t, ""), err)
		}
		return nil
	}
}
