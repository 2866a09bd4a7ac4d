package export

import (
	"bytes"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/rowscan"
)

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "b", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "f", Type: &arrow.FixedSizeBinaryType{ByteWidth: 3}, Nullable: true},
	{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "d", Type: &arrow.Decimal128Type{Precision: 20, Scale: 2}, Nullable: true},
	{Name: "l", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
}, nil)

// batchOf has three rows of a letter.
func batchOf(t *testing.T, letter string) arrow.RecordBatch {
	t.Helper()
	three := strings.Repeat(letter, 3)
	row := `{"s":"` + letter + `","b":"` + map[string]string{"a": "YQ==", "m": "bQ==", "z": "eg=="}[letter] + `","f":"` +
		map[string]string{"a": "YWFh", "m": "bW1t", "z": "enp6"}[letter] + `","n":7,"d":"1.50","l":["` + three + `"]}`
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader("["+row+","+row+","+row+"]"))
	require.NoError(t, err)
	return batch
}

// scramble overwrites what a batch holds, as the next batch of a result may.
func scramble(batch arrow.RecordBatch) {
	var all func(arrow.ArrayData)
	all = func(data arrow.ArrayData) {
		for _, b := range data.Buffers() {
			if b != nil {
				bytes := b.Bytes()
				for i := range bytes {
					bytes[i] = 0xdb
				}
			}
		}
		for _, child := range data.Children() {
			all(child)
		}
	}
	for _, col := range batch.Columns() {
		all(col.Data())
	}
}

// allOf is what a writer makes of three batches, each of which is gone when the next comes.
func allOf(t *testing.T, f Format) string {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, schema, f)
	require.NoError(t, err)
	for _, letter := range []string{"m", "a", "z"} {
		batch := batchOf(t, letter)
		require.NoError(t, w.Write(batch))
		scramble(batch)
	}
	require.NoError(t, w.Close())
	return out.String()
}

func TestNoWriterKeepsABatch(t *testing.T) {
	require.Equal(t, strings.Join([]string{"s,b,f,n,d,l\n",
		strings.Repeat("m,bQ==,bW1t,7,1.50,\"[\"\"mmm\"\"]\"\n", 3), strings.Repeat("a,YQ==,YWFh,7,1.50,\"[\"\"aaa\"\"]\"\n", 3),
		strings.Repeat("z,eg==,enp6,7,1.50,\"[\"\"zzz\"\"]\"\n", 3)}, ""), allOf(t, CSV))
	require.Equal(t, 9, strings.Count(allOf(t, JSON), `"n":7,"d":"1.50",`))

	stream, err := ipc.NewReader(strings.NewReader(allOf(t, Arrow)))
	require.NoError(t, err)
	defer stream.Release()
	for _, letter := range []string{"m", "a", "z"} {
		require.True(t, stream.Next())
		want := batchOf(t, letter)
		require.True(t, array.RecordEqual(want, stream.RecordBatch()), "%v", stream.RecordBatch())
		want.Release()
	}
}

func TestParquetAndItsStatisticsAreOfTheValues(t *testing.T) {
	whole := strings.NewReader(allOf(t, Parquet))
	table, err := pqarrow.ReadTable(t.Context(), whole, parquet.NewReaderProperties(nil), pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	require.NoError(t, err)
	defer table.Release()
	for i, want := range []string{"mmmaaazzz", "bQ==bQ==bQ==YQ==YQ==YQ==eg==eg==eg==", "", "777777777", strings.Repeat("1.50", 9), ""} {
		var got strings.Builder
		for _, chunk := range table.Column(i).Data().Chunks() {
			for row := range chunk.Len() {
				value, _ := Text(chunk, row)
				got.WriteString(value)
			}
		}
		require.NotContains(t, got.String(), "\xdb")
		if want != "" {
			require.Equal(t, want, got.String())
		}
	}

	reader, err := file.NewParquetReader(strings.NewReader(allOf(t, Parquet)))
	require.NoError(t, err)
	defer func() { require.NoError(t, reader.Close()) }()
	chunk, err := reader.MetaData().RowGroup(0).ColumnChunk(0)
	require.NoError(t, err)
	stats, err := chunk.Statistics()
	require.NoError(t, err)
	require.Equal(t, "a", string(stats.(*metadata.ByteArrayStatistics).Min()))
	require.Equal(t, "z", string(stats.(*metadata.ByteArrayStatistics).Max()))
	chunk, err = reader.MetaData().RowGroup(0).ColumnChunk(2)
	require.NoError(t, err)
	stats, err = chunk.Statistics()
	require.NoError(t, err)
	require.Equal(t, "aaa", string(stats.(*metadata.FixedLenByteArrayStatistics).Min()))
	require.Equal(t, "zzz", string(stats.(*metadata.FixedLenByteArrayStatistics).Max()))
}

func TestDecimalsHaveAllTheirDigits(t *testing.T) {
	const digits = "12345678901234567890123456789012345.67"
	const quoted = `"` + digits + `"`
	decimal := &arrow.Decimal128Type{Precision: 38, Scale: 2}
	for _, c := range []struct {
		of                arrow.DataType
		value, text, json string
	}{
		{decimal, quoted, digits, quoted},
		{arrow.ListOf(decimal), "[" + quoted + "]", "[" + quoted + "]", "[" + quoted + "]"},
		{arrow.StructOf(arrow.Field{Name: "x", Type: decimal}), `{"x":` + quoted + "}", `{"x":` + quoted + "}", `{"x":` + quoted + "}"},
	} {
		col, _, err := array.FromJSON(memory.DefaultAllocator, c.of, strings.NewReader("["+c.value+"]"))
		require.NoError(t, err)
		shown, _ := Text(col, 0)
		require.Equal(t, c.text, shown, c.of)
		got := rowscan.AppendJSON(nil, col, 0)
		require.Equal(t, c.json, string(got), c.of)
		col.Release()
	}
}

// What a writer has not written yet is in memory: of Parquet a row group, of the others
// nothing behind Write.
func TestWritersHoldNoMoreThanTheySay(t *testing.T) {
	large := array.NewStringBuilder(memory.DefaultAllocator)
	large.Append(strings.Repeat("x", 1<<20))
	column := large.NewArray()
	batch := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil), []arrow.Array{column}, 1)
	for _, format := range Formats() {
		var out bytes.Buffer
		w, err := NewWriter(&out, batch.Schema(), format)
		require.NoError(t, err)
		for i := range 40 {
			require.NoError(t, w.Write(batch))
			if format != Parquet {
				require.Greater(t, out.Len(), (i+1)<<20, format)
			}
		}
		require.NoError(t, w.Close())
		if format == Parquet {
			read, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
			require.NoError(t, err)
			require.Equal(t, 3, read.NumRowGroups())
		}
	}
}
