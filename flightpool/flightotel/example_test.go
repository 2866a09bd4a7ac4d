package flightotel_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightotel"
	"github.com/flightpool/flightpool/testserver"
)

func Example() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	exporter := tracetest.NewInMemoryExporter() // or that of otlptracegrpc
	spans := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))

	pool, err := flightpool.New(ctx, server.URI(), flightpool.Config{
		MaxSize: 1,
		Tracer: flightotel.NewTracer(flightotel.WithTracerProvider(spans), flightotel.WithMeterProvider(meters),
			flightotel.WithPropagator(propagation.TraceContext{})),
	})
	if err != nil {
		log.Fatal(err)
	}
	registration, err := flightotel.Register(meters.Meter("shop"), pool)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = registration.Unregister() }()

	var n int64
	if err := pool.QueryRow(ctx, "SELECT 42").Scan(&n); err != nil {
		log.Fatal(err)
	}
	pool.Close(ctx) // a call ends when its connection is free again
	for _, s := range exporter.GetSpans() {
		fmt.Println(s.Name, s.SpanKind)
	}
	// Output:
	// flightpool.connect client
	// flightpool.acquire internal
	// SELECT client
}
