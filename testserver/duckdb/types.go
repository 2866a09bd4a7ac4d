//go:build duckdb_arrow

package duckdb

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

var sqlTypes = map[arrow.Type]string{
	arrow.NULL: "INTEGER", // DuckDB has no column that can only be null
	arrow.BOOL: "BOOLEAN",
	arrow.INT8: "TINYINT", arrow.INT16: "SMALLINT", arrow.INT32: "INTEGER", arrow.INT64: "BIGINT",
	arrow.UINT8: "UTINYINT", arrow.UINT16: "USMALLINT", arrow.UINT32: "UINTEGER", arrow.UINT64: "UBIGINT",
	arrow.FLOAT32: "FLOAT", arrow.FLOAT64: "DOUBLE",
	arrow.STRING: "VARCHAR", arrow.LARGE_STRING: "VARCHAR", arrow.STRING_VIEW: "VARCHAR",
	arrow.BINARY: "BLOB", arrow.LARGE_BINARY: "BLOB", arrow.BINARY_VIEW: "BLOB", arrow.FIXED_SIZE_BINARY: "BLOB",
	arrow.DATE32: "DATE", arrow.DATE64: "DATE", arrow.TIME32: "TIME",
	arrow.INTERVAL_MONTHS: "INTERVAL", arrow.INTERVAL_DAY_TIME: "INTERVAL", arrow.INTERVAL_MONTH_DAY_NANO: "INTERVAL",
	arrow.DURATION: "INTERVAL",
}

// sqlType is the DuckDB type that holds the values of an Arrow type.
func sqlType(t arrow.DataType) (string, error) {
	if name, ok := sqlTypes[t.ID()]; ok {
		return name, nil
	}
	switch t := t.(type) {
	case *arrow.TimestampType:
		return timestampType(t), nil
	case *arrow.Time64Type:
		if t.Unit == arrow.Nanosecond {
			return "TIME_NS", nil
		}
		return "TIME", nil
	case arrow.DecimalType:
		if t.GetPrecision() > 38 {
			return "", fmt.Errorf("a decimal of %d digits is more than DuckDB holds", t.GetPrecision())
		}
		return fmt.Sprintf("DECIMAL(%d, %d)", t.GetPrecision(), t.GetScale()), nil
	case *arrow.DictionaryType:
		return sqlType(t.ValueType)
	case *arrow.FixedSizeListType:
		elem, err := sqlType(t.Elem())
		return fmt.Sprintf("%s[%d]", elem, t.Len()), err
	case *arrow.MapType:
		key, err := sqlType(t.KeyType())
		if err != nil {
			return "", err
		}
		item, err := sqlType(t.ItemType())
		return "MAP(" + key + ", " + item + ")", err
	case arrow.ListLikeType:
		elem, err := sqlType(t.Elem())
		return elem + "[]", err
	case *arrow.StructType:
		return structType(t)
	default:
		return "", fmt.Errorf("the Arrow type %s is not supported", t)
	}
}

func timestampType(t *arrow.TimestampType) string {
	if t.TimeZone != "" {
		return "TIMESTAMPTZ"
	}
	return map[arrow.TimeUnit]string{
		arrow.Second: "TIMESTAMP_S", arrow.Millisecond: "TIMESTAMP_MS",
		arrow.Microsecond: "TIMESTAMP", arrow.Nanosecond: "TIMESTAMP_NS",
	}[t.Unit]
}

func structType(t *arrow.StructType) (string, error) {
	fields := make([]string, t.NumFields())
	for i, f := range t.Fields() {
		name, err := sqlType(f.Type)
		if err != nil {
			return "", err
		}
		fields[i] = ident(f.Name) + " " + name
	}
	return "STRUCT(" + strings.Join(fields, ", ") + ")", nil
}
