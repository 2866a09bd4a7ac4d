package flightconn

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/eof"
)

// channel carries RPCs of one identity over a client connection. sessions says
// that the session's cookies come from there.
type channel struct {
	cc       grpc.ClientConnInterface
	id       *identity
	sessions bool
}

// credentialError says that the source of credentials failed: no RPC was made.
type credentialError struct{ err error }

func (e *credentialError) Error() string { return "no credential: " + e.err.Error() }
func (e *credentialError) Unwrap() error { return e.err }

// Invoke is part of grpc.ClientConnInterface.
func (ch *channel) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, presented, err := ch.present(ctx)
	if err != nil {
		return err
	}
	var header, trailer metadata.MD
	err = ch.cc.Invoke(ctx, method, args, reply, append(opts, grpc.Header(&header), grpc.Trailer(&trailer))...)
	ch.heard(ctx, presented, err, header, trailer)
	return err
}

// NewStream is part of grpc.ClientConnInterface.
func (ch *channel) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, presented, err := ch.present(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := ch.cc.NewStream(ctx, desc, method, opts...)
	if err != nil {
		ch.heard(ctx, presented, err)
		return nil, err
	}
	return &channelStream{ClientStream: stream, channel: ch, presented: presented}, nil
}

func (ch *channel) present(ctx context.Context) (context.Context, string, error) {
	ctx, presented, err := ch.id.present(ctx)
	if err != nil {
		return nil, "", &credentialError{err}
	}
	return ctx, presented, nil
}

// heard takes from a reply what the identity needs to know.
func (ch *channel) heard(ctx context.Context, presented string, err error, mds ...metadata.MD) {
	if status.Code(err) == codes.Unauthenticated {
		ch.id.refuse(presented)
	}
	if !ch.sessions {
		return
	}
	for _, md := range mds {
		ch.id.learn(ctx, md)
	}
}

// channelStream hears the headers with the first message and the trailers at
// the end.
type channelStream struct {
	grpc.ClientStream
	channel   *channel
	presented string
	begun     bool
}

func (s *channelStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if !s.begun {
		s.begun = true
		if header, herr := s.Header(); herr == nil {
			s.channel.heard(s.Context(), s.presented, nil, header)
		}
	}
	if err != nil {
		failure := err
		if eof.Reached(err) {
			failure = nil
		}
		s.channel.heard(s.Context(), s.presented, failure, s.Trailer())
	}
	return err
}
