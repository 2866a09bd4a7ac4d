package adbcpool

import (
	"strconv"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/internal/adbcconn"
)

// build makes the nested result.
func (t *objectTree) build() (array.RecordReader, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, adbc.GetObjectsSchema)
	defer b.Release()
	for _, c := range t.catalogs {
		appendText(b.Field(0), c.name)
		appendList(b.Field(1), t.depth != adbc.ObjectDepthCatalogs, c.members, func(schema *array.StructBuilder, s *schemaNode) {
			appendText(schema.FieldBuilder(0), s.name)
			appendList(schema.FieldBuilder(1), t.depth != adbc.ObjectDepthDBSchemas, s.members, t.appendTable)
		})
	}
	return singleBatchReader(b)
}

// appendList appends a list of structs, or NULL where the items are not known. each
// appends the fields of one.
func appendList[T any](list array.Builder, known bool, items []T, each func(b *array.StructBuilder, item T)) {
	b := list.(*array.ListBuilder)
	if !known {
		b.AppendNull()
		return
	}
	b.Append(true)
	for _, item := range items {
		fields := b.ValueBuilder().(*array.StructBuilder)
		fields.Append(true)
		each(fields, item)
	}
}

func (t *objectTree) appendTable(b *array.StructBuilder, node *tableNode) {
	b.FieldBuilder(0).(*array.StringBuilder).Append(node.name)
	b.FieldBuilder(1).(*array.StringBuilder).Append(node.kind)
	var columns []int // those that match
	if node.columns != nil {
		for i, f := range node.columns.Fields() {
			if t.column == nil || adbcconn.Like(*t.column, f.Name) {
				columns = append(columns, i)
			}
		}
	}
	appendList(b.FieldBuilder(2), node.columns != nil, columns, func(column *array.StructBuilder, i int) {
		f := node.columns.Field(i)
		column.FieldBuilder(0).(*array.StringBuilder).Append(f.Name)
		column.FieldBuilder(1).(*array.Int32Builder).Append(int32(i + 1))
		appendXDBC(column, f)
	})
	appendList(b.FieldBuilder(3), node.keysKnown, node.constraints, appendConstraint)
}

func appendConstraint(b *array.StructBuilder, c constraint) {
	appendText(b.FieldBuilder(0), c.name)
	b.FieldBuilder(1).(*array.StringBuilder).Append(c.kind)
	names := b.FieldBuilder(2).(*array.ListBuilder)
	names.Append(true)
	for _, column := range c.columns {
		names.ValueBuilder().(*array.StringBuilder).Append(column)
	}
	appendList(b.FieldBuilder(3), c.references != nil, c.references, func(usage *array.StructBuilder, to reference) {
		appendText(usage.FieldBuilder(0), to.catalog)
		appendText(usage.FieldBuilder(1), to.schema)
		usage.FieldBuilder(2).(*array.StringBuilder).Append(to.table)
		usage.FieldBuilder(3).(*array.StringBuilder).Append(to.column)
	})
}

// appendText appends a text, or NULL for nil.
func appendText(b array.Builder, v *string) { appendOptional[*array.StringBuilder](b, v) }

// appendOptional appends what v points to, or NULL for nil.
func appendOptional[B interface{ Append(T) }, T any](b array.Builder, v *T) {
	if v == nil {
		b.AppendNull()
		return
	}
	b.(B).Append(*v)
}

// xdbc is what ADBC tells of a column beside its name and position, in the
// order of its schema. What is nil is not known.
type xdbc struct {
	remarks       *string
	dataType      *int16
	typeName      *string
	size          *int32
	digits, radix *int16
	nullable      *int16
	isNullable    *string
	increments    *bool
}

// xdbcOf reads a field: its type, and the metadata that Flight SQL has for it.
func xdbcOf(f arrow.Field) xdbc {
	x := xdbc{
		remarks: metadataOf(f, flightsql.RemarksKey), typeName: metadataOf(f, flightsql.TypeNameKey),
		nullable: ptr[int16](0), isNullable: ptr("NO"),
	}
	if f.Nullable {
		x.nullable, x.isNullable = ptr[int16](1), ptr("YES")
	}
	if code, known := xdbcType(f.Type); known {
		x.dataType = ptr(code)
	}
	if t, ok := f.Type.(arrow.DecimalType); ok {
		x.size, x.digits, x.radix = ptr(t.GetPrecision()), ptr(int16(t.GetScale())), ptr[int16](10)
	}
	if n, ok := metadataNumber(f, flightsql.PrecisionKey); ok {
		x.size = ptr(int32(n))
	}
	if n, ok := metadataNumber(f, flightsql.ScaleKey); ok {
		x.digits = ptr(int16(n))
	}
	if v := metadataOf(f, flightsql.IsAutoIncrementKey); v != nil {
		x.increments = ptr(*v == "1" || *v == "true")
	}
	return x
}

