package flightconn

import (
	"context"
	"errors"
	"fmt"

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

// Usage is a fault of the caller's.
func (g *Guest) Usage(err error) error { return g.run.usage("%w", err) }

// Fail makes the *session.Error of what the call failed with. A gRPC status
// in err's chain decides.
func (g *Guest) Fail(stage session.Stage, err error) error { return g.run.fail(stage, err) }

// Invoke makes a unary RPC. ctx need not descend from the call's: the RPC ends
// with either. Its headers are the call's.
func (g *Guest) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, stop := g.join(ctx)
	defer stop()
	return g.channel().Invoke(g.run.rpc(ctx), method, args, reply, opts...)
}

// Plan asks for the FlightInfo of a query as the Conn itself does: with
// call.Progress, by PollFlightInfo.
func (g *Guest) Plan(desc *pb.FlightDescriptor, call session.Call) (*pb.FlightInfo, error) {
	kind := ""
	var packed anypb.Any
	if proto.Unmarshal(desc.GetCmd(), &packed) == nil {
		kind = string(packed.MessageName().Name())
	}
	return g.run.planned(g.ctx, desc, kind, call)
}

// NewStream opens a streaming RPC, which ends with the call at the latest.
func (g *Guest) NewStream(desc *grpc.StreamDesc, method string) (grpc.ClientStream, error) {
	return g.channel().NewStream(g.run.rpc(g.ctx), desc, method)
}

func (g *Guest) channel() *channel {
	return &channel{cc: g.run.conn.epoch.cc, id: g.run.conn.id, sessions: true}
}

// join makes the context of an RPC: it ends with the call and with ctx.
func (g *Guest) join(ctx context.Context) (context.Context, context.CancelFunc) {
	joined, cancel := context.WithCancel(g.ctx)
	unhook := context.AfterFunc(ctx, cancel)
	return joined, func() { unhook(); cancel() }
}

// Here reports whether the rows of endpoint come over the Conn's own
// transport, so that they wait for what else the session is at.
func (g *Guest) Here(endpoint *pb.FlightEndpoint) bool { return g.run.conn.servedHere(endpoint) }

// Redeem opens the stream of an endpoint, here or at the first of its
// locations that has it, as far as its first message.
func (g *Guest) Redeem(endpoint *pb.FlightEndpoint) (*Fetch, error) {
	f, err := g.redeem(endpoint)
	return f, expired(endpoint, err)
}

func (g *Guest) redeem(endpoint *pb.FlightEndpoint) (*Fetch, error) {
	locations := endpoint.GetLocation()
	switch {
	case endpoint.GetTicket() == nil:
		return nil, malformed("an endpoint without a ticket")
	case len(locations) == 0:
		return g.redeemAt(pb.NewFlightServiceClient(g.channel()), "", endpoint.GetTicket())
	}
	var errs []error
	for _, l := range locations {
		f, err := g.redeemFrom(l.GetUri(), endpoint.GetTicket())
		if err == nil {
			return f, nil
		}
		if g.ctx.Err() != nil || !elsewhere(err) {
			return nil, err
		}
		errs = append(errs, fmt.Errorf("%q: %w", l.GetUri(), err))
	}
	return nil, &locationError{fmt.Errorf("none of %d locations answers: %w", len(locations), errors.Join(errs...))}
}

func (g *Guest) redeemFrom(uri string, ticket *pb.Ticket) (*Fetch, error) {
	if g.run.conn.isHere(uri) {
		return g.redeemAt(pb.NewFlightServiceClient(g.channel()), "", ticket)
	}
	l, err := g.run.conn.endpoint.locations.use(g.ctx, uri)
	if err != nil {
		return nil, err
	}
	// As with the Conn's own results, the location counts as used until the
	// call ends.
	context.AfterFunc(g.ctx, l.done)
	return g.redeemAt(pb.NewFlightServiceClient(&channel{cc: l.cc, id: g.run.conn.id}), uri, ticket)
}

func (g *Guest) redeemAt(client pb.FlightServiceClient, uri string, ticket *pb.Ticket) (*Fetch, error) {
	stream, err := client.DoGet(g.run.rpc(g.ctx), ticket)
	if err != nil {
		return nil, err
	}
	f := &Fetch{stream: stream, location: uri, inflated: g.run.conn.cfg().inflated()}
	f.first, f.firstErr = f.recv()
	if f.firstErr != nil && !eof.Reached(f.firstErr) {
		return nil, f.firstErr
	}
	return f, nil
}

// Fetch is the stream of one endpoint. It belongs to one goroutine and ends
// with its call.
type Fetch struct {
	stream   pb.FlightService_DoGetClient
	location string
	first    *pb.FlightData
	firstErr error
	begun    bool
	inflated int64
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
	if err != nil && !eof.Reached(err) && f.location != "" {
		return nil, &locationError{fmt.Errorf("location %q: %w", f.location, err)}
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
		if err := verifyMessage(data.GetDataHeader(), data.GetDataBody(), f.inflated); err != nil {
			return nil, malformed("%w", err)
		}
		return data, nil
	}
}
