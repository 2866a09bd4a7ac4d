package flightotel_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightotel"
	"github.com/flightpool/flightpool/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a pool on an in-process server, and what is seen of it.
type rig struct {
	*testing.T
	srv      *testserver.Server
	pool     *flightpool.FlightSQLPool
	provider *sdktrace.TracerProvider
	spans    *tracetest.InMemoryExporter
	metrics  *sdkmetric.ManualReader
	meters   *sdkmetric.MeterProvider

	mu   sync.Mutex
	rpcs map[string][]string // the traceparents that the server was told, by method
	open map[trace.SpanID]string
}

// watched runs f in virtual time with a pool that has a Tracer.
func watched(t *testing.T, cfg flightpool.Config, f func(r *rig), opts ...flightotel.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := measured(t)
		r.spans, r.rpcs, r.open = tracetest.NewInMemoryExporter(), map[string][]string{}, map[trace.SpanID]string{}
		r.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans), sdktrace.WithSpanProcessor(balance{r}))
		var err error
		r.srv, err = testserver.Start(testserver.Options{Listen: testserver.InMemory, Tokens: []string{"token-" + secret}, Users: map[string]string{"me": "x"}, GRPC: []grpc.ServerOption{
			grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
				r.called(ctx, info.FullMethod)
				return handle(ctx, req)
			}),
			grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
				r.called(stream.Context(), info.FullMethod)
				return handle(srv, stream)
			}),
		}})
		require.NoError(t, err)
		defer func() { require.NoError(t, r.srv.Close()) }()
		cfg.HealthCheck.Interval = -1 // those RPCs belong to no call
		cfg.Dialer, cfg.Auth = r.srv.Dial, flightpool.BearerAuth("token-"+secret)
		tracer := r.tracer(opts...)
		if cfg.Tracer != nil {
			cfg.Tracer = flightpool.Tracers{tracer, cfg.Tracer}
		} else {
			cfg.Tracer = tracer
		}
		r.pool, err = flightpool.New(t.Context(), "grpc://server:1", cfg)
		require.NoError(t, err)
		defer func() {
			ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
			defer stop()
			require.NoError(t, r.pool.Close(ctx))
			require.Zero(t, r.pool.Stats().HookFailures, "%v", r.pool.Stats().LastHookError)
		}()
		f(r)
	})
}

func measured(t *testing.T) *rig {
	r := &rig{T: t, metrics: sdkmetric.NewManualReader()}
	r.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.metrics))
	return r
}

func (r *rig) tracer(opts ...flightotel.Option) *flightotel.Tracer {
	return flightotel.NewTracer(append([]flightotel.Option{
		flightotel.WithTracerProvider(r.provider), flightotel.WithMeterProvider(r.meters), flightotel.WithPropagator(propagation.TraceContext{}),
	}, opts...)...)
}

// called notes what the server is told of spans.
func (r *rig) called(ctx context.Context, method string) {
	md, _ := metadata.FromIncomingContext(ctx)
	method = method[strings.LastIndex(method, "/")+1:]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rpcs[method] = append(r.rpcs[method], strings.Join(md.Get("traceparent"), ","))
}

// A balance knows the spans that have not ended.
type balance struct{ *rig }

func (b balance) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[s.SpanContext().SpanID()] = s.Name()
}

func (b balance) OnEnd(s sdktrace.ReadOnlySpan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, s.SpanContext().SpanID())
}
func (balance) Shutdown(context.Context) error   { return nil }
func (balance) ForceFlush(context.Context) error { return nil }

// ended gives the spans since the last call, by ID, when everything is over.
func (r *rig) ended() map[trace.SpanID]tracetest.SpanStub {
	r.Helper()
	time.Sleep(2 * time.Minute) // until what goes on behind the calls is over
	synctest.Wait()
	r.mu.Lock()
	require.Empty(r, r.open)
	r.mu.Unlock()
	spans := map[trace.SpanID]tracetest.SpanStub{}
	for _, s := range r.spans.GetSpans() {
		_, twice := spans[s.SpanContext.SpanID()] // require.NotContains looks at all keys each time
		require.False(r, twice, "ended twice")
		spans[s.SpanContext.SpanID()] = s
	}
	r.spans.Reset()
	return spans
}

// paths are spans by their names, each behind its parents'.
func paths(spans map[trace.SpanID]tracetest.SpanStub) (all []string) {
	for _, s := range spans {
		all = append(all, path(spans, s))
	}
	slices.Sort(all)
	return all
}

func path(spans map[trace.SpanID]tracetest.SpanStub, s tracetest.SpanStub) string {
	if parent, ok := spans[s.Parent.SpanID()]; ok {
		return path(spans, parent) + " > " + s.Name
	}
	if s.Parent.IsValid() {
		return "? > " + s.Name
	}
	return s.Name
}

// told are the spans that the server was told of by the RPCs of a method.
func (r *rig) told(spans map[trace.SpanID]tracetest.SpanStub, method string) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, parent := range r.rpcs[method] {
		name := parent // empty: it is no call's, but asked by the pool for itself
		for id, s := range spans {
			if parent == "00-"+s.SpanContext.TraceID().String()+"-"+id.String()+"-01" {
				name = path(spans, s)
			}
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// collect reads the metrics by name.
func (r *rig) collect() map[string]metricdata.Metrics {
	r.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(r, r.metrics.Collect(r.Context(), &all))
	byName := map[string]metricdata.Metrics{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// drained reads a result to its end.
func drained(res *flightpool.QueryResult, err error) error {
	if err != nil {
		return err
	}
	defer res.Release()
	for res.Next() {
		continue
	}
	return res.Err()
}

// cut runs a statement that its caller leaves after a second.
func (r *rig) cut(ctx context.Context, sql string) {
	r.Helper()
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	require.ErrorIs(r, drained(r.pool.Query(ctx, sql)), context.DeadlineExceeded)
}
