package dsql

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/reservoir"
)

// A watermark lets opens ask for a permit one at a time while enough connections
// are ready, and all that are missing at once while fewer are.
type watermark struct {
	ready func() int    // counts the idle connections
	low   int           // enough
	slot  chan struct{} // holds the one open that may ask while enough are ready

	waiting atomic.Int64 // opens that wait for the slot
	mu      sync.Mutex
	// INVARIANT: an open that waits for the slot listens to lowSignal, and has called
	// ready after it began to.
	lowSignal chan struct{} // closed when fewer are ready
}

func newWatermark(low int, ready func() int) *watermark {
	return &watermark{ready: ready, low: low, slot: make(chan struct{}, 1), lowSignal: make(chan struct{})}
}

// waitSlot waits until an open may ask. leave frees the slot.
func (w *watermark) waitSlot(ctx context.Context) (leave func(), err error) {
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	w.mu.Lock()
	need := w.lowSignal
	w.mu.Unlock()
	if w.ready() < w.low {
		return func() {}, nil
	}
	select {
	case w.slot <- struct{}{}:
		return func() { <-w.slot }, nil
	case <-need:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// wakeIfLow lets all in who wait, if fewer are ready than are enough.
func (w *watermark) wakeIfLow() {
	if w.waiting.Load() == 0 || w.ready() >= w.low {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.lowSignal)
	w.lowSignal = make(chan struct{})
}

// hooks looks whenever fewer connections may be ready than before.
func (w *watermark) hooks(h reservoir.Hooks) reservoir.Hooks {
	acquired, closing, waits := h.Acquired, h.Closing, h.WaitStart
	h.Acquired = func(waited time.Duration) {
		w.wakeIfLow()
		if acquired != nil {
			acquired(waited)
		}
	}
	h.Closing = func(reason reservoir.Reason, cause error) {
		w.wakeIfLow()
		if closing != nil {
			closing(reason, cause)
		}
	}
	h.WaitStart = func() {
		w.wakeIfLow()
		if waits != nil {
			waits()
		}
	}
	return h
}
