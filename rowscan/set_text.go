package rowscan

import (
	"database/sql"
	"encoding"
	"fmt"
	"reflect"
	"runtime"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/internal/structfields"
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

// isTimeOfDay tells a time of day from a duration.
func (v *value) isTimeOfDay() bool {
	id := v.col.DataType().ID()
	return id == arrow.TIME32 || id == arrow.TIME64
}

// embeddedWith finds the embedded pointers through which a struct may have the method of
// an interface.
func embeddedWith(t, method reflect.Type) (paths [][]int) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) { // the outer ones first
		if f.Anonymous && f.Type.Kind() == reflect.Pointer && f.Type.Implements(method) {
			paths = append(paths, f.Index)
		}
	}
	return paths
}

// allocate makes what embedded pointers point to, as far as it can be set: a method that
// dst has from a nil one would panic.
func allocate(dst reflect.Value, paths [][]int) {
	for _, path := range paths {
		if p, err := dst.FieldByIndexErr(path); err == nil && p.CanSet() && p.IsNil() {
			p.Set(reflect.New(p.Type().Elem()))
		}
	}
}

// scanSetter calls a Scan method. At NULL a type with a method of its own may leave its
// embedded pointer nil: only where the method is that of the pointer is there one then.
func scanSetter(embedded [][]int) setter {
	scan := func(dst reflect.Value, v value) error {
		return dst.Addr().Interface().(sql.Scanner).Scan(v.driverValue())
	}
	if len(embedded) == 0 {
		return scan
	}
	return func(dst reflect.Value, v value) (err error) {
		if v.kind != nullKind {
			allocate(dst, embedded)
			return scan(dst, v)
		}
		defer func() {
			if p := recover(); p != nil {
				if _, isNil := p.(runtime.Error); !isNil {
					panic(p)
				}
				allocate(dst, embedded)
				err = scan(dst, v)
			}
		}()
		return scan(dst, v)
	}
}

// textSetter gives UnmarshalText the texts, integers, decimals, times and times of day of a
// column, each as a string gets it, and UUIDs where t has no bytes to take them. Floats and booleans are
// not given: which text is theirs differs from one program to the next. What else there is
// goes by the kind of t, if that fits: lists, structs, bytes. A time without a zone, and a
// date, is tried as an instant of UTC too, as setTime reads it.
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
	embedded := embeddedWith(t, textReaderType)
	mayBeNil := structfields.IsEmbeddedPointer(t) && len(embedded) > 0
	return func(dst reflect.Value, v value) error {
		switch v.kind {
		case textKind, intKind, uintKind, decimalKind, timeKind:
		case nullKind:
			if mayBeNil {
				return nil
			}
			return byKind(dst, v)
		case durationKind:
			if !v.isTimeOfDay() {
				return byKind(dst, v)
			}
		case uuidKind:
			if t.Kind() != reflect.Struct {
				return byKind(dst, v)
			}
		default:
			return byKind(dst, v)
		}
		read := func(text string) error {
			allocate(dst, embedded)
			return dst.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
		}
		err := read(v.text())
		if err != nil && v.kind == timeKind { // as what embeds a time.Time wants it
			dst.SetZero()
			if read(v.time().Format(time.RFC3339Nano)) == nil {
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("%w: %w", v.typeMismatch(t, ""), err)
		}
		return nil
	}
}
