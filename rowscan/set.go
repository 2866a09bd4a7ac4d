package rowscan

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/flightpool/flightpool/internal/structfields"
)

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	decimalType  = reflect.TypeFor[Decimal]()
	rawJSONType  = reflect.TypeFor[json.RawMessage]()
	scannerType  = reflect.TypeFor[sql.Scanner]()
)

// setter sets dst, which can be addressed and is zero, to v exactly, or fails.
// An error names the value and the type, not the column, which the caller adds.
// It leaves dst as it was, or set in part where dst is nested.
type setter func(dst reflect.Value, v value) error

// setters makes the setter of each Go type once. It belongs to one result.
//
// A nil setter says that its type is being made: a type may contain itself, by
// way of a pointer, slice or map.
//
// It is not safe for use by several goroutines, and neither are its setters:
// those of structs keep the plans for the types of columns that they have met.
type setters map[reflect.Type]*setter

// of is the setter of t. It fails if no column at all fits t. Whether the
// column at hand does is seen value by value.
func (s setters) of(t reflect.Type) (setter, error) {
	if known, ok := s[t]; ok {
		if *known != nil {
			return *known, nil
		}
		return func(dst reflect.Value, v value) error { return (*known)(dst, v) }, nil // t contains itself
	}
	made := new(setter)
	s[t] = made
	set, err := s.build(t)
	if err != nil {
		delete(s, t)
		*made = func(reflect.Value, value) error { return err } // of types that contain t
		return nil, err
	}
	*made = set
	return set, nil
}

// isScalar reports whether t takes a whole column although it is a struct, or
// contains one. Such a type is time.Time, or has a Scan method of its own, on its pointer
// as database/sql wants it, so that its fields are not looked at; or it has an
// UnmarshalText method, and no fields to look at.
func isScalar(t reflect.Type) bool {
	return t == timeType || reflect.PointerTo(t).Implements(scannerType) || readsText(t) && structfields.IsOpaque(t)
}

// build makes the setter of t. Types of our own and those with a Scan method
// come before their kinds: Decimal is a struct, time.Duration an integer, and a
// user's type may be of any kind.
func (s setters) build(t reflect.Type) (setter, error) {
	switch {
	case t == decimalType:
		return setDecimal, nil
	case t == timeType:
		return setTime, nil
	case t == durationType:
		return setDuration, nil
	case t == rawJSONType:
		return setRawJSON, nil
	case reflect.PointerTo(t).Implements(scannerType):
		return scanSetter(embeddedWith(t, scannerType)), nil
	case readsText(t):
		return s.textSetter(t), nil
	default:
		return s.ofKind(t)
	}
}

// ofKind makes the setter of a type that is as what it is made of.
func (s setters) ofKind(t reflect.Type) (setter, error) {
	switch t.Kind() {
	case reflect.Bool:
		return setBool, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return setInt, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return setUint, nil
	case reflect.Float32, reflect.Float64:
		return setFloat, nil
	case reflect.String:
		return setString, nil
	case reflect.Pointer:
		return s.pointerSetter(t)
	case reflect.Slice:
		return s.sliceSetter(t)
	case reflect.Array:
		return s.arraySetter(t)
	case reflect.Map:
		return s.mapSetter(t)
	case reflect.Struct:
		return s.structSetter(t)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return setAny, nil
		}
	}
	return nil, fmt.Errorf("type %s cannot hold a column", t)
}

// nullMismatch is the error of a NULL for a type that has no nil. A zero in its
// place could not be told from a value.
func nullMismatch(v value, t reflect.Type) error { return v.typeMismatch(t, "use a pointer") }

// setAny sets an any to what Value gives. NULL leaves it nil.
func setAny(dst reflect.Value, v value) error {
	if v.kind != nullKind {
		dst.Set(reflect.ValueOf(v.goValue()))
	}
	return nil
}

// setBool takes booleans alone: which numbers are true differs from one
// database to the next.
func setBool(dst reflect.Value, v value) error {
	switch v.kind {
	case nullKind:
		return nullMismatch(v, dst.Type())
	case boolKind:
		dst.SetBool(v.bool())
		return nil
	default:
		return v.typeMismatch(dst.Type(), "")
	}
}

