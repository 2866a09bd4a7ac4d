package flightconn

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto" // registers gRPC's own codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// wireCodec is gRPC's codec for RPCs of ours. What it knows it does not decode, or
// decodes without a copy more: encodedMessage stays as it is sent, and the body of a
// dataMessage is copied once, out of gRPC's buffers to where the arrays will be. Any
// other message is protobuf's.
//
// It goes with single calls (useWireCodec) and is never registered, since that is for
// the whole process.
type wireCodec struct{}

// useWireCodec is the option of a call whose messages wireCodec knows.
var useWireCodec = grpc.ForceCodecV2(wireCodec{})

// encodedCall are the options of a call whose messages wireCodec knows and whose method is
// one of Flight's.
var encodedCall = []grpc.CallOption{grpc.StaticMethod(), useWireCodec}

// encodedMessage is a message in its encoded form. The bytes must not be changed.
type encodedMessage []byte

// Name is empty so that the content type stays that of any gRPC call.
func (wireCodec) Name() string { return "" }

// Marshal is part of encoding.CodecV2.
func (wireCodec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(encodedMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(m)}, nil
	}
	return encoding.GetCodecV2(grpcproto.Name).Marshal(v)
}

// Unmarshal is part of encoding.CodecV2. data is gRPC's again afterwards.
func (wireCodec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *encodedMessage:
		*m = data.Materialize()
		return nil
	case *dataMessage:
		return m.decode(data)
	default:
		return encoding.GetCodecV2(grpcproto.Name).Unmarshal(data, v)
	}
}

// marshalMessage and unmarshalMessage are what wireCodec is for a transport of our own, whose messages lie
// in one piece.
func marshalMessage(buf []byte, v any) (data []byte, rest [][]byte, err error) {
	switch m := v.(type) {
	case encodedMessage:
		if buf != nil { // of which data would be a later one
			m = append(buf, m...)
		}
		return m, nil, nil
	case *putMessage:
		data, err = m.appendHead(buf)
		return data, m.body, err
	case proto.Message:
		data, err = proto.MarshalOptions{}.MarshalAppend(buf, m)
		return data, nil, err
	default:
		return nil, nil, fmt.Errorf("%T is no message", v)
	}
}

func unmarshalMessage(data []byte, v any) error {
	switch m := v.(type) {
	case *encodedMessage:
		*m = data
		return nil
	case proto.Message:
		return proto.Unmarshal(data, m)
	default:
		return fmt.Errorf("%T is no message", v)
	}
}

// dataMessage is a FlightData as far as a reader needs it. It is decoded again and
// again: the header is valid until the next, and the body until it is released.
type dataMessage struct {
	header []byte
	body   *memory.Buffer // owned; nil if there is none
}

// takeBody gives the body away: whoever takes it must release it.
func (m *dataMessage) takeBody() *memory.Buffer {
	body := m.body
	m.body = nil
	if body == nil {
		body = memory.NewBufferBytes(nil)
	}
	return body
}

// bodyBytes is the body, which stays the message's.
func (m *dataMessage) bodyBytes() []byte {
	if m.body == nil {
		return nil
	}
	return m.body.Bytes()
}

// release gives back what the message still has.
func (m *dataMessage) release() {
	if m.body != nil {
		m.body.Release()
		m.body = nil
	}
}

// The fields of FlightData that are read here, as the tags before them.
var (
	tagHeader      = protowire.EncodeTag(2, protowire.BytesType)
	tagAppMetadata = protowire.EncodeTag(3, protowire.BytesType)
	tagBody        = protowire.EncodeTag(1000, protowire.BytesType)
)

// decode reads a FlightData. As everywhere in protobuf the last of several fields of
// one number counts. What is not as servers send it is left to protobuf, which also
// says what is wrong.
func (m *dataMessage) decode(data mem.BufferSlice) error {
	m.release()
	m.header = m.header[:0]
	rest := pieces{rest: data, left: data.Len()}
	for rest.left > 0 {
		tag, ok := rest.varint()
		n, ok2 := rest.varint()
		if !ok || !ok2 || n > uint64(rest.left) {
			return m.decodeAny(data.Materialize())
		}
		switch tag {
		case tagHeader:
			m.header = rest.appendTo(m.header[:0], int(n))
		case tagAppMetadata:
			rest.skip(int(n))
		case tagBody:
			m.release()
			m.body = newBody(int(n))
			rest.copyTo(m.body.Bytes())
		default:
			return m.decodeAny(data.Materialize())
		}
	}
	return nil
}

// decodeAny is decode by protobuf's own decoder.
func (m *dataMessage) decodeAny(data []byte) error {
	m.release()
	var all pb.FlightData
	if err := proto.Unmarshal(data, &all); err != nil {
		return err
	}
	m.header = append(m.header[:0], all.GetDataHeader()...)
	m.body = newBody(len(all.GetDataBody()))
	copy(m.body.Bytes(), all.GetDataBody())
	return nil
}

// pieces reads the buffers of a message one after another.
type pieces struct {
	rest mem.BufferSlice
	head []byte // of rest's first buffer, what is left of those before
	left int    // bytes in head and rest
}

// next makes sure that head has a byte. There must be one left.
func (p *pieces) next() {
	for len(p.head) == 0 {
		p.head, p.rest = p.rest[0].ReadOnlyData(), p.rest[1:]
	}
}

// varint is false for what is none.
func (p *pieces) varint() (v uint64, ok bool) {
	for shift := 0; shift < 64 && p.left > 0; shift += 7 {
		p.next()
		b := p.head[0]
		p.head, p.left = p.head[1:], p.left-1
		if shift == 63 && b > 1 {
			return 0, false
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, true
		}
	}
	return 0, false
}

// take is up to n bytes that lie together. There must be n left.
func (p *pieces) take(n int) []byte {
	p.next()
	n = min(n, len(p.head))
	taken := p.head[:n]
	p.head, p.left = p.head[n:], p.left-n
	return taken
}

func (p *pieces) skip(n int) {
	for n > 0 {
		n -= len(p.take(n))
	}
}

func (p *pieces) copyTo(dst []byte) {
	for len(dst) > 0 {
		dst = dst[copy(dst, p.take(len(dst))):]
	}
}

func (p *pieces) appendTo(dst []byte, n int) []byte {
	for n > 0 {
		taken := p.take(n)
		dst, n = append(dst, taken...), n-len(taken)
	}
	return dst
}
