package flightconn

import (
	"context"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/flightpool/flightpool/internal/eof"
)

// doAction runs one action to its end and returns the body of its first result,
// nil without one. Only the end of the stream is success: a server may answer
// and fail afterwards. The stream is read on to that end although only the
// first result is used: the trailers, with cookies and tokens, come behind the
// results, and a stream that is left half read keeps its goroutine until ctx
// ends.
//
// client says over which channel the action goes: the connection's own, or a
// control channel for requests to cancel.
func doAction(ctx context.Context, client pb.FlightServiceClient, name string, body []byte) ([]byte, error) {
	stream, err := client.DoAction(ctx, &pb.Action{Type: name, Body: body})
	if err != nil {
		return nil, err
	}
	var first []byte
	for n := 0; ; n++ {
		result, err := stream.Recv()
		if eof.Reached(err) {
			return first, nil
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			first = result.GetBody()
		}
	}
}

// rawAction runs an action of Flight, whose messages are sent as they are.
// Those are the actions of sessions, cancelling and renewing: CloseSession,
// SetSessionOptions, GetSessionOptions, CancelFlightInfo and
// RenewFlightEndpoint. The name alone says what the body is.
//
// reply must not be nil. A server that answers without a body has sent an empty
// message, whose fields are zero; a body that does not decode is a malformed
// reply.
func (c *Conn) rawAction(ctx context.Context, client pb.FlightServiceClient, name string, req, reply proto.Message) error {
	body, err := encode(nil, req)
	if err != nil {
		return err
	}
	return c.encodedAction(ctx, client, name, body, reply)
}

// encodedAction is rawAction with a request that is encoded already. A
// FlightInfo stays as the server has encoded it, and goes into a request in
// that form.
func (c *Conn) encodedAction(ctx context.Context, client pb.FlightServiceClient, name string, body []byte, reply proto.Message) error {
	out, err := doAction(ctx, client, name, body)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(out, reply); err != nil {
		return malformed("%s: %w", name, err)
	}
	return nil
}

// sqlAction runs an action of Flight SQL, whose messages are packed in an Any.
// A nil reply says that the action has none. Those are transactions,
// savepoints, prepared statements and CancelQuery.
//
// The Any of a reply names the type of its message, so that an answer without a
// body, or of another type, is a malformed reply where one is expected.
func (c *Conn) sqlAction(ctx context.Context, client pb.FlightServiceClient, name string, req, reply proto.Message) error {
	body, err := packAny(req)
	if err != nil {
		return err
	}
	out, err := doAction(ctx, client, name, body)
	if err != nil || reply == nil {
		return err
	}
	var packed anypb.Any
	if err := proto.Unmarshal(out, &packed); err != nil {
		return malformed("%s: %w", name, err)
	}
	if err := packed.UnmarshalTo(reply); err != nil {
		return malformed("%s: %w", name, err)
	}
	return nil
}

// encode appends m to b. What fails is a text that is not UTF-8, the caller's then.
func encode(b []byte, m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{}.MarshalAppend(b, m)
	if err != nil {
		return nil, &unencodableError{err}
	}
	return b, nil
}
