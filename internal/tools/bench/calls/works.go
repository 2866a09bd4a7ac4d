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
	against kind // 0: Flight SQL clients
	run     func(p peer, uri string) result
}

const size = 8 // connections, at most

var works = []work{
	{name: "select1_1", unit: "us/call", run: calls(1, 1500, 0, select1)},
	{name: "select1_8", unit: "us/call", against: flightClients | sqlDrivers, run: calls(8, 3000, 0, select1)},
	{name: "select1_8_deadline", unit: "us/call", run: calls(8, 3000, time.Minute, select1)},
	{name: "select1_64", unit: "us/call", run: calls(64, 3000, 0, select1)},
	{name: "params_8", unit: "us/call", run: calls(8, 2000, 0, withParam)},
	{name: "params_8_kept", unit: "us/call", run: keeping(calls(8, 2000, 0, withParam))},
	{name: "prepared_8", unit: "us/call", run: calls(8, 2000, 0, prepared)},
	{name: "fetch_2k", unit: "us/batch", against: flightClients | limits, run: fetch("ints", 2048, 6000, "")},
	{name: "fetch_16k", unit: "us/batch", against: flightClients | limits, run: fetch("ints", 16384, 1500, "")},
	{name: "fetch_64k", unit: "us/batch", against: flightClients | limits, run: fetch("ints", 65536, 400, "")},
	{name: "fetch_256k", unit: "us/batch", against: flightClients | limits, run: fetch("ints", 262144, 100, "")},
	{name: "fetch_wide", unit: "us/batch", against: flightClients | limits, run: fetch("mixed", 16384, 80, "")},
	{name: "fetch_4_endpoints", unit: "us/batch", run: fetch("ints", 16384, 1600, " 4")},
	{name: "structs", unit: "us/batch", against: flightClients | sqlDrivers, run: structs(8192, 40)},
	{name: "sql_select1_8", unit: "us/call", against: sqlDrivers, run: throughSQL(calls(8, 3000, 0, select1))},
	{name: "sql_rows", unit: "us/batch", against: sqlDrivers, run: throughSQL(structs(8192, 40))},
	{name: "ingest", unit: "us/batch", run: ingest("ints", 16384, 600)},
}

// A caller makes the call that a goroutine repeats, and what ends it.
type caller func(c client) (call func(ctx context.Context) error, end func())

const oneRow = "SELECT ints 1 1"

func select1(c client) (func(context.Context) error, func()) {
	return func(ctx context.Context) error { return rows(ctx, c, oneRow, 1) }, func() {}
}

func withParam(c client) (func(context.Context) error, func()) {
	p := c.(preparer)
	return func(ctx context.Context) error {
		return wanted(1)(p.withParam(ctx, oneRow, 7))
	}, func() {}
}

func prepared(c client) (func(context.Context) error, func()) {
	run, end := c.(preparer).prepare(context.Background(), oneRow)
	return func(ctx context.Context) error { return wanted(1)(run(ctx, 7)) }, end
}

// keeping has the pool keep its prepared statements.
func keeping(run func(peer, string) result) func(peer, string) result {
	return func(p peer, uri string) result {
		if p.name == peers[0].name {
			p.make = newKeeping
		}
		return run(p, uri)
	}
}

// calls makes n calls from several goroutines.
func calls(goroutines, n int, timeout time.Duration, of caller) func(peer, string) result {
	return func(p peer, uri string) result {
		c := p.make(uri, min(size, goroutines))
		defer c.close()
		makers := make(chan func(context.Context) error, goroutines) // one for each goroutine
		for range goroutines {
			call, end := of(c)
			defer end()
			makers <- call
		}
		run := func(ctx context.Context, n int) {
			var left atomic.Int64
			left.Store(int64(n))
			together(goroutines, func() {
				call := <-makers
				defer func() { makers <- call }()
				for left.Add(-1) >= 0 {
					must(bounded(ctx, timeout, call))
				}
			})
		}
		run(context.Background(), n/10) // open connections
		return timed(n, n, 1000, func(ctx context.Context) { run(ctx, n) })
	}
}

func bounded(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return call(ctx)
}

// fetch reads a result of so many batches, from as many endpoints as the text says behind
// them.
func fetch(shape string, rowsOfBatch, batches int, endpoints string) func(peer, string) result {
	return reading(rowsOfBatch, batches, func(ctx context.Context, c client, batches int) (int64, error) {
		return c.rows(ctx, fmt.Sprint("SELECT ", shape, " ", rowsOfBatch, " ", batches, endpoints))
	})
}

// structs reads a result into structs.
func structs(rowsOfBatch, batches int) func(peer, string) result {
	return reading(rowsOfBatch, batches, func(ctx context.Context, c client, batches int) (int64, error) {
		return c.(scanner).structs(ctx, fmt.Sprint("SELECT records ", rowsOfBatch, " ", batches))
	})
}

func reading(rowsOfBatch, batches int, get func(ctx context.Context, c client, batches int) (int64, error)) func(peer, string) result {
	return func(p peer, uri string) result {
		c := p.make(uri, 1)
		defer c.close()
		read := func(ctx context.Context, batches int) {
			must(wanted(int64(rowsOfBatch) * int64(batches))(get(ctx, c, batches)))
		}
		read(context.Background(), batches/10)
		return timed(batches, batches, 1000, func(ctx context.Context) { read(ctx, batches) })
	}
}

// rows makes one call and sees to it that all rows came.
func rows(ctx context.Context, c client, sql string, want int64) error {
	return wanted(want)(c.rows(ctx, sql))
}

func wanted(want int64) func(got int64, err error) error {
	return func(got int64, err error) error {
		if err == nil && got != want {
			err = fmt.Errorf("%d rows of %d", got, want)
		}
		return err
	}
}

func together(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}
