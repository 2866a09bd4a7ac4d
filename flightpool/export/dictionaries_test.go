package export

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/rowscan"
)

// coded has each of values by an index of its own.
func coded(t *testing.T, of arrow.DataType, values string) arrow.Array {
	t.Helper()
	dictionary := column(t, of, values)
	indices := array.NewInt8Builder(memory.DefaultAllocator)
	for i := range dictionary.Len() {
		indices.Append(int8(i))
	}
	return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: of}, indices.NewArray(), dictionary)
}

func valuesOf(columns ...arrow.Array) (all []string) {
	for _, col := range columns {
		for row := range col.Len() {
			all = append(all, string(rowscan.AppendJSON(nil, col, row)))
		}
	}
	return all
}

// writeAll writes a batch for each column.
func writeAll(t *testing.T, f Format, columns ...arrow.Array) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, batchOfColumn(columns[0], "v").Schema(), f)
	require.NoError(t, err)
	for _, col := range columns {
		require.NoError(t, w.Write(batchOfColumn(col, "v")))
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// Arrow's writer leaves out a dictionary that is about the one before: floats to within
// 0.00001, and texts but for the zero bytes at their ends.
func TestEachBatchIsWrittenWithItsOwnDictionary(t *testing.T) {
	for _, columns := range [][]arrow.Array{
		{coded(t, arrow.PrimitiveTypes.Float64, "[0.000001]"), coded(t, arrow.PrimitiveTypes.Float64, "[0.000002]"), coded(t, arrow.PrimitiveTypes.Float64, "[0.000002, 3]")},
		{coded(t, arrow.BinaryTypes.String, `["a"]`), coded(t, arrow.BinaryTypes.String, `["a\u0000"]`), coded(t, arrow.BinaryTypes.String, `["b"]`)},
	} {
		stream, err := ipc.NewReader(bytes.NewReader(writeAll(t, Arrow, columns...)))
		require.NoError(t, err)
		var got []string
		for stream.Next() {
			got = append(got, valuesOf(stream.RecordBatch().Column(0))...)
		}
		require.NoError(t, stream.Err())
		stream.Release()
		require.Equal(t, valuesOf(columns...), got)

		table, err := pqarrow.ReadTable(t.Context(), bytes.NewReader(writeAll(t, Parquet, columns...)), parquet.NewReaderProperties(nil), pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
		require.NoError(t, err)
		require.Equal(t, valuesOf(columns...), valuesOf(table.Column(0).Data().Chunks()...))
		table.Release()
	}
}

// Of the texts of a dictionary that is a slice, arrow-go's writer of Parquet takes others.
func TestADictionaryThatIsASliceIsWrittenAsItsValues(t *testing.T) {
	for of, values := range map[arrow.DataType]string{
		arrow.BinaryTypes.String: `["first", "b", "third"]`, arrow.BinaryTypes.LargeString: `["first", "b", null, "third"]`, arrow.BinaryTypes.StringView: `["first", "b", "a text that no view holds inline"]`,
		arrow.BinaryTypes.Binary: `["Zmlyc3Q=", "Yg==", "dGhpcmQ="]`, arrow.PrimitiveTypes.Int64: `[1, 2, 3]`,
	} {
		all := column(t, of, values)
		from := int64(all.Len() - 2)
		if of.ID() == arrow.LARGE_STRING {
			from = int64(all.Len() - 1) // a NULL among the values is refused
		}
		indices := array.NewInt8Builder(memory.DefaultAllocator)
		indices.AppendValues([]int8{0, 0}, nil)
		col := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: of}, indices.NewArray(), array.NewSlice(all, from, int64(all.Len())))
		table, err := pqarrow.ReadTable(t.Context(), bytes.NewReader(writeAll(t, Parquet, col)), parquet.NewReaderProperties(nil), pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
		require.NoError(t, err)
		require.Equal(t, valuesOf(col), valuesOf(table.Column(0).Data().Chunks()...), of)
		table.Release()
	}
}

// arrow-go leaves the empty text out of what it says of a dictionary's: readers that go by it
// pass over the rows that have it.
func TestParquetSaysNothingFalseOfADictionary(t *testing.T) {
	for _, of := range []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView} {
		plain := coded(t, of, `["", "b", "c"]`)
		member := array.NewData(arrow.StructOf(arrow.Field{Name: "x.y", Type: plain.DataType(), Nullable: true}), 3, []*memory.Buffer{nil}, []arrow.ArrayData{plain.Data()}, 0, 0)
		list := array.NewData(arrow.ListOf(plain.DataType()), 1, []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, 3}))}, []arrow.ArrayData{plain.Data()}, 0, 0)
		for _, col := range []arrow.Array{plain, array.MakeFromData(member), array.MakeFromData(list)} {
			read, err := file.NewParquetReader(bytes.NewReader(writeAll(t, Parquet, col)))
			require.NoError(t, err)
			chunk, err := read.MetaData().RowGroup(0).ColumnChunk(0)
			require.NoError(t, err)
			stats, err := chunk.Statistics()
			require.NoError(t, err)
			if stats != nil && stats.HasMinMax() {
				require.Empty(t, string(stats.(*metadata.ByteArrayStatistics).Min()), col.DataType())
			}
		}
	}
	for _, of := range []arrow.DataType{arrow.ListOf(arrow.PrimitiveTypes.Int64), arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64)} {
		values := map[arrow.Type]string{arrow.LIST: "[[7, null], null]", arrow.MAP: `[[{"key":"a","value":7}], null]`}[of.ID()]
		read, err := file.NewParquetReader(bytes.NewReader(writeAll(t, Parquet, column(t, of, values))))
		require.NoError(t, err)
		for i := range read.MetaData().Schema.NumColumns() {
			chunk, err := read.MetaData().RowGroup(0).ColumnChunk(i)
			require.NoError(t, err)
			stats, err := chunk.Statistics()
			require.NoError(t, err)
			require.False(t, stats != nil && stats.HasMinMax(), "it is false of some")
		}
	}
	// Of others it says what there is.
	read, err := file.NewParquetReader(bytes.NewReader(writeAll(t, Parquet, column(t, arrow.BinaryTypes.String, `["", "b"]`))))
	require.NoError(t, err)
	chunk, err := read.MetaData().RowGroup(0).ColumnChunk(0)
	require.NoError(t, err)
	stats, err := chunk.Statistics()
	require.NoError(t, err)
	require.Equal(t, "b", string(stats.(*metadata.ByteArrayStatistics).Max()))
}

