package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A work is something a client is measured at. Less is better.
type work struct {
	name    string
	unit    string
	alsoSQL bool // against database/sql too
	run     func(p peer, uri string) result
}

const size = 8 // connections, at most

var works = []work{
	{name: "select1_1", unit: "us/call", run: select1(1, 1500, 0)},
	{name: "select1_8", unit: "us/call", alsoSQL: true, run: select1(8, 3000, 0)},
	{name: "select1_8_deadline", unit: "us/call", run: select1(8, 3000, time.Minute)},
	{name: "select1_64", unit: "us/call", run: select1(64, 3000, 0)},
	{name: "fetch_2k", unit: "us/batch", run: fetch("ints", 2048, 6000)},
	{name: "fetch_16k", unit: "us/batch", run: fetch("ints", 16384, 1500)},
	{name: "fetch_64k", unit: "us/batch", run: fetch("ints", 65536, 400)},
	{name: "fetch_256k", unit: "us/batch", run: fetch("ints", 262144, 100)},
	{name: "fetch_wide", unit: "us/batch", run: fetch("mixed", 16384, 80)},
}

// select1 makes n calls from several goroutines.
func select1(goroutines, n int, timeout time.Duration) func(peer, string) result {
	return func(p peer, uri string) result {
		c := p.make(uri, min(size, goroutines))
		defer c.close()
		one := func(ctx context.Context) {
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			must(rows(ctx, c, "SELECT ints 1 1", 1))
		}
		run := func(ctx context.Context, n int) {
			var left atomic.Int64
			left.Store(int64(n))
			together(goroutines, func() {
				for left.Add(-1) >= 0 {
					one(ctx)
				}
			})
		}
		run(context.Background(), n/10) // open connections
		return timed(n, n, 1000, func(ctx context.Context) { run(ctx, n) })
	}
}

// fetch reads a result of so many batches.
func fetch(shape string, rowsOfBatch, batches int) func(peer, string) result {
	return func(p peer, uri string) result {
		c := p.make(uri, 1)
		defer c.close()
		read := func(ctx context.Context, batches int) {
			must(rows(ctx, c, fmt.Sprint("SELECT ", shape, " ", rowsOfBatch, " ", batches), int64(rowsOfBatch)*int64(batches)))
		}
		read(context.Background(), batches/10)
		return timed(batches, batches, 1000, func(ctx context.Context) { read(ctx, batches) })
	}
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
