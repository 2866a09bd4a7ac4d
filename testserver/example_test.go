package testserver_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

func ExampleStart() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{Profile: testserver.SwanLake()})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	pool, err := flightpool.New(ctx, server.URI(), flightpool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close(ctx)
	_, err = pool.Update(ctx, "CREATE TABLE orders (id BIGINT)")
	fmt.Println(err, len(server.Ledger().Executions("CREATE TABLE orders (id BIGINT)")))
	// Output: <nil> 1
}

func ExampleFaults_Set() {
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

	err = pool.InTx(ctx, flightpool.TxOptions{}, func(ctx context.Context, tx *flightpool.Tx) error {
		// The server will commit, and its reply be lost.
		server.Faults().Set(testserver.Fault{On: testserver.OnEnd, After: true, Times: 1, Do: testserver.Kill()})
		_, err := tx.Update(ctx, "CREATE TABLE orders (id BIGINT)")
		return err
	})
	fmt.Println(errors.Is(err, flightpool.ErrCommitUnknown))
	// Output: true
}
