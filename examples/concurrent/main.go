// Command concurrent runs many queries at once: the pool is shared by all
// goroutines and opens no more connections than it is allowed.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/flightpool/flightpool/examples/data"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
	"golang.org/x/sync/errgroup"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// Hour is how late flights were that left in one hour of the day.
type Hour struct {
	Hour    int64
	Flights int64
	Delay   float64
}

func run(ctx context.Context, out io.Writer) error {
	server, err := duckdb.Start(ctx, duckdb.Config{Tables: data.Files}, testserver.Options{})
	if err != nil {
		return err
	}
	defer server.Close()

	pool, err := flightpool.New(ctx, "grpc://"+server.Addr(), flightpool.Config{MaxSize: 4})
	if err != nil {
		return err
	}
	defer pool.Close(ctx)

	// 24 goroutines share 4 connections; those that come too early wait in line.
	var hours [24]Hour
	group, groupCtx := errgroup.WithContext(ctx)
	for h := range hours {
		group.Go(func() (err error) {
			hours[h], err = late(groupCtx, pool, h)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, h := range hours {
		fmt.Fprintf(out, "%02d:00 %6d flights, %5.1f minutes late on average\n", h.Hour, h.Flights, h.Delay)
	}
	fmt.Fprintf(out, "connections opened: %d\n", server.Ledger().Snapshot().ConnsOpened)
	return nil
}

// late asks about one hour of the day.
func late(ctx context.Context, pool *flightpool.FlightSQLPool, hour int) (Hour, error) {
	result, err := pool.Query(ctx, fmt.Sprintf(`
		SELECT %[1]d::BIGINT AS hour, count(*) AS flights, coalesce(avg(delay), 0) AS delay
		FROM flights WHERE hour(date) = %[1]d`, hour))
	if err != nil {
		return Hour{}, err
	}
	var answer Hour // there is one row
	for row, err := range rowscan.Rows[Hour](result) {
		if err != nil {
			return Hour{}, err
		}
		answer = row
	}
	return answer, nil
}
