package testserver

import (
	"context"
	"strconv"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/testserver/engine"
)

// sink takes the rows of a query.
type sink interface {
	begin(schema *arrow.Schema)
	add(ctx context.Context, b arrow.RecordBatch) error // b is the engine's
}

// run gives a query to the engine, once for each batch of its parameters, and
// its rows to out.
func (h *handlers) run(ctx context.Context, db engine.Session, sql string, params []arrow.RecordBatch, out sink) error {
	if len(params) == 0 && h.srv.profile.NullParams {
		params = nullParams(sql)
		defer releaseAll(params)
	}
	if len(params) == 0 {
		params = []arrow.RecordBatch{nil}
	}
	for _, p := range params {
		if err := h.runOnce(ctx, db, sql, p, out); err != nil {
			return err
		}
	}
	return nil
}

func (h *handlers) runOnce(ctx context.Context, db engine.Session, sql string, params arrow.RecordBatch, out sink) error {
	rows, err := db.Query(ctx, sql, params)
	if err != nil {
		return err
	}
	defer rows.Release()
	if counter, ok := rows.(interface{ RowsAffected() int64 }); ok {
		h.setAffectedHeader(ctx, counter.RowsAffected())
	}
	out.begin(rows.Schema())
	for rows.Next() {
		if err := out.add(ctx, rows.RecordBatch()); err != nil {
			return err
		}
	}
	return rows.Err()
}

// setAffectedHeader says in a header how many rows a statement has affected, where
// the profile has one.
func (h *handlers) setAffectedHeader(ctx context.Context, n int64) {
	if name := h.srv.profile.AffectedHeader; name != "" {
		_ = grpc.SetHeader(ctx, metadata.Pairs(name, strconv.FormatInt(n, 10))) // fails once the RPC is over
	}
}

// stream runs a query and sends its rows as they come. It owns k's parameters.
func (h *handlers) stream(ctx context.Context, c *call, k *ticket) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	if h.srv.profile.IgnoreRPCCancel {
		defer k.release()
		schema, batches, err := h.collect(ctx, c, k)
		if err != nil {
			return nil, nil, err
		}
		return schema, h.send(ctx, batches), nil
	}
	out := &streamingSink{chunks: make(chan flight.StreamChunk), opened: make(chan streamStart, 1)}
	h.srv.goroutines.Go(func() {
		defer close(out.chunks)
		defer k.release()
		out.end(ctx, k.sess.runInTurn(ctx, c, k.stmt, func(ctx context.Context, db engine.Session) error {
			return h.run(ctx, db, k.stmt.SQL, k.bind, out)
		}))
	})
	o := <-out.opened
	return o.schema, out.chunks, o.err
}

// streamingSink is the sink of a query whose rows are sent as they come.
type streamingSink struct {
	chunks  chan flight.StreamChunk
	opened  chan streamStart // gets one value: the schema, or the error before it
	anySent bool
}

type streamStart struct {
	schema *arrow.Schema
	err    error
}

func (l *streamingSink) begin(schema *arrow.Schema) {
	if !l.anySent {
		l.anySent = true
		l.opened <- streamStart{schema: schema}
	}
}

func (l *streamingSink) add(ctx context.Context, b arrow.RecordBatch) error {
	b.Retain()
	return engine.Aside(ctx, func() error {
		select {
		case l.chunks <- flight.StreamChunk{Data: b}:
			return nil
		case <-ctx.Done():
			b.Release()
			return ctx.Err()
		}
	})
}

func (l *streamingSink) end(ctx context.Context, err error) {
	if !l.anySent {
		l.opened <- streamStart{err: err}
		return
	}
	if err != nil {
		select {
		case l.chunks <- flight.StreamChunk{Err: err}:
		case <-ctx.Done():
		}
	}
}

// collect runs a query and returns all its rows, which the caller releases.
// When the RPC ends before a query that runs on, nobody wants them.
func (h *handlers) collect(ctx context.Context, c *call, k *ticket) (*arrow.Schema, []arrow.RecordBatch, error) {
	out := &collectingSink{}
	sql, params := k.stmt.SQL, k.bind
	for _, p := range params {
		p.Retain() // a query that runs on needs them longer than k does
	}
	err := k.sess.runStatement(ctx, c, k.stmt, params, func(ctx context.Context, db engine.Session) error {
		return h.run(ctx, db, sql, params, out)
	})
	schema, batches := out.take(err == nil)
	return schema, batches, err
}

// collectingSink is the sink of a query whose result is kept.
type collectingSink struct {
	mu      sync.Mutex
	schema  *arrow.Schema
	batches []arrow.RecordBatch
	closed  bool // nobody wants more
}

func (o *collectingSink) begin(schema *arrow.Schema) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.schema == nil {
		o.schema = schema
	}
}

func (o *collectingSink) add(_ context.Context, b arrow.RecordBatch) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		b.Retain()
		o.batches = append(o.batches, b)
	}
	return nil
}

// take returns what there is if it is wanted, and drops what is not.
func (o *collectingSink) take(wanted bool) (*arrow.Schema, []arrow.RecordBatch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if !wanted {
		releaseAll(o.batches)
		o.batches = nil
	}
	return o.schema, o.batches
}

// send sends batches, which it owns.
func (h *handlers) send(ctx context.Context, batches []arrow.RecordBatch) <-chan flight.StreamChunk {
	chunks := make(chan flight.StreamChunk)
	h.srv.goroutines.Go(func() {
		defer close(chunks)
		for i, b := range batches {
			select {
			case chunks <- flight.StreamChunk{Data: b}:
			case <-ctx.Done():
				releaseAll(batches[i:])
				return
			}
		}
	})
	return chunks
}
