package adbcconn

import (
	"io"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// source gives the batches of a result to one goroutine at a time.
//
// Both kinds of connection have one; stream sees to the order in which the
// methods are called, and that none but interrupt and closedErr runs beside
// another.
type source interface {
	schema() *arrow.Schema

	// affected is what the server counts of a change that has no rows; false where it does not tell.
	affected() (n int64, told bool)

	// next returns a batch, valid until the following next or release, or
	// io.EOF. Errors are *backend.Error.
	next() (arrow.RecordBatch, error)

	// interrupt makes a next under way return. It may be called at any time.
	interrupt()

	// release lets go of the driver's reader and ends the call.
	release()

	// closedErr is the error of a next after the end.
	closedErr() error
}

// stream is backend.Stream over a source. It ends once, by an error, by the end
// of the rows or by Close, and every later Next fails in the same way.
type stream struct {
	src source

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		// INVARIANT: src is released once, by the goroutine that set busy,
		// or, while busy is not set, by the one that ends the stream.
		busy  bool
		ended bool
		err   error // what every later Next returns
	}
}

func newStream(src source) *stream { return &stream{src: src} }

// Schema is part of backend.Stream.
func (s *stream) Schema() *arrow.Schema { return s.src.schema() }

// RowsAffected is part of backend.Stream.
func (s *stream) RowsAffected() (int64, bool) { return s.src.affected() }

// Next is part of backend.Stream. A Close beside it makes it return with
// ErrHandleClosed, and leaves the release to it.
func (s *stream) Next() (arrow.RecordBatch, error) {
	s.mu.Lock()
	if err := s.mu.err; err != nil {
		s.mu.Unlock()
		return nil, err
	}
	s.mu.busy = true
	s.mu.Unlock()

	batch, err := s.src.next()

	s.mu.Lock()
	s.mu.busy = false
	if s.mu.ended {
		err = s.mu.err // closed meanwhile
	} else if err != nil {
		s.mu.ended, s.mu.err = true, err
	}
	s.mu.Unlock()
	if err != nil {
		s.src.release()
		return nil, err
	}
	return batch, nil
}

// Close is part of backend.Stream. It does not wait for a Next under way.
func (s *stream) Close() {
	closed := s.src.closedErr()
	s.mu.Lock()
	first, busy := !s.mu.ended, s.mu.busy
	if first {
		s.mu.ended, s.mu.err = true, closed
	}
	s.mu.Unlock()
	if !first {
		return
	}
	s.src.interrupt()
	if !busy {
		s.src.release()
	}
}

// connSource is the source of a Conn's result.
type connSource struct {
	call      *call
	rows      array.RecordReader
	validator flightconn.Validator
	given     position
	done      func() // called when the driver is through with the statement
}

func (r *connSource) schema() *arrow.Schema { return r.rows.Schema() }

// affected asks the one stream of the result, which the driver has opened for its schema.
func (r *connSource) affected() (n int64, told bool) {
	if len(r.call.endpoints) != 1 {
		return 0, false
	}
	if fetch, err := r.call.endpoints[0].open(); err == nil {
		return fetch.AffectedRows()
	}
	return 0, false
}

// next checks each batch, since reading a value of one that is not valid could
// panic, and that none is missing before it (advance). The driver's word for the end is not
// taken without checkComplete.
func (r *connSource) next() (arrow.RecordBatch, error) {
	if r.rows.Next() {
		batch := r.rows.RecordBatch()
		if err := r.call.advance(&r.given); err != nil {
			return nil, r.call.wrapError(backend.StageFetch, err)
		}
		if err := r.validator.Check(batch); err != nil {
			return nil, r.call.wrapError(backend.StageFetch, err)
		}
		return batch, nil
	}
	if err := r.rows.Err(); err != nil {
		return nil, r.call.wrapError(backend.StageFetch, err)
	}
	if err := r.call.checkComplete(); err != nil {
		return nil, r.call.wrapError(backend.StageFetch, err)
	}
	return nil, io.EOF
}

// interrupt ends the RPCs, and with them a next under way.
func (r *connSource) interrupt() { r.call.external.End() }

// release waits for the driver's goroutines. With their RPCs ended they end
// at once.
func (r *connSource) release() {
	r.call.external.End()
	r.rows.Release()
	r.done()
	r.call.end()
}

func (r *connSource) closedErr() error { return r.call.external.Usage(backend.ErrHandleClosed) }
