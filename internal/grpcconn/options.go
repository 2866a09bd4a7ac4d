package grpcconn

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// ReceiveBy has an RPC's messages made by a Receiver. It is an option of this
// package's alone: gRPC's own client passes over it.
type ReceiveBy struct {
	grpc.EmptyCallOption
	Receiver Receiver
}

// options are those of one RPC.
type options struct {
	receiver        Receiver
	header, trailer *metadata.MD
}

// readOptions refuses an option that it does not know: what it asks for would not happen.
func readOptions(opts []grpc.CallOption) (options, error) {
	var o options
	for _, opt := range opts {
		switch opt := opt.(type) {
		case ReceiveBy:
			o.receiver = opt.Receiver
		case grpc.HeaderCallOption:
			o.header = opt.HeaderAddr
		case grpc.TrailerCallOption:
			o.trailer = opt.TrailerAddr
		case grpc.ForceCodecV2CallOption, grpc.StaticMethodCallOption, grpc.MaxRetryRPCBufferSizeCallOption, grpc.EmptyCallOption: // of messages that Config.Marshal knows; of no effect here
		default:
			return o, status.Errorf(codes.Internal, "the call option %T is not known to this connection", opt)
		}
	}
	return o, nil
}

// report tells of an RPC that is over what was asked of it.
func (o *options) report(s *Stream) {
	if o.header != nil {
		*o.header, _ = s.Header()
	}
	if o.trailer != nil {
		*o.trailer = s.Trailer()
	}
}
