package flightconn

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/tools/valuegen"
	"github.com/flightpool/flightpool/rowscan"
)

// received gives messages to Arrow's reader.
type received struct{ messages []*pb.FlightData }

func (r *received) Recv() (*flight.FlightData, error) {
	if len(r.messages) == 0 {
		return nil, io.EOF
	}
	d := r.messages[0]
	r.messages = r.messages[1:]
	return d, nil
}

// valuesOf are the values of a column of what messages carry.
func valuesOf(t *testing.T, messages []*pb.FlightData) (values []string) {
	rd, err := flight.NewRecordReader(&received{messages})
	require.NoError(t, err)
	defer rd.Release()
	for rd.Next() {
		values = append(values, textsOf(rd.RecordBatch().Column(0))...)
	}
	require.NoError(t, rd.Err())
	return values
}

func textsOf(col arrow.Array) (values []string) {
	for row := range col.Len() {
		values = append(values, fmt.Sprintf("%#v", rowscan.Value(col, row)))
	}
	return values
}

// TestSlicesOfEveryTypeAreSent sends slices of columns of every type, in one message and cut into
// many. Types with names of their own are not known to the reader, and Arrow's cannot read nested
// types in a dictionary.
func TestSlicesOfEveryTypeAreSent(t *testing.T) {
	compacted := 0
	for seed := range uint64(3000) {
		g := valuegen.New(seed)
		rows := 6 + g.IntN(12)
		col, _ := g.Exactly(rows, int(seed%4))
		schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: col.DataType(), Nullable: true}}, nil)
		name := col.DataType().String()
		if CheckSendable(schema) != nil || strings.Contains(name, "arrow.") || strings.Contains(name, "flightpool.") || strings.Contains(name, "dictionary") {
			continue
		}
		if (compaction{}).applies(col.DataType()) {
			compacted++
		}
		from := g.IntN(rows)
		end := from + g.IntN(rows-from+1)
		part := array.NewRecordBatch(schema, []arrow.Array{array.NewSlice(col, int64(from), int64(end))}, int64(end-from))
		e := newEncoder(describe(&pb.CommandGetCatalogs{}), schema, 1<<30)
		if seed%2 == 0 { // as once a batch was too large
			e.compaction.views = true
			e.compacts = e.compaction.appliesTo(schema)
		}
		whole, err := e.flightData(part)
		require.NoError(t, err, "seed %d: %s", seed, name)
		require.Equal(t, textsOf(part.Column(0)), valuesOf(t, whole), "seed %d: %s", seed, name)

		e.rows = 1
		cut, err := e.flightData(part)
		require.NoError(t, err, "seed %d: %s", seed, name)
		require.Equal(t, textsOf(part.Column(0)), valuesOf(t, append(whole[:1:1], cut...)), "seed %d: %s", seed, name)
		e.close()
	}
	require.Greater(t, compacted, 300)
}

// columnOfJSON is a column whose memory is that of mem.
func columnOfJSON(t *testing.T, mem memory.Allocator, dt arrow.DataType, rows int, value string) arrow.Array {
	col, _, err := array.FromJSON(mem, dt, strings.NewReader("["+strings.Repeat(value+",", rows-1)+value+"]"))
	require.NoError(t, err)
	return col
}

