package flightotel

import (
	"context"
	"maps"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.41.0/dbconv"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
)

// The names of spans that are no calls.
const (
	spanAcquire = "flightpool.acquire"
	spanConnect = "flightpool.connect"
	spanBatch   = "flightpool.batch"
	spanCancel  = "flightpool.cancel"
)

const opIngest = "Ingest"

// histograms makes the instruments that the ends of spans are recorded in.
func (t *Tracer) histograms(m metric.Meter) {
	bounds := metric.WithExplicitBucketBoundaries(.001, .005, .01, .05, .1, .5, 1, 5, 10) // those of the conventions
	operations, err1 := dbconv.NewClientOperationDuration(m, bounds)
	waits, err2 := dbconv.NewClientConnectionWaitTime(m, bounds)
	uses, err3 := dbconv.NewClientConnectionUseTime(m, bounds)
	creations, err4 := dbconv.NewClientConnectionCreateTime(m, bounds)
	cancels, err5 := m.Float64Histogram("flightpool.cancel.duration", bounds, metric.WithUnit("s"),
		metric.WithDescription("How long cancels of calls took, by the step that has confirmed them."))
	t.operations, t.waits, t.uses, t.creations, t.cancels = operations.Inst(), waits.Inst(), uses.Inst(), creations.Inst(), cancels
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			otel.Handle(err)
		}
	}
}

// A started context has the span that a Tracer has begun. Other tracers' spans may lie
// above it, so that it is no use to ask the context for its span.
type started struct {
	context.Context //nolint:containedctx // it is one
	t               *Tracer
	span            trace.Span
	kind            *kind
}

type startedKey struct{ t *Tracer }

// Value implements context.Context.
func (s *started) Value(key any) any {
	if key == any(startedKey{s.t}) {
		return s
	}
	return s.Context.Value(key)
}

// started is the span of that name, empty for calls, that t has begun with ctx, or nil: the
// pool gives an end the context of what is around it if the start took too long.
func (t *Tracer) started(ctx context.Context, name string) *started {
	s, _ := ctx.Value(startedKey{t}).(*started)
	if s == nil || s.kind.span != name {
		return nil
	}
	return s
}

func (t *Tracer) begin(ctx context.Context, k *kind, more ...trace.SpanStartOption) context.Context {
	ctx, span := t.tracer.Start(ctx, k.name, append(k.start, more...)...)
	return &started{ctx, t, span, k}
}

// finish ends a span, also where a method of the error, which may be the program's own,
// panics.
func (t *Tracer) finish(span trace.Span, err error) {
	defer span.End()
	if err != nil && span.IsRecording() {
		kind, text := errorType(err), ""
		if t.texts {
			text = valid(err.Error())
		}
		span.SetAttributes(kind, attribute.Bool("flightpool.safe_to_retry", backend.SafeToRetry(err)))
		span.SetStatus(codes.Error, text)
	}
}

// inject tells the server of the span, in the place of one that it was told of before.
func (t *Tracer) inject(ctx context.Context) context.Context {
	md, ok := metadata.FromOutgoingContext(ctx) // a copy
	if !ok {
		md = metadata.MD{}
	}
	t.propagator.Inject(ctx, carrier(md))
	if len(md) == 0 {
		return ctx
	}
	return metadata.NewOutgoingContext(ctx, md)
}

type carrier metadata.MD

func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }
func (c carrier) Keys() []string        { return slices.Collect(maps.Keys(c)) }
func (c carrier) Get(key string) string {
	if v := metadata.MD(c).Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}
