package adbcconn

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// Arrow's writer, which the driver has, cannot write a slice of some of these, and sends others with all that they are in.
func TestBatchesOfEveryTypeAreSplit(t *testing.T) {
	text := strings.Repeat("x", 100)
	fields := []arrow.Field{{Name: "a", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "b", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}
	for _, c := range []struct {
		t     arrow.DataType
		value string
	}{
		{arrow.BinaryTypes.String, `"` + text + `","short",null`},
		{arrow.BinaryTypes.StringView, `"` + text + `","short",null`},
		{arrow.ListViewOf(arrow.BinaryTypes.String), `["` + text + `"],null`},
		{arrow.DenseUnionOf(fields, []arrow.UnionTypeCode{3, 7}), `[3, "` + text + `"],[7, 5]`},
		{arrow.SparseUnionOf(fields, []arrow.UnionTypeCode{3, 7}), `[3, "` + text + `"],[7, 5]`},
	} {
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		col, _, err := array.FromJSON(mem, c.t, strings.NewReader("["+strings.Repeat(c.value+",", 499)+c.value+"]"))
		require.NoError(t, err)
		batch := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "c", Type: c.t, Nullable: true}}, nil), []arrow.Array{col}, int64(col.Len()))
		parts, err := splitToFit(batch, 4096)
		require.NoError(t, err, c.t)
		require.Less(t, len(parts), 65, c.t)
		row := int64(0)
		for _, p := range parts {
			size, err := encodedSize(p)
			require.NoError(t, err, c.t)
			require.LessOrEqual(t, size, int64(4096), c.t)
			own := array.NewSlice(col, row, row+p.NumRows())
			require.Equal(t, own.String(), p.Column(0).String(), c.t)
			own.Release()
			row += p.NumRows()
		}
		require.EqualValues(t, col.Len(), row, c.t)
		release(parts)
		batch.Release()
		col.Release()
		mem.AssertSize(t, 0)
	}
}
