package flightconn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// compareWithArrow reads a schema and one message by reader, and by Arrow's reader with
// the same checks, and requires the same batch or that both refuse. It reports
// whether batchDecoder read it.
func compareWithArrow(t *testing.T, schema, message *pb.FlightData) (decoded bool) {
	t.Helper()
	data := []*pb.FlightData{schema, message}
	e := &Endpoint{cfg: Config{Allocator: memory.DefaultAllocator, MaxMessage: 1 << 20}}
	read := func(byArrow bool) (*reader, arrow.RecordBatch, error) {
		rd, err := openReader(t.Context(), scriptedRows(data), nil, e, nil)
		if err != nil {
			return nil, nil, err
		}
		t.Cleanup(rd.release)
		if byArrow && rd.arrow == nil && rd.known != nil {
			require.NoError(t, rd.useArrowsReader())
		}
		batch, err := rd.next()
		return rd, batch, err
	}
	_, want, refused := read(true)
	rd, got, err := read(false)
	if refused != nil {
		if err == nil && strings.Contains(refused.Error(), "should have no nulls") {
			return true // Arrow's reader does not count those of a map, where their number is unknown
		}
		require.Error(t, err, "Arrow's reader: %v", refused)
		require.Equal(t, refused == io.EOF, err == io.EOF) //nolint:errorlint // the end itself
		return rd != nil && rd.arrow == nil
	}
	if errors.Is(err, errTooFew) {
		return true // Arrow's reader does not look how many there are
	}
	require.NoError(t, err)
	require.True(t, want.Schema().Equal(got.Schema()), "%v\n%v", want.Schema(), got.Schema())
	require.Equal(t, want.NumRows(), got.NumRows())
	for i := range int(got.NumCols()) {
		compareData(t, want.Column(i).Data(), got.Column(i).Data())
	}
	return rd.arrow == nil
}

// compareData compares all that arrays are made of.
func compareData(t *testing.T, want, got arrow.ArrayData) {
	t.Helper()
	require.Equal(t, want.Len(), got.Len())
	require.Equal(t, want.NullN(), got.NullN())
	require.Equal(t, want.Offset(), got.Offset())
	require.True(t, arrow.TypeEqual(want.DataType(), got.DataType()))
	require.Len(t, got.Buffers(), len(want.Buffers()))
	for i := range want.Buffers() {
		if want.Len() == 0 {
			break // Arrow's reader passes over some
		}
		require.Equal(t, string(bytesOf(want, i)), string(bytesOf(got, i)), "buffer %d", i)
	}
	require.Len(t, got.Children(), len(want.Children()))
	for i, child := range want.Children() {
		compareData(t, child, got.Children()[i])
	}
}

// TestABatchIsReadAsArrowReadsIt, of every type, plain and compressed, whole and as a
// slice, and with its header and its body cut off everywhere or damaged.
func TestABatchIsReadAsArrowReadsIt(t *testing.T) {
	all := pairs(t)
	for i, pair := range all {
		plain := i%3 == 0 // pairs has each type plain, by lz4 and by zstd
		require.Equal(t, plain, compareWithArrow(t, pair[0], pair[1]), i)
		if !plain {
			continue
		}
		header, body := pair[1].GetDataHeader(), pair[1].GetDataBody()
		for cut := range header {
			compareWithArrow(t, pair[0], &pb.FlightData{DataHeader: header[:cut], DataBody: body})
		}
		for cut := range body {
			compareWithArrow(t, pair[0], &pb.FlightData{DataHeader: header, DataBody: body[:cut]})
		}
		for at := 0; at+4 <= len(header); at += 4 {
			for _, value := range []uint32{0, 3, 0x7fffffff, 0xffffffff} {
				damaged := append([]byte(nil), header...)
				binary.LittleEndian.PutUint32(damaged[at:], value)
				compareWithArrow(t, pair[0], &pb.FlightData{DataHeader: damaged, DataBody: body})
			}
		}
		other := all[(i+3)%len(all)]
		compareWithArrow(t, pair[0], other[1]) // a batch of another type
		compareWithArrow(t, pair[0], pair[0])  // a second schema
	}
}

// FuzzBatch has any header and body in place of a batch of any type.
func FuzzBatch(f *testing.F) {
	all := pairs(f)
	for i, pair := range all {
		f.Add(byte(i), pair[1].GetDataHeader(), pair[1].GetDataBody())
	}
	f.Fuzz(func(t *testing.T, kind byte, header, body []byte) {
		pair := all[int(kind)%len(all)]
		compareWithArrow(t, pair[0], &pb.FlightData{DataHeader: header, DataBody: body})
	})
}

