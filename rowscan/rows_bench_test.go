package rowscan

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

type benchRow struct {
	ID     int64     `arrow:"id"`
	Small  int32     `arrow:"small"`
	Price  float64   `arrow:"price"`
	Name   string    `arrow:"name"`
	Delay  *int16    `arrow:"delay"`
	At     time.Time `arrow:"at"`
	Amount float64   `arrow:"amount"`
	Tags   []int64   `arrow:"tags"`
	Place  benchCity `arrow:"place"`
}

type benchCity struct {
	City string `arrow:"city"`
	Zip  int32  `arrow:"zip"`
}

func benchBatch(rows int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "small", Type: arrow.PrimitiveTypes.Int32},
		{Name: "price", Type: arrow.PrimitiveTypes.Float64},
		{Name: "name", Type: arrow.BinaryTypes.String},
		{Name: "delay", Type: arrow.PrimitiveTypes.Int16, Nullable: true},
		{Name: "at", Type: arrow.FixedWidthTypes.Timestamp_us},
		{Name: "amount", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}},
		{Name: "tags", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)},
		{Name: "place", Type: arrow.StructOf(arrow.Field{Name: "city", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "zip", Type: arrow.PrimitiveTypes.Int32})},
	}, nil))
	defer b.Release()
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.Int32Builder).Append(int32(i))
		b.Field(2).(*array.Float64Builder).Append(float64(i) / 8)
		b.Field(3).(*array.StringBuilder).Append(fmt.Sprint("name ", i))
		if i%3 == 0 {
			b.Field(4).AppendNull()
		} else {
			b.Field(4).(*array.Int16Builder).Append(int16(i))
		}
		b.Field(5).(*array.TimestampBuilder).Append(arrow.Timestamp(i))
		b.Field(6).(*array.Decimal128Builder).Append(decimal128.FromI64(int64(i)))
		l := b.Field(7).(*array.ListBuilder)
		l.Append(true)
		l.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{1, 2, 3}, nil)
		s := b.Field(8).(*array.StructBuilder)
		s.Append(true)
		s.FieldBuilder(0).(*array.StringBuilder).Append("Berlin")
		s.FieldBuilder(1).(*array.Int32Builder).Append(10115)
	}
	return b.NewRecordBatch()
}

func BenchmarkRows(b *testing.B) {
	const rows = 1000
	batch := benchBatch(rows)
	defer batch.Release()
	scalars := batch.Schema().Fields()[:6]
	only := array.NewRecordBatch(arrow.NewSchema(scalars, nil), batch.Columns()[:6], rows)
	defer only.Release()
	type scalarRow struct {
		ID    int64
		Small int32
		Price float64
		Name  string
		Delay *int16
		At    time.Time
	}
	type anyRow struct{ ID, Price, Name, Delay, At, Amount, Tags, Place any }
	run := func(name string, loop func() int) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if n := loop(); n != rows {
					b.Fatal(n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
		})
	}
	run("scalars", func() int { return countRows[scalarRow](b, only) })
	run("nested", func() int { return countRows[benchRow](b, batch) })
	run("any", func() int { return countRows[anyRow](b, batch) })
	run("maps", func() (n int) {
		for _, err := range Maps(resultOf(batch)) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		return n
	})
}

func countRows[T any](b *testing.B, batch arrow.RecordBatch) (n int) {
	for _, err := range Rows[T](resultOf(batch)) {
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
	return n
}
