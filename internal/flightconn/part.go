package flightconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/internal/eof"
)

// part is one endpoint of a merged result.
type part struct {
	front   chan struct{}    // closed when the parts before it have ended
	opened  chan struct{}    // closed when schema or err is known
	batches chan queuedBatch // closed at the end; err tells why
	usage   partUsage
	schema  *arrow.Schema
	err     error

	first string // the place where it is tried first
	turn  *Turn  // there, and at others
}

type queuedBatch struct {
	arrow.RecordBatch
	bytes int64 // of the budget
}

// errAllocatorExited says that Config.Allocator has panicked, or ended the goroutine.
var errAllocatorExited = errors.New("the allocator has panicked or ended its goroutine (runtime.Goexit)")

// read fetches the endpoint into p.batches.
//
// INVARIANT: without p.err the endpoint was read to its end, and all of its batches wait or were taken: what
// has come whole is read to its end behind the end of ctx, too, and dropped then.
func (p *part) read(ctx context.Context, m *mergedSource, takeEndpoint func() (*FlightEndpoint, error)) {
	opened, err := false, errAllocatorExited
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("%w: %v", errAllocatorExited, panicked)
		}
		left := ctx.Err()
		p.err = cmp.Or(err, left)
		if !opened {
			p.markOpened()
		}
		m.budget.partEnded(&p.usage)
		close(p.batches)
		if left != nil {
			p.drain()
		}
	}()
	rd, failed := p.open(ctx, m, takeEndpoint)
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
	p.markOpened()
	opened = true
	err = p.readBatches(ctx, m, rd)
}

// markOpened says that schema or err is known.
func (p *part) markOpened() {
	close(p.opened)
	p.turn.Done()
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

// open opens the endpoint. An endpoint that has to wait for its turn is taken after that,
// since it is renewed until then.
//
// INVARIANT: an endpoint that a server has refused since it serves another call of the session, as
// ClickHouse and duckgres do, is asked for again once the parts before it have ended, and so are those behind it.
func (p *part) open(ctx context.Context, m *mergedSource, takeEndpoint func() (*FlightEndpoint, error)) (*reader, error) {
	if err := p.turn.await(ctx, p.first); err != nil {
		return nil, err
	}
	if m.oneAtATime.Load() {
		if err := awaitTurn(ctx, p.front); err != nil {
			return nil, err
		}
	}
	endpoint, err := takeEndpoint()
	if err != nil {
		return nil, err
	}
	reserve := func(bytes int64) error { return m.budget.reserve(ctx, &p.usage, bytes) }
	rd, err := m.call.openReader(ctx, endpoint, p.turn, reserve)
	if !SessionBusy(err) || m.call.mayChange {
		return rd, err
	}
	m.oneAtATime.Store(true)
	if err := awaitTurn(ctx, p.front); err != nil {
		return nil, err
	}
	return m.call.openReader(ctx, endpoint, p.turn, reserve)
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
