package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/tools/valuegen"
	"github.com/flightpool/flightpool/rowscan"
)

// random is a batch of a column, twice, with the values that it stands for.
func random(seed uint64) (arrow.RecordBatch, []any) {
	col, want := valuegen.New(seed).Column(6, 2)
	return batchOfColumn(col, "v", "w"), want
}

func write(t *testing.T, f Format, batch arrow.RecordBatch) string {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, batch.Schema(), f)
	require.NoError(t, err)
	require.NoError(t, w.Write(batch))
	require.NoError(t, w.Close())
	return out.String()
}

func TestCSVAndJSONTellEachValueOrNULL(t *testing.T) {
	for seed := range uint64(1500) {
		batch, want := random(seed)
		lines := json.NewDecoder(strings.NewReader(write(t, JSON, batch)))
		fields := csv.NewReader(strings.NewReader(write(t, CSV, batch)))
		_, err := fields.Read()
		require.NoError(t, err)
		for i, value := range want {
			var row map[string]json.RawMessage
			require.NoError(t, lines.Decode(&row))
			require.True(t, valuegen.SameJSON(string(row["v"]), value), "seed %d, row %d: %s stands for %v of %v", seed, i, row["v"], value, batch.Schema())
			record, err := fields.Read()
			require.NoError(t, err)
			quoted, err := json.Marshal(record[0])
			require.NoError(t, err)
			if value == nil {
				require.Empty(t, record[0])
			} else {
				require.True(t, valuegen.SameJSON(record[0], value) || valuegen.SameJSON(string(quoted), value), "seed %d, row %d: %s stands for %v of %v", seed, i, record[0], value, batch.Schema())
			}
		}
	}
}

// The text of Arrow's arrays makes midnight of the end of a day, "..." of a time in a zone
// that is not known, and "(null)" of a NULL that is one of a dictionary's values.
func TestATextIsNotThatOfArrow(t *testing.T) {
	clock := array.NewTime64Builder(memory.DefaultAllocator, &arrow.Time64Type{Unit: arrow.Microsecond})
	clock.Append(86_400_000_000)
	at := array.NewTimestampBuilder(memory.DefaultAllocator, &arrow.TimestampType{Unit: arrow.Second, TimeZone: "No/Where"})
	at.Append(arrow.Timestamp(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Unix()))
	dictionary := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
		column(t, arrow.PrimitiveTypes.Int8, `[0]`), column(t, arrow.BinaryTypes.String, `[null]`))
	for want, col := range map[string]arrow.Array{"24:00:00.000000": clock.NewArray(), "2026-01-02T03:04:05Z": at.NewArray(), "": dictionary} {
		got, ok := Text(col, 0)
		require.Equal(t, want, got)
		require.Equal(t, want != "", ok)
	}
}

func column(t *testing.T, of arrow.DataType, values string) arrow.Array {
	t.Helper()
	col, _, err := array.FromJSON(memory.DefaultAllocator, of, strings.NewReader(values))
	require.NoError(t, err)
	return col
}

func batchOfColumn(col arrow.Array, names ...string) arrow.RecordBatch {
	var fields []arrow.Field
	var columns []arrow.Array
	for _, name := range names {
		fields, columns = append(fields, arrow.Field{Name: name, Type: col.DataType(), Nullable: true}), append(columns, col)
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(col.Len()))
}

func TestAMadeUpNameIsNoOthers(t *testing.T) {
	require.Equal(t, `{"a#2":7,"a":7,"a#3":7}`+"\n", write(t, JSON, batchOfColumn(column(t, arrow.PrimitiveTypes.Int64, `[7]`), "a#2", "a", "a")))
}

// received is a batch as it comes out of a stream: no column begins in the middle of its
// buffers. It is nil where Arrow cannot write it.
func received(t *testing.T, batch arrow.RecordBatch) arrow.RecordBatch {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, batch.Schema(), Arrow)
	if err != nil || w.Write(batch) != nil || w.Close() != nil {
		return nil
	}
	stream, err := ipc.NewReader(&out)
	if err != nil || !stream.Next() { // dictionaries of unions and the like
		return nil
	}
	defer stream.Release()
	stream.RecordBatch().Retain()
	return stream.RecordBatch()
}

// Types that Arrow's writer of Parquet does not write, and values that Parquet lacks.
var refusals = regexp.MustCompile(`not implemented: (support for|writing DictionaryArray with)|scale must be a non-negative|casting timestamp from s to ms would overflow|dictionary of seconds|integer value .* not in range|only fixed size binary and decimal128|no kernel matching input types`)

// readParquet is what a file has of a batch's first column, or nil where the batch is
// refused. The rest of the program goes on then, also where Arrow panics.
func readParquet(t *testing.T, batch arrow.RecordBatch) arrow.Array {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, batch.Schema(), Parquet)
	if err == nil {
		err = w.Write(batch)
	}
	if err != nil {
		require.Regexp(t, refusals, err, batch.Schema())
		return nil
	}
	require.NoError(t, w.Close())
	table, err := pqarrow.ReadTable(t.Context(), bytes.NewReader(out.Bytes()), parquet.NewReaderProperties(nil), pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	require.NoError(t, err)
	return table.Column(0).Data().Chunks()[0]
}

// What Parquet lacks: extensions, days with a time, and seconds, which are milliseconds
// there; the generator has more of these than fit.
var notOfParquet = regexp.MustCompile(`arrow\.|flightpool\.|date64|time32\[s\]`)

