//go:build duckdb_arrow

package duckdb

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	capi "github.com/duckdb/duckdb-go-bindings"
)

// newTemporal makes a value of a date, time, timestamp or interval.
func newTemporal(a arrow.Array, row int) (capi.Value, error) {
	switch a := a.(type) {
	case *array.Date32:
		return capi.CreateDate(capi.NewDate(int32(a.Value(row)))), nil
	case *array.Date64:
		n, err := days(a.Value(row))
		if err != nil {
			return capi.Value{}, err
		}
		return capi.CreateDate(capi.NewDate(n)), nil
	case *array.Time32:
		unit := a.DataType().(*arrow.Time32Type).Unit
		return capi.CreateTime(capi.NewTime(int64(a.Value(row)) * unit.Multiplier().Microseconds())), nil
	case *array.Time64:
		if a.DataType().(*arrow.Time64Type).Unit == arrow.Nanosecond {
			return capi.CreateTimeNS(capi.NewTimeNS(int64(a.Value(row)))), nil
		}
		return capi.CreateTime(capi.NewTime(int64(a.Value(row)))), nil
	case *array.Timestamp:
		return timestamp(a, row)
	case *array.Duration:
		return duration(int64(a.Value(row)), a.DataType().(*arrow.DurationType).Unit)
	case *array.MonthInterval:
		return interval(int32(a.Value(row)), 0, 0), nil
	case *array.DayTimeInterval:
		v := a.Value(row)
		return interval(0, v.Days, int64(v.Milliseconds)*1000), nil
	case *array.MonthDayNanoInterval:
		v := a.Value(row)
		micros, err := microseconds(v.Nanoseconds, arrow.Nanosecond)
		if err != nil {
			return capi.Value{}, err
		}
		return interval(v.Months, v.Days, micros), nil
	default:
		return capi.Value{}, fmt.Errorf("a parameter of Arrow type %s is not supported", a.DataType())
	}
}

func timestamp(a *array.Timestamp, row int) (capi.Value, error) {
	t, v := a.DataType().(*arrow.TimestampType), int64(a.Value(row))
	if t.TimeZone != "" {
		micros, err := microseconds(v, t.Unit)
		if err != nil {
			return capi.Value{}, err
		}
		return capi.CreateTimestampTZ(capi.NewTimestamp(micros)), nil
	}
	switch t.Unit {
	case arrow.Second:
		return capi.CreateTimestampS(capi.NewTimestampS(v)), nil
	case arrow.Millisecond:
		return capi.CreateTimestampMS(capi.NewTimestampMS(v)), nil
	case arrow.Nanosecond:
		return capi.CreateTimestampNS(capi.NewTimestampNS(v)), nil
	default:
		return capi.CreateTimestamp(capi.NewTimestamp(v)), nil
	}
}

func interval(months, days int32, micros int64) capi.Value {
	return capi.CreateInterval(capi.NewInterval(months, days, micros))
}

func duration(n int64, unit arrow.TimeUnit) (capi.Value, error) {
	micros, err := microseconds(n, unit)
	if err != nil {
		return capi.Value{}, err
	}
	return interval(0, 0, micros), nil
}

// microseconds converts exactly or not at all.
func microseconds(n int64, unit arrow.TimeUnit) (int64, error) {
	if unit == arrow.Nanosecond {
		if n%1000 != 0 {
			return 0, fmt.Errorf("%d ns is no whole number of microseconds, of which DuckDB makes it", n)
		}
		return n / 1000, nil
	}
	factor := unit.Multiplier().Microseconds()
	if n > math.MaxInt64/factor || n < math.MinInt64/factor {
		return 0, fmt.Errorf("%d%s is out of range for DuckDB", n, unit)
	}
	return n * factor, nil
}
