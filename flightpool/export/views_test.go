package export

import (
	"bytes"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/rowscan"
)

// DataFusion's servers send texts as views, in nested values too.
func TestViewsAreWrittenToParquetAsWhatTheyShow(t *testing.T) {
	const long = "longer than twelve bytes, so that a buffer has it"
	text, bin := arrow.BinaryTypes.StringView, arrow.BinaryTypes.BinaryView
	member := func(of arrow.DataType) arrow.DataType {
		return arrow.StructOf(arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, arrow.Field{Name: "x", Type: of, Nullable: true})
	}
	for of, values := range map[arrow.DataType]string{
		text:                             `["a",null,"","` + long + `"]`,
		bin:                              `["YQ==",null,"","bG9uZ2VyIHRoYW4gdHdlbHZlIGJ5dGVz"]`,
		member(text):                     `[{"n":1,"x":"` + long + `"},null,{"n":2,"x":null},{"n":3,"x":"b"}]`,
		arrow.ListOf(text):               `[["a","` + long + `"],null,[],[null,"c"]]`,
		arrow.LargeListOf(member(bin)):   `[[{"n":1,"x":"YQ=="}],null,[],[null,{"n":2,"x":null}]]`,
		arrow.FixedSizeListOf(2, text):   `[["a","b"],["c","` + long + `"],[null,"d"],["e",""]]`,
		arrow.MapOf(text, text):          `[[{"key":"k","value":"` + long + `"}],null,[],[{"key":"l","value":null}]]`,
		arrow.ListOf(arrow.ListOf(text)): `[[["a"],["` + long + `",null]],null,[],[[]]]`,
	} {
		whole := column(t, of, values)
		for from := range whole.Len() { // a slice begins in the middle of its buffers
			sent := array.NewSlice(whole, int64(from), int64(whole.Len()))
			got := readParquet(t, batchOfColumn(sent, "v"))
			require.NotNil(t, got, of)
			for row := range sent.Len() {
				require.Equal(t, string(rowscan.AppendJSON(nil, sent, row)), string(rowscan.AppendJSON(nil, got, row)), "%v, row %d from %d", of, row, from)
			}
		}
	}
}

func TestDictionariesAndExtensionsOfViewsAreWrittenToParquet(t *testing.T) {
	views := column(t, arrow.BinaryTypes.StringView, `["a","longer than twelve bytes"]`)
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: views.DataType()}
	named := extensions.NewOpaqueType(views.DataType(), "named", "test")
	for _, sent := range []arrow.Array{
		array.NewDictionaryArray(dictionary, column(t, arrow.PrimitiveTypes.Int8, `[1,null,0,1]`), views),
		array.NewExtensionArrayWithStorage(named, views),
	} {
		got := readParquet(t, batchOfColumn(sent, "v"))
		require.NotNil(t, got)
		for row := range sent.Len() {
			require.Equal(t, string(rowscan.AppendJSON(nil, sent, row)), string(rowscan.AppendJSON(nil, got, row)), sent.DataType())
		}
	}
}

// Metadata of columns, and whether there may be NULL, are those of the result.
func TestASchemaOfViewsKeepsTheRest(t *testing.T) {
	of := arrow.NewMetadata([]string{"unit"}, []string{"words"})
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "s", Type: arrow.BinaryTypes.StringView, Metadata: of},
		{Name: "m", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.StringView), Nullable: true},
		{Name: "n", Type: arrow.PrimitiveTypes.Int64},
	}, nil)
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[{"s":"a","m":null,"n":1}]`))
	require.NoError(t, err)
	var out bytes.Buffer
	w, err := NewWriter(&out, schema, Parquet)
	require.NoError(t, err)
	require.NoError(t, w.Write(batch))
	require.NoError(t, w.Close())
	require.Equal(t, arrow.STRING_VIEW, schema.Field(0).Type.ID(), "the caller's schema stays")
	table, err := pqarrow.ReadTable(t.Context(), bytes.NewReader(out.Bytes()), parquet.NewReaderProperties(nil), pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	require.NoError(t, err)
	defer table.Release()
	got := table.Schema()
	unit, _ := got.Field(0).Metadata.GetValue("unit")
	require.Equal(t, "words", unit)
	require.Equal(t, arrow.STRING, got.Field(0).Type.ID())
	require.False(t, got.Field(0).Nullable)
	require.True(t, got.Field(1).Nullable)
}
