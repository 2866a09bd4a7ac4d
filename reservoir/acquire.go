package reservoir

import (
	"context"
	"fmt"
)

// Acquire borrows a connection: an idle one at once, or it waits in the order
// of arrival until one comes free or is opened. The wait ends with
//
//   - an *ExhaustedError when ctx's deadline or AcquireTimeout is over, or at
//     once when the policy is FailFast or MaxWaiters wait already;
//   - an error that wraps context.Canceled when ctx is cancelled;
//   - an *OpenError when an open failed, no other connection exists or is being
//     opened, and OpenRetry does not let the caller wait for the next open;
//   - ErrClosed when the reservoir closes.
//
// An open that began for this caller goes on when the caller gives up; of several that
// wait for Admit then, one. The caller must end the loan with Release or Discard.
func (r *Reservoir[C]) Acquire(ctx context.Context) (Loan[C], error) {
	if ctx.Err() != nil {
		return Loan[C]{}, r.endedOnArrival(contextEnd(ctx))
	}
	r.mu.Lock()
	loan, ok := r.tryFastPath()
	if ok {
		r.mu.Unlock()
		if r.leakAfter > 0 || r.cfg.Hooks.Acquired != nil {
			loan = r.reportAcquired(loan, 0)
		}
		return loan, nil
	}
	r.mu.Unlock()
	w := r.newWaiter(ctx)
	if loan, waits, err := r.lendOrEnqueue(w); !waits {
		return loan, err
	}
	return r.await(ctx, w)
}

// lendOrEnqueue is the long way of Acquire up to the wait, if there is one. It does not
// call await: within its frame, those who wait would need 4 KB of stack each, not 2, and
// their stacks are copied when they grow, of most as they leave.
//
//go:noinline
func (r *Reservoir[C]) lendOrEnqueue(w *waiter[C]) (loan Loan[C], waits bool, err error) {
	var fx effects[C]
	r.mu.Lock()
	if e := r.findReady(&fx); e != nil {
		loan := r.lendIdle(e, &fx)
		r.unlock(&fx)
		r.recycle(w)
		return r.reportAcquired(loan, 0), false, nil
	}
	if refused := r.refusalError(); refused != nil {
		r.reconcile(&fx)
		r.unlock(&fx)
		r.recycle(w)
		if shed := r.cfg.Hooks.Rejected; shed != nil && refused != ErrClosed { //nolint:errorlint // the last open may have failed with another's
			r.callHookInline(shed)
		}
		return Loan[C]{}, false, refused
	}
	r.enqueue(w)
	r.reconcile(&fx)
	r.unlock(&fx)
	return Loan[C]{}, true, nil
}

// findReady finds the idle connection to lend now, or nil when there is none, it has
// to be checked first, or others came before. The caller holds mu.
func (r *Reservoir[C]) findReady(fx *effects[C]) *entry[C] {
	if r.mu.waiters.n > 0 {
		return nil
	}
	now := r.clock.now()
	e := r.newestIdle(now, fx)
	if e == nil || r.mustCheck(e, now) {
		return nil
	}
	return e
}

// lendIdle lends an idle connection to the calling goroutine. The caller holds mu.
func (r *Reservoir[C]) lendIdle(e *entry[C], fx *effects[C]) Loan[C] {
	loan := r.lend(e, r.clock.now())
	r.mu.stats.Acquired++
	r.reconcile(fx)
	return loan
}

// refusalError returns why a caller may not wait, or nil. The caller holds mu.
func (r *Reservoir[C]) refusalError() error {
	if r.mu.closed {
		return ErrClosed
	}
	if r.cfg.OnExhausted != FailFast && r.waiting() < r.cfg.MaxWaiters {
		return nil
	}
	return r.rejectionError()
}

// rejectionError returns an error when FailFast or MaxWaiters refuses the caller, or
// nil. The caller holds mu.
func (r *Reservoir[C]) rejectionError() error {
	// Callers about to be served do not count as waiting.
	waiting := r.waiting() - r.counts().soonAvailable()
	switch {
	case r.cfg.OnExhausted == FailFast && waiting >= 0:
		r.mu.stats.Rejected++
		return newExhaustedError(errFailFast, r.exhausted(), 0)
	case waiting >= r.cfg.MaxWaiters:
		r.mu.stats.Rejected++
		return newExhaustedError(errQueueFull, r.exhausted(), 0)
	}
	return nil
}

// endedOnArrival is the error of a caller whose ctx had ended before it came.
func (r *Reservoir[C]) endedOnArrival(how waitOutcome, err error) error {
	r.mu.Lock()
	closed, state := r.mu.closed, r.exhausted()
	if !closed {
		r.countOutcome(how)
	}
	r.mu.Unlock()
	if closed {
		return fmt.Errorf("%w (and the caller's context has ended: %w)", ErrClosed, err)
	}
	return waitError(err, how, state, 0)
}
