package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A result is one measurement.
type result struct {
	value  float64 // in the work's unit
	allocs float64 // per operation
	opens  int
	wait   float64 // the longest wait for the pool's lock, in milliseconds
	yield  float64 // the longest wait for the processor, likewise
}

// A work is something a pool is measured at. Less is better.
type work struct {
	name string
	unit string
	run  func(p peer, n int) result
	n    int // operations of a round
	// waits says that the waits for the pool's lock are measured too.
	waits bool
	// ages says that only peers can do it that replace old connections.
	ages bool
	// locks says that the time is that of the lock, more or less: a limit is measured too.
	locks bool
}

var works = []work{
	{name: "acquire_release", unit: "ns/op", n: 400_000, run: func(p peer, n int) result { return cycles(p, setting{size: 4}, 1, n, nil) }, locks: true},
	{name: "acquire_release_full", unit: "ns/op", n: 400_000, run: func(p peer, n int) result { return cycles(p, setting{size: 4, minIdle: 4}, 1, n, nil) }, locks: true},
	{name: "parallel", unit: "ns/op", n: 400_000, run: func(p peer, n int) result { return cycles(p, setting{size: 256}, 32, n, nil) }, locks: true},
	{name: "starved", unit: "ns/op", n: 200_000, run: func(p peer, n int) result { return cycles(p, setting{size: 4}, 128, n, nil) }},
	{name: "handoff", unit: "ns/op", n: 200_000, run: func(p peer, n int) result { return cycles(p, setting{size: 4}, 128, n, runtime.Gosched) }},
	{name: "handoff_busy", unit: "us/op", n: 400, run: busyHandoff},
	{name: "spike", unit: "ms", n: 50, run: spike},
	{name: "expiry", unit: "us/op", n: 4000, run: expiry, ages: true},
	{name: "leave_cancel", unit: "ms", n: 100_000, run: leaveCancelled, waits: true},
	{name: "leave_deadline", unit: "ms", n: 100_000, run: leaveLate, waits: true},
}

// measure has a peer do the work.
func (w work) measure(p peer) result {
	if !w.waits {
		return w.run(p, w.n)
	}
	self, err := os.Executable()
	must(err)
	out, err := exec.Command(self, "-work", w.name, "-once", p.name).Output() //nolint:gosec // itself
	must(err)
	var r result
	_, err = fmt.Sscan(string(out), &r.value, &r.wait, &r.yield)
	must(err)
	return r
}

// printOnce does a work of which measure is told by another process.
func (w work) printOnce(peer string) {
	for _, p := range append(slices.Clone(peers), ours) {
		if p.name == peer {
			r := w.run(p, w.n)
			fmt.Println(r.value, r.wait, r.yield)
		}
	}
}

// cycles borrows and returns n times, from several goroutines. A use that lets
// others run makes sure that they find the connection taken.
func cycles(p peer, s setting, goroutines, n int, use func()) result {
	ctx := context.Background()
	pool := p.make(s)
	defer pool.close()
	warm(ctx, pool, max(s.minIdle, min(s.size, goroutines)))
	runtime.GC()
	before := mallocs()
	began := time.Now()
	var left atomic.Int64
	left.Store(int64(n))
	together(goroutines, func() {
		for left.Add(-64) >= 0 {
			for range 64 {
				must(pool.cycle(ctx, use))
			}
		}
	})
	took := time.Since(began)
	return result{
		value:  float64(took.Nanoseconds()) / float64(n),
		allocs: float64(mallocs()-before) / float64(n),
		opens:  pool.opens(),
	}
}

// busyHandoff lets 16 goroutines share one connection: each uses it for 50us, in which it
// computes nothing, returns it and then computes for 20us. It gives how long the connection
// that was returned was without its next borrower on average.
func busyHandoff(p peer, n int) result {
	ctx := context.Background()
	pool := p.make(setting{size: 1})
	defer pool.close()
	warm(ctx, pool, 1)
	var returned time.Time // the connection's borrower's
	var between time.Duration
	var left atomic.Int64
	left.Store(int64(n))
	together(16, func() {
		for left.Add(-1) >= 0 {
			must(pool.cycle(ctx, func() {
				if !returned.IsZero() {
					between += time.Since(returned)
				}
				time.Sleep(50 * time.Microsecond)
				returned = time.Now()
			}))
			for end := time.Now().Add(20 * time.Microsecond); time.Now().Before(end); {
			}
		}
	})
	return result{value: float64(between.Nanoseconds()) / 1000 / float64(n), opens: pool.opens()}
}

// spike lets n callers at once find 5 idle connections of at most 50, where an
// open takes 150ms and a use 2ms. It is over when all are served.
func spike(p peer, n int) result {
	ctx := context.Background()
	pool := p.make(setting{size: 50, dial: 150 * time.Millisecond})
	defer pool.close()
	warm(ctx, pool, 5)
	idle := pool.opens()
	began := time.Now()
	together(n, func() {
		must(pool.cycle(ctx, func() { time.Sleep(2 * time.Millisecond) }))
	})
	took := time.Since(began)
	return result{value: float64(took.Microseconds()) / 1000, opens: pool.opens() - idle}
}

// expiry borrows n times from 8 connections that live 200ms and take 20ms to open, for 1ms
// each. It gives how long a borrower has waited on average.
func expiry(p peer, n int) result {
	ctx := context.Background()
	pool := p.make(setting{size: 8, minIdle: 8, life: 200 * time.Millisecond, dial: 20 * time.Millisecond})
	defer pool.close()
	warm(ctx, pool, 8)
	var waited, left atomic.Int64
	left.Store(int64(n))
	together(4, func() {
		for left.Add(-1) >= 0 {
			began := time.Now()
			must(pool.cycle(ctx, func() { waited.Add(int64(time.Since(began))); time.Sleep(time.Millisecond) }))
		}
	})
	return result{value: float64(waited.Load()) / 1000 / float64(n), opens: pool.opens()}
}

// warm has n connections opened, all on loan at the same time.
func warm(ctx context.Context, pool pool, n int) {
	var borrowed sync.WaitGroup
	borrowed.Add(n)
	together(n, func() {
		must(pool.cycle(ctx, func() { borrowed.Done(); borrowed.Wait() }))
	})
}

func together(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
