package reservoir_test

import (
	"context"
	"fmt"
	"log"

	"github.com/flightpool/flightpool/reservoir"
)

func ExampleNew() {
	ctx := context.Background()
	opened := 0
	conns, err := reservoir.New(reservoir.Config[string]{
		Open: func(context.Context) (string, error) {
			opened++
			return fmt.Sprintf("connection %d", opened), nil
		},
		Close:   func(string) error { return nil },
		MaxSize: 1,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer conns.Close(ctx)
	for range 2 {
		loan, err := conns.Acquire(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(loan.Value())
		loan.Release()
	}
	// Output:
	// connection 1
	// connection 1
}
