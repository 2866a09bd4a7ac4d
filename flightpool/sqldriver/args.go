package sqldriver

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/rowscan"
)

// CheckNamedValue is part of driver.NamedValueChecker: it lets through what
// Arrow has a type for and leaves the rest to database/sql.
func (c *conn) CheckNamedValue(arg *driver.NamedValue) error {
	if _, err := typeOf(arg.Value); err != nil {
		return driver.ErrSkip
	}
	return nil
}

// bindRow makes one row of parameters, of which the server may have told the
// types. It is nil without arguments.
func bindRow(args []driver.NamedValue, paramSchema *arrow.Schema) (arrow.RecordBatch, error) {
	if len(args) == 0 {
		return nil, nil
	}
	fields := make([]arrow.Field, len(args))
	var faults []error
	for i, arg := range args {
		t, err := typeOf(arg.Value)
		if err == nil && arg.Name != "" {
			err = fmt.Errorf("named parameters (%q) are not known to Flight SQL: give them by position", arg.Name)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("parameter %d: %w", arg.Ordinal, err))
		}
		if err == nil && hasNanoseconds(arg.Value) && takesNanoseconds(paramSchema, i) {
			t = arrow.FixedWidthTypes.Timestamp_ns
		}
		fields[i] = arrow.Field{Name: strconv.Itoa(arg.Ordinal), Type: t, Nullable: true}
	}
	if len(faults) > 0 {
		return nil, errjoin.Join(faults...)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for i, arg := range args {
		if err := appendValue(b.Field(i), arg.Value); err != nil {
			return nil, fmt.Errorf("parameter %d: %w", arg.Ordinal, err)
		}
	}
	return b.NewRecordBatch(), nil
}

// nullType is the type of NULLs of no type. Servers turn texts into whatever
// they need; Arrow's own null type many do not know, and arrow-go itself takes
// its values for valid.
var nullType = arrow.BinaryTypes.String

// typeOf is the Arrow type in which a parameter is sent.
func typeOf(v any) (arrow.DataType, error) {
	switch v := v.(type) {
	case nil:
		return nullType, nil
	case bool:
		return arrow.FixedWidthTypes.Boolean, nil
	case int, int8, int16, int32, int64:
		return arrow.PrimitiveTypes.Int64, nil
	case uint8, uint16, uint32:
		return arrow.PrimitiveTypes.Int64, nil
	case uint, uint64:
		return arrow.PrimitiveTypes.Uint64, nil
	case float32, float64:
		return arrow.PrimitiveTypes.Float64, nil
	case string, rowscan.Decimal: // a decimal as text is exact in every server
		return arrow.BinaryTypes.String, nil
	case []byte:
		if v == nil {
			return nullType, nil
		}
		return arrow.BinaryTypes.Binary, nil
	case time.Time:
		return arrow.FixedWidthTypes.Timestamp_us, nil
	case time.Duration:
		return arrow.FixedWidthTypes.Duration_ns, nil
	default:
		return nil, fmt.Errorf("a value of type %T cannot be sent", v)
	}
}

// hasNanoseconds says that v is a time which microseconds do not tell exactly. Few servers
// have finer ones, so that it takes their word for nanoseconds.
func hasNanoseconds(v any) bool {
	at, ok := v.(time.Time)
	return ok && at.Nanosecond()%1000 != 0
}

func anyNanoseconds(args []driver.NamedValue) bool {
	return slices.ContainsFunc(args, func(arg driver.NamedValue) bool { return hasNanoseconds(arg.Value) })
}

// takesNanoseconds says that the server has told a parameter to be of nanoseconds.
func takesNanoseconds(paramSchema *arrow.Schema, i int) bool {
	if paramSchema == nil || i >= paramSchema.NumFields() {
		return false
	}
	t, ok := paramSchema.Field(i).Type.(*arrow.TimestampType)
	return ok && t.Unit == arrow.Nanosecond
}

// appendValue appends a value of which typeOf knows the type.
func appendValue(b array.Builder, v any) error {
	switch v := v.(type) {
	case nil:
		b.AppendNull()
	case bool:
		b.(*array.BooleanBuilder).Append(v)
	case string:
		b.(*array.StringBuilder).Append(v)
	case rowscan.Decimal:
		b.(*array.StringBuilder).Append(v.String())
	case []byte:
		if v == nil {
			b.AppendNull()
			return nil
		}
		b.(*array.BinaryBuilder).Append(v)
	case time.Time:
		ts := b.(*array.TimestampBuilder)
		value, err := arrow.TimestampFromTime(v, ts.Type().(*arrow.TimestampType).Unit)
		if err != nil {
			return err
		}
		ts.Append(value)
	case time.Duration:
		b.(*array.DurationBuilder).Append(arrow.Duration(v))
	case float32:
		b.(*array.Float64Builder).Append(float64(v))
	case float64:
		b.(*array.Float64Builder).Append(v)
	case uint:
		b.(*array.Uint64Builder).Append(uint64(v))
	case uint64:
		b.(*array.Uint64Builder).Append(v)
	default:
		b.(*array.Int64Builder).Append(toInt64(v))
	}
	return nil
}

func toInt64(v any) int64 {
	switch v := v.(type) {
	case int:
		return int64(v)
	case int8:
		return int64(v)
	case int16:
		return int64(v)
	case int32:
		return int64(v)
	case int64:
		return v
	case uint8:
		return int64(v)
	case uint16:
		return int64(v)
	default:
		return int64(v.(uint32))
	}
}
