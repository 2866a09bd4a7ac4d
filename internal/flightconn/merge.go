package flightconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
)

// parallelEndpoints bounds how many endpoints of one result are read at once.
const parallelEndpoints = 8

// maxReadAhead bounds what is read of a result's endpoints before it is asked for,
// beside the batch that is next.
const maxReadAhead = 64 << 20

// ErrSchemaMismatch says that the endpoints of one result disagree about its
// schema, as they do while the table is being altered. Nothing of the result
// can be trusted; a read may be repeated.
var ErrSchemaMismatch = errors.New("endpoints of one result have different schemas")

// mergedSource reads several endpoints at once and gives their batches in order.
type mergedSource struct {
	ctx    context.Context //nolint:containedctx // the streams' own, which release ends
	cancel context.CancelFunc
	call   *rpcCall
	schema *arrow.Schema
	batch  arrow.RecordBatch // delivered last, owned

	// What is held of the endpoints is bounded, however many there are: those
	// that were not begun stay encoded.
	unstarted endpointCursor // the endpoints that were not begun
	started   int            // how many were
	reading   []*part        // the parts that are read, in order; at most parallelEndpoints
	turns     Turns
	renewal   *renewal
	budget    *readAheadBudget

	oneAtATime atomic.Bool // the server has refused one beside another
}

// merge starts reading endpoints and waits for the first schema.
func (r *rpcCall) merge(ctx context.Context, info *Info) (*mergedSource, *arrow.Schema, error) {
	m := &mergedSource{call: r, unstarted: info.cursor(), budget: newReadAheadBudget(maxReadAhead)}
	m.ctx, m.cancel = context.WithCancel(ctx)
	m.renewal = r.renew(m.ctx, info)
	for range parallelEndpoints {
		m.startNext()
	}
	for len(m.reading) > 0 {
		p := m.reading[0]
		if err := m.awaitSchema(p); err != nil {
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

// startNext begins the next endpoint, if there is one.
func (m *mergedSource) startNext() {
	encoded, ok := m.unstarted.next()
	if !ok {
		return
	}
	i := m.started
	m.started++
	p := &part{front: make(chan struct{}), opened: make(chan struct{}), batches: make(chan queuedBatch, m.call.conn.cfg().Prefetch)}
	m.reading = append(m.reading, p)
	if len(m.reading) == 1 {
		m.setFront(p)
	}
	endpoint, err := decodeEndpoint(encoded)
	if err != nil {
		p.err = err
		p.markOpened()
		close(p.batches)
		return
	}
	p.first, p.turn = m.call.conn.firstPlace(endpoint), m.turns.take(m.call.conn, endpoint)
	takeEndpoint := func() (*FlightEndpoint, error) { return m.renewal.takeEndpoint(m.ctx, i, endpoint) }
	go p.read(m.ctx, m, takeEndpoint)
}

// advance leaves the part that has ended for the one after it.
func (m *mergedSource) advance() {
	m.reading = slices.Delete(m.reading, 0, 1)
	if len(m.reading) > 0 {
		m.setFront(m.reading[0])
	}
	m.startNext()
}

// setFront says that nothing is read any more of the parts before p.
func (m *mergedSource) setFront(p *part) {
	m.budget.setCurrent(&p.usage)
	close(p.front)
}

// awaitSchema waits for a part's schema and compares it.
func (m *mergedSource) awaitSchema(p *part) error {
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

func (m *mergedSource) next() (arrow.RecordBatch, error) {
	m.releaseBatch()
	for len(m.reading) > 0 {
		p := m.reading[0]
		if err := m.awaitSchema(p); err != nil {
			return nil, err
		}
		select {
		case batch, ok := <-p.batches:
			if ok {
				m.budget.batchDelivered(&p.usage, batch.bytes)
				m.batch = batch.RecordBatch
				return m.underSchema(p)
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

// underSchema is m.batch, of p, with the schema of the result, as its reader takes every
// batch to have it: writers refuse another. Endpoints may differ in the metadata of a
// field, and in whether it is nullable. One that has NULLs where the result was said to
// have none breaks that promise.
func (m *mergedSource) underSchema(p *part) (arrow.RecordBatch, error) {
	if p.schema == m.schema {
		return m.batch, nil
	}
	for i, column := range m.batch.Columns() {
		if !m.schema.Field(i).Nullable && p.schema.Field(i).Nullable && column.NullN() > 0 {
			return nil, &schemaError{first: m.schema, other: p.schema}
		}
	}
	own := m.batch
	m.batch = withColumns(own, m.schema, own.Columns())
	own.Release()
	return m.batch, nil
}

func (m *mergedSource) releaseBatch() {
	if m.batch != nil {
		m.batch.Release()
		m.batch = nil
	}
}

// release ends the streams. It does not wait: each part drains what it put
// after its context had ended, release what was there before.
func (m *mergedSource) release() {
	m.cancel()
	m.releaseBatch()
	for _, p := range m.reading {
		p.drain()
	}
	m.reading = nil
}

// sameFields compares schemas but for their metadata, which servers fill with
// what only concerns one stream, and for what is nullable: see underSchema.
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