func TestArrowAndParquetGiveBackEachValue(t *testing.T) {
	same := func(seed uint64, got arrow.Array, want []any) {
		require.Equal(t, len(want), got.Len())
		for row, value := range want {
			shown := string(rowscan.AppendJSON(nil, got, row))
			require.True(t, valuegen.SameJSON(shown, value), "seed %d, row %d of %v: %s stands for %v", seed, row, got.DataType(), shown, value)
		}
	}
	written := 0
	for seed := range uint64(1500) {
		batch, want := random(seed)
		if batch = received(t, batch); batch == nil {
			continue
		}
		same(seed, batch.Column(0), want)
		if len(want) == 0 || notOfParquet.MatchString(batch.Schema().Field(0).Type.String()) {
			continue
		}
		if got := readParquet(t, batch); got != nil {
			written++
			same(seed, got, want)
		}
	}
	require.Greater(t, written, 500)
}

// Whoever writes a slice of a batch gets the rows of the slice.
func TestASliceIsWrittenToParquetAsItsRows(t *testing.T) {
	written := 0
	for seed := range uint64(3000) {
		batch, _ := random(seed)
		kind := batch.Schema().Field(0).Type.String()
		if batch = received(t, batch); batch == nil || batch.NumRows() < 3 || notOfParquet.MatchString(kind) || notCompared.MatchString(kind) {
			continue
		}
		sent := batch.NewSlice(2, batch.NumRows())
		got := readParquet(t, sent)
		if got == nil {
			continue
		}
		written++
		for row := range got.Len() {
			require.Equal(t, string(rowscan.AppendJSON(nil, sent.Column(0), row)), string(rowscan.AppendJSON(nil, got, row)), "seed %d, row %d of %s", seed, row, kind)
		}
	}
	require.Greater(t, written, 500)
}

func TestAMemberOfANullStructIsNoOthersValue(t *testing.T) {
	for _, member := range []arrow.DataType{&arrow.Decimal128Type{Precision: 20, Scale: 2}, &arrow.Decimal256Type{Precision: 40, Scale: 2}, arrow.FixedWidthTypes.Float16} {
		inner := arrow.StructOf(arrow.Field{Name: "x", Type: member, Nullable: true})
		of := arrow.StructOf(arrow.Field{Name: "s", Type: inner, Nullable: true})
		values := column(t, of, `[{"s":{"x":1}},null,{"s":null},{"s":{"x":2}},{"s":{"x":3}}]`)
		bare := values.Data().Children()[0].Children()[0]
		bare = array.NewData(member, bare.Len(), []*memory.Buffer{nil, bare.Buffers()[1]}, nil, 0, 0) // as servers send it
		s := values.Data().Children()[0]
		s = array.NewData(inner, s.Len(), s.Buffers(), []arrow.ArrayData{bare}, array.UnknownNullCount, 0)
		values = array.MakeFromData(array.NewData(of, values.Len(), values.Data().Buffers(), []arrow.ArrayData{s}, array.UnknownNullCount, 0))
		got := readParquet(t, batchOfColumn(values, "v"))
		require.NotNil(t, got)
		for row := range values.Len() {
			require.Equal(t, string(rowscan.AppendJSON(nil, values, row)), string(rowscan.AppendJSON(nil, got, row)))
		}
		named := arrow.StructOf(arrow.Field{Name: "x", Type: extensions.NewOpaqueType(member, "named", "test"), Nullable: true})
		extended := array.NewData(named.Field(0).Type, bare.Len(), bare.Buffers(), nil, 0, 0)
		s = array.NewData(named, s.Len(), s.Buffers(), []arrow.ArrayData{extended}, array.UnknownNullCount, 0)
		column := array.MakeFromData(s)
		got = readParquet(t, batchOfColumn(column, "v"))
		require.NotNil(t, got)
		for row := range column.Len() {
			require.Equal(t, string(rowscan.AppendJSON(nil, column, row)), string(rowscan.AppendJSON(nil, got, row)))
		}
	}
}

func TestWhatParquetLacksIsAnError(t *testing.T) {
	coded := func(of arrow.DataType) arrow.DataType {
		return &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: of}
	}
	for _, of := range []arrow.DataType{
		&arrow.Decimal128Type{Precision: 20, Scale: -2}, coded(arrow.FixedWidthTypes.Time32s),
		arrow.StructOf(arrow.Field{Name: "x", Type: coded(arrow.FixedWidthTypes.Timestamp_s)}),
		arrow.ListOf(coded(arrow.FixedWidthTypes.Time32s)), arrow.MapOf(arrow.BinaryTypes.String, coded(&arrow.TimestampType{Unit: arrow.Second, TimeZone: "Z"})),
	} {
		_, err := NewWriter(io.Discard, arrow.NewSchema([]arrow.Field{{Name: "v", Type: of}}, nil), Parquet)
		require.ErrorContains(t, err, "as Parquet")
	}
	number := arrow.PrimitiveTypes.Int32
	for _, of := range []arrow.DataType{arrow.RunEndEncodedOf(number, number), arrow.ListViewOf(number), arrow.LargeListViewOf(number)} {
		_, err := NewWriter(io.Discard, arrow.NewSchema([]arrow.Field{{Name: "v", Type: of, Nullable: true}}, nil), Parquet)
		require.ErrorContains(t, err, "as Parquet: not implemented")
	}
	for values, of := range map[string]arrow.DataType{`["a",null]`: arrow.BinaryTypes.String, `[7,null]`: number, `[[7],[]]`: arrow.ListOf(number)} {
		dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: of}
		sent := batchOfColumn(array.NewDictionaryArray(dictionary, column(t, dictionary.IndexType, `[0,1,null]`), column(t, of, values)), "v")
		w, err := NewWriter(io.Discard, sent.Schema(), Parquet)
		if err == nil {
			err = w.Write(sent)
		}
		require.ErrorContains(t, err, "not implemented", of)
	}
}