// TestWhatBatchDecoderCannotReadArrowsReaderDoes: in the middle of a stream, too.
func TestWhatBatchDecoderCannotReadArrowsReaderDoes(t *testing.T) {
	batch := int64Batch(1, 2, 3)
	defer batch.Release()
	plain, packed := send(t, batch), send(t, batch, ipc.WithZstd())
	got, err := readAll([]*pb.FlightData{plain[0], plain[1], packed[1], plain[1]})
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2", "3", "1", "2", "3", "1", "2", "3"}, got)

	older := 0 // of headers in which some number is that of the version before
	for at := 0; at+2 <= len(plain[1].GetDataHeader()); at += 2 {
		header := append([]byte(nil), plain[1].GetDataHeader()...)
		if binary.LittleEndian.Uint16(header[at:]) == metadataV5 {
			binary.LittleEndian.PutUint16(header[at:], metadataV5-1)
			if size, err := verifyMessage(header, plain[1].GetDataBody(), 0); err == nil && !size.record.plain() {
				older++
			}
		}
	}
	require.Equal(t, 1, older)

	meta := array.NewRecordBatchWithMetadata(batch.Schema(), batch.Columns(), 3, arrow.NewMetadata([]string{"k"}, []string{"v"}))
	defer meta.Release()
	e := &Endpoint{cfg: Config{Allocator: memory.DefaultAllocator, MaxMessage: 1 << 20}}
	rd, err := openReader(t.Context(), scriptedRows(send(t, meta)), nil, e, nil)
	require.NoError(t, err)
	defer rd.release()
	read, err := rd.next()
	require.NoError(t, err)
	metadata := read.(arrow.RecordBatchWithMetadata).Metadata()
	require.Equal(t, []string{"v"}, metadata.Values())
}

func TestSchemasAreDecodedOnce(t *testing.T) {
	header := func(name string, kind arrow.DataType) []byte {
		batch := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: name, Type: kind}}, nil), []arrow.Array{array.MakeArrayOfNull(memory.DefaultAllocator, kind, 0)}, 0)
		defer batch.Release()
		return send(t, batch)[0].GetDataHeader()
	}
	var c schemaCache
	decode := func(header []byte) *knownSchema {
		size, err := verifyMessage(header, nil, 0)
		require.NoError(t, err)
		s, err := c.decode(header, size.schemaBytes)
		require.NoError(t, err)
		return s
	}
	a := header("a", arrow.PrimitiveTypes.Int64)
	first := decode(a)
	require.Same(t, first, decode(a))
	again := append([]byte(nil), a...)
	clear(a) // the message is received into again
	require.Same(t, first, decode(again))
	for n := range 3 * maxKnownSchemas {
		decode(header(string(rune('b'+n)), arrow.PrimitiveTypes.Int64))
		require.LessOrEqual(t, len(c.schema), maxKnownSchemas)
	}
	long := header(string(make([]byte, maxKnownBytes)), arrow.PrimitiveTypes.Int64)
	require.NotSame(t, decode(long), decode(long), "it would take too much")
	fields := make([]arrow.Field, 100)
	for i := range fields {
		fields[i].Type, fields[i].Name = arrow.Null, strings.Repeat("x", i*i/10)
	}
	repeated := repeatedField(t, fields...)
	require.Less(t, len(repeated), maxKnownBytes)
	one, other := decode(repeated), decode(repeated)
	require.False(t, one == other, "its fields take too much")
	require.False(t, decode(header("d", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String})).plain)
}

// repeatedField is the message of a schema whose fields are all the last one of these.
func repeatedField(t testing.TB, fields ...arrow.Field) []byte {
	schema := arrow.NewSchema(fields, nil)
	batch := array.NewRecordBuilder(memory.DefaultAllocator, schema).NewRecordBatch()
	header := bytes.Clone(send(t, batch)[0].GetDataHeader())
	v := verifier{buf: header, tablesLeft: len(header), bytesLeft: maxSchemaBytes}
	at, n := v.vector(v.ref(v.table(v.offset(0)), 2), 1, 4)
	require.Equal(t, len(fields), n)
	last := v.offset(at + 4*(n-1))
	for i := range n {
		binary.LittleEndian.PutUint32(header[at+4*i:], uint32(last-at-4*i))
	}
	return header
}

// lateType is a type of a user's.
type lateType struct{ arrow.ExtensionBase }

type lateArray struct{ array.ExtensionArrayBase }

