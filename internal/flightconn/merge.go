package flightconn

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/internal/eof"
)

// parallelEndpoints bounds how many endpoints of one result are read at once.
const parallelEndpoints = 8

// ErrSchemaMismatch says that the endpoints of one result disagree about its
// schema, as they do while the table is being altered. Nothing of the result
// can be trusted; a read may be repeated.
var ErrSchemaMismatch = errors.New("endpoints of one result have different schemas")

// merged reads several endpoints at once and gives their batches in order.
//
// INVARIANT: of the endpoints on the connection's own transport, one is opened
// only after the one before it has sent its schema. A server that runs one
// statement at a time per session, and holds it until its stream ends, would
// otherwise block the endpoint that is read by one that is not.
type merged struct {
	ctx    context.Context //nolint:containedctx // the streams' own, which release ends
	cancel context.CancelFunc
	parts  []*part
	start  func(i int)
	shelf  *shelf
	head   int // the part that is read
	begun  int // parts that were started
	schema *arrow.Schema
	batch  arrow.RecordBatch // delivered last, owned
}

// part is one endpoint of a merged result.
type part struct {
	opened  chan struct{}          // closed when schema or err is known
	batches chan arrow.RecordBatch // closed at the end; err tells why
	schema  *arrow.Schema
	err     error
}

// merge starts reading endpoints and waits for the first schema.
func (r *run) merge(ctx context.Context, endpoints []*pb.FlightEndpoint) (*merged, *arrow.Schema, error) {
	m := &merged{parts: make([]*part, len(endpoints))}
	ctx, m.cancel = context.WithCancel(ctx)
	m.ctx = ctx
	turns := make([]<-chan struct{}, len(endpoints)) // what each part waits for
	var turn <-chan struct{}
	for i, endpoint := range endpoints {
		m.parts[i] = &part{opened: make(chan struct{}), batches: make(chan arrow.RecordBatch, r.conn.cfg().Prefetch)}
		if r.conn.servedHere(endpoint) {
			turns[i], turn = turn, m.parts[i].opened
		}
	}
	m.shelf = r.newShelf(ctx, endpoints)
	m.start = func(i int) {
		take := func() (*pb.FlightEndpoint, error) { return m.shelf.take(m.ctx, i) }
		go m.parts[i].read(m.ctx, r, take, turns[i])
	}
	for range min(parallelEndpoints, len(endpoints)) {
		m.startNext()
	}
	for _, p := range m.parts {
		if err := m.opened(p); err != nil {
			m.release()
			return nil, nil, err
		}
		if p.schema != nil {
			break
		}
		m.advance() // it ended without a schema, so it has no rows either
	}
	return m, m.schema, nil
}

func (m *merged) startNext() {
	if m.begun < len(m.parts) {
		m.start(m.begun)
		m.begun++
	}
}

func (m *merged) advance() {
	m.head++
	m.startNext()
}

// opened waits for a part's schema and compares it.
func (m *merged) opened(p *part) error {
	select {
	case <-p.opened:
	case <-m.ctx.Done():
		return m.ctx.Err()
	}
	switch {
	case p.schema == nil:
		return p.err
	case m.schema == nil:
		m.schema = p.schema
	case !sameFields(m.schema, p.schema):
		return &schemaError{first: m.schema, other: p.schema}
	}
	return nil
}

func (m *merged) next() (arrow.RecordBatch, error) {
	m.drop()
	for m.head < len(m.parts) {
		p := m.parts[m.head]
		if err := m.opened(p); err != nil {
			return nil, err
		}
		select {
		case batch, ok := <-p.batches:
			if ok {
				m.batch = batch
				return batch, nil
			}
			if p.err != nil {
				return nil, p.err
			}
			m.advance()
		case <-m.ctx.Done():
			return nil, m.ctx.Err()
		}
	}
	return nil, io.EOF
}

func (m *merged) drop() {
	if m.batch != nil {
		m.batch.Release()
		m.batch = nil
	}
}

// release ends the streams. It does not wait: each part drains what it put
// after its context had ended, release what was there before.
func (m *merged) release() {
	m.cancel()
	m.drop()
	for _, p := range m.parts[:m.begun] {
		p.drain()
	}
	m.head = len(m.parts)
}

// read fetches the endpoint into p.batches.
func (p *part) read(ctx context.Context, r *run, take func() (*pb.FlightEndpoint, error), turn <-chan struct{}) {
	defer func() {
		close(p.batches)
		if ctx.Err() != nil {
			p.drain()
		}
	}()
	rd, err := p.open(ctx, r, take, turn)
	close(p.opened)
	if err != nil {
		return
	}
	defer rd.release()
	for {
		batch, err := rd.next()
		if eof.Reached(err) {
			return
		}
		if err != nil {
			p.err = err
			return
		}
		batch.Retain()
		select {
		case p.batches <- batch:
		case <-ctx.Done():
			batch.Release()
			p.err = ctx.Err()
			return
		}
	}
}

func (p *part) open(ctx context.Context, r *run, take func() (*pb.FlightEndpoint, error), turn <-chan struct{}) (*reader, error) {
	if turn != nil {
		select {
		case <-turn:
		case <-ctx.Done():
			p.err = ctx.Err()
			return nil, p.err
		}
	}
	endpoint, err := take()
	var rd *reader
	if err == nil {
		rd, err = r.openReader(ctx, endpoint)
	}
	if err != nil {
		p.err = err
		return nil, err
	}
	p.schema = rd.schema()
	return rd, nil
}

func (p *part) drain() {
	for {
		select {
		case batch, ok := <-p.batches:
			if !ok {
				return
			}
			batch.Release()
		default:
			return
		}
	}
}

// sameFields compares schemas but for their metadata, which servers fill with
// what only concerns one stream.
func sameFields(a, b *arrow.Schema) bool {
	if a.NumFields() != b.NumFields() {
		return false
	}
	for i, f := range a.Fields() {
		g := b.Field(i)
		if f.Name != g.Name || !arrow.TypeEqual(f.Type, g.Type) {
			return false
		}
	}
	return true
}

type schemaError struct{ first, other *arrow.Schema }

func (e *schemaError) Error() string {
	return fmt.Sprintf("%v: %v and %v", ErrSchemaMismatch, e.first, e.other)
}

func (e *schemaError) Unwrap() error { return ErrSchemaMismatch }
