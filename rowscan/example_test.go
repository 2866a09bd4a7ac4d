package rowscan_test

import (
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/rowscan"
)

// inMemory is a result of one batch; those of a pool are others.
type inMemory struct{ batch arrow.RecordBatch }

func (r inMemory) Schema() *arrow.Schema { return r.batch.Schema() }
func (r inMemory) Release()              { r.batch.Release() }
func (r inMemory) Batches() iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		defer r.Release()
		yield(r.batch, nil)
	}
}

// flights has two rows, the second without an origin.
func flights() rowscan.Result {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "flight_no", Type: arrow.PrimitiveTypes.Int64}, {Name: "origin", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2}, nil)
	b.Field(1).(*array.StringBuilder).AppendValues([]string{"BER", ""}, []bool{true, false})
	return inMemory{b.NewRecordBatch()}
}

type flight struct {
	FlightNo int
	Origin   *string
}

func ExampleCollect() {
	all, err := rowscan.Collect[flight](flights())
	fmt.Println(all[0].FlightNo, *all[0].Origin, all[1].Origin, err)
	// Output: 1 BER <nil> <nil>
}

func ExampleCollectOne() {
	first, err := rowscan.CollectOne[flight](flights())
	fmt.Println(first.FlightNo, err)
	// Output: 1 <nil>
}

func ExampleRows() {
	for f, err := range rowscan.Rows[flight](flights()) {
		fmt.Println(f.FlightNo, err)
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
}

func ExampleMaps() {
	for row, err := range rowscan.Maps(flights()) {
		fmt.Println(row["flight_no"], row["origin"], err)
	}
	// Output:
	// 1 BER <nil>
	// 2 <nil> <nil>
}

func ExampleScanOne() {
	var no int
	var origin string
	fmt.Println(rowscan.ScanOne(flights(), &no, &origin), no, origin)
	// Output: <nil> 1 BER
}

func ExampleParseDecimal() {
	price, err := rowscan.ParseDecimal("12.50")
	fmt.Println(price, err)
	// Output: 12.50 <nil>
}
