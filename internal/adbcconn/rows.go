package adbcconn

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// endpoint is one endpoint of a result, as the driver will ask for it.
//
// The server's own ticket and locations stay here; the driver has a number for
// it.
//
// It is opened once, by whoever comes first: showEndpoints, which needs a
// schema, or the driver's goroutine that reads it. From then on that goroutine
// alone reads it.
type endpoint struct {
	call       *call
	number     int
	native     *flightconn.FlightEndpoint
	infoSchema []byte // the schema of the FlightInfo, for a stream that has none

	turn  *flightconn.Turn // a server that runs one statement at a time could lock up without
	once  sync.Once
	fetch *flightconn.TicketStream
	err   error

	// batches counts the batches of rows that the driver was given.
	batches atomic.Int64

	// ended says that the server has ended the stream with the status OK. over is closed when
	// it has ended, or failed.
	ended    atomic.Bool
	over     chan struct{}
	overOnce sync.Once
}

// maxEndpoints bounds the endpoints of a result: the driver reads all of them
// at once, each in a goroutine of its own. What does not fit is left to the
// native backend, which reads eight at a time.
const maxEndpoints = 4096

// showEndpoints remembers the endpoints of a result and shows the driver others in
// their place: numbered tickets, to be redeemed here, and no locations, whose
// clients the driver would close under running streams five minutes on.
//
// The schema is that of the first stream, as it is in the native backend. For
// one endpoint the driver looks there itself when the FlightInfo has none. For
// more it would crash then (it counts its channels from the second endpoint
// on), so it is told.
func (k *call) showEndpoints(info *flightconn.Info, out *pb.FlightInfo) error {
	if n := info.Len(); n > maxEndpoints {
		return k.external.Unsupported(backend.StageFetch, fmt.Errorf(
			"a result of %d endpoints, above the %d that ADBC's driver may read at once; the native backend reads it", n, maxEndpoints))
	}
	server, err := info.Endpoints()
	if err != nil {
		return err
	}
	proto.Reset(out)
	infoSchema := info.Schema()
	invalid := flightconn.CheckSchema(infoSchema)
	if len(server) == 0 {
		out.Schema = infoSchema
		return invalid
	}
	if invalid != nil { // it may be stale, and is not looked at where a stream has one
		infoSchema = nil
	}
	k.endpoints = make([]*endpoint, len(server))
	shown := make([]*pb.FlightEndpoint, len(server))
	var turns flightconn.Turns
	for i, s := range server {
		e := &endpoint{call: k, number: i, native: s, infoSchema: infoSchema, turn: k.external.TakeTurn(&turns, s), over: make(chan struct{})}
		k.endpoints[i] = e
		shown[i] = &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: strconv.AppendInt(nil, int64(i), 10)}}
	}
	out.Endpoint = shown
	if len(server) == 1 {
		return nil
	}
	for _, e := range k.endpoints {
		first, err := e.open()
		if err != nil {
			return err
		}
		if header := first.Peek().GetDataHeader(); header != nil {
			infoSchema = encapsulate(header)
			break
		}
	}
	if len(infoSchema) == 0 {
		return fmt.Errorf("malformed reply: a result of %d endpoints and no schema", len(server))
	}
	for _, e := range k.endpoints {
		e.infoSchema = infoSchema
	}
	out.Schema = infoSchema
	return nil
}

// open opens the endpoint's stream, once. Whoever comes second waits for the
// first. It ends with the call.
func (e *endpoint) open() (*flightconn.TicketStream, error) {
	e.once.Do(func() {
		defer e.turn.Done()
		if e.fetch, e.err = e.ask(); e.err != nil || e.fetch.Peek() == nil {
			e.markOver()
		}
	})
	return e.fetch, e.err
}

// ask redeems the ticket.
//
// INVARIANT: an endpoint that a server has refused since it serves another call of the session, as ClickHouse does, is asked
// for again once those before it have ended, and those behind it are asked for then.
func (e *endpoint) ask() (*flightconn.TicketStream, error) {
	k := e.call
	if err := k.external.AwaitTurn(e.native, e.turn); err != nil {
		return nil, err
	}
	if k.oneAtATime.Load() {
		if err := e.awaitThoseBefore(); err != nil {
			return nil, err
		}
	}
	fetch, err := k.external.FetchTicket(e.native, e.turn)
	if !flightconn.SessionBusy(err) || k.backendCall.MayChange {
		return fetch, err
	}
	k.oneAtATime.Store(true)
	if err := e.awaitThoseBefore(); err != nil {
		return nil, err
	}
	return k.external.FetchTicket(e.native, e.turn)
}

