package flightpool

import (
	"context"
	"sync"
)

// background counts the goroutines of a pool that outlive the call they belong
// to. Unlike a sync.WaitGroup it may grow from zero beside wait: a session that
// a forced Close has left behind can still start one.
type background struct {
	mu struct { // guards the fields below
		sync.Mutex
		running int
		ended   chan struct{} // closed when running reaches zero; nil when nobody waits
	}
}

// Go runs f in a goroutine.
func (b *background) Go(f func()) {
	b.mu.Lock()
	b.mu.running++
	b.mu.Unlock()
	go func() {
		defer b.done() // f may panic or end its goroutine
		f()
	}()
}

func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.running--; b.mu.running == 0 && b.mu.ended != nil {
		close(b.mu.ended)
		b.mu.ended = nil
	}
}

// wait returns how many still run when ctx ends, or 0 as soon as none does.
func (b *background) wait(ctx context.Context) int {
	b.mu.Lock()
	if b.mu.running == 0 {
		b.mu.Unlock()
		return 0
	}
	if b.mu.ended == nil {
		b.mu.ended = make(chan struct{})
	}
	ended := b.mu.ended
	b.mu.Unlock()
	select {
	case <-ended:
		return 0
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.running
}
