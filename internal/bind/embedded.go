package bind

import (
	"bytes"
	"encoding"
	"reflect"
	"runtime"

	"github.com/flightpool/flightpool/internal/structfields"
)

// isNilEmbedded reports whether v is a struct of nothing but an embedded pointer, which is
// nil. A method that it has from that is called on nil.
func isNilEmbedded(v reflect.Value) bool {
	return structfields.IsEmbeddedPointer(v.Type()) && v.Field(0).IsNil()
}

// called calls a method of v. One that panics since it is that of a nil embedded pointer says
// that v is NULL.
func called[T any](v reflect.Value, method func() (T, error)) (result T, isNull bool, err error) {
	if isNilEmbedded(v) {
		defer func() {
			p := recover()
			if _, isNil := p.(runtime.Error); p != nil && !isNil {
				panic(p)
			}
			isNull = p != nil
		}()
	}
	result, err = method()
	return result, false, err
}

// isTextOfNil reports whether text is what a nil embedded pointer has for one, as big.Int
// does, and not a method of v's own.
func isTextOfNil(v reflect.Value, text []byte) bool {
	if !isNilEmbedded(v) || !v.Field(0).CanInterface() {
		return false
	}
	m, ok := v.Field(0).Interface().(encoding.TextMarshaler)
	if !ok {
		return false
	}
	its, panics, err := called(v, m.MarshalText)
	return !panics && err == nil && bytes.Equal(its, text)
}
