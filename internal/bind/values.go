// Package bind makes Arrow parameters of Go values.
//
// # Files
//
//   - values.go: the parameters of one execution, and the record batch made of them
//   - value.go: which Go value is sent as which Arrow type
package bind

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/internal/errjoin"
)

// Values are the parameters of one execution, by position. They share no memory with
// the values that they were made of, and do not change.
type Values []Value

// Of reads args: it calls the Value methods of driver.Valuer and copies what could
// change. All that cannot be sent is reported, each by its position from 1.
func Of(args []any) (Values, error) {
	values := make(Values, len(args))
	var faults []error
	for i, arg := range args {
		v, err := ValueOf(arg)
		if err != nil {
			faults = append(faults, fmt.Errorf("parameter %d: %w", i+1, err))
		}
		values[i] = v
	}
	if len(faults) > 0 {
		return nil, errjoin.Join(faults...)
	}
	return values, nil
}

// Read is args with each that can be sent read, as Of does it: their Value methods are
// not called again. The others are left to the call that tells of them.
func Read(args []any) []any {
	read := slices.Clone(args)
	for i, arg := range args {
		if v, err := ValueOf(arg); err == nil {
			read[i] = v
		}
	}
	return read
}

// Batch is a batch of one row. schema is what the server has told of the parameters, or
// nil. The caller must Release it.
//
// A time is sent in microseconds, which is what most servers keep, and cut off to them;
// only where the server has told nanoseconds is it sent in those.
func (v Values) Batch(schema *arrow.Schema) (arrow.RecordBatch, error) {
	fields := make([]arrow.Field, len(v))
	for i, value := range v {
		t := value.arrowType()
		if takesNanoseconds(schema, i) && value.hasNanoseconds() {
			t = arrow.FixedWidthTypes.Timestamp_ns
		}
		fields[i] = arrow.Field{Name: strconv.Itoa(i + 1), Type: t, Nullable: true}
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for i, value := range v {
		if err := value.appendTo(b.Field(i)); err != nil {
			return nil, fmt.Errorf("parameter %d: %w", i+1, err)
		}
	}
	return b.NewRecordBatch(), nil
}

// takesNanoseconds reports whether the server has told a parameter to be of nanoseconds.
func takesNanoseconds(schema *arrow.Schema, i int) bool {
	if schema == nil || i >= schema.NumFields() {
		return false
	}
	t, ok := schema.Field(i).Type.(*arrow.TimestampType)
	return ok && t.Unit == arrow.Nanosecond
}

func appendTime(b *array.TimestampBuilder, at time.Time) error {
	value, err := arrow.TimestampFromTime(at, b.Type().(*arrow.TimestampType).Unit)
	if err != nil {
		return errors.New("the time is out of the range of its unit")
	}
	b.Append(value)
	return nil
}
