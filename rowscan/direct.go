package rowscan

import (
	"reflect"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// minDirectRows is how many rows of a batch are worth a directCopy for each column: making
// one costs as much as some values do by their setter.
const minDirectRows = 8

// directCopy copies the value at row from one column to one destination, both of which it
// was made for. It returns false, and changes nothing, for what only the setter can decide:
// NULL, and a value that does not fit.
//
// INVARIANT: what it copies is what the setter would have set.
type directCopy func(row int) bool

// bind finds the directCopy of each column of batch to its field in dst, which takes all
// rows of the batch. A field of a T that is a pointer, or behind an embedded pointer, has
// none, since each row gets a struct of its own there.
func (p *rowPlan) bind(dst reflect.Value, batch arrow.RecordBatch) {
	for i := range p.columns {
		c := &p.columns[i]
		c.direct = nil
		if batch.NumRows() >= minDirectRows && !behindPointer(dst.Type(), c.Path) {
			c.direct = directOf(c.locate(dst).Addr().Interface(), batch.Column(c.column))
		}
	}
}

// behindPointer reports whether a step of path, but the last, leads to a pointer.
func behindPointer(t reflect.Type, path []int) bool {
	for _, step := range path {
		if t.Kind() == reflect.Pointer {
			return true
		}
		t = t.Field(step).Type
	}
	return false
}

// directOf is the directCopy from col to what dst points to, or nil where there is none:
// for the types that most columns and fields have, without names of their own, and for
// pointers to them.
func directOf(dst any, col arrow.Array) directCopy {
	switch dst := dst.(type) {
	case *int64:
		return directInt(dst, col)
	case *int32:
		return directInt(dst, col)
	case *int:
		return directInt(dst, col)
	case *float64:
		if a, ok := col.(*array.Float64); ok {
			return directNumber(dst, a.Float64Values(), a)
		}
	case *string:
		return directString(dst, col)
	case *bool:
		if a, ok := col.(*array.Boolean); ok {
			return directUnlessNull(dst, a, a.Value)
		}
	case *time.Time:
		return directTime(dst, col)
	case **int64:
		return directPointer(dst, col)
	case **int32:
		return directPointer(dst, col)
	case **int:
		return directPointer(dst, col)
	case **float64:
		return directPointer(dst, col)
	case **string:
		return directPointer(dst, col)
	case **bool:
		return directPointer(dst, col)
	case **time.Time:
		return directPointer(dst, col)
	}
	return nil
}

// directInt copies signed integers of any width.
func directInt[T int | int32 | int64](dst *T, col arrow.Array) directCopy {
	switch a := col.(type) {
	case *array.Int64:
		return directNumber(dst, a.Int64Values(), a)
	case *array.Int32:
		return directNumber(dst, a.Int32Values(), a)
	case *array.Int16:
		return directNumber(dst, a.Int16Values(), a)
	case *array.Int8:
		return directNumber(dst, a.Int8Values(), a)
	default:
		return nil
	}
}

// directNumber copies numbers that are the same in a T, bit by bit where T is F.
func directNumber[T, F int | int8 | int16 | int32 | int64 | float64](dst *T, values []F, col arrow.Array) directCopy {
	mayBeNull := hasValidity(col)
	return func(row int) bool {
		from := values[row]
		to := T(from)
		if mayBeNull && col.IsNull(row) || F(to) != from && from == from { //nolint:gocritic // NaN fits
			return false
		}
		*dst = to
		return true
	}
}

// directString copies texts to memory of their own.
func directString(dst *string, col arrow.Array) directCopy {
	if texts := textsOf(col); texts != nil {
		return directUnlessNull(dst, col, texts)
	}
	return nil
}

// directTime copies dates and timestamps, of which those in seconds may be beyond what a
// time.Time can be.
func directTime(dst *time.Time, col arrow.Array) directCopy {
	switch a := col.(type) {
	case *array.Timestamp:
		t := a.DataType().(*arrow.TimestampType)
		if t.Unit == arrow.Second {
			return nil
		}
		zone := zoneOf(t)
		return directUnlessNull(dst, a, func(row int) time.Time { return a.Value(row).ToTime(t.Unit).In(zone) })
	case *array.Date32, *array.Date64:
		v := value{col: col}
		return directUnlessNull(dst, a, func(row int) time.Time {
			v.row = row
			return v.time()
		})
	default:
		return nil
	}
}

// directPointer copies to a new T for each row.
func directPointer[T any](dst **T, col arrow.Array) directCopy {
	v := new(T)
	set := directOf(v, col)
	if set == nil {
		return nil
	}
	return func(row int) bool {
		if !set(row) {
			return false
		}
		own := *v
		*dst = &own
		return true
	}
}

// hasValidity reports whether col says of each value whether it is NULL. How many are is not
// asked: the number may be wrong where a reader has made it, and the array counts them at the first
// question, which is a data race where several goroutines read a batch.
func hasValidity(col arrow.Array) bool { return len(col.NullBitmapBytes()) > 0 }

func directUnlessNull[T any](dst *T, col arrow.Array, value func(row int) T) directCopy {
	mayBeNull := hasValidity(col)
	return func(row int) bool {
		if mayBeNull && col.IsNull(row) {
			return false
		}
		*dst = value(row)
		return true
	}
}
