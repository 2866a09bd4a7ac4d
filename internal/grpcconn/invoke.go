package grpcconn

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/eof"
)

// Invoke is part of grpc.ClientConnInterface.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	o, err := readOptions(opts)
	if err != nil {
		return err
	}
	data, rest, err := c.cfg.Marshal(nil, args)
	if err != nil {
		return internalStatus("a message that cannot be encoded: " + err.Error())
	}
	s, err := c.newStream(ctx, method, o.receiver)
	if err != nil {
		return err
	}
	_ = s.send(data, rest, true) // an RPC that is over is received below
	err = s.receiveOne(reply)
	o.report(s)
	return err
}

// receiveOne receives the one message of an RPC, and its end.
func (s *Stream) receiveOne(reply any) error {
	message, err := s.next()
	if eof.Reached(err) {
		return status.Error(codes.Internal, "the server has answered with no message")
	}
	if err != nil {
		return err
	}
	_, err = s.next()
	switch {
	case eof.Reached(err):
		return s.deliver(message, reply)
	case err == nil:
		err = status.Error(codes.Internal, "the server has answered with more than one message")
		s.abort(err)
	}
	return err
}
