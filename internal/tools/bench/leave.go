package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// lead is how long so many callers have to join the queue before their
// deadlines are over.
const lead = 8 * time.Second

// leaveCancelled has n callers wait for one connection, all on one context.
func leaveCancelled(p peer, n int) result {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return leave(p, n, func() (context.Context, context.CancelFunc) { return ctx, func() {} }, cancel)
}

// leaveLate has n callers wait for one connection, each with a context of its
// own, whose deadlines are over at one moment.
func leaveLate(p peer, n int) result {
	deadline := time.Now().Add(lead)
	own := func() (context.Context, context.CancelFunc) {
		return context.WithDeadline(context.Background(), deadline)
	}
	return leave(p, n, own, func() {
		if time.Now().After(deadline.Add(-100 * time.Millisecond)) {
			panic("bench: the callers were not ready before their deadlines")
		}
		time.Sleep(time.Until(deadline) - time.Millisecond)
	})
}

// leave has n callers wait in vain for a connection, then ends their contexts,
// and measures the processor time until all have left.
func leave(p peer, n int, own func() (context.Context, context.CancelFunc), end func()) result {
	pool := p.make(setting{size: 1})
	defer pool.close()
	held, free := make(chan struct{}), make(chan struct{})
	var holder, ready, left sync.WaitGroup
	holder.Go(func() { must(pool.cycle(context.Background(), func() { close(held); <-free })) })
	<-held
	ready.Add(n)
	for range n {
		left.Go(func() {
			ctx, cancel := own()
			defer cancel()
			ready.Done()
			if pool.cycle(ctx, nil) == nil {
				panic("bench: a caller got the connection that another holds")
			}
		})
	}
	ready.Wait()
	runtime.GC() // also lets the last ones reach the queue
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	time.Sleep(300 * time.Millisecond)

	over := make(chan struct{})
	before := processorTime()
	end()
	go func() { left.Wait(); close(over) }()
	wait, yield := longestLook(pool, over)
	used := processorTime() - before
	close(free)
	holder.Wait()
	return result{value: ms(used), wait: ms(wait), yield: ms(yield)}
}

// longestLook looks at the pool every half millisecond until over, and yields the
// processor as often.
func longestLook(pool pool, over <-chan struct{}) (look, yield time.Duration) {
	for {
		began := time.Now()
		pool.look()
		looked := time.Now()
		look = max(look, looked.Sub(began))
		runtime.Gosched()
		yield = max(yield, time.Since(looked))
		select {
		case <-over:
			return look, yield
		case <-time.After(500 * time.Microsecond):
		}
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
