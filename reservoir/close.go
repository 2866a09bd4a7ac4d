package reservoir

import (
	"context"
	"errors"
	"time"
)

// close closes one connection, on its own goroutine.
func (r *Reservoir[C]) close(e *entry[C]) {
	if closing := r.cfg.Hooks.Closing; closing != nil {
		closing(e.reason, e.cause)
	}
	if r.cfg.CloseTimeout > 0 {
		watchdog := time.AfterFunc(r.cfg.CloseTimeout, func() { r.closeStalled(e) })
		defer watchdog.Stop()
	}
	guarded(func() error { return r.cfg.Close(e.value) }, func(err error) {
		err = errors.Join(err, giveBack(e.release))
		r.closed(e)
		if closed := r.cfg.Hooks.Closed; closed != nil {
			closed(e.reason, err)
		}
	})
}

// closed forgets a connection whose Close has returned.
func (r *Reservoir[C]) closed(e *entry[C]) {
	var fx effects[C]
	r.mu.Lock()
	r.mu.stats.Closed[e.reason]++
	r.bury(e, &fx)
	r.pump(&fx)
	r.unlock(&fx)
}

// closeStalled reports a Close that takes too long.
func (r *Reservoir[C]) closeStalled(e *entry[C]) {
	r.mu.Lock()
	stalls := e.state == closing
	if stalls {
		r.mu.stats.CloseStalls++
	}
	r.mu.Unlock()
	if stalled := r.cfg.Hooks.CloseStalled; stalled != nil && stalls {
		stalled(e.reason)
	}
}

// giveBack calls the release of Admit, if there is one.
func giveBack(release func()) (err error) {
	if release != nil {
		guarded(func() error { release(); return nil }, func(e error) { err = e })
	}
	return err
}

// Close ends the reservoir. At once it refuses new callers, wakes all waiters
// with ErrClosed, cancels opens and closes idle connections. It waits for the
// loans until ctx ends; then it closes those that are still out under their
// borrowers, whose Release gives ErrReleased, and waits for up to CloseTimeout
// more. It returns nil when everything was given back and closed, else a
// *CloseError.
//
// A further Close waits for the first one and returns ErrClosed, or the error
// of its own ctx if that ends before.
func (r *Reservoir[C]) Close(ctx context.Context) error {
	if !r.shut() {
		select {
		case <-r.finished:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer close(r.finished)
	select {
	case <-r.drained:
		return nil
	case <-ctx.Done():
	}
	forced := r.force()
	var timeout <-chan time.Time
	if r.cfg.CloseTimeout > 0 {
		timer := time.NewTimer(r.cfg.CloseTimeout)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-r.drained:
	case <-timeout:
	}
	remaining := r.Stats().Total
	if forced == 0 && remaining == 0 {
		return nil
	}
	return &CloseError{Forced: forced, Remaining: remaining, Cause: ctx.Err()}
}

// shut begins the end. It returns false when it had begun before.
func (r *Reservoir[C]) shut() bool {
	var fx effects[C]
	r.mu.Lock()
	if r.mu.closed {
		r.mu.Unlock()
		return false
	}
	r.mu.closed = true
	r.mu.generation++
	r.alarm.Stop()
	r.clock.stop()
	for w := r.mu.waiters.front(); w != nil; w = r.mu.waiters.front() {
		r.fail(w, ErrClosed, &fx)
	}
	for e := r.mu.idle.back(); e != nil; e = r.mu.idle.back() {
		r.retire(e, Shutdown, nil, &fx)
	}
	r.mu.free, r.mu.freeWaiters = nil, 0
	r.tellReady(&fx)
	if len(r.mu.all) == 0 {
		fx.later(r.signalDrained)
	}
	r.unlock(&fx)
	r.cancel()
	return true
}

// force takes back every loan that is still out.
func (r *Reservoir[C]) force() (forced int) {
	var fx effects[C]
	r.mu.Lock()
	for _, e := range r.mu.all {
		if e.state == loaned {
			r.retire(e, Shutdown, context.Canceled, &fx)
			forced++
		}
	}
	r.unlock(&fx)
	return forced
}

// signalDrained tells Close that no connection is left. It is called once: the
// count reaches zero once after closing began, because nothing opens any more.
func (r *Reservoir[C]) signalDrained() { close(r.drained) }
