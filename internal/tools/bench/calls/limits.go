package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// tcpAddress is the action that asks the server where it sends the same bytes without gRPC.
const tcpAddress = "TCPAddress"

// serveTCP listens for those who send a statement in a line and want its batches: the
// length of one, and then all of them.
var serveTCP = sync.OnceValue(func() string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() {
		for {
			conn, err := lis.Accept()
			must(err)
			go sendBytes(conn)
		}
	}()
	return lis.Addr().String()
})

func sendBytes(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	line, err := bufio.NewReader(conn).ReadString('\n')
	must(err)
	s, err := parse(strings.TrimSpace(line))
	must(err)
	batch := messagesOf(s.shape, s.rows).batch
	must(binary.Write(conn, binary.BigEndian, int64(len(batch))))
	for range s.batches {
		if _, err := conn.Write(batch); err != nil {
			return
		}
	}
}

// A tcpBytes reads the bytes of a result's batches into one buffer, again and again.
type tcpBytes struct{ address string }

func newTCPBytes(uri string, size int) client {
	c := newGRPCBytes(uri, size)
	defer c.close()
	address, err := c.(grpcBytes).tcpAddress(context.Background())
	must(err)
	return tcpBytes{address}
}

func (c tcpBytes) rows(ctx context.Context, sql string) (int64, error) {
	s, err := parse(sql)
	if err != nil {
		return 0, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintln(conn, sql); err != nil {
		return 0, err
	}
	var length, got int64
	if err := binary.Read(conn, binary.BigEndian, &length); err != nil {
		return 0, err
	}
	buf := make([]byte, 128<<10)
	for {
		n, err := conn.Read(buf)
		got += int64(n)
		if errors.Is(err, io.EOF) {
			return got / length * int64(s.rows), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

func (tcpBytes) close() {}

// A grpcBytes receives a result by gRPC's own client, and looks at no message.
type grpcBytes struct{ conn *grpc.ClientConn }

func newGRPCBytes(uri string, _ int) client {
	conn, err := grpc.NewClient(address(uri), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20)))
	must(err)
	return grpcBytes{conn}
}

func (c grpcBytes) rows(ctx context.Context, sql string) (int64, error) {
	s, err := parse(sql)
	if err != nil {
		return 0, err
	}
	stream, err := c.call(ctx, "DoGet", &pb.Ticket{Ticket: []byte(sql)})
	for n := int64(0); err == nil; n++ {
		if err = stream.RecvMsg(nil); errors.Is(err, io.EOF) {
			return (n - 1) * int64(s.rows), nil // the first is the schema
		}
	}
	return 0, err
}

func (c grpcBytes) tcpAddress(ctx context.Context) (string, error) {
	stream, err := c.call(ctx, "DoAction", &pb.Action{Type: tcpAddress})
	var reply []byte
	if err == nil {
		err = stream.RecvMsg(&reply)
	}
	var r pb.Result
	if err == nil {
		err = proto.Unmarshal(reply, &r)
	}
	return string(r.Body), err
}

// call begins a call that sends one message.
func (c grpcBytes) call(ctx context.Context, method string, request proto.Message) (grpc.ClientStream, error) {
	encoded, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/arrow.flight.protocol.FlightService/"+method)
	if err == nil {
		err = stream.SendMsg(encoded)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	return stream, err
}

func (c grpcBytes) close() { must(c.conn.Close()) }
