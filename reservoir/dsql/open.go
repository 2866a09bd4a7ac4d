package dsql

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/reservoir"
)

// admitOpen waits for the permission of one open.
func (c *Cluster) admitOpen(ctx context.Context) (func(), error) {
	<-c.started
	leave, err := c.watermark.waitSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := c.breaker.waitPause(ctx); err != nil {
		return nil, err
	}
	release, err := c.admitByBudgets(ctx)
	if err != nil && ctx.Err() == nil {
		c.counters.unpermitted.Add(1)
	}
	return release, err
}

// openRetrying opens a connection, and tries again for as long as ctx lasts when the
// cluster refuses it for its limits: that is no answer to give to a caller. When ctx
// does not last, those who wait go on waiting (view.borrowWaiting) for the next open.
func (c *Cluster) openRetrying(ctx context.Context, dial func(context.Context) (*physical, error)) (*physical, error) {
	var refusal error
	for {
		p, err := c.openOnce(ctx, dial, refusal != nil)
		if err == nil {
			c.mu.Lock()
			c.openConns[p] = struct{}{}
			c.mu.Unlock()
			return p, nil
		}
		var refused *OpenError
		switch made := errors.As(err, &refused); {
		case refusal != nil && (!made || ctx.Err() != nil):
			return nil, refusal // it tells more than that the rest of the time was too short
		case !made:
			return nil, cmp.Or(c.breaker.lastRefusal(), c.notAttemptedError(err))
		}
		if refused.kind != transient {
			c.log.WarnContext(ctx, "open refused", "error", err, "pause", c.breaker.pauseLeft())
		}
		if refused.kind == rateLimited {
			c.budgets.limiter.Refused()
		}
		if refused.kind != rateLimited && refused.kind != connLimited {
			return nil, err
		}
		refusal = err
		if end, bounded := ctx.Deadline(); bounded && time.Now().Add(c.breaker.pauseLeft()).After(end) {
			return nil, err
		}
	}
}

// notAttemptedError is the error of an open that made no attempt.
func (c *Cluster) notAttemptedError(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &OpenError{Host: c.cfg.Host, User: c.cfg.User, Region: c.cfg.Region, Check: "OpenTimeout: others were before it", At: time.Now(), Err: err, unasked: true}
}

// openOnce makes one attempt at an open when the breaker allows it, and reports the
// outcome to the breaker. The permission for the first attempt has been granted, but
// expires; another attempt needs another permit.
func (c *Cluster) openOnce(ctx context.Context, dial func(context.Context) (*physical, error), again bool) (*physical, error) {
	leave, waited, err := c.breaker.beginAttempt(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if again || waited {
		if err := c.budgets.limiter.Wait(ctx); err != nil {
			return nil, err
		}
		if err := c.budgets.valid(); err != nil {
			return nil, err
		}
	}
	p, err := dial(ctx)
	var failed *OpenError
	switch {
	case err == nil:
		c.breaker.succeeded()
	case errors.As(err, &failed) && (!again || ctx.Err() == nil):
		c.breaker.failed(failed.kind, failed)
	}
	return p, err
}

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
