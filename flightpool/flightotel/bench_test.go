package flightotel_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/dbconv"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightotel"
)

const statement = "SELECT origin, count(*) FROM flights WHERE day = ? GROUP BY origin"

// seenOnce are statements with a value in each text.
func seenOnce() func() string {
	n := 0
	return func() string { n++; return strings.Replace(statement, "?", strconv.Itoa(n), 1) }
}

func always() string { return statement }

// A callSeen is a call of a pool as its tracer is told of it.
type callSeen func(ctx context.Context)

func byTracer(spans trace.TracerProvider, meters metric.MeterProvider, sql func() string) callSeen {
	t := flightotel.NewTracer(flightotel.WithTracerProvider(spans), flightotel.WithMeterProvider(meters), flightotel.WithPropagator(propagation.TraceContext{}))
	start := flightpool.QueryStartData{Op: "Query", Target: "warehouse:31337"}
	wait := flightpool.AcquireStartData{Op: "Query", Target: "warehouse:31337"}
	outcome := flightpool.Outcome{Took: time.Millisecond, FirstBatch: time.Millisecond, Batches: 1, Rows: 1, Bytes: 8, RowsAffected: -1}
	return func(ctx context.Context) {
		start.SQL = sql()
		ctx = t.TraceQueryStart(ctx, start)
		t.TraceAcquireEnd(t.TraceAcquireStart(ctx, wait), flightpool.AcquireEndData{AcquireStartData: wait, Took: time.Microsecond})
		t.TraceRelease(ctx, flightpool.ReleaseData{Target: "warehouse:31337", Held: time.Millisecond})
		t.TraceQueryEnd(ctx, flightpool.QueryEndData{QueryStartData: start, Outcome: outcome})
	}
}

// byHand makes the same spans and measurements, for one statement, by its name.
func byHand(t testing.TB, spans trace.TracerProvider, meters metric.MeterProvider) callSeen {
	tracer, meter := spans.Tracer("by hand"), meters.Meter("by hand")
	operations, err := dbconv.NewClientOperationDuration(meter)
	require.NoError(t, err)
	waits, err := dbconv.NewClientConnectionWaitTime(meter)
	require.NoError(t, err)
	uses, err := dbconv.NewClientConnectionUseTime(meter)
	require.NoError(t, err)
	pool := []attribute.KeyValue{
		semconv.DBSystemNameOtherSQL, semconv.DBClientConnectionPoolName("warehouse:31337"), semconv.ServerAddress("warehouse"), semconv.ServerPort(31337),
	}
	call := append(pool[:4:4], semconv.DBOperationName("Query"), semconv.DBQuerySummary("SELECT flights"))
	ofPool, ofCall := metric.WithAttributeSet(attribute.NewSet(pool...)), metric.WithAttributeSet(attribute.NewSet(call...))
	return func(ctx context.Context) {
		ctx, span := tracer.Start(ctx, "SELECT flights", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(call...))
		headers := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, headers)
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", headers["traceparent"])
		_, wait := tracer.Start(ctx, "flightpool.acquire", trace.WithAttributes(pool...))
		waits.Inst().Record(ctx, 1e-6, ofPool)
		wait.End()
		uses.Inst().Record(ctx, 1e-3, ofPool)
		span.AddEvent("flightpool.release")
		operations.Inst().Record(ctx, 1e-3, ofCall)
		span.SetAttributes(semconv.DBResponseReturnedRows(1), attribute.Int64("flightpool.response.bytes", 8), attribute.Float64("flightpool.first_batch_time", 1e-3))
		span.End()
	}
}

func providers() (trace.TracerProvider, metric.MeterProvider) {
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(dropped{})), sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
}

// dropped exports nothing.
type dropped struct{}

func (dropped) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (dropped) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (dropped) Shutdown(context.Context) error                  { return nil }
func (dropped) ForceFlush(context.Context) error                { return nil }

func BenchmarkCall(b *testing.B) {
	spans, meters := providers()
	for name, call := range map[string]callSeen{
		"tracer": byTracer(spans, meters, always), "tracer, texts with values": byTracer(spans, meters, seenOnce()), "by hand": byHand(b, spans, meters),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call(b.Context())
			}
		})
	}
}

func TestATracerAllocatesLittleMoreThanTheSDK(t *testing.T) {
	spans, meters := providers()
	tracer, hand := byTracer(spans, meters, always), byHand(t, spans, meters)
	ours := testing.AllocsPerRun(1000, func() { tracer(t.Context()) })
	theirs := testing.AllocsPerRun(1000, func() { hand(t.Context()) })
	require.LessOrEqual(t, ours, theirs+3)
}
