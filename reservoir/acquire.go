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
		return Loan[C]{}, r.endedBefore(err)
	}
	r.mu.Lock()
	loan, ok := r.tryQuick()
	if ok {
		r.mu.Unlock()
		if r.leakAfter > 0 || r.cfg.Hooks.Acquired != nil {
			loan = r.borrowed(loan, 0)
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
	if e := r.ready(&fx); e != nil {
		loan := r.take(e, &fx)
		r.unlock(&fx)
		r.recycle(w)
		return r.borrowed(loan, 0), nil
	}
	if refused := r.refusal(); refused != nil {
		r.reconcile(&fx)
		r.unlock(&fx)
		r.recycle(w)
		if shed := r.cfg.Hooks.Shed; shed != nil && !errors.Is(refused, ErrClosed) {
			r.tellHere(shed)
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
	loan, ok := r.tryQuick()
	if ok {
		r.mu.Unlock()
		return r.borrowed(loan, 0), true
	}
	var fx effects[C]
	e := r.ready(&fx)
	if e == nil {
		e = r.checkedLately(&fx)
	}
	if e == nil {
		r.checkForLater(&fx)
		r.reconcile(&fx)
		r.unlock(&fx)
		return Loan[C]{}, false
	}
	loan = r.take(e, &fx)
	r.unlock(&fx)
	return r.borrowed(loan, 0), true
}

// tryQuick lends an idle connection in the common case, in which nothing else
// has to be done: neither an open nor a check follows. The caller holds mu.
func (r *Reservoir[C]) tryQuick() (Loan[C], bool) {
	m := &r.mu
	if m.idle.n <= m.minIdle && (m.idle.n == 0 || len(m.all) < m.maxSize || m.staleIdle.n > 0) || m.waiters.n > 0 {
		return Loan[C]{}, false
	}
	e, now := m.idle.front(), r.clock.now()
	if now >= e.fastPathUntil || e.state != idle || e.aged || e.generation != m.generation || r.mustCheck(e, now) {
		return Loan[C]{}, false
	}
	if invariant.Enabled {
		r.verifyQuick(e, now)
	}
	m.idle.remove(&e.link)
	r.move(e, loaned)
	e.loan++
	e.borrowed = now
	m.stats.Acquired++
	r.verify()
	return Loan[C]{r, e, e.loan}, true
}

// ready finds the idle connection to lend now, or nil when there is none, it has
// to be checked first, or others came before. The caller holds mu.
func (r *Reservoir[C]) ready(fx *effects[C]) *entry[C] {
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

// take lends an idle connection to the calling goroutine. The caller holds mu.
func (r *Reservoir[C]) take(e *entry[C], fx *effects[C]) Loan[C] {
	loan := r.lend(e, r.clock.now())
	r.mu.stats.Acquired++
	r.reconcile(fx)
	return loan
}

// borrowed ends every successful acquire, on the borrower's goroutine. When a
// hook ends that goroutine, the loan is given back.
func (r *Reservoir[C]) borrowed(loan Loan[C], waited time.Duration) Loan[C] {
	if r.leakAfter > 0 {
		r.recordBorrower(loan)
	}
	if acquired := r.cfg.Hooks.Acquired; acquired != nil {
		told := false
		defer func() {
			if !told {
				_ = loan.Release() // nobody else will
			}
		}()
		r.tellHere(func() { acquired(waited) })
		told = true
	}
	return loan
}

// refusal says why a caller may not even wait. The caller holds mu.
func (r *Reservoir[C]) refusal() error {
	if r.mu.closed {
		return ErrClosed
	}
	if r.cfg.OnExhausted != FailFast && r.waiting() < r.cfg.MaxWaiters {
		return nil
	}
	return r.shed()
}

// shed says whether too many wait for what is coming. The caller holds mu.
func (r *Reservoir[C]) shed() error {
	// Who is about to be served does not count as waiting.
	waiting := r.waiting() - r.counts().coming()
	switch {
	case r.cfg.OnExhausted == FailFast && waiting >= 0:
		r.mu.stats.Shed++
		return ended(errFailFast, r.exhausted(), 0)
	case waiting >= r.cfg.MaxWaiters:
		r.mu.stats.Shed++
		return ended(errQueueFull, r.exhausted(), 0)
	}
	return nil
}

// endedBefore is the error of a caller whose ctx had ended before it came.
func (r *Reservoir[C]) endedBefore(err error) error {
	how := endingOf(err)
	r.mu.Lock()
	closed, state := r.mu.closed, r.exhausted()
	if !closed {
		r.countEnding(how)
	}
	r.mu.Unlock()
	if closed {
		return fmt.Errorf("%w (and the caller's context has ended: %w)", ErrClosed, err)
	}
	return waitError(err, how, state, 0)
}

// await waits for w's result. Whatever ends the caller's goroutine meanwhile, a
// hook or a method of its ctx, leaves neither a place in the queue nor a loan
// behind.
func (r *Reservoir[C]) await(ctx context.Context, w *waiter[C]) (Loan[C], error) {
	woken, ended := false, false
	defer func() {
		switch {
		case !ended:
			r.drop(w, woken)
		case woken:
			r.recycle(w)
		}
	}()
	if start := r.cfg.Hooks.WaitStart; start != nil {
		r.tellHere(start)
	}
	if w.done == nil {
		<-w.ready // a select of one costs more
	} else {
		select {
		case <-w.ready:
		case <-w.done:
			err := endOf(ctx)
			if how := endingOf(err); r.leave(w, how) {
				ended = true
				return r.gaveUp(err, how, w.since)
			}
			<-w.ready
		}
	}
	woken = true
	loan, err := r.awaited(ctx, w)
	ended = true
	return loan, err
}

// endOf is why a ctx has ended whose Done says that it has.
func endOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.Canceled // a ctx of the caller's own make that does not say
}

// awaited ends a wait whose result was decided.
func (r *Reservoir[C]) awaited(ctx context.Context, w *waiter[C]) (Loan[C], error) {
	waited := time.Duration(r.clock.exact() - w.since)
	loan, err, state := w.loan, w.err, w.state
	how := failed
	switch {
	case err == nil && ctx.Err() != nil, errors.Is(err, errLeft):
		err = endOf(ctx)
		how = endingOf(err)
		state = r.tooLate(loan, how)
	case errors.Is(err, errAcquireTimeout):
		how = timedOut
	}
	if err == nil {
		r.handoffs.Add(1)
	} else {
		err = waitError(err, how, state, waited)
	}
	return r.endWait(loan, waited, err)
}

// endWait ends every wait, on the caller's goroutine.
func (r *Reservoir[C]) endWait(loan Loan[C], waited time.Duration, err error) (Loan[C], error) {
	r.waitTime.Add(int64(waited))
	if end := r.cfg.Hooks.WaitEnd; end != nil {
		r.tellHere(func() { end(waited, err) })
	}
	if err != nil {
		return Loan[C]{}, err
	}
	return r.borrowed(loan, waited), nil
}