// TestFewerRowsOfAUnionAreSmaller: a batch is cut into messages below the limit, and no memory of
// it is kept.
func TestFewerRowsOfAUnionAreSmaller(t *testing.T) {
	const limit, rows = 4 << 10, 500
	text := strings.Repeat("x", 100)
	fields := []arrow.Field{{Name: "a", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "b", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}
	for _, c := range []struct {
		t     arrow.DataType
		value string
	}{
		{arrow.DenseUnionOf(fields, []arrow.UnionTypeCode{3, 7}), `[3, "` + text + `"],[7, 5]`},
		{arrow.SparseUnionOf(fields, []arrow.UnionTypeCode{3, 7}), `[3, "` + text + `"],[7, 5]`},
		{arrow.ListViewOf(arrow.BinaryTypes.String), `["` + text + `"],null`},
		{arrow.LargeListViewOf(arrow.BinaryTypes.String), `["` + text + `"],[]`},
		{arrow.StructOf(arrow.Field{Name: "s", Type: arrow.ListViewOf(arrow.BinaryTypes.String), Nullable: true}), `{"s": ["` + text + `"]},null`},
		{arrow.ListOf(arrow.ListViewOf(arrow.BinaryTypes.String)), `[["` + text + `"],null],null`},
		{arrow.BinaryTypes.StringView, `"` + text + `","short",null`},
		{arrow.BinaryTypes.BinaryView, `"` + text + `",null`},
		{arrow.ListOf(arrow.BinaryTypes.StringView), `["` + text + `",null],null`},
		{arrow.StructOf(arrow.Field{Name: "s", Type: arrow.BinaryTypes.StringView, Nullable: true}), `{"s": "` + text + `"},null`},
	} {
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		col := columnOfJSON(t, mem, c.t, rows, c.value)
		batch := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "c", Type: c.t, Nullable: true}}, nil), []arrow.Array{col}, int64(col.Len()))
		messages, err := split(t, batch, limit)
		require.NoError(t, err, c.t)
		require.Less(t, len(messages), 50, c.t)
		require.Equal(t, textsOf(col), valuesOf(t, messages), c.t)
		batch.Release()
		col.Release()
		mem.AssertSize(t, 0)
	}
}

// TestABatchThatIsNotValidIsNotSent: it is an error, not a panic, whatever it refers to.
func TestABatchThatIsNotValidIsNotSent(t *testing.T) {
	fields := []arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true}}
	for name, data := range map[string]arrow.ArrayData{
		"a code that is none":  raw(arrow.DenseUnionOf(fields, []arrow.UnionTypeCode{3}), 0, 1, []arrow.ArrayData{ints32(1)}, nil, []byte{4}, i32s(0)),
		"a value beyond":       raw(arrow.DenseUnionOf(fields, []arrow.UnionTypeCode{3}), 0, 1, []arrow.ArrayData{ints32(1)}, nil, []byte{3}, i32s(7)),
		"a list before":        raw(arrow.ListViewOf(arrow.PrimitiveTypes.Int32), 0, 1, []arrow.ArrayData{ints32(1)}, nil, i32s(-1), i32s(1)),
		"a list beyond":        raw(arrow.ListViewOf(arrow.PrimitiveTypes.Int32), 0, 1, []arrow.ArrayData{ints32(1)}, nil, i32s(0), i32s(9)),
		"lists without starts": raw(arrow.ListViewOf(arrow.PrimitiveTypes.Int32), 0, 3, []arrow.ArrayData{ints32(1)}, nil, i32s(0), i32s(1)),
	} {
		col := array.MakeFromData(data)
		batch := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "c", Type: col.DataType(), Nullable: true}}, nil), []arrow.Array{col}, int64(col.Len()))
		_, err := split(t, batch, 1<<20)
		require.ErrorContains(t, err, "a batch that is not valid", name)
	}
}

// TestViewsAreCutWithTheirOwnTexts: each message has the texts of its rows, and no others; what a NULL refers to is none.
func TestViewsAreCutWithTheirOwnTexts(t *testing.T) {
	const limit, rows = 4 << 10, 600
	b := array.NewStringViewBuilder(memory.DefaultAllocator)
	defer b.Release()
	for i := range rows {
		if b.Append(fmt.Sprintf("%d%s", i, strings.Repeat("x", i%100))); i%7 == 0 {
			b.AppendNull()
		}
	}
	col := b.NewArray()
	defer col.Release()
	batch := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "c", Type: col.DataType(), Nullable: true}}, nil), []arrow.Array{col}, int64(col.Len()))
	defer batch.Release()
	messages, err := split(t, batch, limit)
	require.NoError(t, err)
	require.Equal(t, textsOf(col), valuesOf(t, messages))
	sent := 0
	for _, m := range messages {
		sent += len(m.GetDataBody())
	}
	require.Less(t, sent, 80*rows+20*col.Len())

	null := compactTexts(raw(arrow.BinaryTypes.StringView, 0, 1, nil, []byte{0}, view(13, 9, 0)))
	defer null.Release()
	require.Len(t, null.Buffers(), 2)
}
