//go:build !race && !invariants

package main

import (
	"context"
	"runtime"
	"testing"

	"github.com/flightpool/flightpool/flightpool"
)

// TestAnIdleConnectionAllocatesNoMoreThanAClient compares connections of a pool with as many of
// arrow-go's clients, each of which has made a call.
func TestAnIdleConnectionAllocatesNoMoreThanAClient(t *testing.T) {
	const conns = 200
	uri, stop := startServer()
	defer stop()
	measure := func() (heap, goroutines int) {
		var m runtime.MemStats
		for range 3 { // what sync.Pool keeps goes with the second
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
	}
	each := func(open func() (end func())) (heap, goroutines int) {
		heap, goroutines = measure()
		end := open()
		after, running := measure()
		end()
		return (after - heap) / conns, (running - goroutines) / conns
	}
	heap, goroutines := each(func() func() {
		pool, err := flightpool.New(t.Context(), uri, flightpool.Config{MinIdle: conns, MaxSize: conns})
		must(err)
		must(pool.WaitReady(t.Context(), conns))
		return func() { must(pool.Close(context.Background())) }
	})
	peerHeap, peerGoroutines := each(func() func() {
		b := newBare(uri, conns).(bare)
		for range conns { // each in turn
			_, err := b.rows(t.Context(), "SELECT ints 1 1")
			must(err)
		}
		return b.close
	})
	t.Logf("an idle connection: %d bytes and %d goroutines, a client of arrow-go's %d and %d", heap, goroutines, peerHeap, peerGoroutines)
	if goroutines > 1 {
		t.Errorf("an idle connection has %d goroutines", goroutines)
	}
	if heap > peerHeap {
		t.Errorf("an idle connection takes %d bytes, a client of arrow-go's %d", heap, peerHeap)
	}
}
