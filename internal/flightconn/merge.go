package flightconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/internal/eof"
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
//
// INVARIANT: of the endpoints on the connection's own transport, one is opened
// only after the one before it has sent its schema. A server that runs one
// statement at a time per session, and holds it until its stream ends, would
// otherwise block the endpoint that is read by one that is not.
type mergedSource struct {
	ctx    context.Context //nolint:containedctx // the streams' own, which release ends
	cancel context.CancelFunc
	call   *rpcCall
	schema *arrow.Schema
	batch  arrow.RecordBatch // delivered last, owned

	// What is held of the endpoints is bounded, however many there are: those
	// that were not begun stay encoded.
	unstarted  endpointCursor  // the endpoints that were not begun
	started    int             // how many were
	reading    []*part         // the parts that are read, in order; at most parallelEndpoints
	prevOpened <-chan struct{} // what the next part on the connection's own transport waits for
	renewal    *renewal
	budget     *readAheadBudget
}

// part is one endpoint of a merged result.
type part struct {
	opened  chan struct{}    // closed when schema or err is known
	batches chan queuedBatch // closed at the end; err tells why
	usage   partUsage
	schema  *arrow.Schema
	err     error
}

type queuedBatch struct {
	arrow.RecordBatch
	bytes int64 // of the budget
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
	p := &part{opened: make(chan struct{}), batches: make(chan queuedBatch, m.call.conn.cfg().Prefetch)}
	m.reading = append(m.reading, p)
	if len(m.reading) == 1 {
		m.budget.setCurrent(&p.usage)
	}
	endpoint, err := decodeEndpoint(encoded)
	if err != nil {
		p.err = err
		close(p.opened)
		close(p.batches)
		return
	}
	var prevOpened <-chan struct{}
	if m.call.conn.onOwnTransport(endpoint) {
		prevOpened, m.prevOpened = m.prevOpened, p.opened
	}
	takeEndpoint := func() (*FlightEndpoint, error) { return m.renewal.takeEndpoint(m.ctx, i, endpoint) }
	go p.read(m.ctx, m, takeEndpoint, prevOpened)
}

// advance leaves the part that has ended for the one after it.
func (m *mergedSource) advance() {
	m.reading = slices.Delete(m.reading, 0, 1)
	if len(m.reading) > 0 {
		m.budget.setCurrent(&m.reading[0].usage)
	}
	m.startNext()
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
				return m.batch, nil
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

// errAllocatorExited says that Config.Allocator has panicked, or ended the goroutine.
var errAllocatorExited = errors.New("the allocator has panicked or ended its goroutine (runtime.Goexit)")

// read fetches the endpoint into p.batches.
//
// INVARIANT: without p.err the endpoint was read to its end.
func (p *part) read(ctx context.Context, m *mergedSource, takeEndpoint func() (*FlightEndpoint, error), prevOpened <-chan struct{}) {
	opened, err := false, errAllocatorExited
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("%w: %v", errAllocatorExited, panicked)
		}
		if err != nil {
			p.err = err
		}
		if !opened {
			close(p.opened)
		}
		m.budget.partEnded(&p.usage)
		close(p.batches)
		if ctx.Err() != nil {
			p.drain()
		}
	}()
	rd, failed := p.open(ctx, m, takeEndpoint, prevOpened)
	if failed != nil {
		err = failed
		return
	}
	defer rd.release()
	if rd.schema() == nil {
		err = nil
		return // it has no rows either
	}
	p.schema = rd.schema()
	close(p.opened)
	opened = true
	err = p.readBatches(ctx, m, rd)
}

// readBatches reads the batches.
func (p *part) readBatches(ctx context.Context, m *mergedSource, rd *reader) error {
	for {
		err := m.budget.reserve(ctx, &p.usage, 0) // so that no message is received that does not fit
		var batch arrow.RecordBatch
		if err == nil {
			batch, err = rd.next()
		}
		if eof.Reached(err) {
			return nil
		}
		if err != nil {
			return err
		}
		batch.Retain()
		select {
		case p.batches <- queuedBatch{batch, m.budget.batchQueued(&p.usage)}:
		case <-ctx.Done():
			batch.Release()
			return ctx.Err()
		}
	}
}

func (p *part) open(ctx context.Context, m *mergedSource, takeEndpoint func() (*FlightEndpoint, error), prevOpened <-chan struct{}) (*reader, error) {
	if prevOpened != nil {
		select {
		case <-prevOpened:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	endpoint, err := takeEndpoint()
	if err != nil {
		return nil, err
	}
	return m.call.openReader(ctx, endpoint, func(bytes int64) error { return m.budget.reserve(ctx, &p.usage, bytes) })
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
