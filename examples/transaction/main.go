// Command transaction changes data on one connection: all of it, or none.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/flightpool/flightpool/examples/data"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/session"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

var errTooMany = errors.New("more than we wanted to cancel")

func run(ctx context.Context, out io.Writer) error {
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

	// A handle is one connection: its transactions and temporary tables are
	// its own. Close gives the connection back clean.
	handle, err := pool.AcquireSession(ctx)
	if err != nil {
		return err
	}
	defer handle.Close()

	cancelFlights := func(airport string, atMost int64) error {
		return handle.WithTransaction(ctx, func(ctx context.Context, s *session.SessionHandle) error {
			deleted, err := s.Update(ctx, "DELETE FROM flights WHERE origin = ?", airport)
			if err != nil {
				return err
			}
			if deleted.RowsAffected > atMost {
				return errTooMany // rolls back
			}
			return nil // commits
		})
	}
	for _, airport := range []string{"JAC", "ORD"} {
		switch err := cancelFlights(airport, 1000); {
		case errors.Is(err, errTooMany):
			fmt.Fprintf(out, "%s: rolled back, ", airport)
		case err != nil:
			return err
		default:
			fmt.Fprintf(out, "%s: committed, ", airport)
		}
		left, err := count(ctx, pool, airport)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d flights left\n", left)
	}
	return nil
}

// count asks on any connection of the pool: it sees what is committed.
func count(ctx context.Context, pool *flightpool.FlightSQLPool, airport string) (n int64, err error) {
	err = pool.QueryRow(ctx, "SELECT count(*) FROM flights WHERE origin = ?", airport).Scan(&n)
	return n, err
}
