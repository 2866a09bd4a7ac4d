package export

import (
	"regexp"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/tools/valuegen"
	"github.com/flightpool/flightpool/rowscan"
)

// withoutBits is d without the validity bits of what has no NULL, as servers send it.
func withoutBits(d arrow.ArrayData) arrow.ArrayData {
	buffers, nulls := append([]*memory.Buffer{}, d.Buffers()...), d.NullN()
	if column := array.MakeFromData(d); len(buffers) > 0 && column.NullN() == 0 && column.NullBitmapBytes() != nil {
		buffers[0], nulls = nil, 0
	}
	var children []arrow.ArrayData
	for _, c := range d.Children() {
		children = append(children, withoutBits(c))
	}
	if d.DataType().ID() == arrow.DICTIONARY {
		return array.NewDataWithDictionary(d.DataType(), d.Len(), buffers, nulls, d.Offset(), d.Dictionary().(*array.Data))
	}
	return array.NewData(d.DataType(), d.Len(), buffers, children, nulls, d.Offset())
}

// What is not compared: seconds, which are milliseconds in Parquet, dictionaries of
// dictionaries, which no stream has, and times in a zone, which a dictionary loses.
var notCompared = regexp.MustCompile(`timestamp\[s|dictionary<values=dictionary|dictionary<values=timestamp`)

func TestAMemberOfANullStructIsNoOthersValueWhateverItsType(t *testing.T) {
	written := 0
	for seed := range uint64(2500) {
		g := valuegen.New(seed)
		col, _ := g.Exactly(6, 2)
		kind := col.DataType()
		batch := received(t, batchOfColumn(col, "v"))
		if batch == nil || notOfParquet.MatchString(kind.String()) || notCompared.MatchString(kind.String()) {
			continue
		}
		data := withoutBits(batch.Column(0).Data())
		if arrow.IsDecimal(kind.ID()) && g.IntN(2) == 0 {
			kind = extensions.NewOpaqueType(kind, "named", "test")
			data = array.NewData(kind, 6, data.Buffers(), data.Children(), data.NullN(), 0)
		}
		of := arrow.StructOf(arrow.Field{Name: "x", Type: kind, Nullable: true})
		valid := memory.NewBufferBytes([]byte{byte(g.IntN(64))})
		want := array.MakeFromData(array.NewData(of, 6, []*memory.Buffer{valid}, []arrow.ArrayData{data}, array.UnknownNullCount, 0))
		got := readParquet(t, batchOfColumn(want, "v"))
		if got == nil {
			continue
		}
		written++
		for row := range 6 {
			require.Equal(t, string(rowscan.AppendJSON(nil, want, row)), string(rowscan.AppendJSON(nil, got, row)), "seed %d, row %d of %v", seed, row, of)
		}
	}
	require.Greater(t, written, 500)
}
