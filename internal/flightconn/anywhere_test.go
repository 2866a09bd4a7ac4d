package flightconn

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// dictionaryAnywhere is a type with a dictionary somewhere in it, and an array of rows values of it
// whose dictionary has the words, or is one that was made before from fewer of them.
func dictionaryAnywhere(r *rand.Rand, kind, rows int, words []string) arrow.Array {
	mem := memory.DefaultAllocator
	leaf := func(n int) arrow.Array {
		t := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String}
		dictionary, indices := array.NewStringBuilder(mem), array.NewInt16Builder(mem)
		dictionary.AppendValues(words, nil)
		for range n {
			if r.IntN(5) == 0 {
				indices.AppendNull()
			} else {
				indices.Append(int16(r.IntN(len(words))))
			}
		}
		return array.NewDictionaryArray(t, indices.NewArray(), dictionary.NewArray())
	}
	offsets := func() (*memory.Buffer, int) {
		ends := []int32{0}
		for range rows {
			ends = append(ends, ends[len(ends)-1]+int32(r.IntN(3)))
		}
		return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends)), int(ends[rows])
	}
	of := func(t arrow.DataType, buffers []*memory.Buffer, children ...arrow.Array) arrow.Array {
		var data []arrow.ArrayData
		for _, c := range children {
			data = append(data, c.Data())
		}
		return array.MakeFromData(array.NewData(t, rows, buffers, data, 0, 0))
	}
	switch kind {
	case 0:
		return leaf(rows)
	case 1:
		b, n := offsets()
		values := leaf(n)
		return of(arrow.ListOf(values.DataType()), []*memory.Buffer{nil, b}, values)
	case 2:
		values, others := leaf(rows), leaf(rows)
		return of(arrow.StructOf(arrow.Field{Name: "a", Type: values.DataType(), Nullable: true}, arrow.Field{Name: "b", Type: others.DataType(), Nullable: true}), []*memory.Buffer{nil}, values, others)
	case 3:
		values := leaf(2 * rows)
		return of(arrow.FixedSizeListOf(2, values.DataType()), []*memory.Buffer{nil}, values)
	case 4: // a dictionary of structs with dictionaries
		inner := leaf(len(words))
		s, err := array.NewStructArray([]arrow.Array{inner}, []string{"s"})
		if err != nil {
			panic(err)
		}
		indices := array.NewInt32Builder(mem)
		for range rows {
			indices.Append(int32(r.IntN(len(words))))
		}
		return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: s.DataType()}, indices.NewArray(), s)
	default: // a dictionary of lists
		builder := array.NewListBuilder(mem, arrow.BinaryTypes.String)
		for i := range words {
			builder.Append(true)
			for range i % 3 {
				builder.ValueBuilder().(*array.StringBuilder).Append(words[i])
			}
		}
		indices := array.NewUint8Builder(mem)
		for range rows {
			indices.Append(uint8(r.IntN(len(words))))
		}
		lists := builder.NewArray()
		return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint8, ValueType: lists.DataType()}, indices.NewArray(), lists)
	}
}

// Dictionaries that grow, are replaced and stay, in columns of any nesting: the batches are what was sent,
// and stay that beyond their reader.
func TestDictionariesAnywhereStayWhatTheyAre(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		kinds := make([]int, 1+r.IntN(3))
		for i := range kinds {
			kinds[i] = r.IntN(6)
		}
		opts := [][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}}[r.IntN(3)]
		if r.IntN(2) == 0 {
			opts = append(opts, ipc.WithDictionaryDeltas(true))
		}
		var e *encoder
		want := make([][]string, len(kinds))
		var messages []*pb.FlightData
		words := []string{"a", "b"}
		for n := range 6 {
			switch r.IntN(3) {
			case 0:
				words = append(words[:len(words):len(words)], fmt.Sprintf("more-%d", n))
			case 1:
				words = []string{fmt.Sprintf("other-%d", n), "x", "y"}
			}
			rows := 1 + r.IntN(9)
			var fields []arrow.Field
			var columns []arrow.Array
			for i, kind := range kinds {
				c := dictionaryAnywhere(r, kind, rows, words)
				fields = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: c.DataType(), Nullable: true})
				columns = append(columns, c)
			}
			batch := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(rows))
			if e == nil {
				e = newEncoder(nil, batch.Schema(), DefaultRequestLimit, opts...)
			}
			addColumns(want, batch)
			sent, err := e.flightData(batch)
			require.NoError(t, err, seed)
			messages = append(messages, sent...)
		}
		e.close()
		mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
		kept, err := keepAll(t, messages, mem)
		require.Equal(t, io.EOF, err, "seed %d", seed)
		got := make([][]string, len(kinds))
		for _, batch := range kept {
			addColumns(got, batch)
			batch.Release()
		}
		require.Equal(t, want, got, "seed %d, columns %v", seed, kinds)
		mem.AssertSize(t, 0)
	}
}

// addColumns adds the values of each column to those of batches before.
func addColumns(values [][]string, batch arrow.RecordBatch) {
	all := look(batch)
	for i := range values {
		values[i] = append(values[i], all[i*int(batch.NumRows()):][:batch.NumRows()]...)
	}
}
