package flightconn

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/internal/tools/valuegen"
)

// FuzzMessagesInPieces holds what the server gets of random batches beside what arrow-go's own
// writer sends. The batches are slices of columns of every type; what is compared is what the transport
// was given before the memory of the batch is overwritten.
func FuzzMessagesInPieces(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, how uint8) { checkPieces(t, seed, how) })
}

// TestMessagesInPiecesAreArrows is FuzzMessagesInPieces over many seeds.
func TestMessagesInPiecesAreArrows(t *testing.T) {
	for seed := range uint64(1500) {
		checkPieces(t, seed, uint8(seed/3))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func checkPieces(t *testing.T, seed uint64, how uint8) {
	g := valuegen.New(seed)
	rows := 1 + g.IntN(40)
	columns := make([]arrow.Array, g.IntN(4))
	fields := make([]arrow.Field, len(columns))
	for i := range columns {
		columns[i], _ = g.Exactly(rows, int(how%4))
		fields[i] = arrow.Field{Name: fmt.Sprint("c", i), Type: columns[i].DataType(), Nullable: true}
	}
	schema := arrow.NewSchema(fields, nil)
	if CheckSendable(schema) != nil || slices.ContainsFunc(fields, func(f arrow.Field) bool { return (compaction{}).applies(f.Type) || ofNested(f.Type) }) {
		return // what Arrow's writer cannot send either: TestSlicesOfEveryTypeAreSent
	}
	opts := [][]ipc.Option{nil, nil, {ipc.WithLZ4()}, {ipc.WithZstd()}}[how/4%4]
	var want sentData
	desc := describe(&pb.CommandGetCatalogs{})
	w := flight.NewRecordWriter(&want, append(slices.Clone(opts), ipc.WithSchema(schema))...)
	w.SetFlightDescriptor(desc)
	e := newEncoder(desc, schema, 1<<30, opts...)
	defer e.close()
	var got [][]byte
	whole := array.NewRecordBatch(schema, columns, int64(rows))
	var buf []byte
	for at := range 4 {
		from, end := 0, rows // the first is the largest, so that none is split
		if at > 0 {
			from = g.IntN(rows + 1)
			end = from + g.IntN(rows+1-from)
		}
		part := whole.NewSlice(int64(from), int64(end))
		require.NoError(t, w.Write(part), schema)
		own, memories := cloneBatch(part)
		messages, err := e.encode(own)
		require.NoError(t, err, schema)
		for _, m := range messages {
			head, rest, err := marshalMessage(buf[:0], m)
			require.NoError(t, err)
			got = append(got, append(bytes.Clone(head), bytes.Join(rest, nil)...))
			buf = head
		}
		own.Release()
		for _, m := range memories {
			for i := range m {
				m[i] = 0xdb
			}
		}
	}
	require.Equal(t, len(want.messages), len(got), schema)
	for i := range got {
		var data pb.FlightData
		require.NoError(t, proto.Unmarshal(got[i], &data))
		require.True(t, proto.Equal(want.messages[i], &data), "message %d of %s", i, schema)
	}
}

// ofNested reports whether there is a dictionary of nested values in a type.
func ofNested(t arrow.DataType) bool {
	switch t := t.(type) {
	case arrow.ExtensionType:
		return ofNested(t.StorageType())
	case *arrow.DictionaryType:
		_, nested := t.ValueType.(arrow.NestedType)
		return nested
	case arrow.NestedType:
		return slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return ofNested(f.Type) })
	default:
		return false
	}
}

// sentData are the messages that arrow-go's writer sends.
type sentData struct{ messages []*pb.FlightData }

func (s *sentData) Send(d *flight.FlightData) error {
	s.messages = append(s.messages, proto.Clone(d).(*pb.FlightData))
	return nil
}

// cloneBatch is a batch in memory of its own, but for dictionaries, which the writer compares with
// later ones.
func cloneBatch(batch arrow.RecordBatch) (own arrow.RecordBatch, memories [][]byte) {
	var clone func(d arrow.ArrayData) arrow.ArrayData
	clone = func(d arrow.ArrayData) arrow.ArrayData {
		buffers := make([]*memory.Buffer, len(d.Buffers()))
		for i, b := range d.Buffers() {
			if b != nil {
				data := bytes.Clone(b.Bytes())
				memories = append(memories, data)
				buffers[i] = memory.NewBufferBytes(data)
			}
		}
		children := make([]arrow.ArrayData, len(d.Children()))
		for i, c := range d.Children() {
			children[i] = clone(c)
		}
		if dictionary := d.Dictionary(); dictionary != nil && d.DataType().ID() == arrow.DICTIONARY {
			return array.NewDataWithDictionary(d.DataType(), d.Len(), buffers, d.NullN(), d.Offset(), dictionary.(*array.Data))
		}
		return array.NewData(d.DataType(), d.Len(), buffers, children, d.NullN(), d.Offset())
	}
	columns := make([]arrow.Array, batch.NumCols())
	for i := range columns {
		columns[i] = array.MakeFromData(clone(batch.Column(i).Data()))
	}
	return array.NewRecordBatch(batch.Schema(), columns, batch.NumRows()), memories
}
