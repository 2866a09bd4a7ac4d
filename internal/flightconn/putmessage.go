package flightconn

import (
	"bytes"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// putMessage is a FlightData to send. Its body is where Arrow's writer has found it, in the
// memory of the batch for the most part, so that a transport of our own copies it once, to
// what is written to the socket.
type putMessage struct {
	desc     *pb.FlightDescriptor // nil after the first
	header   []byte
	body     [][]byte
	bodySize int
}

const (
	fieldDescriptor = 1
	fieldHeader     = 2
	fieldBody       = 1000
)

// size is that of the message when encoded, in bytes.
func (m *putMessage) size() int {
	size := 0
	for _, f := range [...]struct {
		number  protowire.Number
		present bool
		bytes   int
	}{
		{fieldDescriptor, m.desc != nil, proto.Size(m.desc)}, {fieldHeader, len(m.header) > 0, len(m.header)}, {fieldBody, m.bodySize > 0, m.bodySize},
	} {
		if f.present {
			size += protowire.SizeTag(f.number) + protowire.SizeBytes(f.bytes)
		}
	}
	return size
}

// appendHead appends the message to b as protobuf has it, up to where its body follows.
func (m *putMessage) appendHead(b []byte) (_ []byte, err error) {
	if m.desc != nil {
		b = protowire.AppendTag(b, fieldDescriptor, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(proto.Size(m.desc)))
		if b, err = (proto.MarshalOptions{}).MarshalAppend(b, m.desc); err != nil {
			return nil, err
		}
	}
	if len(m.header) > 0 {
		b = protowire.AppendTag(b, fieldHeader, protowire.BytesType)
		b = protowire.AppendBytes(b, m.header)
	}
	if m.bodySize > 0 {
		b = protowire.AppendTag(b, fieldBody, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(m.bodySize))
	}
	return b, nil
}

// flightData is the message with memory of its own, for gRPC's client: that may show it to
// others later.
func (m *putMessage) flightData() *pb.FlightData {
	data := &pb.FlightData{FlightDescriptor: m.desc, DataHeader: m.header}
	if m.bodySize > 0 {
		data.DataBody = bytes.Join(m.body, nil)
	}
	return data
}

// Write is part of io.Writer. It keeps p, as the encoder says why it may.
func (m *putMessage) Write(p []byte) (int, error) {
	m.body = append(m.body, p)
	m.bodySize += len(p)
	return len(p), nil
}
