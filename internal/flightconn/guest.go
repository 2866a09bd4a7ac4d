package flightconn

import (
	"context"
	"path"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/session"
)

// Guest is a call of the seam that another Flight SQL client makes over a
// Conn: on its transport, in its name, counted, cut and judged as the Conn's
// own calls are. It may be used by several goroutines at once.
type Guest struct {
	run *run
	ctx context.Context //nolint:containedctx // the call's own: it ends every RPC of the call
}

// Host admits a call of another client. It fails, with nothing sent, when ctx
// or the epoch has ended. The caller must call End.
func (c *Conn) Host(ctx context.Context, op string, headers metadata.MD) (*Guest, error) {
	ctx, r, err := c.begin(ctx, op, headers)
	if err != nil {
		return nil, err
	}
	return &Guest{run: r, ctx: ctx}, nil
}

// Context ends with the call.
func (g *Guest) Context() context.Context { return g.ctx }

// RequestLimit is the size in bytes above which servers refuse a message.
func (g *Guest) RequestLimit() int { return g.run.conn.cfg().RequestLimit }

// End ends the call and its RPCs. Later calls do nothing.
func (g *Guest) End() { g.run.end() }

// NeedsSession says that the call names what only the connection's session
// has: a transaction or a prepared statement.
func (g *Guest) NeedsSession() { g.run.info.needsSession = true }

// Usage is a fault of the caller's.
func (g *Guest) Usage(err error) error { return g.run.usage("%w", err) }

// Unsupported is a fault of what the call would need and the other client, or
// the server, does not have. The connection is as good as before.
func (g *Guest) Unsupported(stage session.Stage, err error) error {
	return &session.Error{Op: g.run.op, Stage: stage, Fault: session.FaultUnsupported, Target: g.run.conn.target(), Err: err}
}

// Fail makes the *session.Error of what the call failed with. A gRPC status
// in err's chain decides.
func (g *Guest) Fail(stage session.Stage, err error) error { return g.run.fail(stage, err) }

// Invoke makes a unary RPC. ctx need not descend from the call's: the RPC ends
// with either. Its headers are the call's.
func (g *Guest) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, stop := g.join(ctx)
	defer stop()
	return g.run.conn.channel.Invoke(g.run.rpc(ctx), method, args, reply, opts...)
}

// Plan asks for the FlightInfo of a query as the Conn itself does: with
// call.Progress, by PollFlightInfo.
func (g *Guest) Plan(desc *pb.FlightDescriptor, call session.Call, opts ...grpc.CallOption) (*Info, error) {
	kind := ""
	var packed anypb.Any
	if proto.Unmarshal(desc.GetCmd(), &packed) == nil {
		kind = string(packed.MessageName().Name())
	}
	return g.run.planned(g.ctx, desc, kind, call, opts...)
}

// NewStream opens a streaming RPC, which ends with the call at the latest.
func (g *Guest) NewStream(desc *grpc.StreamDesc, method string) (grpc.ClientStream, error) {
	ctx := g.run.rpc(g.ctx)
	if name := path.Base(method); name == "DoPut" || name == "DoGet" {
		ctx = g.run.statementRPC(g.ctx)
	}
	return g.run.conn.channel.NewStream(ctx, desc, method)
}

// join makes the context of an RPC: it ends with the call and with ctx.
func (g *Guest) join(ctx context.Context) (context.Context, context.CancelFunc) {
	joined, cancel := context.WithCancel(g.ctx)
	unhook := context.AfterFunc(ctx, cancel)
	return joined, func() { unhook(); cancel() }
}

// Here reports whether the rows of endpoint come over the Conn's own
// transport, so that they wait for what else the session is at.
func (g *Guest) Here(endpoint *FlightEndpoint) bool { return g.run.conn.servedHere(endpoint) }

// Redeem opens the stream of an endpoint, here or at the first of its
// locations that has it, as far as its first message.
func (g *Guest) Redeem(endpoint *FlightEndpoint) (*Fetch, error) {
	return fetch(g.ctx, g.run, endpoint, func(ctx context.Context, from rowSource) (*Fetch, error) {
		stream, err := from.client.DoGet(g.run.statementRPC(ctx), endpoint.ticket)
		if err != nil {
			return nil, err
		}
		f := &Fetch{stream: stream, from: from, inflated: g.run.conn.cfg().inflated()}
		f.first, f.firstErr = f.recv()
		if f.firstErr != nil && !eof.Reached(f.firstErr) {
			return nil, f.firstErr
		}
		return f, nil
	})
}

// Fetch is the stream of one endpoint. It belongs to one goroutine and ends
// with its call.
type Fetch struct {
	stream   pb.FlightService_DoGetClient
	from     rowSource
	first    *pb.FlightData
	firstErr error
	begun    bool
	inflated int64
	kept     dictionaryBytes
}

// Peek is the first message, or nil if the stream has none.
func (f *Fetch) Peek() *pb.FlightData { return f.first }

// Recv returns the next message that carries Arrow data, or io.EOF.
func (f *Fetch) Recv() (*pb.FlightData, error) {
	if !f.begun {
		f.begun = true
		return f.first, f.firstErr
	}
	data, err := f.recv()
	if err != nil {
		f.from.end()
		if !eof.Reached(err) {
			err = atLocation(f.from.location, err)
		}
	}
	return data, err
}

func (f *Fetch) recv() (*pb.FlightData, error) {
	for {
		data, err := f.stream.Recv()
		if err != nil {
			return nil, err
		}
		if len(data.GetDataHeader()) == 0 {
			continue
		}
		weight, err := verifyMessage(data.GetDataHeader(), data.GetDataBody(), f.inflated)
		if err == nil {
			_, err = f.kept.take(weight, f.inflated)
		}
		if err != nil {
			return nil, malformed("%w", err)
		}
		return data, nil
	}
}
