package flightconn

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

var (
	innerType    = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	outerType    = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.StructOf(arrow.Field{Name: "s", Type: innerType, Nullable: true})}
	nestedSchema = arrow.NewSchema([]arrow.Field{{Name: "c", Type: outerType, Nullable: true}}, nil)
)

// nestedBatch has a row for each text, whose dictionary's values are in another
// dictionary.
func nestedBatch(t testing.TB, inner []int8, texts ...string) arrow.RecordBatch {
	mem := memory.DefaultAllocator
	words, codes, rows := array.NewStringBuilder(mem), array.NewInt8Builder(mem), array.NewInt32Builder(mem)
	words.AppendValues(texts, nil)
	codes.AppendValues(inner, nil)
	for i := range inner {
		rows.Append(int32(i))
	}
	values, err := array.NewStructArray([]arrow.Array{array.NewDictionaryArray(innerType, codes.NewArray(), words.NewArray())}, []string{"s"})
	require.NoError(t, err)
	column := array.NewDictionaryArray(outerType, rows.NewArray(), values)
	return array.NewRecordBatch(nestedSchema, []arrow.Array{column}, int64(len(inner)))
}

// TestABatchKeepsItsNestedDictionaries: the dictionary in a dictionary is
// replaced, which must neither change the batch before nor go unchecked.
func TestABatchKeepsItsNestedDictionaries(t *testing.T) {
	enc := newEncoder(nil, nestedSchema, DefaultRequestLimit)
	one, err := enc.flightData(nestedBatch(t, []int8{0, 1, 2}, "a", "b", "c"))
	require.NoError(t, err)
	require.Len(t, one, 4) // schema, inner and outer dictionary, batch
	same, err := enc.flightData(nestedBatch(t, []int8{0, 1, 2}, "x", "y", "z"))
	require.NoError(t, err)
	fewer, err := enc.flightData(nestedBatch(t, []int8{0, 0, 0}, "x"))
	require.NoError(t, err)
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	e := &Endpoint{cfg: Config{Address: here, Allocator: mem, Prefetch: 1, MaxMessage: 1 << 20, RequestLimit: DefaultRequestLimit}}
	read := func(inner *pb.FlightData) (first, second arrow.RecordBatch, err error) {
		messages := []*pb.FlightData{one[0], one[1], one[2], one[3], inner, one[3]}
		rd, err := openReader(t.Context(), scriptedRows(messages), nil, e, nil)
		require.NoError(t, err)
		defer rd.release()
		first, err = rd.next()
		require.NoError(t, err)
		first.Retain()
		if second, err = rd.next(); err == nil {
			second.Retain()
		}
		return first, second, err
	}
	first, second, err := read(same[0])
	require.NoError(t, err)
	require.Equal(t, []string{`{"s":"a"}`, `{"s":"b"}`, `{"s":"c"}`}, look(first), "it was kept while the next was read")
	require.Equal(t, []string{`{"s":"x"}`, `{"s":"y"}`, `{"s":"z"}`}, look(second))
	first.Release()
	second.Release()

	first, _, err = read(fewer[0])
	require.ErrorIs(t, err, errMalformed, "an index of the outer dictionary's values points nowhere now")
	first.Release()
}

