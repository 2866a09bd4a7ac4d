package flightpool

import (
	"context"

	"github.com/flightpool/flightpool/internal/tracers"
	"github.com/flightpool/flightpool/session"
)

type (
	// Batch is a list of statements for SendBatch.
	Batch = session.Batch
	// QueuedStatement is a statement of a Batch.
	QueuedStatement = session.QueuedStatement
	// BatchError says which statement has ended a batch.
	BatchError = session.BatchError

	// BatchTracer sees every batch; see package session.
	BatchTracer = session.BatchTracer
	// BatchStartData is a batch that begins.
	BatchStartData = session.BatchStartData
	// BatchEndData is a batch that has ended.
	BatchEndData = session.BatchEndData
)

// SendBatch runs the statements of b in their order on one connection, up to the first
// that fails: see Batch. Its error then is a *BatchError; any other says that there was no
// connection, and nothing was sent. Nothing is repeated, reads neither. ctx bounds the wait
// for the connection and all statements together.
//
// Outside of a transaction each statement is stored by itself: see Tx.SendBatch.
func (p *FlightSQLPool) SendBatch(ctx context.Context, b *Batch) error {
	if b.Len() == 0 {
		return nil
	}
	s, err := p.acquireSession(ctx, "SendBatch", false)
	if err != nil {
		return err
	}
	defer s.CloseWithin(ctx)
	return s.SendBatch(ctx, b)
}

// SendBatch is FlightSQLPool.SendBatch in the transaction, which is to be rolled back when
// it fails, as InTx does by itself: see SessionHandle.SendBatch.
func (t *Tx) SendBatch(ctx context.Context, b *Batch) error { return t.s.SendBatch(ctx, b) }

func (t *tracing) TraceBatchStart(ctx context.Context, data BatchStartData) context.Context {
	return tracers.Start(ctx, t.failed, t.batches, func(b BatchTracer, ctx context.Context) context.Context { return b.TraceBatchStart(ctx, data) })
}

func (t *tracing) TraceBatchEnd(ctx context.Context, data BatchEndData) {
	tracers.End(t.failed, t.batches, func(b BatchTracer) { b.TraceBatchEnd(ctx, data) })
}
