package rowscan

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

type DirectPlace struct{ City string }

type directRow struct {
	ID   int
	Name *string
	*DirectPlace
}

// directBatches are batches with and without enough rows for direct copies, and their rows.
func directBatches() (batches []arrow.RecordBatch, want []directRow) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int32},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "city", Type: arrow.BinaryTypes.String},
	}, nil)
	for _, size := range []int{minDirectRows + 2, minDirectRows - 1, 1, minDirectRows, 0, 3 * minDirectRows} {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		defer b.Release()
		for range size {
			n := len(want)
			row := directRow{ID: n, DirectPlace: &DirectPlace{fmt.Sprint("city ", n)}}
			b.Field(0).(*array.Int32Builder).Append(int32(n))
			b.Field(2).(*array.StringBuilder).Append(row.City)
			if n%3 == 0 {
				b.Field(1).AppendNull()
			} else {
				name := fmt.Sprint("name ", n)
				row.Name = &name
				b.Field(1).(*array.StringBuilder).Append(name)
			}
			want = append(want, row)
		}
		batches = append(batches, b.NewRecordBatch())
	}
	return batches, want
}

// TestRowsOfBatchesOfAnySize reads rows that are kept: each is its own.
func TestRowsOfBatchesOfAnySize(t *testing.T) {
	batches, want := directBatches()
	got, err := Collect[directRow](resultOf(batches...))
	require.NoError(t, err)
	require.Equal(t, want, got)

	for _, batch := range batches { // whose memory is used again
		for _, column := range batch.Columns() {
			for _, buffer := range column.Data().Buffers() {
				if buffer != nil {
					clear(buffer.Bytes())
				}
			}
		}
	}
	require.Equal(t, want, got)
}

func TestRowsAsPointersOfALongBatch(t *testing.T) {
	batches, want := directBatches()
	pointers, err := Collect[*directRow](resultOf(batches...))
	require.NoError(t, err)
	require.Len(t, pointers, len(want))
	for i, p := range pointers {
		require.Equal(t, want[i], *p)
	}
}

// TestANumberThatDoesNotFitIsToldInALongBatch: the direct copy leaves it to the setter.
func TestANumberThatDoesNotFitIsToldInALongBatch(t *testing.T) {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	for i := range int64(2 * minDirectRows) {
		b.Append(i << 29)
	}
	col := b.NewArray()
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	batch := array.NewRecordBatch(schema, []arrow.Array{col}, int64(col.Len()))
	n := 0
	for got, err := range Rows[int32](resultOf(batch)) {
		if n == 4 {
			require.ErrorContains(t, err, `row 4: column "n": `)
			return
		}
		require.NoError(t, err)
		require.Equal(t, int32(n<<29), got)
		n++
	}
	t.Fatal("a number that does not fit was taken")
}
