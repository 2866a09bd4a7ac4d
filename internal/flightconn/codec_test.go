package flightconn

import (
	"slices"
	"testing"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// inPieces is a message in buffers of so many bytes.
func inPieces(data []byte, size int) (pieces mem.BufferSlice) {
	for piece := range slices.Chunk(data, size) {
		pieces = append(pieces, mem.SliceBuffer(piece))
	}
	return pieces
}

// messagesToDecode are FlightData as servers send them, and as nobody does.
func messagesToDecode() [][]byte {
	whole := marshal(&pb.FlightData{DataHeader: []byte("header"), AppMetadata: []byte("app"), DataBody: []byte("the body")})
	twice := append(slices.Clone(whole), whole[:8]...)
	described := marshal(&pb.FlightData{FlightDescriptor: &pb.FlightDescriptor{Path: []string{"a"}}, DataHeader: []byte("h"), DataBody: []byte("b")})
	unknown := protowire.AppendVarint(protowire.AppendTag(slices.Clone(whole), 77, protowire.VarintType), 5)
	padded := append([]byte{0x92, 0x00, 0x01}, "h"...)          // a tag of more bytes than it needs
	fixed := append([]byte{2<<3 | 5, 1, 2, 3, 4}, whole...)     // the header's number with another type
	badText := append([]byte{1<<3 | 2, 3, 0x1a, 1, 0xff}, 0x12) // no UTF-8 in a path, and cut off
	long := append([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, whole...)
	return [][]byte{nil, whole, twice, described, unknown, padded, fixed, badText, long, whole[:len(whole)-1], {0xff}}
}

func FuzzFlightData(f *testing.F) {
	for _, data := range messagesToDecode() {
		f.Add(data, byte(3))
	}
	f.Fuzz(compareWithProtobuf)
}

// compareWithProtobuf decodes data in pieces, after a message that must leave nothing.
func compareWithProtobuf(t *testing.T, data []byte, size byte) {
	var want pb.FlightData
	refused := proto.Unmarshal(data, &want)
	var got dataMessage
	defer got.release()
	require.NoError(t, got.decode(inPieces(marshal(&pb.FlightData{DataHeader: []byte("before"), DataBody: []byte("it")}), 100)))
	err := got.decode(inPieces(data, int(size)+1))
	if refused != nil {
		require.EqualError(t, err, refused.Error())
		return
	}
	require.NoError(t, err)
	require.Equal(t, string(want.GetDataHeader()), string(got.header))
	require.Equal(t, string(want.GetDataBody()), string(got.bodyBytes()))
}

func TestAMessageIsDecodedAsProtobufDecodesIt(t *testing.T) {
	for _, data := range messagesToDecode() {
		for cut := range len(data) + 1 {
			for _, size := range []byte{0, 1, 6, 255} {
				compareWithProtobuf(t, data[:cut], size)
			}
		}
	}
}

func TestOtherMessagesAreProtobufs(t *testing.T) {
	codec := wireCodec{}
	sent, err := codec.Marshal(&pb.Ticket{Ticket: []byte("t")})
	require.NoError(t, err)
	var got pb.Ticket
	require.NoError(t, codec.Unmarshal(sent, &got))
	require.Equal(t, "t", string(got.GetTicket()))
	var encoded encodedMessage
	require.NoError(t, codec.Unmarshal(sent, &encoded))
	require.Equal(t, marshal(&got), []byte(encoded))
	require.Empty(t, codec.Name(), "the content type would have it")
}

// What is sent on one stream after another message has memory of its own: it is that of a later
// message. What is sent alone is not copied.
func TestAnEncodedMessageIsNotWrittenOver(t *testing.T) {
	first := encodedMessage("first")
	data, rest, err := marshalMessage([]byte{}, first)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, "first", string(data))
	_, _, err = marshalMessage(data[:0], &pb.Ticket{Ticket: []byte("2nd")})
	require.NoError(t, err)
	require.Equal(t, "first", string(first))
	data, _, err = marshalMessage(nil, first)
	require.NoError(t, err)
	require.Same(t, &first[0], &data[0])
}
