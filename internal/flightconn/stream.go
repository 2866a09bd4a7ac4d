package flightconn

import (
	"cmp"
	"context"
	"io"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

// source gives the batches of a result to one goroutine. A batch is valid until
// the following next or release. release is called exactly once, and need not
// end the RPCs: the end of the call does. A reader is one, and so is a
// mergedSource.
type source interface {
	next() (arrow.RecordBatch, error)
	release()
}

// stream is backend.Stream over a source.
//
// Its call ends, and its source is released, by whoever ends it first: Next
// with an error or the regular end, or Close. A Close beside a Next leaves the
// source to that Next, which is in it.
type stream struct {
	call          *rpcCall
	schema        *arrow.Schema
	affected      int64
	affectedKnown bool

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		// INVARIANT: src is touched by the goroutine that set busy, or, while
		// busy is not set, by the one that takes it away for good.
		src    source
		busy   bool
		closed bool
		err    error // what every later Next returns
	}
}

// open opens the result that info describes. The schema is the one of the
// streams, which have the last word: the info may come from a cache, and what it says
// is looked at only where no stream has a schema. Endpoints decide how it is read: none is a result without rows, one is read by the
// goroutine of Next, and several are read at once.
//
// Where it fails, the caller must end the call; otherwise the stream does so. A
// result without a schema from anybody is a malformed reply.
func (r *rpcCall) open(ctx context.Context, info *Info) (*stream, error) {
	s := &stream{call: r}
	switch info.Len() {
	case 0:
		s.mu.src = emptySource{}
	case 1:
		endpoint, err := info.first()
		if err != nil {
			return nil, err
		}
		rd, err := r.openReader(ctx, endpoint, nil, nil)
		if err != nil {
			return nil, err
		}
		s.schema = rd.schema()
		s.affected, s.affectedKnown = rd.affected, rd.affectedKnown
		s.mu.src = rd
	default:
		m, got, err := r.merge(ctx, info)
		if err != nil {
			return nil, err
		}
		s.schema, s.mu.src = got, m
	}
	if s.schema == nil {
		promised, err := decodeSchema(info.Schema())
		if err == nil && promised == nil {
			err = malformed("a result of %d endpoints and no schema", info.Len())
		}
		if err != nil {
			s.mu.src.release()
			return nil, err
		}
		s.schema = promised
	}
	return s, nil
}

// Schema is part of backend.Stream.
func (s *stream) Schema() *arrow.Schema { return s.schema }

// RowsAffected is part of backend.Stream.
func (s *stream) RowsAffected() (int64, bool) { return s.affected, s.affectedKnown }

// Next is part of backend.Stream. A panic or Goexit of Config.Allocator ends the
// stream, and goes on in the caller.
//
// It holds no lock while it reads, so that Close is never kept waiting.
//
// After an error or io.EOF every later Next returns the same. A source's error
// is wrapped with what the call knows of it.
func (s *stream) Next() (arrow.RecordBatch, error) {
	s.mu.Lock()
	src, err := s.mu.src, s.mu.err
	s.mu.busy = err == nil
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	returned := false
	defer func() {
		if !returned {
			s.endAfterPanic()
		}
	}()
	batch, err := src.next()
	returned = true
	if eof.Reached(err) { // servers may end a stream because time is up
		err = cmp.Or(s.call.callerContextErr(), err)
	}
	if err != nil && !eof.Reached(err) {
		err = s.call.wrapError(backend.StageFetch, err)
	}

	s.mu.Lock()
	s.mu.busy = false
	if s.mu.closed {
		batch, err = nil, s.mu.err
	} else if err != nil {
		s.mu.err = err
	}
	s.mu.Unlock()
	if err != nil {
		src.release()
		s.call.end()
	}
	return batch, err
}

// endAfterPanic closes the stream after a Next that has not returned.
func (s *stream) endAfterPanic() {
	s.mu.Lock()
	s.mu.busy = false
	src, closed := s.mu.src, s.mu.closed
	s.mu.Unlock()
	s.Close()
	if closed { // while Next was in the source
		src.release()
	}
}

// Close is part of backend.Stream. It ends the RPCs and does not wait for them.
// After the regular end it changes nothing: Next goes on to return io.EOF.
func (s *stream) Close() {
	s.mu.Lock()
	src := s.mu.src
	idle := !s.mu.busy && !s.mu.closed && s.mu.err == nil
	s.mu.closed = true
	if s.mu.err == nil {
		s.mu.err = s.call.newError(backend.StageFetch, backend.FaultUsage, backend.ErrHandleClosed)
	}
	s.mu.Unlock()
	s.call.end() // wakes a Next under way, which then releases the source
	if idle {
		src.release()
	}
}