func (e *endpoint) awaitThoseBefore() error {
	for _, before := range e.call.endpoints[:e.number] {
		select {
		case <-before.over:
		case <-e.call.external.Context().Done():
			return e.call.external.Context().Err()
		}
	}
	return nil
}

func (e *endpoint) markOver() { e.overOnce.Do(func() { close(e.over) }) }

// encapsulate makes of a message's header the form in which a FlightInfo
// carries a schema.
func encapsulate(header []byte) []byte {
	padded := (len(header) + 7) &^ 7
	out := make([]byte, 8, 8+padded)
	binary.LittleEndian.PutUint32(out, 0xFFFFFFFF)
	binary.LittleEndian.PutUint32(out[4:], uint32(padded))
	return append(out, header...)[:8+padded]
}

// decapsulate is its inverse; it also reads the older form, without a marker.
// It is nil for what is neither.
func decapsulate(schema []byte) []byte {
	if len(schema) >= 8 && binary.LittleEndian.Uint32(schema) == 0xFFFFFFFF {
		schema = schema[4:]
	}
	if len(schema) < 4 {
		return nil
	}
	size := int64(binary.LittleEndian.Uint32(schema))
	if schema = schema[4:]; size > int64(len(schema)) {
		return nil
	}
	return schema[:size]
}

// getStream is the DoGet stream that the driver reads. It makes no RPC itself:
// the ticket that is sent chooses an endpoint, whose messages are then handed
// on.
type getStream struct {
	call     *call
	endpoint *endpoint
	anyGiven bool
}

var _ grpc.ClientStream = (*getStream)(nil)

// SendMsg takes the driver's ticket.
func (r *getStream) SendMsg(m any) error {
	ticket, _ := m.(*pb.Ticket)
	i, err := strconv.Atoi(string(ticket.GetTicket()))
	if err != nil || i < 0 || i >= len(r.call.endpoints) {
		return status.Errorf(codes.Internal, "the driver redeems a ticket that it was not given: %q", ticket.GetTicket())
	}
	r.endpoint = r.call.endpoints[i]
	return nil
}

// RecvMsg gives the driver the next message. A stream without any message gives
// the schema that the FlightInfo has promised, since the driver takes its
// absence for an error, and then ends. The messages have been verified
// (TicketStream).
func (r *getStream) RecvMsg(m any) error {
	if r.endpoint == nil {
		return status.Error(codes.Internal, "the driver reads before it has sent a ticket")
	}
	fetch, err := r.endpoint.open()
	if err != nil {
		return r.call.recordRPCError(err)
	}
	data, err := fetch.Recv()
	if eof.Reached(err) {
		r.endpoint.ended.Store(true)
	}
	if err != nil {
		r.endpoint.markOver()
	}
	if eof.Reached(err) && !r.anyGiven {
		if header := decapsulate(r.endpoint.infoSchema); header != nil {
			data, err = &pb.FlightData{DataHeader: header}, nil // a result without rows
		}
	}
	r.anyGiven = true
	if err != nil {
		return r.call.recordRPCError(err)
	}
	if fetch.GaveRows() {
		r.endpoint.batches.Add(1)
	}
	out := m.(*pb.FlightData)
	out.FlightDescriptor, out.DataHeader, out.DataBody, out.AppMetadata = data.FlightDescriptor, data.DataHeader, data.DataBody, data.AppMetadata
	return nil
}

// Header, Trailer, CloseSend and Context are what the driver's client needs
// beside. A call that ends has ended the stream.
func (r *getStream) Header() (metadata.MD, error) { return nil, nil }

// Trailer is part of grpc.ClientStream.
func (r *getStream) Trailer() metadata.MD { return nil }

// CloseSend is part of grpc.ClientStream.
func (r *getStream) CloseSend() error { return nil }

// Context is part of grpc.ClientStream.
func (r *getStream) Context() context.Context { return r.call.external.Context() }
