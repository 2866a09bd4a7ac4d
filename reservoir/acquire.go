package reservoir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/internal/invariant"
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
// An open that began for this caller goes on when the caller gives up. The
// caller must end the loan with Release or Discard.
func (r *Reservoir[C]) Acquire(ctx context.Context) (Loan[C], error) {
	if err := ctx.Err(); err != nil {
		return Loan[C]{}, r.endedOnArrival(err)
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
	return r.acquire(ctx)
}

// acquire is the long way of Acquire. It looks at the ctx, whose methods are the
// caller's, before it takes the lock.
func (r *Reservoir[C]) acquire(ctx context.Context) (Loan[C], error) {
	w := r.newWaiter(ctx)
	var fx effects[C]
	r.mu.Lock()
	if e := r.findReady(&fx); e != nil {
		loan := r.lendIdle(e, &fx)
		r.unlock(&fx)
		r.recycle(w)
		return r.reportAcquired(loan, 0), nil
	}
	if refused := r.refusalError(); refused != nil {
		r.reconcile(&fx)
		r.unlock(&fx)
		r.recycle(w)
		if shed := r.cfg.Hooks.Rejected; shed != nil && !errors.Is(refused, ErrClosed) {
			r.callHookInline(shed)
		}
		return Loan[C]{}, refused
	}
	r.enqueue(w)
	r.reconcile(&fx)
	r.unlock(&fx)
	return r.await(ctx, w)
}

// TryAcquire borrows an idle connection if there is one, and never waits. With
// CheckOnAcquire it takes one that was idle for less than IdleBeforeCheck, or
// checked less than a second ago and not used since; where there is none, the
// one used last is checked in the background for a later call.
func (r *Reservoir[C]) TryAcquire() (Loan[C], bool) {
	r.mu.Lock()
	loan, ok := r.tryFastPath()
	if ok {
		r.mu.Unlock()
		return r.reportAcquired(loan, 0), true
	}
	var fx effects[C]
	e := r.findReady(&fx)
	if e == nil {
		e = r.checkedLately(&fx)
	}
	if e == nil {
		r.checkInBackground(&fx)
		r.reconcile(&fx)
		r.unlock(&fx)
		return Loan[C]{}, false
	}
	loan = r.lendIdle(e, &fx)
	r.unlock(&fx)
	return r.reportAcquired(loan, 0), true
}

// tryFastPath lends an idle connection in the common case, in which nothing else
// has to be done: neither an open nor a check follows. The caller holds mu.
func (r *Reservoir[C]) tryFastPath() (Loan[C], bool) {
	m := &r.mu
	if m.idle.n <= m.minIdle && (m.idle.n == 0 || len(m.all) < m.maxSize || m.staleIdle.n > 0) || m.waiters.n > 0 {
		return Loan[C]{}, false
	}
	e, now := m.idle.front(), r.clock.now()
	if now >= e.fastPathUntil || e.state != idle || e.pastIdleTTL || e.generation != m.generation || r.mustCheck(e, now) {
		return Loan[C]{}, false
	}
	if invariant.Enabled {
		r.verifyFastPath(e, now)
	}
	m.idle.remove(&e.link)
	r.move(e, loaned)
	e.loanNumber++
	e.borrowedAt = now
	m.stats.Acquired++
	r.verify()
	return Loan[C]{r, e, e.loanNumber}, true
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

// reportAcquired ends every successful acquire, on the borrower's goroutine. When a
// hook ends that goroutine, the loan is released.
func (r *Reservoir[C]) reportAcquired(loan Loan[C], waited time.Duration) Loan[C] {
	if r.leakAfter > 0 {
		r.recordBorrower(loan)
	}
	if acquired := r.cfg.Hooks.Acquired; acquired != nil {
		told := false
		defer func() {
			if !told {
				_ = loan.Release() // the borrower's goroutine ends before it can
			}
		}()
		r.callHookInline(func() { acquired(waited) })
		told = true
	}
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
func (r *Reservoir[C]) endedOnArrival(err error) error {
	how := waitOutcomeOf(err)
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
