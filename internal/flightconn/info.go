package flightconn

import (
	"context"
	"sync/atomic"
	"time"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Info is a FlightInfo as the server encoded it. An endpoint is decoded when it
// is about to be fetched: a message may hold millions, and decoded each takes
// fifty times the bytes that it is sent in. It is never changed, but for renewed, so that a
// cancel may read it beside the call. It also names the statement to the server
// when that is cancelled, for which it must be what the server has sent, byte
// by byte.
type Info struct {
	encoded   []byte
	schema    []byte // part of encoded
	endpoints int
	renewed   atomic.Bool // the server has replaced a ticket: it may know the statement by that alone
}

// FlightEndpoint is one endpoint of an Info. encoded is part of the Info, or of
// a renewal's answer.
type FlightEndpoint struct {
	encoded   []byte
	ticket    []byte    // the Ticket, as it is sent back; nil if there is none
	locations []string  // the first maxKeptLocations
	dropped   int       // locations that were not kept
	expires   time.Time // zero if the server does not say
}

// maxKeptLocations bounds how many locations of one endpoint are kept, of which
// maxTriedLocations are tried.
const maxKeptLocations = 256

// Numbers of fields in Flight's messages.
const (
	fieldInfoSchema         = 1 // of FlightInfo
	fieldInfoDescriptor     = 2
	fieldInfoEndpoint       = 3
	fieldDescriptorType     = 1 // of FlightDescriptor
	fieldEndpointTicket     = 1 // of FlightEndpoint
	fieldEndpointLocation   = 2
	fieldEndpointExpiration = 3
	fieldLocationURI        = 1 // of Location
	fieldTicketBody         = 1 // of Ticket
	fieldAnyType            = 1 // of Any
	fieldAnyValue           = 2
	fieldPollInfo           = 1 // of PollInfo
	fieldCancelInfo         = 1 // of CancelFlightInfoRequest
	fieldRenewEndpoint      = 1 // of RenewFlightEndpointRequest
)

// newInfo looks through a message once. Field by field it must be well formed;
// the endpoints themselves are not looked into. encoded is kept, and must not
// be changed by the caller. The last of several schemas counts, as in any
// protobuf message.
func newInfo(encoded []byte) (*Info, error) {
	in := &Info{encoded: encoded}
	for rest := encoded; len(rest) > 0; {
		num, value, n := consumeBytesField(rest)
		if n < 0 {
			return nil, malformed("FlightInfo: %w", protowire.ParseError(n))
		}
		switch num {
		case fieldInfoSchema:
			in.schema = value
		case fieldInfoEndpoint:
			in.endpoints++
		default:
		}
		rest = rest[n:]
	}
	return in, nil
}

// consumeBytesField reads the field that data begins with. The number is 0 for
// a field of another wire type, n negative for what is no field.
func consumeBytesField(data []byte) (num protowire.Number, value []byte, n int) {
	num, wire, n := protowire.ConsumeTag(data)
	if n < 0 {
		return 0, nil, n
	}
	if wire != protowire.BytesType {
		size := protowire.ConsumeFieldValue(num, wire, data[n:])
		if size < 0 {
			return 0, nil, size
		}
		return 0, nil, n + size
	}
	value, size := protowire.ConsumeBytes(data[n:])
	if size < 0 {
		return 0, nil, size
	}
	return num, value, n + size
}

// Schema is the one that the server promises, as it encodes it; empty if none.
func (in *Info) Schema() []byte { return in.schema }

// Len is the number of endpoints.
func (in *Info) Len() int { return in.endpoints }

// Endpoints decodes all endpoints. ADBC's driver needs them at once; results
// that are read here decode one after another (cursor).
func (in *Info) Endpoints() ([]*FlightEndpoint, error) {
	all := make([]*FlightEndpoint, 0, in.endpoints)
	for c := in.cursor(); ; {
		encoded, ok := c.next()
		if !ok {
			return all, nil
		}
		e, err := decodeEndpoint(encoded)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
}

// first is the first endpoint, an empty one if there is none. An error is that
// of a message that is no endpoint.
func (in *Info) first() (*FlightEndpoint, error) {
	c := in.cursor()
	encoded, _ := c.next()
	return decodeEndpoint(encoded)
}

// endpointCursor goes through the endpoints of an Info in their order.
type endpointCursor struct{ rest []byte }

func (in *Info) cursor() endpointCursor { return endpointCursor{rest: in.encoded} }

// next is the next endpoint as it is encoded.
func (c *endpointCursor) next() (encoded []byte, ok bool) {
	for len(c.rest) > 0 {
		num, value, n := consumeBytesField(c.rest) // newInfo has seen that all of them are well formed
		c.rest = c.rest[n:]
		if num == fieldInfoEndpoint {
			return value, true
		}
	}
	return nil, false
}

// decodeEndpoint reads one endpoint. Application metadata is left out, which
// nothing here uses. What is no endpoint, or has a part that is none, is a
// malformed reply.
func decodeEndpoint(encoded []byte) (*FlightEndpoint, error) {
	e := &FlightEndpoint{encoded: encoded}
	for rest := encoded; len(rest) > 0; {
		num, value, n := consumeBytesField(rest)
		if n < 0 {
			return nil, malformed("endpoint: %w", protowire.ParseError(n))
		}
		var err error
		switch num {
		case fieldEndpointTicket:
			e.ticket = value
			_, err = lastBytes(value, fieldTicketBody)
		case fieldEndpointLocation:
			err = e.addLocation(value)
		case fieldEndpointExpiration:
			e.expires, err = decodeTime(value)
		default:
		}
		if err != nil {
			return nil, malformed("endpoint: %w", err)
		}
		rest = rest[n:]
	}
	return e, nil
}

// addLocation reads a location, of which only its URI is known. Locations above
// the bound are counted, since an error has to say that they were not tried.
func (e *FlightEndpoint) addLocation(encoded []byte) error {
	if len(e.locations) >= maxKeptLocations {
		e.dropped++
		return nil
	}
	uri, err := lastBytes(encoded, fieldLocationURI)
	if err != nil {
		return err
	}
	e.locations = append(e.locations, string(uri))
	return nil
}

// ticketBody is the ticket itself, nil if there is none.
func (e *FlightEndpoint) ticketBody() []byte {
	body, _ := lastBytes(e.ticket, fieldTicketBody) // decodeEndpoint has seen that it is well formed
	return body
}

// lastBytes is a field of bytes of a message, of several the last, nil if it is absent.
// An error is that of a message that is not well formed.
func lastBytes(encoded []byte, field protowire.Number) (value []byte, err error) {
	for len(encoded) > 0 {
		num, found, n := consumeBytesField(encoded)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if num == field {
			value = found
		}
		encoded = encoded[n:]
	}
	return value, nil
}

// decodeTime reads a timestamp. One that is out of the range of its type is
// taken as it is.
func decodeTime(encoded []byte) (time.Time, error) {
	var at timestamppb.Timestamp
	if err := proto.Unmarshal(encoded, &at); err != nil {
		return time.Time{}, err
	}
	return at.AsTime(), nil
}

// expiryOf is when an endpoint expires, zero if the server does not say. It
// looks no further than that field, since it is asked of every endpoint of a
// result.
func expiryOf(encoded []byte) time.Time {
	for len(encoded) > 0 {
		num, value, n := consumeBytesField(encoded)
		if n < 0 {
			break // it is refused when it is fetched
		}
		if num == fieldEndpointExpiration {
			at, _ := decodeTime(value)
			return at
		}
		encoded = encoded[n:]
	}
	return time.Time{}
}

// submessage encodes a message that has another one, already encoded, in a
// field. So a request carries what the server has sent without being decoded
// here.
func submessage(field protowire.Number, encoded []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), encoded)
}

// getFlightInfo asks for the FlightInfo of a descriptor. The server plans the
// statement then; some execute it.
func (r *rpcCall) getFlightInfo(ctx context.Context, desc *pb.FlightDescriptor, opts ...grpc.CallOption) (*Info, error) {
	encoded, err := r.invokeEncoded(ctx, servicePrefix+"GetFlightInfo", desc, opts...)
	if err != nil {
		return nil, err
	}
	return newInfo(encoded)
}

// invokeEncoded makes a unary RPC of Flight, for a statement, whose reply stays encoded.
// It may be no message at all: newInfo looks.
func (r *rpcCall) invokeEncoded(ctx context.Context, method string, req proto.Message, opts ...grpc.CallOption) ([]byte, error) {
	var reply encodedMessage
	if err := r.conn.channel.Invoke(r.statementContext(ctx), method, req, &reply, append(encodedCall, opts...)...); err != nil {
		return nil, err
	}
	return reply, nil
}

// servicePrefix begins the names of Flight's RPCs.
const servicePrefix = "/arrow.flight.protocol.FlightService/"
