package rowscan

import (
	"reflect"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// setDuration takes durations and times of day, intervals without months
// and days, and integers as nanoseconds, which is how database/sql stores a
// time.Duration.
func setDuration(dst reflect.Value, v value) error {
	if v.kind == durationKind {
		dst.SetInt(v.int())
		return nil
	}
	if v.kind != textOnlyKind {
		return setInt(dst, v) // nanoseconds
	}
	nanos, ok := int64(0), false
	switch i := v.col.(type) {
	case *array.MonthDayNanoInterval:
		at := i.Value(v.row)
		nanos, ok = at.Nanoseconds, at.Months == 0 && at.Days == 0
	case *array.DayTimeInterval:
		at := i.Value(v.row)
		nanos, ok = int64(at.Milliseconds)*int64(time.Millisecond), at.Days == 0
	case *array.MonthInterval: // not even none of them
	default:
		return v.typeMismatch(durationType, "")
	}
	if !ok {
		return v.typeMismatch(durationType, "months and days have no fixed length")
	}
	dst.SetInt(nanos)
	return nil
}
