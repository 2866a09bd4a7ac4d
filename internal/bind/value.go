package bind

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/rowscan"
)

// Value is one parameter: nil, bool, int64, uint64, float64, string, []byte, time.Time,
// time.Duration, a Decimal or a list. The zero Value is NULL.
type Value struct {
	v    any
	name string // of the parameter, or empty: it stands by its position
}

// nullType is the type of NULLs of no type. Servers turn texts into whatever they need;
// Arrow's own null type many do not know, and arrow-go itself takes its values for valid.
var nullType arrow.DataType = arrow.BinaryTypes.String

var (
	valuerType    = reflect.TypeFor[driver.Valuer]()
	marshalerType = reflect.TypeFor[encoding.TextMarshaler]()
	timeType      = reflect.TypeFor[time.Time]()
	rawJSONType   = reflect.TypeFor[json.RawMessage]()
)

// maxDepth bounds pointers, Value methods that return another and lists within lists: a
// value may contain itself.
const maxDepth = 32

// ValueOf reads one value. Named types are as what they are made of. In this order:
//
//   - a Decimal, also in a sql.Null, is a text as a parameter, and a decimal in a column of Rows;
//   - a type with a Value method of database/sql is what that returns, also where it is a
//     nil slice or map; as in database/sql, a nil pointer to such a type is NULL, and one
//     whose pointer has the method is what that returns;
//   - nil, nil pointers, nil slices and nil maps are NULL, and so is a struct of nothing but
//     an embedded pointer from which it has its method, where that is nil;
//   - time.Time, time.Duration and []byte are what they are, json.RawMessage is a text;
//   - booleans, integers, floats and strings are what they are;
//   - a type with MarshalText is its text: addresses of net/netip, for example, or
//     *big.Int;
//   - slices and arrays are lists, those of bytes without a Value method binary values.
//
// A Value is itself, and a sql.NamedArg the value of a named parameter.
func ValueOf(v any) (Value, error) {
	named, ok := v.(sql.NamedArg)
	if !ok {
		return valueOf(v, 0)
	}
	value, err := valueOf(named.Value, 0)
	value.name = named.Name
	return value, err
}

// Go is the value as Go has it; ValueOf makes the same of it again. A list stays a Value.
func (v Value) Go() any {
	switch own := v.v.(type) {
	case list:
		return v
	case rowscan.Decimal:
		return own.String()
	}
	return v.v
}

func valueOf(v any, depth int) (Value, error) {
	if depth > maxDepth {
		return Value{}, fmt.Errorf("a value of type %T is nested more than %d deep", v, maxDepth)
	}
	switch v := v.(type) {
	case nil, bool, int64, uint64, float64, string, time.Time, time.Duration, rowscan.Decimal:
		return Value{v: v}, nil
	case *rowscan.Decimal:
		if v == nil {
			return Value{}, nil
		}
		return Value{v: *v}, nil
	case sql.Null[rowscan.Decimal]:
		if !v.Valid {
			return Value{}, nil
		}
		return Value{v: v.V}, nil
	case Value:
		return v, nil
	case sql.NamedArg:
		return Value{}, fmt.Errorf("the named parameter %q stands within another value", v.Name)
	case arrow.RecordBatch: // which other calls may retain now
		return Value{}, errors.New("a record batch of parameters stands alone, in place of values")
	}
	rv := reflect.ValueOf(v)
	if rv.Kind() == reflect.Pointer && rv.IsNil() && rv.Type().Elem().Implements(valuerType) {
		return Value{}, nil
	}
	if valuer, ok := v.(driver.Valuer); ok {
		inner, isNull, err := called(rv, valuer.Value)
		if err != nil || isNull {
			return Value{}, err
		}
		return valueOf(inner, depth+1)
	}
	if isNil(rv) {
		return Value{}, nil
	}
	switch v := v.(type) {
	case []byte:
		return Value{v: bytes.Clone(v)}, nil
	case json.RawMessage:
		return Value{v: string(v)}, nil
	}
	return reflected(rv, depth)
}

// isNil reports whether v is a nil that stands for NULL.
func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return v.IsNil()
	}
	return false
}

// reflected reads a value by its kind.
func reflected(v reflect.Value, depth int) (Value, error) {
	switch v.Kind() {
	case reflect.Bool:
		return Value{v: v.Bool()}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Value{v: v.Int()}, nil
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return Value{v: int64(v.Uint())}, nil //nolint:gosec // at most 32 bits
	case reflect.Uint, reflect.Uint64:
		return Value{v: v.Uint()}, nil
	case reflect.Float32, reflect.Float64:
		return Value{v: v.Float()}, nil
	case reflect.String:
		return Value{v: v.String()}, nil
	case reflect.Pointer: // to a struct, its own MarshalText counts
		if t := v.Type(); t.Elem().Kind() != reflect.Struct || t.Elem().Implements(marshalerType) || !t.Implements(marshalerType) {
			return valueOf(v.Elem().Interface(), depth+1)
		}
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, isNull, err := called(v, m.MarshalText)
		if isNull || isTextOfNil(v, text) {
			return Value{}, err
		}
		return Value{v: string(text)}, err
	}
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Array {
		return listOf(v, depth)
	}
	if v.Kind() == reflect.Map {
		return Value{}, fmt.Errorf("a value of type %s cannot be sent: a named parameter is a sql.Named(name, value), and json.RawMessage is sent as JSON", v.Type())
	}
	return Value{}, fmt.Errorf("a value of type %s cannot be sent: give one of its parts, or a record batch of Arrow", v.Type())
}

// arrowType is the type in which the value is sent.
func (v Value) arrowType() arrow.DataType {
	switch v := v.v.(type) {
	case bool:
		return arrow.FixedWidthTypes.Boolean
	case int64:
		return arrow.PrimitiveTypes.Int64
	case uint64:
		return arrow.PrimitiveTypes.Uint64
	case float64:
		return arrow.PrimitiveTypes.Float64
	case string, rowscan.Decimal:
		return arrow.BinaryTypes.String
	case []byte:
		return arrow.BinaryTypes.Binary
	case time.Time:
		return arrow.FixedWidthTypes.Timestamp_us
	case time.Duration:
		return arrow.FixedWidthTypes.Duration_ns
	case list:
		return arrow.ListOf(v.element)
	default:
		return nullType
	}
}

// AppendTo appends the value to a builder of its type.
func (v Value) AppendTo(b array.Builder) error {
	switch v := v.v.(type) {
	case bool:
		b.(*array.BooleanBuilder).Append(v)
	case int64:
		b.(*array.Int64Builder).Append(v)
	case uint64:
		b.(*array.Uint64Builder).Append(v)
	case float64:
		b.(*array.Float64Builder).Append(v)
	case string:
		b.(*array.StringBuilder).Append(v)
	case rowscan.Decimal:
		b.(*array.StringBuilder).Append(v.String())
	case []byte:
		b.(*array.BinaryBuilder).Append(v)
	case time.Time:
		return appendTime(b, v)
	case time.Duration:
		b.(*array.DurationBuilder).Append(arrow.Duration(v))
	case list:
		return v.appendTo(b.(*array.ListBuilder))
	default:
		b.AppendNull()
	}
	return nil
}
