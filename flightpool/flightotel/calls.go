package flightotel

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/flightpool/flightpool/flightpool"
)

var _ interface {
	flightpool.QueryTracer
	flightpool.IngestTracer
	flightpool.BatchTracer
	flightpool.CancelTracer
	flightpool.ConnectTracer
	flightpool.AcquireTracer
	flightpool.ReleaseTracer
} = (*Tracer)(nil)

// TraceQueryStart implements flightpool.QueryTracer.
func (t *Tracer) TraceQueryStart(ctx context.Context, d flightpool.QueryStartData) context.Context {
	k := t.kindOf(kindKey{target: d.Target, op: d.Op, what: t.summaryOf(d.SQL)})
	if t.texts && d.SQL != "" {
		return t.inject(t.begin(ctx, k, trace.WithAttributes(semconv.DBQueryText(valid(d.SQL)))))
	}
	return t.inject(t.begin(ctx, k))
}

// TraceQueryEnd implements flightpool.QueryTracer.
func (t *Tracer) TraceQueryEnd(ctx context.Context, d flightpool.QueryEndData) {
	t.endCall(ctx, d.Outcome)
}

// TraceIngestStart implements flightpool.IngestTracer.
func (t *Tracer) TraceIngestStart(ctx context.Context, d flightpool.IngestStartData) context.Context {
	return t.inject(t.begin(ctx, t.kindOf(kindKey{target: d.Target, op: opIngest, what: nameOf(d.Table)})))
}

// TraceIngestEnd implements flightpool.IngestTracer.
func (t *Tracer) TraceIngestEnd(ctx context.Context, d flightpool.IngestEndData) {
	t.endCall(ctx, d.Outcome)
}

// TraceBatchStart implements flightpool.BatchTracer.
func (t *Tracer) TraceBatchStart(ctx context.Context, d flightpool.BatchStartData) context.Context {
	return t.begin(ctx, t.kindOf(kindKey{target: d.Target, span: spanBatch}), trace.WithAttributes(semconv.DBOperationBatchSize(d.Len)))
}

// TraceBatchEnd implements flightpool.BatchTracer.
func (t *Tracer) TraceBatchEnd(ctx context.Context, d flightpool.BatchEndData) {
	if s := t.started(ctx, spanBatch); s != nil {
		t.finish(s.span, d.Err)
	}
}

func (t *Tracer) endCall(ctx context.Context, o flightpool.Outcome) {
	s := t.started(ctx, "")
	if s == nil {
		return
	}
	defer t.finish(s.span, o.Err)
	t.operations.Record(ctx, o.Took.Seconds(), s.kind.outcome(o.Err)...)
	if s.span.IsRecording() {
		attrs := make([]attribute.KeyValue, 0, 5)
		if o.Batches > 0 || o.Rows > 0 {
			attrs = append(attrs, semconv.DBResponseReturnedRows(int(o.Rows)), attribute.Float64("flightpool.first_batch_time", o.FirstBatch.Seconds()))
		}
		if o.Batches > 0 { // database/sql has none, and does not count bytes
			attrs = append(attrs, attribute.Int64("flightpool.response.bytes", o.Bytes))
		}
		if o.RowsAffected >= 0 {
			attrs = append(attrs, attribute.Int64("flightpool.rows_affected", o.RowsAffected))
		}
		if o.Retries > 0 {
			attrs = append(attrs, attribute.Int("flightpool.retries", o.Retries))
		}
		s.span.SetAttributes(attrs...)
	}
}

// TraceAcquireStart implements flightpool.AcquireTracer. A wait alone makes no trace.
func (t *Tracer) TraceAcquireStart(ctx context.Context, d flightpool.AcquireStartData) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return t.begin(ctx, t.kindOf(kindKey{target: d.Target, span: spanAcquire}))
}

// TraceAcquireEnd implements flightpool.AcquireTracer.
func (t *Tracer) TraceAcquireEnd(ctx context.Context, d flightpool.AcquireEndData) {
	if s := t.started(ctx, spanAcquire); s != nil {
		defer t.finish(s.span, d.Err)
	}
	k := t.kindOf(kindKey{target: d.Target, span: spanAcquire})
	t.waits.Record(ctx, d.Took.Seconds(), k.outcome(d.Err)...)
}

// TraceRelease implements flightpool.ReleaseTracer: an event of the call, or of the span
// in which a session was acquired.
func (t *Tracer) TraceRelease(ctx context.Context, d flightpool.ReleaseData) {
	t.uses.Record(ctx, d.Held.Seconds(), t.kindOf(kindKey{target: d.Target, span: spanAcquire}).ok...)
	span := trace.SpanFromContext(ctx)
	if s := t.started(ctx, ""); s != nil {
		span = s.span
	}
	switch {
	case !span.IsRecording():
	case d.Discard != nil:
		span.AddEvent("flightpool.discard", trace.WithAttributes(errorType(d.Discard)))
	default:
		span.AddEvent("flightpool.release")
	}
}

// TraceConnectStart implements flightpool.ConnectTracer. The span of who made the pool is
// the parent until it ends; opens come long after that, and are traces of their own.
func (t *Tracer) TraceConnectStart(ctx context.Context, d flightpool.ConnectStartData) context.Context {
	k := t.kindOf(kindKey{target: d.Target, span: spanConnect})
	if trace.SpanFromContext(ctx).IsRecording() {
		return t.inject(t.begin(ctx, k))
	}
	return t.inject(t.begin(ctx, k, trace.WithNewRoot()))
}

// TraceConnectEnd implements flightpool.ConnectTracer.
func (t *Tracer) TraceConnectEnd(ctx context.Context, d flightpool.ConnectEndData) {
	if s := t.started(ctx, spanConnect); s != nil {
		defer t.finish(s.span, d.Err)
	}
	k := t.kindOf(kindKey{target: d.Target, span: spanConnect})
	t.creations.Record(ctx, d.Took.Seconds(), k.outcome(d.Err)...)
}

// TraceCancelStart implements flightpool.CancelTracer.
func (t *Tracer) TraceCancelStart(ctx context.Context, d flightpool.CancelStartData) context.Context {
	return t.inject(t.begin(ctx, t.kindOf(kindKey{target: d.Target, span: spanCancel})))
}

// TraceCancelEnd implements flightpool.CancelTracer.
func (t *Tracer) TraceCancelEnd(ctx context.Context, d flightpool.CancelEndData) {
	by := attribute.String("flightpool.cancel.confirmed_by", cmp.Or(d.Report.ConfirmedBy, "nothing"))
	t.cancels.Record(ctx, d.Report.Elapsed.Seconds(), t.kindOf(kindKey{target: d.Target, span: spanCancel}).with(by))
	if s := t.started(ctx, spanCancel); s != nil {
		s.span.SetAttributes(by, attribute.Bool("flightpool.cancel.safe", d.Report.Safe()))
		if !d.Report.Safe() {
			s.span.SetStatus(codes.Error, "")
		}
		s.span.End()
	}
}
