package reservoir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// close closes one connection, on its own goroutine.
func (r *Reservoir[C]) close(e *entry[C]) {
	defer r.taskDone()
	if closing := r.cfg.Hooks.Closing; closing != nil {
		r.callHook(func() { closing(e.reason, e.cause) })
	}
	defer r.watchClose(e)()
	err := callback.Isolate(who, func() error { return r.cfg.Close(e.value) })
	err = errors.Join(err, releasePermission(e.release))
	var fx effects[C]
	r.mu.Lock()
	r.mu.stats.Closed[e.reason]++
	r.remove(e)
	r.reconcile(&fx)
	r.unlock(&fx)
	if closed := r.cfg.Hooks.Closed; closed != nil {
		r.callHook(func() { closed(e.reason, err) })
	}
}

// watchClose has it reported when the close of e takes too long, until stop is called.
func (r *Reservoir[C]) watchClose(e *entry[C]) (stop func()) {
	if r.cfg.CloseTimeout <= 0 {
		return func() {}
	}
	watchdog := time.AfterFunc(r.cfg.CloseTimeout, func() { r.closeStalled(e) })
	return func() { watchdog.Stop() }
}

// closeStalled reports a Close that takes too long.
func (r *Reservoir[C]) closeStalled(e *entry[C]) {
	r.mu.Lock()
	stalls := e.state == closing
	if stalls {
		r.mu.stats.CloseStalls++
		r.mu.stalled++
		e.stalled = true
		r.mu.tasks++
	}
	r.mu.Unlock()
	if !stalls {
		return
	}
	defer r.taskDone()
	if stalled := r.cfg.Hooks.CloseStalled; stalled != nil {
		r.callHook(func() { stalled(e.reason) })
	}
}

// releasePermission calls the release of Admit, if there is one.
func releasePermission(release func()) error {
	if release == nil {
		return nil
	}
	return callback.Isolate(who, func() error { release(); return nil })
}

// taskDone ends what runs for the reservoir on a goroutine of its own, hooks
// included: an open, a check, a close.
func (r *Reservoir[C]) taskDone() {
	r.mu.Lock()
	r.mu.tasks--
	drained := r.drainedNow()
	r.mu.Unlock()
	if drained {
		r.endClose()
	}
}

// endClose ends the wait of Close. Without a connection nothing sets the timer again.
func (r *Reservoir[C]) endClose() {
	r.sweepTimer.Stop()
	close(r.drained)
}

// drainedNow says that Close has nothing to wait for any more. That comes once:
// without a connection nothing begins a task any more. The caller holds mu.
func (r *Reservoir[C]) drainedNow() bool {
	return r.mu.closed && !r.mu.shuttingDown && len(r.mu.all) == 0 && r.mu.tasks == 0
}

// Close ends the reservoir. At once it refuses new callers, wakes all waiters
// with ErrClosed, cancels opens and closes idle connections. It waits for the
// loans until ctx ends; then it closes those that are still out under their
// borrowers, whose Release gives ErrReleased, and waits for up to CloseTimeout
// more (a negative CloseTimeout: no longer). It returns nil when everything was
// given back and closed and every hook has returned, those apart that run within a call of
// a caller's (see Hooks), else a *CloseError. A hook that calls Close may therefore wait for
// itself, until ctx ends.
//
// A further Close waits for the same, but forces nothing, and returns ErrClosed, within
// a *CloseError that wraps the error of its ctx too when that ends before: see ClosedBefore.
func (r *Reservoir[C]) Close(ctx context.Context) error {
	if !r.beginClose() {
		select {
		case <-r.drained:
		case <-ctx.Done():
			if n := r.remaining(); n > 0 {
				return &CloseError{Remaining: n, Cause: fmt.Errorf("%w: %w", ErrClosed, contextError(ctx)), further: true}
			}
		}
		return ErrClosed
	}
	select {
	case <-r.drained:
		return nil
	case <-ctx.Done():
	}
	forced := r.reclaimLoans(math.MaxUint64, Shutdown, context.Canceled)
	if r.cfg.CloseTimeout > 0 {
		_ = callback.EndsWithin(r.drained, r.cfg.CloseTimeout) // what remains is counted below
	}
	remaining := r.remaining()
	if forced == 0 && remaining == 0 {
		return nil
	}
	return &CloseError{Forced: forced, Remaining: remaining, Cause: contextError(ctx)}
}

// remaining counts the connections that are left, or where there is none the
// hooks that have not returned.
func (r *Reservoir[C]) remaining() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.mu.all); n > 0 {
		return n
	}
	return r.mu.tasks
}

// beginClose begins the end. It returns false when it had begun before.
func (r *Reservoir[C]) beginClose() bool {
	r.mu.Lock()
	if r.mu.closed {
		r.mu.Unlock()
		return false
	}
	r.mu.closed, r.mu.shuttingDown = true, true
	r.mu.generation++
	r.mu.outdated = r.mu.idle.n
	if r.leakAfter <= 0 { // else the loans for which Close waits are looked at
		r.sweepTimer.Stop()
	}
	r.clock.stop()
	r.mu.Unlock()
	r.cancel()
	for r.closeBatch() {
	}
	r.mu.Lock()
	r.mu.shuttingDown = false
	drained := r.drainedNow()
	r.mu.Unlock()
	if drained {
		r.endClose()
	}
	return true
}

// closeBatch wakes some of the waiters and closes some of the idle connections. It
// returns false when none are left.
func (r *Reservoir[C]) closeBatch() bool {
	var fx effects[C]
	var state *ExhaustedError
	r.mu.Lock()
	r.notifyReady(&fx)
	for n := 0; n < batch && r.mu.waiters.n > 0; n++ {
		r.fail(r.mu.waiters.front(), ErrClosed, failed, &state, &fx)
	}
	r.retireOutdated(Shutdown, &fx)
	more := r.mu.waiters.n > 0 || r.mu.idle.n > 0
	r.unlock(&fx)
	return more
}

// reclaimLoans takes back every loan of these generations that is still out, and ends the
// checks and resets of such connections, which are closed then. None of them is added meanwhile, and the last entry takes the
// place of one that leaves: from the back none is missed.
func (r *Reservoir[C]) reclaimLoans(upTo uint64, reason Reason, cause error) (forced int) {
	for at := never; at > 0; {
		var fx effects[C]
		r.mu.Lock()
		at = min(at, int64(len(r.mu.all)))
		for n := 0; n < batch && at > 0; n++ {
			at--
			switch e := r.mu.all[at]; {
			case e.generation > upTo:
			case e.state == loaned:
				r.retire(e, reason, cause, &fx)
				forced++
			case e.state == checking, e.state == resetting:
				e.recalled = true
				e.endCheck(&fx)
			}
		}
		r.reconcile(&fx)
		r.unlock(&fx)
	}
	return forced
}