// emptySource is the source of a result without endpoints. It needs nothing of
// the server: the schema is that of the FlightInfo.
type emptySource struct{}

func (emptySource) next() (arrow.RecordBatch, error) { return nil, io.EOF }
func (emptySource) release()                         {}

// maxTriedLocations bounds how many locations of one endpoint are tried. Each
// may take Config.DialTimeout.
const maxTriedLocations = 16

// rowSource is where the rows of an endpoint are to be had. end must be called
// exactly when no more of the stream is read: the client of a location counts
// as used until then.
type rowSource struct {
	channel  *channel
	location string             // as errors show it; empty: the connection's own transport
	end      context.CancelFunc // to be called when the stream has ended
}

// fetch opens the stream of one endpoint: here, or at the first of its
// locations that has it. open is given the context of one RPC (statementContext), which
// ends with rowSource.end.
//
// The next location is tried only while nothing was delivered, which open
// decides by what it returns: a *reader has the schema, a *TicketStream the
// first message. A server that says that the statement itself fails ends the
// search, and so does the caller's context. What was shown no credential has not said
// that by refusing us. The connection's own server is asked once,
// whatever it is called: it may run the statement then. Of an endpoint with one location,
// which is this connection, the error stays as it was.
//
// INVARIANT: a ticket that may have run a change, or a statement with parameters, is redeemed at no other location. One that
// the server has refused with the credential or the RPC itself has run nothing, but for one of
// several changes, of which that may be the answer to the second.
//
// endpoint comes from the server and is judged as such: without a ticket it is
// a malformed reply.
//
// turn is for an endpoint among several: see Turns.
func fetch[T any](ctx context.Context, r *rpcCall, endpoint *FlightEndpoint, turn *Turn, open func(context.Context, rowSource) (T, error)) (T, error) {
	var none T
	if endpoint.ticket == nil {
		return none, malformed("an endpoint without a ticket")
	}
	uris := r.conn.endpoint.orderLocations(endpoint.locations)
	if len(uris) == 0 {
		uris = []string{""}
	}
	var failures failedLocations
	tried := min(len(uris), maxTriedLocations)
	for i, uri := range uris[:tried] {
		own := r.conn.isOwnLocation(uri)
		if own && failures.ownErr != nil {
			continue
		}
		got, asked, err := fetchAt(ctx, r, uri, turn, open)
		if err == nil {
			return got, nil
		}
		if ctx.Err() != nil || len(uris)+endpoint.dropped == 1 && own || statementFailed(err) {
			return none, withExpiry(endpoint, err)
		}
		failures.add(uri, err, own)
		if r.runsOnce() && asked && (r.changesSeveral || !turnedAway(err)) {
			tried = i + 1
			break
		}
	}
	failures.untried = len(uris) - tried + endpoint.dropped
	return none, withExpiry(endpoint, failures.err())
}

// fetchAt opens the stream at one location. asked says that the request may have reached
// it. A location that may not be asked, or cannot be reached, has sent nothing. Where open
// succeeds, its caller must call rowSource.end; where it fails, that has been done.
func fetchAt[T any](ctx context.Context, r *rpcCall, uri string, turn *Turn, open func(context.Context, rowSource) (T, error)) (got T, asked bool, err error) {
	place := r.conn.placeOf(uri)
	if err := turn.await(ctx, place); err != nil {
		return got, false, err
	}
	if place == "" {
		rpc := r.statementContext(ctx)
		got, err = open(rpc, rowSource{channel: r.conn.channel, end: func() {}})
		return got, rpc.sendCounted.Load(), err
	}
	at, err := r.conn.cfg().resolveLocation(uri)
	if err != nil {
		return got, false, err
	}
	l, err := r.conn.endpoint.locations.acquire(ctx, at)
	if err != nil {
		return got, false, err
	}
	// The location counts as used until the stream has ended, or its result.
	ctx, end := context.WithCancel(ctx)
	context.AfterFunc(ctx, l.release)
	ch := &channel{cc: l.cc, id: noIdentity}
	if at.getsCredentials {
		ch.id = r.conn.id
	}
	rpc := r.statementContext(ctx)
	got, err = open(rpc, rowSource{channel: ch, location: redactLocation(uri), end: end})
	if err != nil {
		end()
		if code := status.Code(err); !at.getsCredentials && (code == codes.Unauthenticated || code == codes.PermissionDenied) {
			err = &unshownError{err}
		}
	}
	return got, rpc.sendCounted.Load(), err
}
