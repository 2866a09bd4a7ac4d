package session

import (
	"errors"
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
	for row, err := range Maps(resultOf(t, batch)) {
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
	for row, err := range Maps(resultOf(t, b.NewRecordBatch())) {
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

func TestMapsOfAResultThatFailsEndWithItsError(t *testing.T) {
	r := resultOf(t, flightsBatch(t))
	cause := errors.New("cut")
	seen := 0
	var last error
	for row, err := range Maps(r) {
		if seen == 0 {
			r.interrupt(cause)
		}
		if last = err; err == nil {
			require.NotNil(t, row)
			seen++
		}
	}
	require.Equal(t, 2, seen, "the batch at hand is read to its end")
	require.ErrorIs(t, last, cause)
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
