package reservoir

import (
	"context"
	"fmt"
	"slices"
)

// A target is a call of WaitReady.
type target struct {
	n     int
	ready chan struct{}
}

// WaitReady waits until at least n connections are open, idle or on loan, and
// has them opened if need be. It goes on over failed opens until ctx ends; the
// error then wraps ctx's and that of the latest open. n must not be more than
// MaxSize; while Resize makes MaxSize smaller than n, that many will do. It
// returns ErrClosed when the reservoir closes.
func (r *Reservoir[C]) WaitReady(ctx context.Context, n int) error {
	t := &target{n: n, ready: make(chan struct{})}
	var fx effects[C]
	r.mu.Lock()
	if n > r.mu.maxSize {
		defer r.mu.Unlock()
		return fmt.Errorf("reservoir: WaitReady: %d is more than MaxSize %d", n, r.mu.maxSize)
	}
	r.mu.targets = append(r.mu.targets, t)
	r.tellReady(&fx)
	r.pump(&fx)
	r.unlock(&fx)
	select {
	case <-t.ready:
	case <-ctx.Done():
	}
	return r.toldReady(ctx, t)
}

func (r *Reservoir[C]) toldReady(ctx context.Context, t *target) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := slices.Index(r.mu.targets, t)
	switch {
	case waiting < 0 && r.mu.closed:
		return ErrClosed
	case waiting < 0:
		return nil
	}
	r.mu.targets = slices.Delete(r.mu.targets, waiting, waiting+1)
	if r.mu.lastOpen == nil {
		return fmt.Errorf("reservoir: %d of %d connections open: %w", r.established(), t.n, ctx.Err())
	}
	return fmt.Errorf("reservoir: %d of %d connections open: %w (last open: %w)", r.established(), t.n, ctx.Err(), r.mu.lastOpen)
}

// tellReady wakes the calls of WaitReady that have what they want, all of them
// when the reservoir closes. The caller holds mu.
func (r *Reservoir[C]) tellReady(fx *effects[C]) {
	r.mu.targets = slices.DeleteFunc(r.mu.targets, func(t *target) bool {
		done := r.mu.closed || r.established() >= min(t.n, r.mu.maxSize)
		if done {
			fx.later(func() { close(t.ready) })
		}
		return done
	})
}

// readyTarget is the largest number that WaitReady was asked for. The caller
// holds mu.
func (r *Reservoir[C]) readyTarget() int {
	n := 0
	for _, t := range r.mu.targets {
		n = max(n, min(t.n, r.mu.maxSize))
	}
	return n
}

// established counts the connections that are open. The caller holds mu.
func (r *Reservoir[C]) established() int { return r.mu.count[idle] + r.inUse() }
