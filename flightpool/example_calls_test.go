package flightpool_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// start makes a pool on a server of this process, with a table of accounts.
func start(ctx context.Context) (pool *flightpool.FlightSQLPool, stop func()) {
	server, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
	if err != nil {
		log.Fatal(err)
	}
	pool, err = flightpool.New(ctx, server.URI(), flightpool.Config{Dialer: server.Dial})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Update(ctx, "CREATE TABLE account (id BIGINT, balance BIGINT)"); err != nil {
		log.Fatal(err)
	}
	return pool, func() {
		_ = pool.Close(ctx)
		_ = server.Close()
	}
}

func ExampleNew() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{Users: map[string]string{"app": "s3cret/with?signs"}})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	pool, err := flightpool.New(ctx, "grpc://"+server.Addr(), flightpool.Config{
		MinIdle: 2, MaxSize: 8,
		Auth: flightpool.BasicAuth("app", "s3cret/with?signs"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close(ctx)
	fmt.Println(pool.WaitReady(ctx, 2), pool.Stats().Idle)
	// Output: <nil> 2
}

func ExampleParseTarget() {
	target, cfg, err := flightpool.ParseTarget("flightsql://app:s3cret%2F@warehouse:31337/?max_size=8&idle_ttl=1m")
	fmt.Println(target, cfg.MaxSize, cfg.IdleTTL, err)
	// Output: grpc+tls://warehouse:31337 8 1m0s <nil>
}

func ExampleFlightSQLPool_Query() {
	ctx := context.Background()
	pool, stop := start(ctx) // flightpool.New
	defer stop()

	rows, err := pool.Query(ctx, "SELECT 7 AS id")
	if err != nil {
		log.Fatal(err)
	}
	defer rows.Release()
	for rows.Next() {
		fmt.Println(rows.RecordBatch().Schema().Field(0).Name, rows.RecordBatch().Column(0))
	}
	fmt.Println(rows.Err())
	// Output:
	// id [7]
	// <nil>
}

func ExampleFlightSQLPool_Update() {
	ctx := context.Background()
	pool, stop := start(ctx) // flightpool.New
	defer stop()

	result, err := pool.Update(ctx, "INSERT INTO account VALUES (?, ?)", 1, 100)
	fmt.Println(result.RowsAffected, err)
	// Output: 1 <nil>
}

func ExampleFlightSQLPool_Ingest() {
	ctx := context.Background()
	pool, stop := start(ctx) // flightpool.New
	defer stop()

	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "balance", Type: arrow.PrimitiveTypes.Int64},
	}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2}, nil)
	b.Field(1).(*array.Int64Builder).AppendValues([]int64{100, 0}, nil)
	batch := b.NewRecordBatch()
	defer batch.Release()
	rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
	if err != nil {
		log.Fatal(err)
	}
	defer rows.Release()

	n, err := pool.Ingest(ctx, "account", rows, flightpool.IngestOptions{})
	fmt.Println(n, err)
	// Output: 2 <nil>
}

func ExampleCollectRows() {
	ctx := context.Background()
	pool, stop := start(ctx) // flightpool.New
	defer stop()
	if _, err := pool.Update(ctx, "INSERT INTO account VALUES (1, 100), (2, 0)"); err != nil {
		log.Fatal(err)
	}

	type account struct{ ID, Balance int64 }
	accounts, err := flightpool.CollectRows[account](pool.Query(ctx, "SELECT * FROM account"))
	fmt.Println(accounts, err)
	// Output: [{1 100} {2 0}] <nil>
}

func ExampleCollectOneRow() {
	ctx := context.Background()
	pool, stop := start(ctx) // flightpool.New
	defer stop()

	count, err := flightpool.CollectOneRow[int64](pool.Query(ctx, "SELECT count(*) FROM account"))
	fmt.Println(count, err)
	_, err = flightpool.CollectOneRow[struct{ ID int64 }](pool.Query(ctx, "SELECT * FROM account"))
	fmt.Println(errors.Is(err, flightpool.ErrNoRows))
	// Output:
	// 0 <nil>
	// true
}

func ExampleFlightSQLPool_WithSession() {
	ctx := context.Background()
	pool, stop := start(ctx) // flightpool.New
	defer stop()

	err := pool.WithSession(ctx, func(ctx context.Context, s *flightpool.SessionHandle) error {
		if _, err := s.Update(ctx, "CREATE TEMP TABLE mine (id BIGINT)"); err != nil {
			return err
		}
		insert, err := s.PrepareQuery(ctx, "INSERT INTO mine VALUES (?)")
		if err != nil {
			return err
		}
		defer insert.Close(ctx)
		for id := range 3 {
			if _, err := insert.Update(ctx, id); err != nil {
				return err
			}
		}
		var n int64
		err = s.QueryRow(ctx, "SELECT count(*) FROM mine").Scan(&n)
		fmt.Println(n, err)
		return err
	}) // the table is gone
	fmt.Println(err)
	// Output:
	// 3 <nil>
	// <nil>
}

func ExampleSafeToRetry() {
	ctx := context.Background()
	pool, stop := start(ctx) // flightpool.New
	stop()

	_, err := pool.Update(ctx, "INSERT INTO account VALUES (1, 100)")
	var failed *flightpool.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Fault, failed.Stage)
	}
	fmt.Println(errors.Is(err, flightpool.ErrClosed), flightpool.SafeToRetry(err)) // it would fail again
	// Output:
	// usage acquire
	// true false
}

func ExampleFlightSQLPool_Stats() {
	ctx := context.Background()
	pool, stop := start(ctx) // flightpool.New
	defer stop()

	s, err := pool.AcquireSession(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().InUse)
	fmt.Println(s.Close(), pool.Stats().InUse)
	// Output:
	// 1
	// <nil> 0
}

func ExampleFlightSQLPool_SendBatch() {
	ctx := context.Background()
	pool, stop := start(ctx) // flightpool.New
	defer stop()

	var accounts int64
	var found []struct{ ID, Balance int64 }
	var b flightpool.Batch
	b.Queue("INSERT INTO account VALUES (?, ?)", 1, 100)
	b.Queue("INSERT INTO account VALUES (?, ?)", 2, 50)
	b.Queue("SELECT count(*) FROM account").Scan(&accounts)
	b.Queue("SELECT * FROM account WHERE id = 2").Query(func(rows *flightpool.QueryResult) (err error) {
		found, err = flightpool.CollectRows[struct{ ID, Balance int64 }](rows, nil)
		return err
	})
	fmt.Println(pool.SendBatch(ctx, &b), accounts, found)

	b.Queue("INSERT INTO acount VALUES (3, 0)")
	b.Queue("SELECT 1")
	var failed *flightpool.BatchError
	err := pool.InTx(ctx, flightpool.TxOptions{}, func(ctx context.Context, tx *flightpool.Tx) error { return tx.SendBatch(ctx, &b) })
	fmt.Println(errors.As(err, &failed), failed.Index, failed.Len)
	fmt.Println(pool.QueryRow(ctx, "SELECT count(*) FROM account").Scan(&accounts), accounts)
	// Output:
	// <nil> 2 [{2 50}]
	// true 4 6
	// <nil> 2
}
