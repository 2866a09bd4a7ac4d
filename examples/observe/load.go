package main

import (
	"context"
	"sync"
	"time"

	"github.com/flightpool/flightpool/flightpool"
)

// There are more callers than connections, so that some wait.
const connections, callers = 4, 6

// The statements of the load: short ones, a long one under a deadline, one that fails.
const (
	short   = "SELECT origin, avg(delay) FROM flights GROUP BY origin"
	long    = "SELECT sum(hash(a.delay * b.distance) % 1000) FROM flights a, flights b"
	failing = "SELECT * FROM nowhere"
)

// load calls the pool until ctx ends. What fails is for the metrics to show.
func load(ctx context.Context, pool *flightpool.FlightSQLPool) {
	var done sync.WaitGroup
	defer done.Wait()
	for range callers {
		done.Go(func() {
			for i := 1; ctx.Err() == nil; i++ {
				switch {
				case i%50 == 0:
					call(ctx, pool, long, 200*time.Millisecond)
				case i%20 == 0:
					call(ctx, pool, failing, time.Second)
				default:
					call(ctx, pool, short, 10*time.Second)
				}
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
}

func call(ctx context.Context, pool *flightpool.FlightSQLPool, sql string, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	rows, err := pool.Query(ctx, sql)
	if err != nil {
		return
	}
	defer rows.Release()
	for rows.Next() {
		continue
	}
}

// pause leaves the machine something to do besides.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
