package rowscan

import (
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// TestANullThatIsNotCountedIsNull: whether a value is NULL is told by its bit, however many the
// array says that there are, in a batch of any size.
func TestANullThatIsNotCountedIsNull(t *testing.T) {
	const rows = 2 * minDirectRows
	values := make([]int64, rows)
	for i := range values {
		values[i] = int64(i)
	}
	validity := make([]byte, rows/8)
	for i := range validity {
		validity[i] = 0b1111_0111
	}
	for _, counted := range []int{array.UnknownNullCount, 0, 1, len(validity)} {
		data := array.NewData(arrow.PrimitiveTypes.Int64, rows, []*memory.Buffer{
			memory.NewBufferBytes(validity), memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(values)),
		}, nil, counted, 0)
		whole, err := rowsOf[*int64](t, array.MakeFromData(data))
		require.NoError(t, err)
		for i, v := range whole {
			require.Equal(t, i%8 == 3, v == nil, "%d NULLs counted, row %d", counted, i)
		}
		for i, read := 0, Column(array.MakeFromData(data)); i < rows; i++ {
			require.Equal(t, i%8 == 3, read(i) == nil, "%d NULLs counted, row %d as any", counted, i)
		}
		_, err = rowsOf[int64](t, array.MakeFromData(data))
		require.ErrorContains(t, err, "row 3", "%d NULLs counted", counted)
	}
}

// TestABatchIsReadByManyGoroutines: what is read of it is not changed by that. The race detector
// tells of the slice, whose NULLs nobody has counted.
func TestABatchIsReadByManyGoroutines(t *testing.T) {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	for i := range 3 * minDirectRows {
		if i%3 == 0 {
			b.AppendNull()
		} else {
			b.Append(int64(i))
		}
	}
	col := array.NewSlice(b.NewArray(), 1, 3*minDirectRows)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			if read := Column(col); read(0) == nil || read(2) != nil {
				t.Error("not the values of the slice")
			}
			got, err := rowsOf[*int64](t, col)
			if err != nil || len(got) != col.Len() || got[0] == nil || got[2] != nil {
				t.Errorf("%d rows, %v", len(got), err)
			}
		})
	}
	readers.Wait()
}
