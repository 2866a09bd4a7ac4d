package export_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/export"
	"github.com/flightpool/flightpool/testserver"
)

func ExampleWrite() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{}) // yours is elsewhere
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	pool, err := flightpool.New(ctx, server.URI(), flightpool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close(ctx)

	rows, err := pool.Query(ctx, "SELECT 'Berlin' AS city, 'DE' AS country")
	if err != nil {
		log.Fatal(err)
	}
	defer rows.Release()
	n, err := export.Write(os.Stdout, rows, export.CSV)
	fmt.Println(n, err)
	// Output:
	// city,country
	// Berlin,DE
	// 1 <nil>
}

func ExampleNewWriter() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	pool, err := flightpool.New(ctx, server.URI(), flightpool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close(ctx)

	rows, err := pool.Query(ctx, "SELECT 7 AS n, NULL AS x")
	if err != nil {
		log.Fatal(err)
	}
	defer rows.Release()
	out, err := export.NewWriter(os.Stdout, rows.Schema(), export.JSON)
	if err != nil {
		log.Fatal(err)
	}
	for rows.Next() {
		if err := out.Write(rows.RecordBatch()); err != nil {
			log.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		log.Fatal(err)
	}
	if err := out.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// {"n":7,"x":null}
}