func (*lateType) ArrayType() reflect.Type { return reflect.TypeFor[lateArray]() }
func (*lateType) ExtensionName() string   { return "flightpool.late" }
func (*lateType) Serialize() string       { return "" }
func (*lateType) ExtensionEquals(o arrow.ExtensionType) bool {
	return o.ExtensionName() == "flightpool.late"
}
func (t *lateType) Deserialize(arrow.DataType, string) (arrow.ExtensionType, error) {
	return t, nil
}

// TestATypeThatIsRegisteredLaterIsSeen: what a schema with a type of the user's decodes
// to depends on what is registered.
func TestATypeThatIsRegisteredLaterIsSeen(t *testing.T) {
	late := &lateType{arrow.ExtensionBase{Storage: arrow.PrimitiveTypes.Int64}}
	storage := int64Batch(1, 2, 3)
	defer storage.Release()
	column := array.NewExtensionArrayWithStorage(late, storage.Column(0))
	batch := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "l", Type: late}}, nil), []arrow.Array{column}, 3)
	defer batch.Release()
	messages := send(t, batch)
	var c schemaCache
	typeOf := func() arrow.Type {
		known, err := c.decode(messages[0].GetDataHeader(), 0)
		require.NoError(t, err)
		return known.schema.Field(0).Type.ID()
	}
	require.Equal(t, arrow.INT64, typeOf())
	require.NoError(t, arrow.RegisterExtensionType(late))
	defer func() { require.NoError(t, arrow.UnregisterExtensionType("flightpool.late")) }()
	require.Equal(t, arrow.EXTENSION, typeOf())
	require.True(t, compareWithArrow(t, messages[0], messages[1]))
}

// largeRefused is an allocator that a test may ask for anything.
type largeRefused struct {
	memory.Allocator
	largest int
}

func (a *largeRefused) Allocate(size int) []byte {
	a.largest = max(a.largest, size)
	if size > 1<<30 {
		panic("more than this test would allocate")
	}
	return a.Allocator.Allocate(size)
}

// Arrow's reader does not count the buffers of a header: for one that is missing it
// believes the bytes that follow, which nobody has verified.
func TestABufferThatIsMissingAllocatesNothing(t *testing.T) {
	const claimed = 1 << 42
	compressed := 0
	for _, pair := range pairs(t) {
		header, body := bytes.Clone(pair[1].GetDataHeader()), bytes.Clone(pair[1].GetDataBody())
		size, err := verifyMessage(header, body, 1<<24)
		require.NoError(t, err)
		layout := size.record
		if !layout.compressed || layout.buffers < 2 {
			continue
		}
		compressed++
		binary.LittleEndian.PutUint32(header[layout.buffersAt-4:], uint32(layout.buffers-1))
		last := layout.buffersAt + 16*(layout.buffers-1)
		binary.LittleEndian.PutUint64(header[last:], uint64(len(body)))
		binary.LittleEndian.PutUint64(header[last+8:], 16)
		body = binary.LittleEndian.AppendUint64(body, claimed)
		body = binary.LittleEndian.AppendUint64(body, 0)

		memory := &largeRefused{Allocator: memory.DefaultAllocator}
		e := &Endpoint{cfg: Config{Allocator: memory, MaxMessage: 1 << 20}}
		data := []*pb.FlightData{pair[0], {DataHeader: header, DataBody: body}}
		rd, err := openReader(t.Context(), scriptedRows(data), nil, e, nil)
		require.NoError(t, err)
		_, err = rd.next()
		rd.release()
		require.Error(t, err)
		require.Less(t, memory.largest, 1<<30, "%v", err)
	}
	require.Positive(t, compressed)
}

// TestAMessageOfFewerBuffersIsHandedToNobody: another client has no allocator of ours.
func TestAMessageOfFewerBuffersIsHandedToNobody(t *testing.T) {
	var streams [][]*pb.FlightData
	for _, pair := range pairs(t) {
		streams = append(streams, pair[:])
	}
	tested := map[bool]int{} // batches and dictionaries
	for _, stream := range append(streams, dictionaryStreams(t)...) {
		for i, message := range stream[1:] {
			size, err := verifyMessage(message.GetDataHeader(), message.GetDataBody(), 1<<24)
			require.NoError(t, err)
			for _, at := range []int{size.record.buffersAt, size.record.nodesAt} {
				header := bytes.Clone(message.GetDataHeader())
				n := binary.LittleEndian.Uint32(header[at-4:])
				if n == 0 { // of an array of NULLs
					continue
				}
				binary.LittleEndian.PutUint32(header[at-4:], n-1)
				sent := slices.Clone(stream)
				sent[1+i] = &pb.FlightData{DataHeader: header, DataBody: message.GetDataBody()}
				_, err := readAll(sent)
				require.ErrorIs(t, err, errTooFew)
				if tested[size.dictionary]++; tested[size.dictionary]%8 == 0 {
					require.ErrorIs(t, handOver(t, sent), errTooFew, "to another client")
				}
			}
		}
	}
	require.Greater(t, tested[false], 100)
	require.Greater(t, tested[true], 100)
}

