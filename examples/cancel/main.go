// Command cancel gives a long query a deadline. The caller is free at the
// deadline, the server stops working soon after, and the pool goes on.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// endless takes hours.
const endless = "SELECT sum(a.i * b.i) FROM range(1_000_000_000) a(i), range(1_000_000_000) b(i)"

func run(ctx context.Context, out io.Writer) error {
	server, err := duckdb.Start(ctx, duckdb.Config{}, testserver.Options{})
	if err != nil {
		return err
	}
	defer server.Close()

	pool, err := flightpool.New(ctx, "grpc://"+server.Addr(), flightpool.Config{})
	if err != nil {
		return err
	}
	defer pool.Close(ctx)

	const timeout = 200 * time.Millisecond
	start := time.Now()
	err = read(ctx, pool, timeout)
	late := time.Since(start) - timeout
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the query was to run into its deadline, but: %w", err)
	}
	fmt.Fprintf(out, "the caller was free %d ms after its deadline\n", late.Milliseconds())

	waitCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := server.Ledger().WaitIdle(waitCtx); err != nil {
		return fmt.Errorf("the server still runs the query: %w", err)
	}
	fmt.Fprintf(out, "the server has %d statements running\n", server.Ledger().Snapshot().Running)
	return pool.Ping(ctx)
}

// read runs the query to its end, or to its timeout.
func read(ctx context.Context, pool *flightpool.FlightSQLPool, timeout time.Duration) error {
	result, err := pool.QueryWithOptions(ctx, endless, flightpool.QueryOptions{Timeout: timeout})
	if err != nil {
		return err
	}
	defer result.Release()
	for _, err := range result.Batches() {
		if err != nil {
			return err
		}
	}
	return nil
}
