package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

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

// handlePrefix keeps handles from being texts, as on most servers: where they are, each text is made unique.
const handlePrefix = "@"

// serve is a Flight SQL server that encodes each reply once and then sends it
// again. It prints where it listens. The statements are "SELECT SHAPE ROWS BATCHES": so
// many batches of so many rows, of the shape ints, mixed or records, and with one number
// more from so many endpoints. A prepared statement's handle is handlePrefix and its text, and what is
// loaded into the table "rows_N" are N rows.
func serve() {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go serveFrames(lis, answer)
	fmt.Println("grpc://" + lis.Addr().String())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // its end is the parent's
}

// rawCodec passes messages on as bytes.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if v != nil { // else nobody looks at it
		*v.(*[]byte) = data.Materialize()
	}
	return nil
}

func answer(method string, stream grpc.ServerStream) error {
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
		return sendRows(request, stream)
	case "/arrow.flight.protocol.FlightService/DoAction":
		return act(request, stream)
	case "/arrow.flight.protocol.FlightService/DoPut":
		return take(request, stream)
	default:
		return status.Error(codes.Unimplemented, method)
	}
}

func sendRows(request []byte, stream grpc.ServerStream) error {
	var ticket pb.Ticket
	if err := proto.Unmarshal(request, &ticket); err != nil {
		return err
	}
	s, err := parse(string(ticket.Ticket))
	if err != nil {
		return err
	}
	m := messagesOf(s.shape, s.rows)
	if err := stream.SendMsg(m.schema); err != nil {
		return err
	}
	for range s.batches / s.endpoints {
		if err := stream.SendMsg(m.batch); err != nil {
			return err
		}
	}
	return nil
}

// act answers the preparing of a statement, and its closing.
func act(request []byte, stream grpc.ServerStream) error {
	var action pb.Action
	var packed anypb.Any
	if proto.Unmarshal(request, &action) != nil {
		return status.Error(codes.InvalidArgument, "no action")
	}
	switch action.Type {
	case "ClosePreparedStatement":
		return nil
	case tcpAddress:
		reply, err := proto.Marshal(&pb.Result{Body: []byte(serveTCP())})
		must(err)
		return stream.SendMsg(reply)
	case "CreatePreparedStatement":
	default:
		return status.Error(codes.Unimplemented, action.Type)
	}
	var prepare pb.ActionCreatePreparedStatementRequest
	if proto.Unmarshal(action.Body, &packed) != nil || packed.UnmarshalTo(&prepare) != nil {
		return status.Error(codes.InvalidArgument, "no statement")
	}
	if reply, ok := preparedReplies.Load(prepare.Query); ok {
		return stream.SendMsg(reply)
	}
	s, err := parse(prepare.Query)
	if err != nil {
		return err
	}
	body, err := anypb.New(&pb.ActionCreatePreparedStatementResult{
		PreparedStatementHandle: []byte(handlePrefix + prepare.Query), DatasetSchema: messagesOf(s.shape, s.rows).info,
		ParameterSchema: flight.SerializeSchema(paramSchema, memory.DefaultAllocator),
	})
	must(err)
	encoded, err := proto.Marshal(body)
	must(err)
	reply, err := proto.Marshal(&pb.Result{Body: encoded})
	must(err)
	preparedReplies.Store(prepare.Query, reply)
	return stream.SendMsg(reply)
}

// take answers a binding, and rows for a table.
func take(request []byte, stream grpc.ServerStream) error {
	var first pb.FlightData
	var load pb.CommandStatementIngest
	var packed anypb.Any
	if proto.Unmarshal(request, &first) != nil || proto.Unmarshal(first.GetFlightDescriptor().GetCmd(), &packed) != nil {
		return status.Error(codes.InvalidArgument, "no descriptor")
	}
	for err := error(nil); err == nil; {
		err = stream.RecvMsg(nil)
	}
	if packed.UnmarshalTo(&load) != nil {
		return stream.SendMsg([]byte{}) // the handle stays as it was
	}
	var done pb.DoPutUpdateResult
	if _, err := fmt.Sscanf(load.Table, "rows_%d", &done.RecordCount); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	counted, err := proto.Marshal(&done)
	must(err)
	reply, err := proto.Marshal(&pb.PutResult{AppMetadata: counted})
	must(err)
	return stream.SendMsg(reply)
}

type statement struct {
	shape                    string
	rows, batches, endpoints int
}

func parse(sql string) (statement, error) {
	s := statement{endpoints: 1}
	if n, err := fmt.Sscanf(sql, "SELECT %s %d %d %d", &s.shape, &s.rows, &s.batches, &s.endpoints); n < 3 {
		return s, status.Error(codes.InvalidArgument, err.Error())
	}
	return s, nil
}

// plan makes the FlightInfo of a statement; the tickets are its text.
func plan(request []byte) ([]byte, error) {
	var desc pb.FlightDescriptor
	var packed anypb.Any
	if proto.Unmarshal(request, &desc) != nil || proto.Unmarshal(desc.Cmd, &packed) != nil {
		return nil, status.Error(codes.InvalidArgument, "no command")
	}
	var query pb.CommandStatementQuery
	var prepared pb.CommandPreparedStatementQuery
	var sql string
	switch {
	case packed.UnmarshalTo(&query) == nil:
		sql = query.Query
	case packed.UnmarshalTo(&prepared) == nil:
		sql = strings.TrimPrefix(string(prepared.PreparedStatementHandle), handlePrefix)
	default:
		return nil, status.Error(codes.Unimplemented, "only statements")
	}
	if info, ok := infos.Load(sql); ok {
		return info.([]byte), nil
	}
	s, err := parse(sql)
	if err != nil {
		return nil, err
	}
	endpoints := make([]*pb.FlightEndpoint, s.endpoints)
	for i := range endpoints {
		endpoints[i] = &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: []byte(sql)}}
	}
	info, err := proto.Marshal(&pb.FlightInfo{
		Schema: messagesOf(s.shape, s.rows).info, FlightDescriptor: &desc, TotalRecords: int64(s.rows * s.batches), TotalBytes: -1, Endpoint: endpoints,
	})
	infos.Store(sql, info)
	return info, err
}

var (
	infos           sync.Map // the encoded FlightInfo by statement
	preparedReplies sync.Map // the encoded answer to its preparing
	encoded         sync.Map // messages by shape and rows
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
