// Command observe shows a pool under load to Prometheus and, live, to a browser. `make
// observe` runs it with a Prometheus that scrapes it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/flightpool/flightpool/examples/data"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightprom"
	"github.com/flightpool/flightpool/flightpool/poolz"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:2112", "where the metrics and the page are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *listen); err != nil {
		fmt.Println("observe: FAILED:", err)
		os.Exit(1)
	}
}

// run ends with its context.
func run(ctx context.Context, out io.Writer, listen string) (err error) {
	server, err := duckdb.Start(ctx, duckdb.Config{Tables: data.Files}, testserver.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()

	// What an application writes: the page's tracer for its pools, a collector, and two handlers.
	page := poolz.New(poolz.Config{SlowerThan: 100 * time.Millisecond})
	defer page.Close()
	pool, err := flightpool.New(ctx, "grpc://"+server.Addr(), flightpool.Config{
		Tracer: page.Tracer("flights"), LeakAfter: time.Minute, MaxSize: connections, MaxLifetime: 10 * time.Second, // a short life, so that opens are seen
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close(context.WithoutCancel(ctx))) }()
	page.Add("flights", pool)
	metrics := flightprom.NewCollector()
	metrics.Add("flights", pool)
	registry := prometheus.NewRegistry() // prometheus.DefaultRegisterer, if there is nothing against it
	registry.MustRegister(metrics)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/debug/poolz/", page)

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	site := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	var beside sync.WaitGroup
	beside.Go(func() { _ = site.Serve(listener) })
	fmt.Fprintf(out, "metrics: http://%[1]s/metrics\npage:    http://%[1]s/debug/poolz/\n", listener.Addr())
	load(ctx, pool)
	err = site.Close()
	beside.Wait()
	return err
}
