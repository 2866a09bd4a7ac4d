package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// serve is a Flight SQL server that encodes each reply once and then sends it
// again. It prints where it listens. The statements are "SELECT SHAPE ROWS BATCHES": so
// many batches of so many rows, of the shape ints or mixed.
func serve() {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	srv := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(answer), grpc.MaxConcurrentStreams(1000))
	go func() { must(srv.Serve(lis)) }()
	fmt.Println("grpc://" + lis.Addr().String())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // its end is the parent's
	srv.Stop()
}

// rawCodec passes messages on as bytes.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func answer(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	switch method {
	case "/arrow.flight.protocol.FlightService/GetFlightInfo":
		reply, err := plan(request)
		if err != nil {
			return err
		}
		return stream.SendMsg(reply)
	case "/arrow.flight.protocol.FlightService/DoGet":
		var ticket pb.Ticket
		if err := proto.Unmarshal(request, &ticket); err != nil {
			return err
		}
		var shape string
		var rows, batches int
		if _, err := fmt.Sscanf(string(ticket.Ticket), "SELECT %s %d %d", &shape, &rows, &batches); err != nil {
			return err
		}
		m := messagesOf(shape, rows)
		if err := stream.SendMsg(m.schema); err != nil {
			return err
		}
		for range batches {
			if err := stream.SendMsg(m.batch); err != nil {
				return err
			}
		}
		return nil
	default:
		return status.Error(codes.Unimplemented, method)
	}
}

// plan makes the FlightInfo of a statement; the ticket is its text.
func plan(request []byte) ([]byte, error) {
	var desc pb.FlightDescriptor
	var packed anypb.Any
	var query pb.CommandStatementQuery
	if proto.Unmarshal(request, &desc) != nil || proto.Unmarshal(desc.Cmd, &packed) != nil || packed.UnmarshalTo(&query) != nil {
		return nil, status.Error(codes.Unimplemented, "only statements")
	}
	if info, ok := infos.Load(query.Query); ok {
		return info.([]byte), nil
	}
	var shape string
	var rows, batches int
	if _, err := fmt.Sscanf(query.Query, "SELECT %s %d %d", &shape, &rows, &batches); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	info, err := proto.Marshal(&pb.FlightInfo{
		Schema: messagesOf(shape, rows).info, FlightDescriptor: &desc, TotalRecords: int64(rows * batches), TotalBytes: -1,
		Endpoint: []*pb.FlightEndpoint{{Ticket: &pb.Ticket{Ticket: []byte(query.Query)}}},
	})
	infos.Store(query.Query, info)
	return info, err
}

var (
	infos   sync.Map // the encoded FlightInfo by statement
	encoded sync.Map // messages by shape and rows
)

type messages struct{ info, schema, batch []byte }

func messagesOf(shape string, rows int) *messages {
	key := fmt.Sprint(shape, rows)
	if m, ok := encoded.Load(key); ok {
		return m.(*messages)
	}
	batch := makeBatch(shape, rows)
	defer batch.Release()
	var sent capture
	w := flight.NewRecordWriter(&sent, ipc.WithSchema(batch.Schema()))
	must(w.Write(batch))
	must(w.Close())
	m := &messages{info: flight.SerializeSchema(batch.Schema(), memory.DefaultAllocator), schema: sent[0], batch: sent[1]}
	encoded.Store(key, m)
	return m
}

// capture encodes what a flight.Writer sends, as servers do: header first, then
// the body (Flight.proto asks for that order).
type capture [][]byte

func (c *capture) Send(d *pb.FlightData) error {
	var b []byte
	b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), d.DataHeader)
	b = protowire.AppendBytes(protowire.AppendTag(b, 1000, protowire.BytesType), d.DataBody)
	*c = append(*c, b)
	return nil
}

func makeBatch(shape string, rows int) arrow.RecordBatch {
	types := []arrow.DataType{arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int64}
	if shape == "mixed" {
		types = nil
		for range 4 {
			types = append(types,
				arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.String, arrow.FixedWidthTypes.Boolean,
				&arrow.TimestampType{Unit: arrow.Microsecond}, arrow.FixedWidthTypes.Date32, &arrow.Decimal128Type{Precision: 18, Scale: 2},
				arrow.ListOf(arrow.PrimitiveTypes.Int32), arrow.StructOf(arrow.Field{Name: "s", Type: arrow.BinaryTypes.String}))
		}
	}
	fields := make([]arrow.Field, len(types))
	columns := make([]arrow.Array, len(types))
	for i, t := range types {
		fields[i] = arrow.Field{Name: fmt.Sprint("c", i), Type: t, Nullable: true}
		columns[i] = makeColumn(t, rows, i)
		defer columns[i].Release()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(rows))
}

func makeColumn(t arrow.DataType, rows, seed int) arrow.Array {
	b := array.NewBuilder(memory.DefaultAllocator, t)
	defer b.Release()
	for row := range rows {
		n := row*31 + seed
		switch b := b.(type) {
		case *array.Int64Builder:
			b.Append(int64(n))
		case *array.ListBuilder:
			b.Append(true)
			b.ValueBuilder().(*array.Int32Builder).AppendValues([]int32{int32(n), 2, 3}, nil)
		case *array.StructBuilder:
			b.Append(true)
			b.FieldBuilder(0).(*array.StringBuilder).Append(fmt.Sprint("part ", n%1000))
		case *array.StringBuilder:
			b.Append(fmt.Sprint("value ", n))
		case *array.BooleanBuilder:
			b.Append(n%3 == 0)
		default:
			if n%10 == 0 {
				b.AppendNull()
			} else {
				must(b.AppendValueFromString(sample(t, n)))
			}
		}
	}
	return b.NewArray()
}

func sample(t arrow.DataType, n int) string {
	switch t.ID() {
	case arrow.TIMESTAMP:
		return fmt.Sprintf("2026-01-02T03:04:%02d", n%60)
	case arrow.DATE32:
		return fmt.Sprintf("2026-01-%02d", 1+n%28)
	default:
		return fmt.Sprint(n % 1000)
	}
}
