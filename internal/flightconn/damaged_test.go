package flightconn

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/rowscan"
)

// dictionaryStreams are a schema, dictionaries, additions to them and batches, plain and
// compressed, for dictionaries of some types.
func dictionaryStreams(t testing.TB) (streams [][]*pb.FlightData) {
	text := arrow.BinaryTypes.String
	for _, values := range []arrow.DataType{
		text, arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.StringView, arrow.ListOf(text), arrow.MapOf(text, arrow.PrimitiveTypes.Int32),
		arrow.StructOf(arrow.Field{Name: "a", Type: text, Nullable: true}), arrow.FixedWidthTypes.Boolean, &arrow.Decimal128Type{Precision: 9, Scale: 2},
	} {
		kind := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: values}
		schema := arrow.NewSchema([]arrow.Field{{Name: "d", Type: kind, Nullable: true}}, nil)
		for _, opts := range [][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}} {
			e := newEncoder(nil, schema, DefaultRequestLimit, append(opts, ipc.WithDictionaryDeltas(true))...)
			var stream []*pb.FlightData
			for _, n := range []int{4, 8, 3} {
				dictionary, indices := array.NewBuilder(memory.DefaultAllocator, values), array.NewInt8Builder(memory.DefaultAllocator)
				for i := range n {
					if value := texts4[values.ID()][i%4]; value == "" {
						dictionary.AppendNull()
					} else {
						require.NoError(t, dictionary.AppendValueFromString(value))
					}
				}
				indices.AppendValues([]int8{0, 2, 1, int8(n - 1)}, []bool{true, true, false, true})
				column := array.NewDictionaryArray(kind, indices.NewArray(), dictionary.NewArray())
				messages, err := e.flightData(array.NewRecordBatch(schema, []arrow.Array{column}, 4))
				require.NoError(t, err)
				stream = append(stream, messages...)
			}
			e.close()
			streams = append(streams, stream)
		}
	}
	return streams
}

// damage changes up to three places of data, of one to eight bytes.
func damage(r *rand.Rand, data []byte) []byte {
	if len(data) < 8 {
		return data
	}
	data = bytes.Clone(data)
	some := []uint64{0, 1, 2, 3, 7, 8, 127, 255, 1 << 15, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 40, 1 << 62, 1 << 63, 1<<64 - 1}
	for range 1 + r.IntN(3) {
		value, at := some[r.IntN(len(some))], r.IntN(len(data)-7)
		switch r.IntN(4) {
		case 0:
			data[at] ^= 1 << r.IntN(8)
		case 1:
			data[at] += byte(r.IntN(9) - 4)
		case 2:
			binary.LittleEndian.PutUint32(data[at&^3:], uint32(value))
		default:
			binary.LittleEndian.PutUint64(data[at&^7:], value)
		}
	}
	return data
}

// TestDamagedResultsAreErrorsOrCanBeRead: no header, schema or body makes a batch whose
// values panic when they are looked at, or are more than this memory.
func TestDamagedResultsAreErrorsOrCanBeRead(t *testing.T) {
	streams := dictionaryStreams(t)
	for _, pair := range pairs(t) {
		streams = append(streams, []*pb.FlightData{pair[0], pair[1], pair[1]})
	}
	r := rand.New(rand.NewPCG(1, 1))
	read := 0
	for range 4000 {
		stream := append([]*pb.FlightData(nil), streams[r.IntN(len(streams))]...)
		for range 1 + r.IntN(2) {
			at := r.IntN(len(stream))
			header, body := stream[at].GetDataHeader(), stream[at].GetDataBody()
			if r.IntN(3) == 0 {
				body = damage(r, body)
			} else {
				header = damage(r, header)
			}
			stream[at] = &pb.FlightData{DataHeader: header, DataBody: body}
		}
		if _, err := readAll(stream); err == nil {
			read++
		}
	}
	require.Greater(t, read, 400, "others are refused")
}

