package reservoir

import (
	"errors"
)

// FailWaiters fails every caller in the queue with err, at once, and returns how
// many. It is for owners who know that no connection will come. They count as Failed;
// as Rejected if err wraps ErrExhausted.
func (r *Reservoir[C]) FailWaiters(err error) int {
	if err == nil {
		err = errNoReason
	}
	n, how := 0, failed
	if errors.Is(err, ErrExhausted) {
		how = rejected
	}
	for last, more := uint64(0), true; more; {
		var fx effects[C]
		var state *ExhaustedError
		r.mu.Lock()
		if last == 0 {
			last = r.mu.lastWaiter
		}
		w := r.mu.waiters.front()
		for left := batch; left > 0 && w != nil && w.number <= last; left-- {
			if r.fail(w, err, how, &state, &fx) {
				n++
			}
			w = r.mu.waiters.front()
		}
		more = w != nil && w.number <= last
		r.reconcile(&fx)
		r.unlock(&fx)
	}
	return n
}

// fail takes a waiter out of the queue with an error and counts it, unless it
// has left: then it returns false. state is taken at the first failure of a
// section and shared by all. The caller holds mu.
func (r *Reservoir[C]) fail(w *waiter[C], err error, how waitOutcome, state **ExhaustedError, fx *effects[C]) bool {
	if !r.decide(w) {
		return false
	}
	r.countOutcome(how)
	if how == timedOut {
		r.abandon()
	}
	if *state == nil {
		*state = r.exhausted()
	}
	w.err, w.exhausted = err, *state
	fx.wakeWaiter(w)
	return true
}

// expireWaiters fails those whose AcquireTimeout is over, up to the given
// number, and returns how much of that is left. The caller holds mu.
func (r *Reservoir[C]) expireWaiters(now int64, left int, fx *effects[C]) int {
	var state *ExhaustedError
	for ; left > 0 && r.firstDeadline() <= now; left-- {
		r.fail(r.mu.waiters.front(), errAcquireTimeout, timedOut, &state, fx)
	}
	return left
}

// A pendingFailure is a failed open on its way to those who waited for it.
type pendingFailure struct {
	lastWaiter   uint64 // the last waiter whom it reaches
	includeTimed bool   // also those whose ctx has a deadline
	err          error
}

// failWaitersUpTo fails the callers who came before an open began, as OpenRetry says.
// Callers who came after the open began wait for the next one. The caller holds mu.
func (r *Reservoir[C]) failWaitersUpTo(through uint64, cause error, lasting bool, fx *effects[C]) {
	retry := r.cfg.OpenRetry
	if retry == OpenRetryAlways && !lasting {
		return
	}
	r.mu.pendingFailures = append(r.mu.pendingFailures, pendingFailure{through, lasting || retry == OpenRetryNever, &OpenError{Err: cause}})
	if r.failPendingBatch(batch, fx) == 0 {
		r.sweepBy(r.clock.now()) // for the rest
	}
}

// failPendingBatch goes on with what failWaitersUpTo began, for up to so many waiters,
// and returns how much of that is left. The caller holds mu.
func (r *Reservoir[C]) failPendingBatch(left int, fx *effects[C]) int {
	var state *ExhaustedError
	for left > 0 && len(r.mu.pendingFailures) > 0 {
		f := r.mu.pendingFailures[0]
		w := r.mu.untimed.front()
		if f.includeTimed {
			w = r.mu.waiters.front()
		}
		if w == nil || w.number > f.lastWaiter {
			r.mu.pendingFailures = r.mu.pendingFailures[1:]
			continue
		}
		r.fail(w, f.err, failed, &state, fx)
		left--
	}
	return left
}

// failExcess fails, under FailFast, those who wait although nothing comes for
// them any more: the last to come first. The caller holds mu.
func (r *Reservoir[C]) failExcess(fx *effects[C]) {
	var state *ExhaustedError
	// Who has left needs no connection, so that the last who waits may get one.
	excess := r.waiting() - r.counts().soonAvailable()
	for left := batch; excess > 0 && r.mu.waiters.n > 0; left-- {
		if left == 0 {
			r.sweepBy(r.clock.now()) // for the rest
			return
		}
		if r.fail(r.mu.waiters.back(), errFailFast, rejected, &state, fx) {
			excess--
		}
	}
}
