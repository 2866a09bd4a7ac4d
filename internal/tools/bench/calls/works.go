package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// A work is something a client is measured at. Less is better.
type work struct {
	name string
	unit string
	run  func(p peer, uri string) result
}

const (
	size       = 8 // connections, at most
	streamRows = 6_000_000
)

var works = []work{
	{name: "small_1", unit: "us/call", run: small(1, 1500)},
	{name: "small_8", unit: "us/call", run: small(8, 4000)},
	{name: "small_64", unit: "us/call", run: small(64, 4000)},
	{name: "stream", unit: "ns/row", run: stream},
}

// small makes n calls from several goroutines.
func small(goroutines, n int) func(peer, string) result {
	return func(p peer, uri string) result {
		c := p.make(uri, min(size, goroutines))
		defer c.close()
		together(size, func() { must(rows(context.Background(), c, "SELECT 1", 1)) }) // open connections
		return timed(n, n, 1000, func(ctx context.Context) {
			var left atomic.Int64
			left.Store(int64(n))
			together(goroutines, func() {
				for left.Add(-1) >= 0 {
					must(rows(ctx, c, "SELECT 1", 1))
				}
			})
		})
	}
}

func stream(p peer, uri string) result {
	c := p.make(uri, 1)
	defer c.close()
	must(rows(context.Background(), c, "SELECT 1", 1))
	return timed(1, streamRows, 1, func(ctx context.Context) {
		must(rows(ctx, c, fmt.Sprintf("SELECT * FROM generate(%d, 16384)", streamRows), streamRows))
	})
}

// rows makes one call and sees to it that all rows came.
func rows(ctx context.Context, c client, sql string, want int64) error {
	got, err := c.rows(ctx, sql)
	if err == nil && got != want {
		err = fmt.Errorf("%d rows of %d", got, want)
	}
	return err
}

func together(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}
