package lease_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/lease"
)

func ExampleNewLeases() {
	ctx, stop := context.WithCancel(context.Background())
	leases := lease.NewLeases("warehouse", 1)
	release, err := leases.Acquire(ctx)
	fmt.Println(err)
	stop() // nobody waits
	_, err = leases.Acquire(ctx)
	fmt.Println(errors.Is(err, lease.ErrLimit))
	release()
	// Output:
	// <nil>
	// true
}

func ExampleNewLimiter() {
	limiter := lease.NewLimiter("warehouse", 0.1, 2) // two at once, then one in ten seconds
	ctx, stop := context.WithCancel(context.Background())
	fmt.Println(limiter.Wait(ctx), limiter.Wait(ctx))
	stop() // nobody waits
	fmt.Println(errors.Is(limiter.Wait(ctx), lease.ErrLimit))
	// Output:
	// <nil> <nil>
	// true
}

func ExampleAdmit() {
	admit := lease.Admit(lease.NewLeases("warehouse", 20), lease.NewLimiter("warehouse", 5, 5))
	release, err := admit(context.Background()) // a reservoir does so before each open
	fmt.Println(err)
	release() // and this when the connection is closed
	// Output: <nil>
}
