package flightpool_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/flightpool/flightpool/flightpool"
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

	type delay struct {
		Origin string
		Delay  float64
	}
	delays, err := flightpool.CollectRows[delay](pool.Query(ctx, "SELECT 'SFO' AS origin, 12.5 AS delay"))
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range delays {
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

func ExampleFlightSQLPool_QueryRow() {
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
	if _, err := pool.Update(ctx, "INSERT INTO account VALUES (?, ?)", 1, 100); err != nil {
		log.Fatal(err)
	}

	var id, balance int64
	err = pool.QueryRow(ctx, "SELECT * FROM account WHERE id = ?", 1).Scan(&id, &balance)
	fmt.Println(balance, err)
	err = pool.QueryRow(ctx, "SELECT * FROM account WHERE id = ?", 2).Scan(&id, &balance)
	fmt.Println(errors.Is(err, flightpool.ErrNoRows))
	// Output:
	// 100 <nil>
	// true
}

func ExampleFlightSQLPool_InTx() {
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

	// Run again when it conflicts with another transaction.
	err = pool.InTx(ctx, flightpool.TxOptions{}, func(ctx context.Context, tx *flightpool.Tx) error {
		if _, err := tx.Update(ctx, "INSERT INTO account VALUES (?, ?)", 1, 100); err != nil {
			return err
		}
		_, err := tx.Update(ctx, "INSERT INTO account VALUES (?, ?)", 2, 0)
		return err
	})
	fmt.Println("committed:", err == nil)
	// Output: committed: true
}

func ExampleFlightSQLPool_BeginTx() {
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

	store := func() error {
		tx, err := pool.BeginTx(ctx, flightpool.TxOptions{})
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) // does nothing after Commit
		if _, err := tx.Update(ctx, "INSERT INTO account VALUES (?, ?)", 1, 100); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	fmt.Println(store())
	// Output: <nil>
}

func ExampleRows() {
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

	type delay struct {
		Origin string
		Delay  *float64 `arrow:"avg_delay"`
		Gate   string   `arrow:",optional"` // zero where the result has no such column
	}
	for d, err := range flightpool.Rows[delay](pool.Query(ctx, "SELECT 'SFO' AS origin, 12.5 AS avg_delay")) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Origin, *d.Delay)
	}

	row, err := flightpool.CollectOneRow[map[string]any](pool.Query(ctx, "SELECT 'SFO' AS origin, 12.5 AS avg_delay"))
	fmt.Println(row, err)
	// Output:
	// SFO 12.5
	// map[avg_delay:12.5 origin:SFO] <nil>
}

func ExampleIngestRows() {
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

	type flight struct {
		FlightNo int // the column flight_no
		Origin   string
	}
	flights := []flight{{10, "SFO"}, {11, "BER"}}
	n, err := flightpool.IngestRows(ctx, pool, "flights", slices.Values(flights), flightpool.IngestOptions{})
	fmt.Println(n, err)
	// Output: 2 <nil>
}
