package flightconn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

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
// streams, which have the last word: the info may come from a cache. Endpoints
// decide how it is read: none is a result without rows, one is read by the
// goroutine of Next, and several are read at once.
//
// Where it fails, the caller must end the call; otherwise the stream does so. A
// result without a schema from anybody is a malformed reply.
func (r *rpcCall) open(ctx context.Context, info *Info) (*stream, error) {
	promised, err := decodeSchema(info.Schema())
	if err != nil {
		return nil, err
	}
	s := &stream{call: r, schema: promised}
	switch info.Len() {
	case 0:
		s.mu.src = emptySource{}
	case 1:
		endpoint, err := info.first()
		if err != nil {
			return nil, err
		}
		rd, err := r.openReader(ctx, endpoint, nil)
		if err != nil {
			return nil, err
		}
		if got := rd.schema(); got != nil {
			s.schema = got
		}
		s.affected, s.affectedKnown = rd.affected, rd.affectedKnown
		s.mu.src = rd
	default:
		m, got, err := r.merge(ctx, info)
		if err != nil {
			return nil, err
		}
		if got != nil {
			s.schema = got
		}
		s.mu.src = m
	}
	if s.schema == nil {
		s.mu.src.release()
		return nil, malformed("a result of %d endpoints and no schema", info.Len())
	}
	return s, nil
}

// decodeSchema reads an encapsulated IPC schema message: its length, after a
// continuation mark from all but old writers, and its header. It is nil for the
// absence of a schema. The schema is verified as that of a stream is.
func decodeSchema(data []byte) (*arrow.Schema, error) {
	if len(data) == 0 {
		return nil, nil
	}
	header := bytes.TrimPrefix(data, []byte{0xff, 0xff, 0xff, 0xff})
	if len(header) < 4 || uint64(binary.LittleEndian.Uint32(header)) > uint64(len(header)-4) {
		return nil, malformed("schema of %d bytes: cut off", len(data))
	}
	header = header[4 : 4+binary.LittleEndian.Uint32(header)]
	m := &messageReader{recv: headerOnly(header)}
	rd, err := newIPCReader(m, memory.DefaultAllocator)
	if err != nil || rd == nil {
		return nil, err
	}
	defer rd.Release()
	return rd.Schema(), nil
}

// headerOnly receives one message without a body.
func headerOnly(header []byte) func() (*pb.FlightData, error) {
	given := false
	return func() (*pb.FlightData, error) {
		if given {
			return nil, io.EOF
		}
		given = true
		return &pb.FlightData{DataHeader: header}, nil
	}
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
