//go:build duckdb_arrow

package duckdb

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// checkExact fails for a value that DuckDB makes another of when it takes a batch: it cuts
// off what is finer than its types, and takes an interval of days and milliseconds for one
// number. What a cast to the type of the table's column does is not looked at.
func checkExact(batch arrow.RecordBatch) error {
	for i, col := range batch.Columns() {
		if !mayBeInexact(col.DataType()) {
			continue
		}
		for row := range col.Len() {
			if err := exactAt(col, row); err != nil {
				return fmt.Errorf("duckdb error: column %q: row %d of a batch: %w", batch.ColumnName(i), row, err)
			}
		}
	}
	return nil
}

// mayBeInexact reports whether values of a type have to be looked at.
func mayBeInexact(t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.Date64Type, *arrow.DayTimeIntervalType, *arrow.MonthDayNanoIntervalType:
		return true
	case *arrow.DurationType:
		return t.Unit == arrow.Nanosecond
	case *arrow.TimestampType:
		return t.Unit == arrow.Nanosecond && t.TimeZone != ""
	case *arrow.DictionaryType:
		return mayBeInexact(t.ValueType)
	case arrow.ExtensionType:
		return mayBeInexact(t.StorageType())
	case arrow.NestedType:
		return slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return mayBeInexact(f.Type) })
	default:
		return false
	}
}

// exactAt looks at one value, and at those within it.
func exactAt(col arrow.Array, row int) error {
	if col.IsNull(row) {
		return nil
	}
	var err error
	switch a := col.(type) {
	case *array.Date64:
		_, err = days(a.Value(row))
	case *array.DayTimeInterval:
		err = errors.New("DuckDB does not take intervals of days and milliseconds: send months, days and nanoseconds")
	case *array.MonthDayNanoInterval:
		_, err = microseconds(a.Value(row).Nanoseconds, arrow.Nanosecond)
	case *array.Duration:
		_, err = microseconds(int64(a.Value(row)), a.DataType().(*arrow.DurationType).Unit)
	case *array.Timestamp:
		if t := a.DataType().(*arrow.TimestampType); t.TimeZone != "" {
			_, err = microseconds(int64(a.Value(row)), t.Unit)
		}
	case *array.Dictionary:
		return exactAt(a.Dictionary(), a.GetValueIndex(row))
	case *array.RunEndEncoded:
		return exactAt(a.Values(), a.GetPhysicalIndex(row))
	case *array.DenseUnion:
		return exactAt(a.Field(a.ChildID(row)), int(a.ValueOffset(row)))
	case *array.SparseUnion:
		return exactAt(a.Field(a.ChildID(row)), row)
	case array.ExtensionArray:
		return exactAt(a.Storage(), row)
	case *array.Struct:
		for i := 0; i < a.NumField() && err == nil; i++ {
			err = exactAt(a.Field(i), row)
		}
	case array.ListLike:
		for at, end := a.ValueOffsets(row); at < end && err == nil; at++ {
			err = exactAt(a.ListValues(), int(at))
		}
	}
	return err
}

// days converts exactly or not at all.
func days(d arrow.Date64) (int32, error) {
	const day = 24 * 60 * 60 * 1000
	if d%day != 0 {
		return 0, fmt.Errorf("%d ms is no whole number of days, of which DuckDB makes a date", d)
	}
	if n := d / day; n >= math.MinInt32 && n <= math.MaxInt32 {
		return int32(n), nil
	}
	return 0, fmt.Errorf("the date %d ms is out of range for DuckDB", d)
}
