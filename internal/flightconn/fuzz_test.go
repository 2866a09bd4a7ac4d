package flightconn

import (
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// scriptedServer is a server of which only the bytes of its answers matter.
type scriptedServer struct {
	pb.FlightServiceClient
	info []byte // a FlightInfo
	data []*pb.FlightData
}

// scriptedRows is where data is had.
func scriptedRows(data []*pb.FlightData) rowSource {
	return rowSource{channel: &channel{cc: &scriptedServer{data: data}, id: noIdentity}, end: func() {}}
}

// answering is a connection to s.
func answering(cfg Config, s *scriptedServer) *Conn {
	e := &Endpoint{cfg: cfg}
	id := newIdentity(&e.cfg)
	return &Conn{endpoint: e, transport: &transport{}, id: id, channel: &channel{cc: s, id: id}, flight: s}
}

func (s *scriptedServer) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	return wireCodec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(s.info)}, reply)
}

func (s *scriptedServer) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &scriptedStream{ctx: ctx, rest: s.data}, nil
}

type scriptedStream struct {
	grpc.ClientStream
	ctx  context.Context
	rest []*pb.FlightData
}

func (s *scriptedStream) Context() context.Context     { return s.ctx }
func (s *scriptedStream) Header() (metadata.MD, error) { return nil, nil }
func (s *scriptedStream) Trailer() metadata.MD         { return nil }
func (s *scriptedStream) SendMsg(any) error            { return nil }
func (s *scriptedStream) CloseSend() error             { return nil }

// RecvMsg gives messages in pieces of 100 bytes, as a network may.
func (s *scriptedStream) RecvMsg(m any) error {
	if len(s.rest) == 0 {
		return io.EOF
	}
	var pieces mem.BufferSlice
	for piece := range slices.Chunk(marshal(s.rest[0]), 100) {
		pieces = append(pieces, mem.SliceBuffer(piece))
	}
	s.rest = s.rest[1:]
	return wireCodec{}.Unmarshal(pieces, m)
}

// FuzzResult reads whatever FlightInfo and FlightData a server may send, and
// every value of it, to the end, an error or rows, never a panic or hang.
func FuzzResult(f *testing.F) {
	for _, info := range []*pb.FlightInfo{answer(int64Schema, "0"), answer(nil, "0", "1"), answer(nil), {}} {
		data, err := proto.Marshal(info)
		if err != nil {
			f.Fatal(err)
		}
		for _, chunk := range encoded(f) {
			header, body := chunk.GetDataHeader(), chunk.GetDataBody()
			f.Add(data, header, body, header, body)
		}
		for _, pair := range pairs(f) {
			f.Add(data, pair[0].GetDataHeader(), pair[0].GetDataBody(), pair[1].GetDataHeader(), pair[1].GetDataBody())
		}
		all := encoded(f)
		f.Add(data, all[0].GetDataHeader(), []byte(nil), all[1].GetDataHeader(), all[1].GetDataBody())
	}
	f.Fuzz(func(t *testing.T, info, header1, body1, header2, body2 []byte) {
		if proto.Unmarshal(info, &pb.FlightInfo{}) != nil {
			return // the endpoint is refused
		}
		server := &scriptedServer{info: info, data: []*pb.FlightData{
			{DataHeader: header1, DataBody: body1}, {DataHeader: header2, DataBody: body2},
		}}
		c := answering(Config{
			Address: here, Allocator: memory.DefaultAllocator, Prefetch: 1, MaxMessage: 1 << 20, RequestLimit: DefaultRequestLimit,
			Locations: func(*url.URL) (allow, sendCredentials bool) { return false, false }, // no network here
		}, server)
		s, err := c.Query(t.Context(), "q", backend.Call{})
		if err != nil {
			_ = failure(t, err)
			return
		}
		defer s.Close()
		for {
			batch, err := s.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				_ = failure(t, err)
				return
			}
			look(batch)
		}
	})
}

// pairs are a schema and a batch for each type of column, plain and compressed.
// Dictionaries need a third message and are left out.
func pairs(t testing.TB) [][2]*pb.FlightData {
	var out [][2]*pb.FlightData
	batch := everyType(t)
	defer batch.Release()
	for i, col := range batch.Columns() {
		if col.DataType().ID() == arrow.DICTIONARY {
			continue
		}
		one := array.NewRecordBatch(arrow.NewSchema(batch.Schema().Fields()[i:i+1], nil), []arrow.Array{col}, batch.NumRows())
		for _, opts := range [][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}} {
			data := send(t, one, opts...)
			out = append(out, [2]*pb.FlightData{data[0], data[1]})
		}
		one.Release()
	}
	return out
}

// encoded is a result of one batch as it is sent.
func encoded(t testing.TB) []*pb.FlightData {
	e := newEncoder(nil, int64Schema, DefaultRequestLimit)
	defer e.close()
	batch := int64Batch(1, 2, 3)
	defer batch.Release()
	out, err := e.flightData(batch)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
