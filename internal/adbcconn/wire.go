package adbcconn

import (
	"context"
	"path"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/flightconn"
)

// errNotForwarded answers the RPCs that the driver makes of its own accord: the
// pool ends sessions itself, within a bound.
var errNotForwarded = status.Error(codes.Unimplemented, "left to the pool")

// interceptUnary carries the driver's unary RPCs out. The driver's own client, cc, is
// never used.
//
// A FlightInfo is asked for as the native connection asks, with progress where
// the call wants it, and the driver is shown one of our own making
// (showEndpoints). Everything else goes through as it is. Errors are kept for
// the call (recordRPCError).
func (d *Driver) interceptUnary(ctx context.Context, method string, args, reply any, cc *grpc.ClientConn, _ grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if c, ok := ctx.Value(openingKey{}).(*Conn); ok {
		// The driver asks whether the server has transactions, and takes no
		// answer for a no. Transactions are not the driver's here.
		c.cc = cc
		d.conns.Store(cc, c)
		return nil
	}
	k := d.callOf(ctx, cc)
	if k == nil {
		return errNotForwarded
	}
	desc, ok := args.(*pb.FlightDescriptor)
	if !ok || path.Base(method) != "GetFlightInfo" {
		err := k.external.Invoke(ctx, method, args, reply, headersOnly(opts)...)
		if schema, is := reply.(*pb.SchemaResult); is && err == nil {
			err = flightconn.CheckSchema(schema.GetSchema())
		}
		return k.recordRPCError(err)
	}
	desc, err := inTx(desc, k.tx)
	if err != nil {
		return k.recordRPCError(err)
	}
	info, err := k.external.Plan(desc, k.backendCall, headersOnly(opts)...)
	if err != nil {
		return k.recordRPCError(err)
	}
	k.op.SetName(info)
	return k.recordRPCError(k.showEndpoints(info, reply.(*pb.FlightInfo)))
}

// interceptStream carries the driver's streaming RPCs out. A DoGet goes to an
// endpoint of the call, and no other stream than DoPut and DoAction is opened
// for the driver.
func (d *Driver) interceptStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, _ grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	k := d.callOf(ctx, cc)
	if k == nil {
		return nil, errNotForwarded
	}
	switch path.Base(method) {
	case "DoGet":
		k.readerCtx.Store(&ctx)
		context.AfterFunc(ctx, k.endGivenUp)
		return &getStream{call: k}, nil
	case "DoPut", "DoAction":
		s, err := k.external.NewStream(desc, method) // the driver's descends from the call's, or is nobody's
		if err != nil {
			return nil, k.recordRPCError(err)
		}
		return &commandStream{ClientStream: s, call: k, opts: opts}, nil
	default:
		return nil, k.recordRPCError(errNotForwarded)
	}
}

// headersOnly keeps of the driver's options those that fill in the details of
// its errors. Its message limits are not the pool's.
func headersOnly(opts []grpc.CallOption) []grpc.CallOption {
	var kept []grpc.CallOption
	for _, o := range opts {
		switch o.(type) {
		case grpc.HeaderCallOption, grpc.TrailerCallOption:
			kept = append(kept, o)
		}
	}
	return kept
}
