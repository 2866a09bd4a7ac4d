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
// error then wraps ctx's and that of the latest open. n must not be more than
// MaxSize; while Resize makes MaxSize smaller than n, that many will do. It
// returns ErrClosed when the reservoir closes.
func (r *Reservoir[C]) WaitReady(ctx context.Context, n int) error {
	t := &readyWait{n: n, ready: make(chan struct{})}
	var fx effects[C]
	r.mu.Lock()
	if n > r.mu.maxSize {
		defer r.mu.Unlock()
		return fmt.Errorf("reservoir: WaitReady: %d is more than MaxSize %d", n, r.mu.maxSize)
	}
	r.mu.readyWaits = append(r.mu.readyWaits, t)
	r.notifyReady(&fx)
	r.reconcile(&fx)
	r.unlock(&fx)
	select {
	case <-t.ready:
		return r.readyResult(t, nil)
	case <-ctx.Done():
		return r.readyResult(t, endOf(ctx))
	}
}

// readyResult ends a call of WaitReady; ended is the error of its ctx.
func (r *Reservoir[C]) readyResult(t *readyWait, ended error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := slices.Index(r.mu.readyWaits, t)
	switch {
	case waiting < 0 && r.mu.closed:
		return ErrClosed
	case waiting < 0:
		return nil
	}
	r.mu.readyWaits = slices.Delete(r.mu.readyWaits, waiting, waiting+1)
	if r.mu.lastOpen == nil {
		return fmt.Errorf("reservoir: %d of %d connections open: %w", r.established(), t.n, ended)
	}
	return fmt.Errorf("reservoir: %d of %d connections open: %w (last open: %w)", r.established(), t.n, ended, r.mu.lastOpen)
}

// notifyReady wakes the calls of WaitReady that have what they want, all of them
// when the reservoir closes. The caller holds mu.
func (r *Reservoir[C]) notifyReady(fx *effects[C]) {
	r.mu.readyWaits = slices.DeleteFunc(r.mu.readyWaits, func(t *readyWait) bool {
		done := r.mu.closed || r.established() >= min(t.n, r.mu.maxSize)
		if done {
			fx.later(func() { close(t.ready) })
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
