package adbcpool_test

import (
	"context"
	"fmt"
	"log"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
	"github.com/flightpool/flightpool/testserver"
)

func ExampleOpen() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{}) // yours runs elsewhere
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	pool, err := adbcpool.Open(ctx, "grpc://"+server.Addr(), flightpool.Config{MaxSize: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close(ctx)
	n, err := flightpool.CollectOneRow[int64](pool.Query(ctx, "SELECT 42"))
	fmt.Println(n, err)
	// Output: 42 <nil>
}

func ExampleDatabase() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	pool, err := flightpool.New(ctx, server.URI(), flightpool.Config{Dialer: server.Dial})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close(ctx)

	conn, err := adbcpool.Database(pool).Open(ctx) // for whatever takes an adbc.Database
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	statement, err := conn.NewStatement()
	if err != nil {
		log.Fatal(err)
	}
	defer statement.Close()
	if err := statement.SetSqlQuery("SELECT 42"); err != nil {
		log.Fatal(err)
	}
	reader, _, err := statement.ExecuteQuery(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Release()
	for reader.Next() {
		fmt.Println(reader.RecordBatch().Column(0))
	}
	// Output: [42]
}
