package flightconn

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// beginnings are the offsets of the structs and unions in an array.
func beginnings(d arrow.ArrayData) (all []int) {
	switch storageType(d.DataType()).(type) {
	case *arrow.StructType, arrow.UnionType:
		all = append(all, d.Offset())
	}
	for _, child := range d.Children() {
		all = append(all, beginnings(child)...)
	}
	return all
}

func TestStructsForDriversInCBeginWithTheirFirstValue(t *testing.T) {
	x := arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	number := arrow.StructOf(x)
	for name, c := range map[string]struct {
		kind   arrow.DataType
		values string
	}{
		"struct":       {number, `[{"x":0},null,{"x":2},{"x":null}]`},
		"in a struct":  {arrow.StructOf(arrow.Field{Name: "s", Type: number, Nullable: true}), `[{"s":{"x":0}},{"s":null},null,{"s":{"x":3}}]`},
		"in lists":     {arrow.ListOf(number), `[[{"x":0}],[],[{"x":2},{"x":3}],null]`},
		"in a map":     {arrow.MapOf(arrow.BinaryTypes.String, number), `[[{"key":"a","value":{"x":0}}],[],[{"key":"b","value":{"x":2}}],null]`},
		"sparse union": {arrow.SparseUnionOf([]arrow.Field{x}, []arrow.UnionTypeCode{0}), `[[0,0],[0,1],[0,2],[0,3]]`},
		"no struct":    {arrow.ListOf(arrow.PrimitiveTypes.Int64), `[[0],[],[2],null]`},
	} {
		t.Run(name, func(t *testing.T) {
			allocator := memory.NewCheckedAllocator(memory.DefaultAllocator)
			defer allocator.AssertSize(t, 0)
			values, _, err := array.FromJSON(allocator, c.kind, strings.NewReader(c.values))
			require.NoError(t, err)
			defer values.Release()
			whole := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "v", Type: c.kind, Nullable: true}}, nil), []arrow.Array{values}, 4)
			defer whole.Release()
			for from := range int64(4) {
				part := whole.NewSlice(from, 4)
				ready, err := ForC(part)
				require.NoError(t, err)
				require.True(t, array.RecordEqual(part, ready), "%v, not %v", ready, part)
				for _, offset := range beginnings(ready.Column(0).Data()) {
					require.Zero(t, offset)
				}
				ready.Release()
				part.Release()
			}
		})
	}
}