func ptr[T any](v T) *T { return &v }

func metadataOf(f arrow.Field, key string) *string {
	if v, ok := f.Metadata.GetValue(key); ok {
		return &v
	}
	return nil
}

func metadataNumber(f arrow.Field, key string) (int64, bool) {
	v, ok := f.Metadata.GetValue(key)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(v, 10, 16)
	return n, err == nil && n >= 0
}

// appendXDBC appends what is known of a column, and NULL for the rest of the
// columns of ADBC's schema.
func appendXDBC(b *array.StructBuilder, f arrow.Field) {
	x := xdbcOf(f)
	for i := 2; i < b.NumField(); i++ {
		field := b.FieldBuilder(i)
		switch b.Type().(*arrow.StructType).Field(i).Name {
		case "remarks":
			appendText(field, x.remarks)
		case "xdbc_data_type", "xdbc_sql_data_type":
			appendOptional[*array.Int16Builder](field, x.dataType)
		case "xdbc_type_name":
			appendText(field, x.typeName)
		case "xdbc_column_size":
			appendOptional[*array.Int32Builder](field, x.size)
		case "xdbc_decimal_digits":
			appendOptional[*array.Int16Builder](field, x.digits)
		case "xdbc_num_prec_radix":
			appendOptional[*array.Int16Builder](field, x.radix)
		case "xdbc_nullable":
			appendOptional[*array.Int16Builder](field, x.nullable)
		case "xdbc_is_nullable":
			appendText(field, x.isNullable)
		case "xdbc_is_autoincrement":
			appendOptional[*array.BooleanBuilder](field, x.increments)
		default:
			field.AppendNull()
		}
	}
}

// XDBC's codes of types, of which these have an Arrow type.
const (
	xdbcDecimal   = 3
	xdbcInteger   = 4
	xdbcSmallint  = 5
	xdbcReal      = 7
	xdbcDouble    = 8
	xdbcInterval  = 10
	xdbcVarchar   = 12
	xdbcDate      = 91
	xdbcTime      = 92
	xdbcTimestamp = 93
	xdbcVarbinary = -3
	xdbcBigint    = -5
	xdbcTinyint   = -6
	xdbcBit       = -7
)

func xdbcType(t arrow.DataType) (code int16, known bool) {
	switch id := t.ID(); id {
	case arrow.EXTENSION:
		return xdbcType(t.(arrow.ExtensionType).StorageType())
	case arrow.DICTIONARY:
		return xdbcType(t.(*arrow.DictionaryType).ValueType)
	case arrow.RUN_END_ENCODED:
		return xdbcType(t.(*arrow.RunEndEncodedType).Encoded())
	case arrow.BOOL:
		return xdbcBit, true
	case arrow.INT8, arrow.UINT8:
		return xdbcTinyint, true
	case arrow.INT16, arrow.UINT16:
		return xdbcSmallint, true
	case arrow.INT32, arrow.UINT32:
		return xdbcInteger, true
	case arrow.INT64, arrow.UINT64:
		return xdbcBigint, true
	case arrow.FLOAT16, arrow.FLOAT32:
		return xdbcReal, true
	case arrow.FLOAT64:
		return xdbcDouble, true
	case arrow.DATE32, arrow.DATE64:
		return xdbcDate, true
	case arrow.TIME32, arrow.TIME64:
		return xdbcTime, true
	case arrow.TIMESTAMP:
		return xdbcTimestamp, true
	case arrow.DURATION, arrow.INTERVAL_MONTHS, arrow.INTERVAL_DAY_TIME, arrow.INTERVAL_MONTH_DAY_NANO:
		return xdbcInterval, true
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		return xdbcVarchar, true
	case arrow.BINARY, arrow.LARGE_BINARY, arrow.BINARY_VIEW, arrow.FIXED_SIZE_BINARY:
		return xdbcVarbinary, true
	default:
		if arrow.IsDecimal(id) {
			return xdbcDecimal, true
		}
		return 0, false
	}
}
