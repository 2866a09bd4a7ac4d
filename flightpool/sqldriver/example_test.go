package sqldriver_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/sqldriver"
	"github.com/flightpool/flightpool/testserver"
)

func Example() {
	server, err := testserver.Start(testserver.Options{}) // yours runs elsewhere
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	db, err := sql.Open("flightpool", "grpc://"+server.Addr()+"?max_size=4")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	var n int64
	fmt.Println(db.QueryRow("SELECT 42").Scan(&n), n)
	// Output: <nil> 42
}

func ExampleOpenDB() {
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

	db := sqldriver.OpenDB(pool) // closing it leaves the pool
	var n int64
	fmt.Println(db.QueryRow("SELECT 42").Scan(&n), n, db.Close(), pool.Ping(ctx))
	// Output: <nil> 42 <nil> <nil>
}
