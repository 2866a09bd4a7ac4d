package rowscan

import (
	"fmt"
	"reflect"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/structfields"
)

// field is a field of a struct that takes a column, or, without a path, the whole of a
// value.
type field struct {
	structfields.Field
	set setter
}

// fieldsOf lists the fields of a struct type that take columns. All faults are joined: a
// field of a type that no column fits is one, unless its tag leaves it out. So is a
// struct without such a field, since it would take anything and keep nothing of it.
func (s setters) fieldsOf(t reflect.Type) ([]field, error) {
	found, err := structfields.Of(t, isScalar)
	faults := []error{err}
	if err == nil && len(found) == 0 {
		faults = append(faults, fmt.Errorf("type %s cannot hold a column: it has no exported field", t))
	}
	fields := make([]field, len(found))
	for i, f := range found {
		set, err := s.of(f.Type)
		if err != nil {
			faults = append(faults, fmt.Errorf("field %s: %w", f.GoName, err))
		}
		fields[i] = field{f, set}
	}
	return fields, errjoin.Join(faults...)
}

// locate is the field of a struct. Embedded pointers on the way are allocated.
// dst must be addressable. Without a path it is dst itself.
func (f *field) locate(dst reflect.Value) reflect.Value {
	for _, step := range f.Path {
		if dst.Kind() == reflect.Pointer { // never the first
			if dst.IsNil() {
				dst.Set(reflect.New(dst.Type().Elem()))
			}
			dst = dst.Elem()
		}
		dst = dst.Field(step)
	}
	return dst
}