// The same of the counts of variadic buffers: Arrow's reader makes room for as many.
func TestACountOfVariadicBuffersThatIsMissingIsRefused(t *testing.T) {
	tested := 0
	for _, pair := range pairs(t) {
		header := bytes.Clone(pair[1].GetDataHeader())
		size, err := verifyMessage(header, pair[1].GetDataBody(), 1<<24)
		require.NoError(t, err)
		if size.record.variadic == 0 {
			continue
		}
		tested++
		binary.LittleEndian.PutUint32(header[size.record.variadicAt-4:], uint32(size.record.variadic-1))
		binary.LittleEndian.PutUint64(header[size.record.variadicAt+8*(size.record.variadic-1):], 1<<20)
		sent := []*pb.FlightData{pair[0], {DataHeader: header, DataBody: pair[1].GetDataBody()}}
		_, err = readAll(sent)
		require.ErrorContains(t, err, "counts of variadic buffers for")
		require.ErrorContains(t, handOver(t, sent), "counts of variadic buffers for", "to another client")
	}
	require.Positive(t, tested)
}

// handOver is what the reading of messages by another client fails with.
func handOver(t *testing.T, sent []*pb.FlightData) (failed error) {
	f := &fake{get: func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		for _, data := range sent {
			if err := s.Send(data); err != nil {
				return err
			}
		}
		return nil
	}}
	inBubble(t, f, func(b *bubble) {
		stream, err := b.host(b.open(), "Foreign").FetchTicket(endpointOf(b, answer(int64Schema, "0")), nil)
		for err == nil {
			_, err = stream.Recv()
		}
		failed = err
	})
	return failed
}

// Without the schema nothing of a batch can be checked.
func TestABatchBeforeTheSchemaIsHandedToNobody(t *testing.T) {
	pair := pairs(t)[0]
	require.ErrorContains(t, handOver(t, []*pb.FlightData{pair[1], pair[0]}), "a batch before the schema")
}

// TestViewsWithoutCountsHaveNoBuffers: a writer whose texts all lie in the views may have nothing to
// count. Arrow's reader takes an absent vector for zeros.
func TestViewsWithoutCountsHaveNoBuffers(t *testing.T) {
	b := array.NewStringViewBuilder(memory.DefaultAllocator)
	b.AppendValues([]string{"a", "bc", ""}, nil)
	column := b.NewArray()
	schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: column.DataType(), Nullable: true}}, nil)
	for _, opts := range [][]ipc.Option{nil, {ipc.WithZstd()}} {
		messages := send(t, array.NewRecordBatch(schema, []arrow.Array{column}, 3), opts...)
		header := messages[1].GetDataHeader()
		v := verifier{buf: header, tablesLeft: len(header)}
		record := v.ref(v.table(v.offset(0)), 2)
		require.NotZero(t, v.field(record, 4))
		binary.LittleEndian.PutUint16(header[record.vtable+4+2*4:], 0)
		got, err := readAll(messages)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "bc", ""}, got)
	}
}

// TestASchemaHasNoBody: Arrow's reader of streams, by which other clients decode schemas, makes room for
// what the header claims before it looks whether there is anything.
func TestASchemaHasNoBody(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	serialized := flight.SerializeSchema(schema, memory.DefaultAllocator)
	require.NoError(t, CheckSchema(serialized))
	header := bytes.Clone(serialized[8 : 8+binary.LittleEndian.Uint32(serialized[4:])])
	v := verifier{buf: header, tablesLeft: len(header)}
	message := v.table(v.offset(0))
	// Its table of fields leaves the length of the body out: another one, behind it, has it.
	fields := binary.LittleEndian.AppendUint16(nil, 4+2*4)
	fields = append(fields, header[message.vtable+2:message.vtable+10]...)
	fields = binary.LittleEndian.AppendUint16(fields, uint16(len(header)+4+2*4-message.at))
	binary.LittleEndian.PutUint32(header[message.at:], uint32(message.at-len(header)))
	header = append(header, fields...)
	for _, claimed := range []uint64{1, 1 << 40, 1 << 63} {
		claims := binary.LittleEndian.AppendUint64(header, claimed)
		framed := binary.LittleEndian.AppendUint32([]byte{0xff, 0xff, 0xff, 0xff}, uint32(len(claims)))
		require.ErrorContains(t, CheckSchema(append(framed, claims...)), "a schema with a body of")
	}
}