// setString takes everything but NULL.
func setString(dst reflect.Value, v value) error {
	if v.kind == nullKind {
		return nullMismatch(v, dst.Type())
	}
	dst.SetString(v.text())
	return nil
}

// setInt takes integers of both signs, and decimals without a fraction, in the
// range of dst. Floats are not taken, not even whole ones: they may have been
// rounded before.
func setInt(dst reflect.Value, v value) error {
	n, fits := int64(0), false
	switch v.kind {
	case nullKind:
		return nullMismatch(v, dst.Type())
	case intKind:
		n, fits = v.int(), true
	case uintKind:
		n, fits = v.int(), v.num <= math.MaxInt64
	case decimalKind:
		d, _ := v.decimal()
		n, fits = d.Int64()
	default:
	}
	if !fits || dst.OverflowInt(n) {
		return v.typeMismatch(dst.Type(), "")
	}
	dst.SetInt(n)
	return nil
}

// setUint is setInt for unsigned integers; what is negative does not fit.
func setUint(dst reflect.Value, v value) error {
	n, fits := v.num, false
	switch v.kind {
	case nullKind:
		return nullMismatch(v, dst.Type())
	case intKind:
		fits = v.int() >= 0
	case uintKind:
		fits = true
	case decimalKind:
		d, _ := v.decimal()
		n, fits = d.uint64()
	default:
	}
	if !fits || dst.OverflowUint(n) {
		return v.typeMismatch(dst.Type(), "")
	}
	dst.SetUint(n)
	return nil
}

// inexactFloatText says why a number does not fit a float.
const inexactFloatText = "the nearest float is another number; use a string or a rowscan.Decimal"

// setFloat takes numbers that a float of dst's size has exactly. For integers
// that is the case when their significant bits fit the mantissa. NaN and
// infinities of floats are kept. A decimal is also taken where it is the
// shortest text of the float, as 0.1 is.
func setFloat(dst reflect.Value, v value) error {
	size := dst.Type().Bits()
	mantissa := 53
	if size == 32 {
		mantissa = 24
	}
	f, fits := 0.0, false
	switch v.kind {
	case nullKind:
		return nullMismatch(v, dst.Type())
	case floatKind:
		f = v.float()
		fits = size == 64 || math.IsNaN(f) || float64(float32(f)) == f
	case intKind:
		f, fits = float64(v.int()), significantBits(magnitude(v.int())) <= mantissa
	case uintKind:
		f, fits = float64(v.num), significantBits(v.num) <= mantissa
	case decimalKind:
		d, _ := v.decimal()
		f, fits = d.exactFloat(size)
	default:
		return v.typeMismatch(dst.Type(), "")
	}
	if !fits {
		return v.typeMismatch(dst.Type(), inexactFloatText)
	}
	dst.SetFloat(f)
	return nil
}

// setTime takes dates, as midnight in UTC, and timestamps. One without a zone
// is read as UTC.
func setTime(dst reflect.Value, v value) error {
	switch v.kind {
	case nullKind:
		return nullMismatch(v, timeType)
	case timeKind:
		*dst.Addr().Interface().(*time.Time) = v.time()
		return nil
	default:
		return v.typeMismatch(timeType, "")
	}
}

// setDecimal takes decimals with their scale, integers, and texts that are
// numbers. Floats are not taken: their text has digits that nobody has written.
func setDecimal(dst reflect.Value, v value) error {
	d, fits := Decimal{}, true
	switch v.kind {
	case nullKind:
		return nullMismatch(v, decimalType)
	case decimalKind:
		d, _ = v.decimal()
	case intKind, uintKind, textKind:
		var err error
		if d, err = ParseDecimal(v.text()); err != nil {
			return err
		}
	default:
		fits = false
	}
	if !fits {
		return v.typeMismatch(decimalType, "")
	}
	*dst.Addr().Interface().(*Decimal) = d
	return nil
}