// TestANumberOfNullsIsOneThatCanBe: arrays are cut and copied by it, and Arrow counts what
// is less than none.
func TestANumberOfNullsIsOneThatCanBe(t *testing.T) {
	const rows = 4
	refused := 0
	for _, pair := range pairs(t) {
		size, err := verifyMessage(pair[1].GetDataHeader(), pair[1].GetDataBody(), 1<<24)
		require.NoError(t, err)
		for node := range size.record.nodes {
			for _, nulls := range []int64{-1, 1, rows + 1, 1 << 40} {
				header := bytes.Clone(pair[1].GetDataHeader())
				binary.LittleEndian.PutUint64(header[size.record.nodesAt+16*node+8:], uint64(nulls))
				if _, err = readAll([]*pb.FlightData{pair[0], {DataHeader: header, DataBody: pair[1].GetDataBody()}}); err != nil {
					require.ErrorIs(t, err, errMalformed)
					refused++
				}
			}
		}
	}
	require.Greater(t, refused, len(pairs(t)))
}

// TestADecimalHasAsManyDigitsAsItsValues: Arrow makes texts with as many as the type says.
func TestADecimalHasAsManyDigitsAsItsValues(t *testing.T) {
	for _, c := range []struct {
		kind arrow.DecimalType
		ok   bool
	}{
		{&arrow.Decimal128Type{Precision: 38, Scale: 38}, true},
		{&arrow.Decimal128Type{Precision: 38, Scale: -38}, true},
		{&arrow.Decimal128Type{Precision: 39}, false},
		{&arrow.Decimal128Type{Precision: 38, Scale: 39}, false},
		{&arrow.Decimal128Type{Precision: 38, Scale: -39}, false},
		{&arrow.Decimal64Type{Precision: 18, Scale: 1 << 30}, false},
		{&arrow.Decimal256Type{Precision: 76, Scale: 76}, true},
		{&arrow.Decimal256Type{Precision: 77}, false},
	} {
		b := array.NewBuilder(memory.DefaultAllocator, c.kind)
		b.AppendEmptyValue()
		schema := arrow.NewSchema([]arrow.Field{{Name: "d", Type: c.kind}}, nil)
		_, err := readAll(send(t, array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, 1)))
		if c.ok {
			require.NoError(t, err, c.kind)
		} else {
			require.ErrorContains(t, err, "digits", c.kind)
		}
	}
}

// TestATypeWithoutValuesMayBeStoredAsNull, as arrow.opaque is for a type of which there is
// nothing: the number of its nulls is that of its rows, and there is no bitmap. Whatever number is
// told, it is that.
func TestATypeWithoutValuesMayBeStoredAsNull(t *testing.T) {
	late := &lateType{arrow.ExtensionBase{Storage: arrow.Null}}
	require.NoError(t, arrow.RegisterExtensionType(late))
	defer func() { require.NoError(t, arrow.UnregisterExtensionType("flightpool.late")) }()
	column := array.NewExtensionArrayWithStorage(late, array.NewNull(3))
	within, err := array.NewStructArray([]arrow.Array{column}, []string{"m"})
	require.NoError(t, err)
	schema := arrow.NewSchema([]arrow.Field{{Name: "l", Type: late, Nullable: true}, {Name: "s", Type: within.DataType(), Nullable: true}}, nil)
	batch := array.NewRecordBatch(schema, []arrow.Array{column, within}, 3)
	for _, opts := range [][]ipc.Option{nil, {ipc.WithLZ4()}} {
		for _, nulls := range []int64{3, 0, -1, 1 << 40} {
			messages := send(t, batch, opts...)
			header := messages[1].GetDataHeader()
			size, err := verifyMessage(header, messages[1].GetDataBody(), 1<<24)
			require.NoError(t, err)
			binary.LittleEndian.PutUint64(header[size.record.nodesAt+8:], uint64(nulls))
			e := &Endpoint{cfg: Config{Allocator: memory.DefaultAllocator, MaxMessage: 1 << 20}}
			rd, err := openReader(t.Context(), scriptedRows(messages), nil, e, nil)
			require.NoError(t, err)
			read, err := rd.next()
			require.NoError(t, err)
			require.Equal(t, 3, read.Column(0).NullN())
			for row := range 3 {
				require.Nil(t, rowscan.Value(read.Column(0), row))
				require.Equal(t, map[string]any{"m": nil}, rowscan.Value(read.Column(1), row))
			}
			rd.release()
		}
	}
}
