// Command quickstart opens a pool, runs a query and reads its rows as structs.
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
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// Airport is a row: columns go to the fields of their name or tag.
type Airport struct {
	Code    string `arrow:"iata"`
	City    string
	Flights int64
	Delay   float64
}

func run(ctx context.Context, out io.Writer) error {
	// A Flight SQL server in this process, with real data. You have your own.
	server, err := duckdb.Start(ctx, duckdb.Config{Tables: data.Files}, testserver.Options{})
	if err != nil {
		return err
	}
	defer server.Close()

	pool, err := flightpool.New(ctx, "grpc://"+server.Addr(), flightpool.Config{})
	if err != nil {
		return err
	}
	defer pool.Close(ctx)

	result, err := pool.Query(ctx, `
		SELECT a.iata, a.city, count(*) AS flights, avg(f.delay) AS delay
		FROM flights f JOIN airports a ON a.iata = f.origin
		GROUP BY ALL ORDER BY flights DESC LIMIT 5`)
	if err != nil {
		return err
	}
	for airport, err := range rowscan.Rows[Airport](result) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s %-18s %6d flights, %4.1f minutes late on average\n", airport.Code, airport.City, airport.Flights, airport.Delay)
	}
	return nil
}
