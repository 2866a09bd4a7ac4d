package flightconn

import (
	"context"
	"errors"
	"path"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/flightpool/flightpool/internal/eof"
)

// ExternalCall is a call of backend.Conn that another Flight SQL client makes over a
// Conn: on its transport, in its name, counted, cut and judged as the Conn's
// own calls are. It may be used by several goroutines at once.
//
// The driver of ADBC is that client: it builds its own requests and reads its
// own results, and package adbcconn routes its RPCs here. So a pool on ADBC has
// the same rules as this one: one transport for each connection, what was sent
// is known, and errors have a Fault.
//
// The methods follow the life of a call: BeginExternal, then requests (Invoke,
// Plan, NewStream) and rows (FetchTicket), then End.
type ExternalCall struct {
	call *rpcCall
	ctx  context.Context //nolint:containedctx // the call's own: it ends every RPC of the call
}

// BeginExternal admits a call of another client. It fails, with nothing sent,
// when the transport has ended or a header cannot be sent; a ctx that has ended
// fails the first RPC. The caller must call End. op is the name of the call in
// errors, and headers go with each RPC of it.
func (c *Conn) BeginExternal(ctx context.Context, op string, headers metadata.MD) (*ExternalCall, error) {
	ctx, r, err := c.begin(ctx, op, headers)
	if err != nil {
		return nil, err
	}
	return &ExternalCall{call: r, ctx: ctx}, nil
}

// Context ends with the call.
func (g *ExternalCall) Context() context.Context { return g.ctx }

// RequestLimit is the size in bytes above which servers refuse a message.
func (g *ExternalCall) RequestLimit() int { return g.call.conn.cfg().RequestLimit }

// End ends the call and its RPCs. Later calls do nothing. Streams that are
// still open end with it, since its context is theirs.
func (g *ExternalCall) End() { g.call.end() }

// NeedsSession says that the call names what only the connection's session has:
// a transaction or a prepared statement. An answer that comes from another
// session is an error then. It must be called before the RPC.
func (g *ExternalCall) NeedsSession() { g.call.info.needsSession = true }

// Usage is a fault of the caller's. The connection is as good as before.
func (g *ExternalCall) Usage(err error) error { return g.call.usageError("%w", err) }

// Unsupported is a fault of what the call would need and the other client, or
// the server, does not have. The connection is as good as before.
func (g *ExternalCall) Unsupported(stage backend.Stage, err error) error {
	return &backend.Error{Op: g.call.op, Stage: stage, Fault: backend.FaultUnsupported, Target: g.call.conn.target(), Err: err}
}

// WrapError makes the *backend.Error of what the call failed with. A gRPC
// status in err's chain decides. err must not be nil.
func (g *ExternalCall) WrapError(stage backend.Stage, err error) error {
	return g.call.wrapError(stage, err)
}

// Invoke makes a unary RPC. ctx need not descend from the call's: the RPC ends
// with either. Its headers are the call's. The error is gRPC's, for the other
// client to read; WrapError judges it later.
func (g *ExternalCall) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, stop := g.joinContext(ctx)
	defer stop()
	return g.call.conn.channel.Invoke(g.call.rpcContext(ctx), method, args, reply, opts...)
}

// Plan asks for the FlightInfo of a query as the Conn itself does: with
// call.Progress, by PollFlightInfo. The Info stays encoded: what the other
// client is shown of it is for the caller to decide.
func (g *ExternalCall) Plan(desc *pb.FlightDescriptor, call backend.Call, opts ...grpc.CallOption) (*Info, error) {
	kind := ""
	var packed anypb.Any
	if proto.Unmarshal(desc.GetCmd(), &packed) == nil {
		kind = string(packed.MessageName().Name())
	}
	return g.call.planWithProgress(g.ctx, desc, kind, call, opts...)
}

// NewStream opens a streaming RPC, which ends with the call at the latest.
// DoPut and DoGet carry a statement, so that the server may be at work on it
// until it ends them (backend.Error.Running).
func (g *ExternalCall) NewStream(desc *grpc.StreamDesc, method string) (grpc.ClientStream, error) {
	ctx := g.call.rpcContext(g.ctx)
	if name := path.Base(method); name == "DoPut" || name == "DoGet" {
		g.call.bound = g.call.bound || name == "DoPut" // what it brings are parameters, but where it is all of the call
		rpc := g.call.statementContext(g.ctx)
		ctx = rpc
	}
	return g.call.conn.channel.NewStream(ctx, desc, method)
}

// HasEnded reports whether the server has ended a stream of NewStream, perhaps before it
// was sent everything.
func (g *ExternalCall) HasEnded(stream grpc.ClientStream) bool {
	s, ok := stream.(*channelStream)
	return ok && s.rpc.trailed.Load()
}

// Spoil has the server fail an ingestion that NewStream carries, whose rows have failed in cause: see rpcCall.spoil. schema is the
// header of its first message. Nobody may use the stream beside it.
func (g *ExternalCall) Spoil(stream grpc.ClientStream, schema []byte, cause error) {
	sendSchema := func() error { return stream.SendMsg(&pb.FlightData{DataHeader: schema}) }
	g.call.spoil(cause, sendSchema, func() error {
		for {
			if err := stream.RecvMsg(&pb.PutResult{}); err != nil {
				return err
			}
		}
	})
}

