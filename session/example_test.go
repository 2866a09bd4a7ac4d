package session_test

import (
	"context"
	"fmt"
	"log"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/session"
	"github.com/flightpool/flightpool/testserver"
)

// acquire takes a session out of a pool on a server of this process, with a table.
func acquire(ctx context.Context) (s *session.SessionHandle, stop func()) {
	server, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
	if err != nil {
		log.Fatal(err)
	}
	pool, err := flightpool.New(ctx, server.URI(), flightpool.Config{Dialer: server.Dial})
	if err != nil {
		log.Fatal(err)
	}
	s, err = pool.AcquireSession(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Update(ctx, "CREATE TABLE account (id BIGINT)"); err != nil {
		log.Fatal(err)
	}
	return s, func() {
		_ = s.Close()
		_ = pool.Close(ctx)
		_ = server.Close()
	}
}

func ExampleSessionHandle_BeginTransaction() {
	ctx := context.Background()
	s, stop := acquire(ctx) // pool.AcquireSession
	defer stop()

	if err := s.BeginTransaction(ctx); err != nil {
		log.Fatal(err)
	}
	_, err := s.Update(ctx, "INSERT INTO account VALUES (1)")
	fmt.Println(err, s.Commit(ctx))
	// Output: <nil> <nil>
}

func ExampleSessionHandle_Savepoint() {
	ctx := context.Background()
	s, stop := acquire(ctx) // pool.AcquireSession
	defer stop()

	err := s.WithTransaction(ctx, func(ctx context.Context, s *session.SessionHandle) error {
		if err := s.Savepoint(ctx, "before"); err != nil {
			return err
		}
		_, err := s.Update(ctx, "INSERT INTO nowhere VALUES (1)")
		fmt.Println(err != nil)
		return s.RollbackTo(ctx, "before") // the transaction goes on
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

func ExampleSessionHandle_PrepareQuery() {
	ctx := context.Background()
	s, stop := acquire(ctx) // pool.AcquireSession
	defer stop()

	insert, err := s.PrepareQuery(ctx, "INSERT INTO account VALUES (?)")
	if err != nil {
		log.Fatal(err)
	}
	defer insert.Close(ctx)
	for id := range 2 {
		result, err := insert.Update(ctx, id)
		fmt.Println(result.RowsAffected, err)
	}
	// Output:
	// 1 <nil>
	// 1 <nil>
}
