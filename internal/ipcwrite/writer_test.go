package ipcwrite

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// sink is a stream of the messages that a writer makes, of which it knows how long each is.
type sink struct {
	bytes.Buffer
	messages int
	full     error
}

func (s *sink) Start() error { return nil }

func (s *sink) WritePayload(p ipc.Payload) error {
	if s.full != nil {
		return s.full
	}
	s.messages++
	_, err := p.WritePayload(&s.Buffer)
	return err
}

func (s *sink) Close() error {
	_, err := s.Write([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	return err
}

var index = arrow.PrimitiveTypes.Int8

func column(t *testing.T, of arrow.DataType, values string) arrow.Array {
	t.Helper()
	col, _, err := array.FromJSON(memory.DefaultAllocator, of, strings.NewReader(values))
	require.NoError(t, err)
	return col
}

func coded(t *testing.T, dictionary arrow.Array) arrow.Array {
	t.Helper()
	indices := array.NewInt8Builder(memory.DefaultAllocator)
	for i := range dictionary.Len() {
		indices.Append(int8(i))
	}
	return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: index, ValueType: dictionary.DataType()}, indices.NewArray(), dictionary)
}

func batchOf(columns ...arrow.Array) arrow.RecordBatch {
	var fields []arrow.Field
	for _, c := range columns {
		fields = append(fields, arrow.Field{Name: "v", Type: c.DataType(), Nullable: true})
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(columns[0].Len()))
}

func floats(values ...float64) arrow.Array {
	b := array.NewFloat64Builder(memory.DefaultAllocator)
	b.AppendValues(values, nil)
	return b.NewArray()
}

// readBack reads a stream and compares it, bit by bit of its floats.
func readBack(t *testing.T, out *sink, want ...arrow.RecordBatch) {
	t.Helper()
	stream, err := ipc.NewReader(&out.Buffer)
	require.NoError(t, err)
	defer stream.Release()
	for i, w := range want {
		require.True(t, stream.Next(), "batch %d: %v", i, stream.Err())
		require.Equal(t, fmt.Sprint(w), fmt.Sprint(stream.RecordBatch()), "batch %d", i)
	}
	require.False(t, stream.Next())
	require.NoError(t, stream.Err())
}

func TestEveryBatchIsReadWithItsOwnDictionaries(t *testing.T) {
	structs := arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float32, Nullable: true})
	for name, c := range map[string]struct {
		columns  []arrow.Array
		messages int // the schema, and what each batch takes
	}{
		"floats that are near":     {[]arrow.Array{coded(t, floats(0.000001, 1)), coded(t, floats(0.000002, 1)), coded(t, floats(0.000003, 1))}, 7},
		"a zero with a sign":       {[]arrow.Array{coded(t, floats(0)), coded(t, floats(math.Copysign(0, -1)))}, 5},
		"texts that end in zeros":  {[]arrow.Array{coded(t, column(t, arrow.BinaryTypes.String, `["a"]`)), coded(t, column(t, arrow.BinaryTypes.String, `["a\u0000"]`))}, 5},
		"structs that are near":    {[]arrow.Array{coded(t, column(t, structs, `[{"x":1}]`)), coded(t, column(t, structs, `[{"x":1.000001}]`))}, 5},
		"others, longer, the same": {[]arrow.Array{coded(t, column(t, arrow.BinaryTypes.String, `["a"]`)), coded(t, column(t, arrow.BinaryTypes.String, `["b"]`)), coded(t, column(t, arrow.BinaryTypes.String, `["b","c"]`)), coded(t, column(t, arrow.BinaryTypes.String, `["b","c"]`))}, 8},
	} {
		out := &sink{}
		w := New(out, batchOf(c.columns[0]).Schema(), ipc.WithSchema(batchOf(c.columns[0]).Schema()))
		var batches []arrow.RecordBatch
		for _, col := range c.columns {
			batches = append(batches, batchOf(col))
			require.NoError(t, w.Write(batches[len(batches)-1]), name)
		}
		require.NoError(t, w.Close())
		require.Equal(t, c.messages, out.messages, name)
		readBack(t, out, batches...)
	}
}

// A dictionary that stays is sent once, whichever other is sent again.
func TestADictionaryThatIsTheSameArrayIsSentOnce(t *testing.T) {
	near := coded(t, floats(0.000001))
	out := &sink{}
	w := New(out, batchOf(near).Schema(), ipc.WithSchema(batchOf(near).Schema()))
	require.NoError(t, w.Write(batchOf(near)))
	require.NoError(t, w.Write(batchOf(array.NewSlice(near, 0, 1))))
	require.NoError(t, w.Close())
	require.Equal(t, 4, out.messages)
	readBack(t, out, batchOf(near), batchOf(near))
}

func TestAStreamWithoutBatchesHasItsSchemaAndItsEnd(t *testing.T) {
	out := &sink{}
	w := New(out, batchOf(coded(t, floats(1))).Schema(), ipc.WithSchema(batchOf(coded(t, floats(1))).Schema()))
	require.NoError(t, w.Close())
	require.Equal(t, 1, out.messages)
	readBack(t, out)
}

// After an error nothing more is written, and nothing that was kept stays.
func TestAWriterThatHasFailedWritesNoMore(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	batch := func(value float64) arrow.RecordBatch {
		values := array.NewFloat64Builder(mem)
		defer values.Release()
		values.Append(value)
		of := values.NewArray()
		defer of.Release()
		indices := array.NewInt8Builder(mem)
		defer indices.Release()
		indices.Append(0)
		at := indices.NewArray()
		defer at.Release()
		col := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: index, ValueType: of.DataType()}, at, of)
		defer col.Release()
		return batchOf(col)
	}
	one, two := batch(0.000001), batch(0.000002)
	defer one.Release()
	defer two.Release()
	out := &sink{}
	w := New(out, one.Schema(), ipc.WithSchema(one.Schema()))
	require.NoError(t, w.Write(one))
	other := batchOf(column(t, arrow.PrimitiveTypes.Int64, `[1]`))
	require.Error(t, w.Write(other), "of another schema")
	require.Error(t, w.Write(two))
	require.Equal(t, 3, out.messages)
	require.Error(t, w.Close())

	full := errors.New("full")
	w = New(out, one.Schema(), ipc.WithSchema(one.Schema()))
	out.full = full
	require.ErrorIs(t, w.Write(one), full)
	require.ErrorIs(t, w.Write(two), full)
	require.ErrorIs(t, w.Close(), full)
}
