package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func makeBatch(shape string, rows int) arrow.RecordBatch {
	types := []arrow.DataType{arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int64}
	switch shape {
	case "records":
		types = []arrow.DataType{arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64, &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}}
	case "mixed":
		types = nil
		for range 4 {
			types = append(types,
				arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.String, arrow.FixedWidthTypes.Boolean,
				&arrow.TimestampType{Unit: arrow.Microsecond}, arrow.FixedWidthTypes.Date32, &arrow.Decimal128Type{Precision: 18, Scale: 2},
				arrow.ListOf(arrow.PrimitiveTypes.Int32), arrow.StructOf(arrow.Field{Name: "s", Type: arrow.BinaryTypes.String}))
		}
	}
	fields := make([]arrow.Field, len(types))
	columns := make([]arrow.Array, len(types))
	for i, t := range types {
		fields[i] = arrow.Field{Name: fmt.Sprint("c", i), Type: t, Nullable: true}
		columns[i] = makeColumn(t, rows, i, shape != "records")
		defer columns[i].Release()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(rows))
}

func makeColumn(t arrow.DataType, rows, seed int, nulls bool) arrow.Array {
	b := array.NewBuilder(memory.DefaultAllocator, t)
	defer b.Release()
	for row := range rows {
		n := row*31 + seed
		switch b := b.(type) {
		case *array.Int64Builder:
			b.Append(int64(n))
		case *array.ListBuilder:
			b.Append(true)
			b.ValueBuilder().(*array.Int32Builder).AppendValues([]int32{int32(n), 2, 3}, nil)
		case *array.StructBuilder:
			b.Append(true)
			b.FieldBuilder(0).(*array.StringBuilder).Append(fmt.Sprint("part ", n%1000))
		case *array.StringBuilder:
			b.Append(fmt.Sprint("value ", n))
		case *array.BooleanBuilder:
			b.Append(n%3 == 0)
		default:
			if nulls && n%10 == 0 {
				b.AppendNull()
			} else {
				must(b.AppendValueFromString(sample(t, n)))
			}
		}
	}
	return b.NewArray()
}

func sample(t arrow.DataType, n int) string {
	switch t.ID() {
	case arrow.TIMESTAMP:
		at := fmt.Sprintf("2026-01-02T03:04:%02d", n%60)
		if t.(*arrow.TimestampType).TimeZone != "" {
			at += "Z"
		}
		return at
	case arrow.DATE32:
		return fmt.Sprintf("2026-01-%02d", 1+n%28)
	default:
		return fmt.Sprint(n % 1000)
	}
}
