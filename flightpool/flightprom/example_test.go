package flightprom_test

import (
	"context"
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightprom"
	"github.com/flightpool/flightpool/testserver"
)

func Example() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	pool, err := flightpool.New(ctx, server.URI(), flightpool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close(ctx)

	metrics := flightprom.NewCollector()
	metrics.Add("warehouse", pool)
	registry := prometheus.NewRegistry() // prometheus.DefaultRegisterer, with promhttp.Handler
	registry.MustRegister(metrics)

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "flightpool_healthy" {
			fmt.Println(family.GetName(), family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output: flightpool_healthy 1
}
