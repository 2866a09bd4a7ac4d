package flightotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/flightpool/flightpool/flightpool/flightotel"

// An Option of NewTracer.
type Option func(*options)

type options struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
	attrs      []attribute.KeyValue
	texts      bool
}

// WithTracerProvider says who makes spans (otel.GetTracerProvider()).
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithMeterProvider says who keeps the histograms (otel.GetMeterProvider()).
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithPropagator says how the server is told of a span (otel.GetTextMapPropagator()).
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(o *options) { o.propagator = p }
}

// WithAttributes adds attributes to each span and histogram, and replaces those of the
// package comment, such as db.system.name.
func WithAttributes(attrs ...attribute.KeyValue) Option {
	return func(o *options) { o.attrs = append(o.attrs, attrs...) }
}

// WithStatementText shows the texts of statements (db.query.text) and errors in spans.
// Both may hold values.
func WithStatementText(show bool) Option { return func(o *options) { o.texts = show } }

// A Tracer is for Config.Tracer, of one pool or several. It is safe for concurrent use.
type Tracer struct {
	options
	tracer                                      trace.Tracer
	operations, waits, uses, creations, cancels metric.Float64Histogram

	summaries cache[string, string]
	kinds     cache[kindKey, *kind]
}

// NewTracer makes a Tracer. An instrument that its provider does not make is told to
// otel.Handle, and not recorded.
func NewTracer(opts ...Option) *Tracer {
	t := &Tracer{
		options:   options{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(), propagator: otel.GetTextMapPropagator()},
		summaries: cache[string, string]{kept: map[string]string{}},
		kinds:     cache[kindKey, *kind]{kept: map[kindKey]*kind{}},
	}
	for _, o := range opts {
		o(&t.options)
	}
	t.tracer = t.tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	t.histograms(t.meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL)))
	return t
}