// joinContext makes the context of an RPC: it ends with the call and with ctx.
// The caller must call the function that it returns, which releases both.
func (g *ExternalCall) joinContext(ctx context.Context) (context.Context, context.CancelFunc) {
	joined, cancel := context.WithCancel(g.ctx)
	unhook := context.AfterFunc(ctx, cancel)
	return joined, func() { unhook(); cancel() }
}

// TakeTurn is the turn of the result's next endpoint. Its Done must be called once that is open.
func (g *ExternalCall) TakeTurn(turns *Turns, endpoint *FlightEndpoint) *Turn {
	return turns.take(g.call.conn, endpoint)
}

// AwaitTurn waits for the turn at the place where an endpoint is asked for first.
func (g *ExternalCall) AwaitTurn(endpoint *FlightEndpoint, turn *Turn) error {
	return turn.await(g.ctx, g.call.conn.firstPlace(endpoint))
}

// FetchTicket opens the stream of an endpoint, here or at the first of its
// locations that has it, as far as its first message. A stream without a
// message is no error: Peek is nil then, and Recv gives io.EOF.
//
// At each place it waits for its turn, which TakeTurn has given.
func (g *ExternalCall) FetchTicket(endpoint *FlightEndpoint, turn *Turn) (*TicketStream, error) {
	return fetch(g.ctx, g.call, endpoint, turn, func(ctx context.Context, from rowSource) (*TicketStream, error) {
		stream, err := from.channel.get(ctx, endpoint.ticket)
		if err != nil {
			return nil, err
		}
		f := &TicketStream{call: g, stream: stream, from: from, check: messageCheck{maxInflated: g.call.conn.cfg().maxInflated()}}
		f.first, f.firstErr = f.recv()
		if f.firstErr != nil && !eof.Reached(f.firstErr) {
			return nil, f.firstErr
		}
		return f, nil
	})
}

// TicketStream is the stream of one endpoint. It belongs to one goroutine and ends
// with its call.
//
// Messages are checked as those of a reader are (messageCheck), since the
// other client reads them with Arrow's reader as well. Batches are not: the
// caller has a Validator for them.
type TicketStream struct {
	call       *ExternalCall
	stream     *channelStream
	from       rowSource
	first      *pb.FlightData
	firstErr   error
	firstGiven bool
	check      messageCheck
	gotRows    bool // the message received last is a batch of rows
	gaveRows   bool // and so is the one given out last
}

// Peek is the first message, or nil if the stream has none. It does not take
// the message: Recv gives it too.
func (f *TicketStream) Peek() *pb.FlightData { return f.first }

// Recv returns the next message that carries Arrow data, or io.EOF. After
// io.EOF or an error nothing more may be received.
func (f *TicketStream) Recv() (*pb.FlightData, error) {
	if !f.firstGiven {
		f.firstGiven, f.gaveRows = true, f.gotRows
		return f.first, f.firstErr
	}
	data, err := f.recv()
	f.gaveRows = f.gotRows
	if err != nil {
		f.from.end()
		if !eof.Reached(err) {
			err = withLocation(f.from.location, err)
		}
	}
	return data, err
}

// AffectedRows is how many rows the server says that a statement has touched which was sent as a query and has none. It is
// false where it does not tell.
func (f *TicketStream) AffectedRows() (n int64, told bool) { return f.stream.affectedRows() }

// GaveRows reports whether the message that Recv has returned last is a batch of rows.
func (f *TicketStream) GaveRows() bool { return f.gaveRows }

// recv skips messages without a header, which have application metadata only.
// Dictionaries are bounded together, as in a reader.
func (f *TicketStream) recv() (*pb.FlightData, error) {
	f.gotRows = false
	for {
		data := &pb.FlightData{}
		if err := f.stream.RecvMsg(data); err != nil {
			return nil, err
		}
		if len(data.GetDataHeader()) == 0 {
			if err := checkNoBody(data.GetDataBody()); err != nil {
				return nil, err
			}
			continue
		}
		size, _, err := f.check.verify(data.GetDataHeader(), data.GetDataBody())
		if err != nil {
			return nil, malformed("%w", err)
		}
		if f.check.known == nil {
			if err := f.learnSchema(data.GetDataHeader(), size); err != nil {
				return nil, err
			}
		}
		f.gotRows = size.rows
		return data, nil
	}
}

// learnSchema reads the schema of the stream, which comes first.
func (f *TicketStream) learnSchema(header []byte, size messageSize) (err error) {
	if size.batch {
		return malformed("a batch before the schema")
	}
	if f.check.known, err = f.call.call.conn.endpoint.schemas.decode(header, size.schemaBytes); err != nil {
		return malformed("schema: %w", err)
	}
	if err := f.check.known.unreadable; err != nil { // the driver reads by Arrow's reader
		return malformed("schema: %w", err)
	}
	if NestedDictionaries(f.check.known.schema) {
		if f.call.call.mayChange { // it has been made
			return ErrNestedDictionaries
		}
		return f.call.Unsupported(backend.StageFetch, ErrNestedDictionaries)
	}
	return nil
}

// ErrNestedDictionaries is why a result is not handed to a driver of ADBC.
var ErrNestedDictionaries = errors.New("a dictionary whose values have dictionaries, which ADBC's driver changes in batches that it has given out; the native backend reads it")
