package rowscan

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

func TestMapsGiveEveryColumnByNameAndOwnTheirMemory(t *testing.T) {
	batch := flightsBatch(t)
	var rows []map[string]any
	for row, err := range Maps(resultOf(batch)) {
		require.NoError(t, err)
		rows = append(rows, row)
	}
	require.Len(t, rows, 2)
	require.Len(t, rows[0], int(batch.NumCols()))
	require.Equal(t, time.Date(2001, 1, 1, 12, 0, 0, 0, time.UTC), rows[0]["date"])
	require.EqualValues(t, -7, rows[0]["DELAY"])
	require.Contains(t, rows[1], "DELAY")
	require.Nil(t, rows[1]["DELAY"])
	require.IsType(t, []any{}, rows[0]["legs"])
	require.Contains(t, rows[0]["plane"], "model")
	before := rows[0]["note"]
	clear(batch.Column(7).Data().Buffers()[2].Bytes()) // as C memory that is given back
	require.Equal(t, "late", before)
}

func TestColumnsOfOneNameAreToldApart(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int8}, {Name: "n", Type: arrow.PrimitiveTypes.Int8}, {Name: "n#2", Type: arrow.PrimitiveTypes.Int8},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := range 3 {
		b.Field(i).(*array.Int8Builder).Append(int8(i))
	}
	rows := 0
	for row, err := range Maps(resultOf(b.NewRecordBatch())) {
		require.NoError(t, err)
		require.Equal(t, map[string]any{"n": int8(0), "n#2": int8(1), "n#2#2": int8(2)}, row)
		rows++
	}
	require.Equal(t, 1, rows)
}

// A server could have the names of its columns take a minute otherwise.
func TestManyColumnsOfOneNameAreNamedInOnePass(t *testing.T) {
	const columns = 20_000
	fields := make([]arrow.Field, columns)
	for i := range fields {
		fields[i].Name = "n"
	}
	fields[columns/2].Name = "n#7"
	names := uniqueNames(fields)
	require.Equal(t, "n", names[0])
	require.Equal(t, "n#19999", names[columns-1])
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(names))), columns)
}

func TestValueStandsForWhatIsEncoded(t *testing.T) {
	i32, str := arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String
	two := []arrow.Field{{Name: "i", Type: i32, Nullable: true}, {Name: "s", Type: str, Nullable: true}}
	for _, tc := range []struct {
		dt    arrow.DataType
		texts []string
		want  []any
	}{
		{arrow.SparseUnionOf(two, []arrow.UnionTypeCode{5, 7}), []string{`[5,1]`, `[7,"x"]`}, []any{int32(1), "x"}},
		{arrow.DenseUnionOf(two, []arrow.UnionTypeCode{5, 7}), []string{`[7,"x"]`, `[5,1]`, `[7,"y"]`}, []any{"x", int32(1), "y"}},
		{arrow.RunEndEncodedOf(i32, str), []string{"a", "a", "b"}, []any{"a", "a", "b"}},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: str}, []string{"a", "b", "a"}, []any{"a", "b", "a"}},
		{arrow.ListViewOf(i32), []string{`[1,2]`, `[]`}, []any{[]any{int32(1), int32(2)}, []any{}}},
		{arrow.FixedSizeListOf(2, str), []string{`["a","b"]`}, []any{[]any{"a", "b"}}},
	} {
		b := array.NewBuilder(memory.DefaultAllocator, tc.dt)
		for _, text := range tc.texts {
			require.NoError(t, b.AppendValueFromString(text), tc.dt)
		}
		col := b.NewArray()
		for from := range tc.want { // and of a slice, whose rows begin elsewhere
			part := array.NewSlice(col, int64(from), int64(col.Len()))
			for i, want := range tc.want[from:] {
				require.Equal(t, want, Value(part, i), "%s from %d", tc.dt, from)
			}
		}
	}
}

func TestStructsAndMapsStayWhatTheyAre(t *testing.T) {
	twice := arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64}, arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64})
	b := array.NewStructBuilder(memory.DefaultAllocator, twice)
	b.Append(true)
	b.FieldBuilder(0).(*array.Int64Builder).Append(1)
	b.FieldBuilder(1).(*array.Int64Builder).Append(2)
	require.Equal(t, map[string]any{"a": int64(1), "a#2": int64(2)}, Value(b.NewArray(), 0))
	m := array.NewMapBuilder(memory.DefaultAllocator, arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64, false)
	m.Append(true)
	m.KeyBuilder().(*array.StringBuilder).Append("k")
	m.ItemBuilder().(*array.Int64Builder).Append(3)
	column := m.NewArray()
	require.Equal(t, map[string]any{"k": int64(3)}, Value(column, 0))
	require.Equal(t, `{"k":3}`, oneRow[string](t, column))
	u := array.NewUint64Builder(memory.DefaultAllocator)
	u.AppendValues([]uint64{math.MaxInt64, math.MaxInt64 + 1}, nil)
	got, err := rowsOf[scanned](t, u.NewArray())
	require.NoError(t, err)
	require.Equal(t, []any{int64(math.MaxInt64), "9223372036854775808"}, []any{got[0].v, got[1].v})
	one := columnOf(t, arrow.PrimitiveTypes.Uint64, "[9223372036854775807]")
	require.Equal(t, int64(math.MaxInt64), oneRow[int64](t, one))
	exact := columnOf(t, arrow.PrimitiveTypes.Uint64, "[9007199254740991]")
	require.Equal(t, float64(1<<53-1), oneRow[float64](t, exact))
	refused[[16]byte](t, "5 (int64) does not fit [16]uint8", columnOf(t, arrow.PrimitiveTypes.Int64, "[5]"))
	lists := array.NewSlice(columnOf(t, arrow.ListOf(arrow.PrimitiveTypes.Int64), "[[1,2,3],[4,5]]"), 1, 2)
	refused[[3]int64](t, "it has 2 elements", lists)
	require.Equal(t, [2]int64{4, 5}, oneRow[[2]int64](t, lists))
}

// scanned keeps what database/sql would be given.
type scanned struct{ v any }

func (s *scanned) Scan(v any) error {
	s.v = v
	return nil
}