// TestNestedDictionariesOfSeveralEndpoints are read while those of later batches
// are made: the race detector looks.
func TestNestedDictionariesOfSeveralEndpoints(t *testing.T) {
	f := &fake{info: infoOf(answer(nil, "0", "1", "2"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		batch := nestedBatch(t, []int8{0, 1, 2}, "a", "b", "c")
		w := flight.NewRecordWriter(s, ipc.WithSchema(nestedSchema))
		for range 100 {
			if err := w.Write(batch); err != nil {
				return err
			}
		}
		return w.Close()
	}
	inBubble(t, f, func(b *bubble) {
		s, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		defer s.Close()
		for range 300 {
			batch, err := s.Next()
			require.NoError(b, err)
			require.Equal(b, []string{`{"s":"a"}`, `{"s":"b"}`, `{"s":"c"}`}, look(batch))
		}
	})
}

// TestTheDictionariesOfAStreamAreBounded: they stay in memory to its end.
func TestTheDictionariesOfAStreamAreBounded(t *testing.T) {
	const fields, limit = 5, 16 << 20 // of readBatches
	kind := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int64}
	some := func(n int) []*pb.FlightData {
		schema, columns := make([]arrow.Field, fields), make([]arrow.Array, fields)
		for i := range fields {
			values := int64Batch(make([]int64, n)...).Column(0)
			index := array.NewInt8Builder(memory.DefaultAllocator)
			index.Append(0)
			schema[i], columns[i] = arrow.Field{Name: string(rune('a' + i)), Type: kind}, array.NewDictionaryArray(kind, index.NewArray(), values)
		}
		return send(t, array.NewRecordBatch(arrow.NewSchema(schema, nil), columns, 1), ipc.WithZstd())
	}
	few, many := some(limit/8/fields-1000), some(limit/8/fields+1)
	n, err := readBatches(t, append(few, few[1:]...), memory.DefaultAllocator)
	require.NoError(t, err, "the second ones replace the first")
	require.Equal(t, 2, n)
	_, err = readBatches(t, many, memory.DefaultAllocator)
	require.ErrorContains(t, err, "the dictionaries of one stream take more than")
}

func TestADictionaryThatIsAddedToIsCopied(t *testing.T) {
	var d dictionaryBytes
	takeEndpoint := func(w messageSize) int64 {
		bytes, err := d.add(w, 100)
		require.NoError(t, err)
		return bytes
	}
	require.Equal(t, int64(60), takeEndpoint(messageSize{bytes: 60, batch: true, dictionary: true, id: 1}))
	require.Equal(t, int64(1000), takeEndpoint(messageSize{bytes: 1000, batch: true}), "a batch is no dictionary")
	require.Equal(t, int64(70), takeEndpoint(messageSize{bytes: 10, batch: true, dictionary: true, delta: true, id: 1}))
	require.Equal(t, int64(30), takeEndpoint(messageSize{bytes: 30, batch: true, dictionary: true, id: -2}))
	require.Equal(t, int64(50), takeEndpoint(messageSize{bytes: 50, batch: true, dictionary: true, id: 1}), "it is replaced")
	_, err := d.add(messageSize{bytes: 21, batch: true, dictionary: true, delta: true, id: 1}, 100)
	require.Error(t, err)
}

// TestABatchKeepsItsDictionariesThoughTheyCannotBeAddedTo: Arrow's reader releases them
// twice then.
func TestABatchKeepsItsDictionariesThoughTheyCannotBeAddedTo(t *testing.T) {
	for _, stream := range dictionaryStreams(t) {
		want, err := readAll(stream)
		require.NoError(t, err)
		failed := 0
		for at, message := range stream {
			size, err := verifyMessage(message.GetDataHeader(), message.GetDataBody(), 1<<24)
			require.NoError(t, err)
			for n := range size.record.buffers {
				if !size.delta {
					break
				}
				header := bytes.Clone(message.GetDataHeader())
				binary.LittleEndian.PutUint64(header[size.record.buffersAt+16*n+8:], 0)
				damaged := slices.Clone(stream)
				damaged[at] = &pb.FlightData{DataHeader: header, DataBody: message.GetDataBody()}
				mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
				kept, err := keepAll(t, damaged, mem)
				if err != io.EOF { //nolint:errorlint // the end itself
					failed++
				}
				require.NotEmpty(t, kept)
				require.Equal(t, want[:4], look(kept[0]))
				for _, batch := range kept {
					batch.Release()
				}
				mem.AssertSize(t, 0)
			}
		}
		require.Positive(t, failed)
	}
}

// keepAll reads batches up to an error or the end, and keeps them beyond their reader.
func keepAll(t testing.TB, messages []*pb.FlightData, mem memory.Allocator) (kept []arrow.RecordBatch, err error) {
	e := &Endpoint{cfg: Config{Allocator: mem, MaxMessage: 1 << 20}}
	rd, err := openReader(t.Context(), scriptedRows(messages), nil, e, nil)
	require.NoError(t, err)
	defer rd.release()
	for {
		batch, err := rd.next()
		if err != nil {
			return kept, err
		}
		batch.Retain()
		kept = append(kept, batch)
	}
}
