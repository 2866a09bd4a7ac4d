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
	turn  chan struct{} // holds the one open that may ask while enough are ready

	waiting atomic.Int64 // opens that wait for their turn
	mu      sync.Mutex
	// INVARIANT: whoever waits for its turn listens to need, and looked at ready
	// after it began to.
	need chan struct{} // closed when fewer are ready
}

func newWatermark(low int, ready func() int) *watermark {
	return &watermark{ready: ready, low: low, turn: make(chan struct{}, 1), need: make(chan struct{})}
}

// enter waits until an open may ask. leave ends its turn.
func (w *watermark) enter(ctx context.Context) (leave func(), err error) {
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	w.mu.Lock()
	need := w.need
	w.mu.Unlock()
	if w.ready() < w.low {
		return func() {}, nil
	}
	select {
	case w.turn <- struct{}{}:
		return func() { <-w.turn }, nil
	case <-need:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// look lets all in who wait, if fewer are ready than are enough.
func (w *watermark) look() {
	if w.waiting.Load() == 0 || w.ready() >= w.low {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.need)
	w.need = make(chan struct{})
}

// hooks looks whenever fewer connections may be ready than before.
func (w *watermark) hooks(h reservoir.Hooks) reservoir.Hooks {
	acquired, closing, waits := h.Acquired, h.Closing, h.WaitStart
	h.Acquired = func(waited time.Duration) {
		w.look()
		if acquired != nil {
			acquired(waited)
		}
	}
	h.Closing = func(reason reservoir.Reason, cause error) {
		w.look()
		if closing != nil {
			closing(reason, cause)
		}
	}
	h.WaitStart = func() {
		w.look()
		if waits != nil {
			waits()
		}
	}
	return h
}
