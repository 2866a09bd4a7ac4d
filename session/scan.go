package session

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	scannerType  = reflect.TypeFor[sql.Scanner]()
	bytesType    = reflect.TypeFor[[]byte]()
)

// scannable reports whether a column can go into a value of type t at all.
func scannable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Uintptr, reflect.Complex64, reflect.Complex128:
		return false
	case reflect.Pointer:
		return scannable(t.Elem())
	case reflect.Interface:
		return t.NumMethod() == 0
	default:
		return true
	}
}

// scan sets dst to the value of col at row.
func scan(dst reflect.Value, col arrow.Array, row int) error {
	if dst.CanAddr() && dst.Addr().Type().Implements(scannerType) {
		return dst.Addr().Interface().(sql.Scanner).Scan(plain(col, row))
	}
	if isNull(col, row) {
		switch dst.Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
			dst.SetZero()
			return nil
		default:
			return fmt.Errorf("NULL does not fit %s: use a pointer", dst.Type())
		}
	}
	switch dst.Kind() {
	case reflect.Pointer:
		v := reflect.New(dst.Type().Elem())
		if err := scan(v.Elem(), col, row); err != nil {
			return err
		}
		dst.Set(v)
		return nil
	case reflect.Interface:
		dst.Set(reflect.ValueOf(plain(col, row)))
		return nil
	case reflect.Slice, reflect.Map, reflect.Struct, reflect.Array:
		if dst.Type() != timeType && dst.Type() != bytesType {
			return scanNested(dst, col, row)
		}
	case reflect.String:
		dst.SetString(asString(col, row))
		return nil
	}
	return assign(dst, plain(col, row))
}

// scanNested fills slices from lists, structs from structs and maps from maps.
func scanNested(dst reflect.Value, col arrow.Array, row int) error {
	switch a := col.(type) {
	case array.ListLike:
		if dst.Kind() != reflect.Slice {
			break
		}
		from, to := a.ValueOffsets(row)
		if m, ok := a.(*array.Map); ok {
			return misfit(dst, m)
		}
		out := reflect.MakeSlice(dst.Type(), int(to-from), int(to-from))
		for i := range out.Len() {
			if err := scan(out.Index(i), a.ListValues(), int(from)+i); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
		dst.Set(out)
		return nil
	case *array.Struct:
		if dst.Kind() != reflect.Struct {
			break
		}
		plan, err := planRow(dst.Type(), arrow.NewSchema(a.DataType().(*arrow.StructType).Fields(), nil))
		if err != nil {
			return err
		}
		for _, c := range plan {
			if err := scan(dst.FieldByIndex(c.field), a.Field(c.column), row); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return nil
	}
	if m, ok := col.(*array.Map); ok && dst.Kind() == reflect.Map {
		return scanMap(dst, m, row)
	}
	return misfit(dst, col)
}

func scanMap(dst reflect.Value, m *array.Map, row int) error {
	from, to := m.ValueOffsets(row)
	out := reflect.MakeMapWithSize(dst.Type(), int(to-from))
	for i := int(from); i < int(to); i++ {
		k, v := reflect.New(dst.Type().Key()).Elem(), reflect.New(dst.Type().Elem()).Elem()
		if err := errors.Join(scan(k, m.Keys(), i), scan(v, m.Items(), i)); err != nil {
			return err
		}
		out.SetMapIndex(k, v)
	}
	dst.Set(out)
	return nil
}

func misfit(dst reflect.Value, col arrow.Array) error {
	return fmt.Errorf("%s does not fit %s", col.DataType(), dst.Type())
}

// assign puts a plain value into dst when it fits without loss.
func assign(dst reflect.Value, v any) error {
	src := reflect.ValueOf(v)
	bad := fmt.Errorf("%v (%s) does not fit %s", v, src.Type(), dst.Type())
	switch dst.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if (dst.Type() == durationType) != (src.Type() == durationType) && src.Type() == durationType {
			return bad
		}
		switch {
		case src.CanInt() && !dst.OverflowInt(src.Int()):
			dst.SetInt(src.Int())
			return nil
		case src.CanUint() && src.Uint() <= math.MaxInt64 && !dst.OverflowInt(int64(src.Uint())):
			dst.SetInt(int64(src.Uint()))
			return nil
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		switch {
		case src.CanUint() && !dst.OverflowUint(src.Uint()):
			dst.SetUint(src.Uint())
			return nil
		case src.CanInt() && src.Int() >= 0 && !dst.OverflowUint(uint64(src.Int())):
			dst.SetUint(uint64(src.Int()))
			return nil
		}
	case reflect.Float32, reflect.Float64:
		switch {
		case src.CanFloat():
			dst.SetFloat(src.Float())
			return nil
		case src.CanInt():
			dst.SetFloat(float64(src.Int()))
			return nil
		case src.CanUint():
			dst.SetFloat(float64(src.Uint()))
			return nil
		}
		if d, ok := v.(Decimal); ok {
			dst.SetFloat(d.Float64())
			return nil
		}
	case reflect.Bool, reflect.Struct, reflect.Slice:
		if src.Type().AssignableTo(dst.Type()) {
			dst.Set(src)
			return nil
		}
	}
	return bad
}
