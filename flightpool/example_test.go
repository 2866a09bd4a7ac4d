package flightpool_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/flightpool/flightpool/testserver"
)

func Example() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{}) // yours runs elsewhere
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	pool, err := flightpool.New(ctx, "grpc://"+server.Addr(), flightpool.Config{MaxSize: 8})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close(ctx)

	rows, err := pool.Query(ctx, "SELECT 'SFO' AS origin, 12.5 AS delay")
	if err != nil {
		log.Fatal(err)
	}
	type delay struct {
		Origin string
		Delay  float64
	}
	for d, err := range rowscan.Rows[delay](rows) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Origin, d.Delay)
	}
	// Output: SFO 12.5
}

func ExampleFlightSQLPool_AcquireSession() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	pool, err := flightpool.New(ctx, "grpc://"+server.Addr(), flightpool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close(ctx)
	if _, err := pool.Update(ctx, "CREATE TABLE account (id BIGINT, balance BIGINT)"); err != nil {
		log.Fatal(err)
	}

	s, err := pool.AcquireSession(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	err = s.WithTransaction(ctx, func(ctx context.Context, s *flightpool.SessionHandle) error {
		_, err := s.Update(ctx, "INSERT INTO account VALUES (1, 100), (2, 0)")
		return err
	})
	fmt.Println("committed:", err == nil)
	// Output: committed: true
}

func ExampleFlightSQLPool_Query_deadline() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	pool, err := flightpool.New(ctx, "grpc://"+server.Addr(), flightpool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close(ctx)

	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	_, err = pool.Query(short, "SELECT sleep('1h')")
	fmt.Println(err != nil, short.Err())
	// The server is told; its ledger shows when nothing runs any more.
	fmt.Println(server.Ledger().WaitIdle(ctx))
	// Output:
	// true context deadline exceeded
	// <nil>
}
