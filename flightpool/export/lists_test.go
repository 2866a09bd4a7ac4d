package export

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/tools/valuegen"
	"github.com/flightpool/flightpool/rowscan"
)

// withoutEmptyBuffers is d with no buffer where one has no bytes, as a server's batch is decoded.
func withoutEmptyBuffers(d arrow.ArrayData) arrow.ArrayData {
	buffers := make([]*memory.Buffer, len(d.Buffers()))
	for i, b := range d.Buffers() {
		if b != nil && b.Len() > 0 {
			buffers[i] = b
		}
	}
	if d.DataType().ID() == arrow.DICTIONARY {
		return array.NewDataWithDictionary(d.DataType(), d.Len(), buffers, d.NullN(), d.Offset(), d.Dictionary().(*array.Data))
	}
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, child := range d.Children() {
		children[i] = withoutEmptyBuffers(child)
	}
	return array.NewData(d.DataType(), d.Len(), buffers, children, d.NullN(), d.Offset())
}

// A batch may have no value of a column at all: lists that are empty.
func TestListsWithoutItemsAreWrittenToParquet(t *testing.T) {
	text := column(t, arrow.BinaryTypes.String, `["a","b"]`)
	enum := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint8, ValueType: text.DataType()}, column(t, arrow.PrimitiveTypes.Uint8, `[]`), text)
	items := []arrow.Array{enum}
	for seed := range uint64(120) {
		col, _ := valuegen.New(seed).Exactly(6, 2)
		if batch := received(t, batchOfColumn(array.NewSlice(col, 0, 0), "v")); batch != nil && !notOfParquet.MatchString(col.DataType().String()) {
			items = append(items, batch.Column(0))
		}
	}
	written := 0
	for _, item := range items {
		of := arrow.ListOf(item.DataType())
		offsets := memory.NewBufferBytes(make([]byte, 12))
		for _, valid := range []byte{0b00, 0b01, 0b11} { // [NULL NULL], [[] NULL], [[] []]
			data := array.NewData(of, 2, []*memory.Buffer{memory.NewBufferBytes([]byte{valid}), offsets}, []arrow.ArrayData{withoutEmptyBuffers(item.Data())}, array.UnknownNullCount, 0)
			sent := array.MakeFromData(data)
			if got := readParquet(t, batchOfColumn(sent, "v")); got != nil {
				written++
				sameRows(t, sent, got)
			}
		}
	}
	require.Greater(t, written, 100)
}

func sameRows(t *testing.T, sent, got arrow.Array) {
	t.Helper()
	require.Equal(t, sent.Len(), got.Len())
	for row := range sent.Len() {
		require.Equal(t, string(rowscan.AppendJSON(nil, sent, row)), string(rowscan.AppendJSON(nil, got, row)), "row %d of %v", row, sent.DataType())
	}
}

// The items of a NULL list, of which Arrow says nothing, are nobody's; a NULL list of fixed size
// always has them.
func TestItemsOfNullListsAreNotWrittenToParquet(t *testing.T) {
	written := 0
	for seed := range uint64(800) {
		g := valuegen.New(seed)
		col, _ := g.Exactly(6, 2)
		kind := col.DataType()
		batch := received(t, batchOfColumn(col, "v"))
		if batch == nil || notOfParquet.MatchString(kind.String()) || notCompared.MatchString(kind.String()) {
			continue
		}
		valid := memory.NewBufferBytes([]byte{byte(g.IntN(16))})
		buffers, items := []*memory.Buffer{valid}, []arrow.ArrayData{batch.Column(0).Data()}
		ends := []int32{0, int32(g.IntN(3)), 2, int32(2 + g.IntN(5)), 6}
		var of arrow.DataType
		rows := 4
		switch g.IntN(4) {
		case 0:
			of, buffers = arrow.ListOf(kind), append(buffers, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends)))
		case 1:
			large := make([]int64, len(ends))
			for i, end := range ends {
				large[i] = int64(end)
			}
			of, buffers = arrow.LargeListOf(kind), append(buffers, memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(large)))
		case 2:
			of, rows = arrow.FixedSizeListOf(2, kind), 3
		default: // lists in lists in a struct
			inner := array.NewData(arrow.FixedSizeListOf(2, kind), 3, []*memory.Buffer{memory.NewBufferBytes([]byte{byte(g.IntN(8))})}, items, array.UnknownNullCount, 0)
			list := arrow.ListOf(inner.DataType())
			ends = []int32{0, 1, 1, 2, 3}
			outer := array.NewData(list, 4, []*memory.Buffer{memory.NewBufferBytes([]byte{byte(g.IntN(16))}), memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends))}, []arrow.ArrayData{inner}, array.UnknownNullCount, 0)
			of, items = arrow.StructOf(arrow.Field{Name: "x", Type: list, Nullable: true}), []arrow.ArrayData{outer}
		}
		sent := array.MakeFromData(array.NewData(of, rows, buffers, items, array.UnknownNullCount, 0))
		if from := int64(g.IntN(3)); from < int64(rows) {
			sent = array.NewSlice(sent, from, int64(rows))
		}
		if got := readParquet(t, batchOfColumn(sent, "v")); got != nil {
			written++
			sameRows(t, sent, got)
		}
	}
	require.Greater(t, written, 300)
}

// A column has one type in the file, and a batch that comes later may have a NULL, for which there is no list of that size.
func TestListsOfFixedSizeAreListsInParquet(t *testing.T) {
	sent := column(t, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int32), `[[1,2],null,[3,4]]`)
	got := readParquet(t, batchOfColumn(sent, "v"))
	sameRows(t, sent, got)
	require.True(t, strings.HasPrefix(got.DataType().String(), "list<"), got.DataType())
}
