package flightconn

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/memnet"
)

// fake is a server of which each test writes the RPCs that it needs. What it
// does not write is UNIMPLEMENTED, but for GetFlightInfo, whose NOT_FOUND is a
// sign of life.
type fake struct {
	pb.UnimplementedFlightServiceServer
	handshake func(pb.FlightService_HandshakeServer) error
	info      func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error)
	poll      func(context.Context, *pb.FlightDescriptor) (*pb.PollInfo, error)
	get       func(*pb.Ticket, pb.FlightService_DoGetServer) error
	put       func(pb.FlightService_DoPutServer) error
	putUnread bool // put has to read the first message, too
	action    func(*pb.Action, pb.FlightService_DoActionServer) error

	plans atomic.Int64
	puts  atomic.Int64
}

func (f *fake) Handshake(s pb.FlightService_HandshakeServer) error {
	if f.handshake == nil {
		return status.Error(codes.Unimplemented, "no handshake")
	}
	return f.handshake(s)
}

func (f *fake) GetFlightInfo(ctx context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
	f.plans.Add(1)
	if f.info == nil {
		return nil, status.Error(codes.NotFound, "nothing here")
	}
	return f.info(ctx, d)
}

func (f *fake) PollFlightInfo(ctx context.Context, d *pb.FlightDescriptor) (*pb.PollInfo, error) {
	if f.poll == nil {
		return nil, status.Error(codes.Unimplemented, "no PollFlightInfo")
	}
	return f.poll(ctx, d)
}

func (f *fake) DoGet(t *pb.Ticket, s pb.FlightService_DoGetServer) error {
	if f.get == nil {
		return status.Error(codes.Unimplemented, "no DoGet")
	}
	return f.get(t, s)
}

func (f *fake) DoPut(s pb.FlightService_DoPutServer) error {
	f.puts.Add(1)
	if f.put == nil {
		return status.Error(codes.Unimplemented, "no DoPut")
	}
	if f.putUnread {
		return f.put(s)
	}
	// What is to be done stands in the first message: no server ends the stream
	// well without it, unless it is broken.
	first, err := s.Recv()
	if err != nil {
		return err
	}
	return f.put(&begun{FlightService_DoPutServer: s, first: first})
}

// begun is a DoPut whose first message has arrived.
type begun struct {
	pb.FlightService_DoPutServer
	first *pb.FlightData
}

func (b *begun) Recv() (*pb.FlightData, error) {
	if first := b.first; first != nil {
		b.first = nil
		return first, nil
	}
	return b.FlightService_DoPutServer.Recv()
}

func (f *fake) DoAction(a *pb.Action, s pb.FlightService_DoActionServer) error {
	if f.action == nil {
		return status.Errorf(codes.Unimplemented, "no action %s", a.GetType())
	}
	return f.action(a, s)
}

// network is the in-memory network of a test: one listener for each address.
type network map[string]*memnet.Listener

const here = "server:1"

func (n network) dial(ctx context.Context, addr string) (net.Conn, error) {
	l, ok := n[addr]
	if !ok {
		return nil, errors.New("nobody listens at " + addr)
	}
	return l.Dial(ctx, addr)
}

// serve runs f at addr until the end of the test.
func (n network) serve(t testing.TB, addr string, f *fake, opts ...grpc.ServerOption) *memnet.Listener {
	l := memnet.New(addr)
	n[addr] = l
	server := grpc.NewServer(append(opts, grpc.WaitForHandlers(true))...)
	pb.RegisterFlightServiceServer(server, f)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		_ = l.Close()
	})
	return l
}

// bubble is one fake server and an endpoint for it, in virtual time.
type bubble struct {
	*testing.T
	fake     *fake
	net      network
	listener *memnet.Listener
	endpoint *Endpoint
}

func inBubble(t *testing.T, f *fake, test func(b *bubble), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, fake: f, net: network{}}
		b.listener = b.net.serve(t, here, f)
		cfg := Config{Address: here, Dialer: b.net.dial}
		for _, c := range change {
			c(&cfg)
		}
		var err error
		b.endpoint, err = NewEndpoint(cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.endpoint.Close()) })
		test(b)
	})
}

// open makes a connection that lives until the end of the test.
func (b *bubble) open() *Conn {
	b.Helper()
	c, err := b.endpoint.Open(b.Context())
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	return c.(*Conn)
}

var int64Schema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)

func int64Batch(values ...int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, int64Schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	return b.NewRecordBatch()
}

// sendBatches answers a DoGet with the rows 0..rows-1, one to a batch.
func sendBatches(s pb.FlightService_DoGetServer, rows int, opts ...ipc.Option) error {
	return sendValues(s, 0, rows, opts...)
}

func sendValues(s pb.FlightService_DoGetServer, from, to int, opts ...ipc.Option) error {
	w := flight.NewRecordWriter(s, append(opts, ipc.WithSchema(int64Schema))...)
	for i := from; i < to; i++ {
		batch := int64Batch(int64(i))
		err := w.Write(batch)
		batch.Release()
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// answer makes a FlightInfo with one endpoint for each ticket.
func answer(schema *arrow.Schema, tickets ...string) *pb.FlightInfo {
	info := &pb.FlightInfo{TotalRecords: -1, TotalBytes: -1}
	if schema != nil {
		info.Schema = flight.SerializeSchema(schema, memory.DefaultAllocator)
	}
	for _, ticket := range tickets {
		info.Endpoint = append(info.Endpoint, &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: []byte(ticket)}})
	}
	return info
}

// infoOf answers every GetFlightInfo but that of the probe.
func infoOf(info *pb.FlightInfo) func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) {
	return func(_ context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		if isProbe(d) {
			return nil, status.Error(codes.NotFound, "no information")
		}
		return info, nil
	}
}

func isProbe(d *pb.FlightDescriptor) bool {
	var cmd pb.CommandGetSqlInfo
	return unpack(d.GetCmd(), &cmd) == nil
}

// values reads a stream to its end.
func values(t testing.TB, s backend.Stream) []int64 {
	t.Helper()
	defer s.Close()
	var out []int64
	for {
		batch, err := s.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out = append(out, batch.Column(0).(*array.Int64).Int64Values()...)
	}
}

func failure(t testing.TB, err error) *backend.Error {
	t.Helper()
	var e *backend.Error
	require.ErrorAs(t, err, &e)
	return e
}

// gracefulServer is serve for tests that stop the server themselves.
func (n network) gracefulServer(t testing.TB, f *fake) *grpc.Server {
	l := memnet.New(here)
	n[here] = l
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	pb.RegisterFlightServiceServer(server, f)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return server
}

func sendCookie(ctx context.Context) error {
	return grpc.SetHeader(ctx, metadata.Pairs("set-cookie", "session=1"))
}

// silence is a server that does not answer. It outlasts the client's patience:
// a deadline ends the call on both sides at once, and either may be first.
func silence(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(time.Second)
	return status.FromContextError(ctx.Err()).Err()
}

// bearer gives every connection the same credential.
func bearer(header string) func(context.Context, string) (Credential, error) {
	return func(context.Context, string) (Credential, error) { return Credential{Header: header}, nil }
}
