package rowscan

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/float16"
)

// Value is the value of col at row as a field of type any gets it from Rows:
// nil, a bool, an integer or float of its width, string, []byte, time.Time,
// time.Duration (also for times of day) or Decimal, a []any for a list, a
// map[string]any for a struct or map. What Go has no type for is text:
// intervals, and numbers and durations beyond the range of Decimal and
// time.Duration. A map with NULL or equal keys is a []any of its entries.
//
// Dictionaries, run-ends, unions and extensions are the value that they stand
// for; a NULL in any of them is nil. It shares no memory with col.
func Value(col arrow.Array, row int) any { return valueOf(col, row).goValue() }

// goValue is the value as the nearest Go type, see Value. A kind that is not named here,
// such as a UUID, is text.
func (v value) goValue() any {
	switch v.kind {
	case nullKind:
		return nil
	case boolKind:
		return v.bool()
	case intKind, uintKind, floatKind:
		return v.sizedNumber()
	case binaryKind:
		return append([]byte{}, v.bytes()...)
	case timeKind:
		return v.time()
	case durationKind:
		return time.Duration(v.int())
	case decimalKind:
		d, _ := v.decimal()
		return d
	case listKind:
		return v.goList()
	case structKind:
		return v.goStruct()
	case mapKind:
		return v.goMap()
	default:
		return v.text()
	}
}

// sizedNumber is an integer or float of the width that its column has.
func (v *value) sizedNumber() any {
	switch {
	case v.kind == floatKind && v.size == 32:
		return float32(v.float())
	case v.kind == floatKind:
		return v.float()
	case v.kind == uintKind:
		switch v.size {
		case 8:
			return uint8(v.num)
		case 16:
			return uint16(v.num)
		case 32:
			return uint32(v.num)
		}
		return v.num
	}
	switch v.size {
	case 8:
		return int8(v.int())
	case 16:
		return int16(v.int())
	case 32:
		return int32(v.int())
	}
	return v.int()
}

// halfFloat is the number that a half float is. Of those below the least normal one, 2^-14,
// arrow-go's Float32 makes others, near zero.
func halfFloat(half float16.Num) float64 {
	if bits := half.Uint16(); bits&0x7c00 == 0 {
		f := math.Ldexp(float64(bits&0x3ff), -24)
		if half.Signbit() {
			return -f
		}
		return f
	}
	return float64(half.Float32())
}

// goList is the elements of a list, or the entries of a map, each a map of its
// two members. It is never nil.
func (v *value) goList() []any {
	elements, from, to := v.list()
	out := make([]any, 0, to-from)
	for i := from; i < to; i++ {
		out = append(out, valueOf(elements, i).goValue())
	}
	return out
}

// goStruct is the members of a struct by name. The second pass, for names that
// come twice, is rare: so the keys are made unique only where the first has
// lost one.
func (v *value) goStruct() map[string]any {
	t := v.fields()
	out := make(map[string]any, t.NumFields())
	for i := range t.NumFields() {
		out[t.Field(i).Name] = v.member(i).goValue()
	}
	if len(out) == t.NumFields() {
		return out
	}
	for i, name := range uniqueNames(t.Fields()) {
		out[name] = v.member(i).goValue()
	}
	return out
}

// goMap is the entries of a map by the text of their keys. Where that would
// lose an entry, because two keys have one text or one is NULL, it is the list
// of the entries (goList).
func (v *value) goMap() any {
	keys, items, from, to := v.entries()
	out := make(map[string]any, to-from)
	for i := from; i < to; i++ {
		key := valueOf(keys, i)
		name := key.text()
		if _, taken := out[name]; taken || key.kind == nullKind {
			return v.goList()
		}
		out[name] = valueOf(items, i).goValue()
	}
	return out
}

// driverValue is the value as database/sql gives one to a Scanner: nil, an
// int64, float64, bool, []byte, string or time.Time. Durations and times of day
// are nanoseconds, decimals and what is beyond these types text, and nested
// values JSON. Bytes are copied, since a Scanner may keep what it is given;
// strings are not.
func (v *value) driverValue() any {
	switch v.kind {
	case nullKind:
		return nil
	case boolKind:
		return v.bool()
	case intKind, durationKind:
		return v.int()
	case uintKind:
		if v.num <= math.MaxInt64 {
			return v.int()
		}
		return v.text()
	case floatKind:
		return v.float()
	case binaryKind:
		return append([]byte{}, v.bytes()...)
	case timeKind:
		return v.time()
	default:
		return v.text()
	}
}

// typeMismatch says that a value cannot go into a Go type, and why where that
// is not plain from the types. The value itself is shown, shortened, but for
// binary values, of which only the length is.
func (v *value) typeMismatch(t reflect.Type, why string) error {
	if why != "" {
		why = ": " + why
	}
	switch v.kind {
	case nullKind:
		return fmt.Errorf("NULL does not fit %s%s", t, why)
	case binaryKind:
		return fmt.Errorf("%d bytes (%s) do not fit %s%s", len(v.bytes()), v.col.DataType(), t, why)
	case listKind, structKind, mapKind:
		return fmt.Errorf("%s does not fit %s%s", v.col.DataType(), t, why)
	case textKind:
		return fmt.Errorf("%q (%s) does not fit %s%s", shortened(v.str), v.col.DataType(), t, why)
	default:
		return fmt.Errorf("%s (%s) does not fit %s%s", shortened(v.text()), v.col.DataType(), t, why)
	}
}