// Where arrow-go cannot write a batch it ends the file, with the batches before.
func TestAFileOfParquetThatFailsHasNoEnd(t *testing.T) {
	seconds := array.NewTimestampBuilder(memory.DefaultAllocator, &arrow.TimestampType{Unit: arrow.Second})
	seconds.Append(7)
	fine := seconds.NewArray()
	seconds.Append(math.MaxInt64) // DuckDB's infinity
	infinite := seconds.NewArray()
	var out bytes.Buffer
	rows, err := array.NewRecordReader(batchOfColumn(fine, "v").Schema(), []arrow.RecordBatch{batchOfColumn(fine, "v"), batchOfColumn(infinite, "v")})
	require.NoError(t, err)
	n, err := Write(&out, rows, Parquet)
	require.ErrorContains(t, err, "would overflow")
	require.EqualValues(t, 1, n)
	_, err = file.NewParquetReader(bytes.NewReader(out.Bytes()))
	require.Error(t, err, "it looks whole")
	require.False(t, strings.HasSuffix(out.String(), "PAR1") && out.Len() > 4)
}

// Of a dictionary whose values have one themselves Arrow's format has the inner indices alone.
func TestADictionaryOfDictionariesIsRefusedAsArrow(t *testing.T) {
	inner := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	outer := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: inner}
	_, err := NewWriter(&bytes.Buffer{}, arrow.NewSchema([]arrow.Field{{Name: "v", Type: outer}}, nil), Arrow)
	require.ErrorContains(t, err, `as Arrow: column "v"`)
}

// Of half floats that have a NULL among them arrow-go tells only those behind the last NaN, and readers pass
// over the rows of the others.
func TestParquetSaysNothingFalseOfHalfFloats(t *testing.T) {
	for _, values := range []string{`[1,"NaN",5,null]`, `[null,5,"NaN",1]`} {
		half := column(t, arrow.FixedWidthTypes.Float16, values)
		member := array.NewData(arrow.StructOf(arrow.Field{Name: "x", Type: half.DataType(), Nullable: true}), 4, []*memory.Buffer{nil}, []arrow.ArrayData{half.Data()}, 0, 0)
		for _, col := range []arrow.Array{half, array.MakeFromData(member)} {
			read, err := file.NewParquetReader(bytes.NewReader(writeAll(t, Parquet, col)))
			require.NoError(t, err)
			chunk, err := read.MetaData().RowGroup(0).ColumnChunk(0)
			require.NoError(t, err)
			stats, err := chunk.Statistics()
			require.NoError(t, err)
			if stats != nil && stats.HasMinMax() {
				of := stats.(*metadata.Float16Statistics)
				require.Equal(t, []float32{1, 5}, []float32{float16.FromLEBytes(of.Min()).Float32(), float16.FromLEBytes(of.Max()).Float32()}, "%v %s", col.DataType(), values)
			}
		}
	}
}
