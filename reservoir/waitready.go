package reservoir

import (
	"context"
	"fmt"
	"slices"
)

// A readyWait is a call of WaitReady.
type readyWait struct {
	n     int
	ready chan struct{}
}

// WaitReady waits until at least n connections are open, idle or on loan, and
// has them opened if need be. It goes on over failed opens until ctx ends; the
// error then wraps ctx's and that of the latest open. An n of more than MaxSize
// is a *RangeError; while Resize makes MaxSize smaller than n, that many will do.
// It returns ErrClosed when the reservoir closes.
func (r *Reservoir[C]) WaitReady(ctx context.Context, n int) error {
	done := ctx.Done() // a method of the caller's: see Acquire
	t := &readyWait{n: n, ready: make(chan struct{})}
	var fx effects[C]
	r.mu.Lock()
	if limit := r.mu.maxSize; n > limit && !r.mu.closed {
		r.mu.Unlock()
		return &RangeError{"WaitReady", n, fmt.Sprintf("between 0 and MaxSize %d", limit)}
	}
	r.mu.readyWaits = append(r.mu.readyWaits, t)
	r.notifyReady(&fx)
	r.reconcile(&fx)
	r.unlock(&fx)
	select {
	case <-t.ready:
	case <-done:
	}
	stillWaiting, closed, open, lastOpen := r.endWaitReady(t)
	switch {
	case closed:
		return ErrClosed
	case !stillWaiting:
		return nil
	case lastOpen == nil:
		return fmt.Errorf("reservoir: %d of %d connections open: %w", open, n, contextError(ctx))
	default:
		return fmt.Errorf("reservoir: %d of %d connections open: %w (last open: %w)", open, n, contextError(ctx), lastOpen)
	}
}

// endWaitReady ends a call of WaitReady. It says whether the call had not been woken
// yet, and what the reservoir is like.
func (r *Reservoir[C]) endWaitReady(t *readyWait) (stillWaiting, closed bool, open int, lastOpen error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := slices.Index(r.mu.readyWaits, t); at >= 0 {
		r.mu.readyWaits, stillWaiting = slices.Delete(r.mu.readyWaits, at, at+1), true
	}
	return stillWaiting, r.mu.closed, r.established(), r.mu.lastOpenErr
}

// notifyReady wakes the calls of WaitReady that have what they want, all of them
// when the reservoir closes. The caller holds mu.
func (r *Reservoir[C]) notifyReady(fx *effects[C]) {
	r.mu.readyWaits = slices.DeleteFunc(r.mu.readyWaits, func(t *readyWait) bool {
		done := r.mu.closed || r.established() >= min(t.n, r.mu.maxSize)
		if done {
			fx.afterUnlock(func() { close(t.ready) })
		}
		return done
	})
}

// readyWanted is the largest number that WaitReady was asked for. The caller
// holds mu.
func (r *Reservoir[C]) readyWanted() int {
	n := 0
	for _, t := range r.mu.readyWaits {
		n = max(n, min(t.n, r.mu.maxSize))
	}
	return n
}
