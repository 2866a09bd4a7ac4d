package dsqlotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// A Tracer measures how long calls for a connection take. It is a
// dsql.AcquireTracer, for Config.AcquireTracer, and safe for concurrent use.
type Tracer struct {
	seconds     metric.Float64Histogram
	got, failed metric.MeasurementOption
}

var _ dsql.AcquireTracer = (*Tracer)(nil)

// NewTracer makes the histogram of the package comment, with attrs.
func NewTracer(meter metric.Meter, attrs ...attribute.KeyValue) (*Tracer, error) {
	seconds, err := meter.Float64Histogram("dsql_reservoir_checkout_seconds", metric.WithUnit("s"),
		metric.WithDescription("How long calls for a connection take."),
		metric.WithExplicitBucketBoundaries(.000_01, .000_1, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30))
	if err != nil {
		return nil, err
	}
	with := func(failed bool) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(append([]attribute.KeyValue{}, attrs...), attribute.Bool("failed", failed))...))
	}
	return &Tracer{seconds, with(false), with(true)}, nil
}

type beganKey struct{}

// TraceAcquireStart is as dsql.AcquireTracer says.
func (t *Tracer) TraceAcquireStart(ctx context.Context, _ dsql.TraceAcquireStartData) context.Context {
	return context.WithValue(ctx, beganKey{}, time.Now())
}

// TraceAcquireEnd is as dsql.AcquireTracer says.
func (t *Tracer) TraceAcquireEnd(ctx context.Context, data dsql.TraceAcquireEndData) {
	began, ok := ctx.Value(beganKey{}).(time.Time)
	if !ok {
		return
	}
	outcome := t.got
	if data.Err != nil {
		outcome = t.failed
	}
	t.seconds.Record(ctx, time.Since(began).Seconds(), outcome)
}
