package reservoir

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Acquire borrows a connection: an idle one at once, or it waits in the order
// of arrival until one comes free or is opened. The wait ends with
//
//   - an *ExhaustedError when ctx's deadline or AcquireTimeout is over, or at
//     once when the policy is FailFast or MaxWaiters wait already;
//   - an error that wraps context.Canceled when ctx is cancelled;
//   - an *OpenError when an open failed and no other connection exists or is
//     being opened;
//   - ErrClosed when the reservoir closes.
//
// An open that began for this caller goes on when the caller gives up. The
// caller must end the loan with Release or Discard.
func (r *Reservoir[C]) Acquire(ctx context.Context) (Loan[C], error) {
	if err := ctx.Err(); err != nil {
		return Loan[C]{}, fmt.Errorf("reservoir: acquire: %w", err)
	}
	r.mu.Lock()
	loan, ok := r.tryQuick()
	if ok {
		r.verify()
		r.mu.Unlock()
		if acquired := r.cfg.Hooks.Acquired; acquired != nil {
			acquired(0)
		}
		return loan, nil
	}
	var fx effects[C]
	if e := r.ready(&fx); e != nil {
		loan := r.take(e, &fx)
		r.unlock(&fx)
		if acquired := r.cfg.Hooks.Acquired; acquired != nil {
			acquired(0)
		}
		return loan, nil
	}
	if err := r.refusal(); err != nil {
		r.pump(&fx)
		r.unlock(&fx)
		if shed := r.cfg.Hooks.Shed; shed != nil && !errors.Is(err, ErrClosed) {
			shed()
		}
		return Loan[C]{}, err
	}
	w := r.enqueue(ctx)
	r.pump(&fx)
	r.unlock(&fx)
	return r.await(ctx, w)
}

// TryAcquire borrows an idle connection if there is one, and never waits. With
// CheckOnAcquire, a connection that was idle for too long is checked in the
// background for a later call.
func (r *Reservoir[C]) TryAcquire() (Loan[C], bool) {
	var fx effects[C]
	r.mu.Lock()
	e := r.ready(&fx)
	if e == nil {
		if cold := r.mu.idle.front(); cold != nil {
			r.startCheck(cold, false, &fx)
		}
		r.pump(&fx)
		r.unlock(&fx)
		return Loan[C]{}, false
	}
	loan := r.take(e, &fx)
	r.unlock(&fx)
	if acquired := r.cfg.Hooks.Acquired; acquired != nil {
		acquired(0)
	}
	return loan, true
}

// tryQuick lends an idle connection in the common case, in which nothing else
// has to be done. The caller holds mu.
func (r *Reservoir[C]) tryQuick() (Loan[C], bool) {
	if r.mu.idle.n <= r.mu.minIdle || r.asks {
		return Loan[C]{}, false
	}
	e, now := r.mu.idle.front(), r.clock.now()
	if now >= e.calm || r.aged(now) {
		return Loan[C]{}, false
	}
	r.mu.idle.remove(&e.link) // not stale, since it is calm
	r.move(e, loaned)
	e.loan++
	e.borrowed = now
	r.mu.stats.Acquired++
	return Loan[C]{r, e, e.loan}, true
}

// ready finds the idle connection to lend now, or nil when there is none or it
// has to be checked first. The caller holds mu.
func (r *Reservoir[C]) ready(fx *effects[C]) *entry[C] {
	now := r.clock.now()
	e := r.hottest(now, fx)
	if e == nil || r.mustCheck(e, now) {
		return nil
	}
	return e
}

// take lends an idle connection to the calling goroutine. The caller holds mu.
func (r *Reservoir[C]) take(e *entry[C], fx *effects[C]) Loan[C] {
	loan := r.lend(e, r.clock.now())
	r.mu.stats.Acquired++
	r.watch(e)
	r.pump(fx)
	return loan
}

// watch remembers who borrows, if leaks are looked for. The caller holds mu
// and is the borrower.
func (r *Reservoir[C]) watch(e *entry[C]) {
	if r.cfg.LeakAfter > 0 {
		e.trace.record()
		r.arm(e.borrowed + int64(r.cfg.LeakAfter))
	}
}

// refusal says why a caller may not even wait. The caller holds mu.
func (r *Reservoir[C]) refusal() error {
	if r.mu.closed {
		return ErrClosed
	}
	if r.mu.waiters.n >= r.cfg.MaxWaiters {
		r.mu.stats.Shed++
		return r.exhausted(errQueueFull, 0)
	}
	if r.cfg.OnExhausted == FailFast {
		coming := r.mu.count[opening] + r.mu.count[checking] + max(0, r.mu.maxSize-len(r.mu.all)) + r.mu.idle.n
		if r.mu.waiters.n >= coming {
			r.mu.stats.Shed++
			return r.exhausted(errFailFast, 0)
		}
	}
	return nil
}

// await waits for w's fate.
func (r *Reservoir[C]) await(ctx context.Context, w *waiter[C]) (Loan[C], error) {
	if start := r.cfg.Hooks.WaitStart; start != nil {
		start()
	}
	if done := ctx.Done(); done == nil {
		<-w.ready // a select of one costs more
	} else {
		select {
		case <-w.ready:
		case <-done:
			r.leave(ctx, w)
		}
	}
	return r.awaited(ctx, w)
}

// leave takes a waiter whose ctx has ended out of the queue, or learns that its
// fate was decided at the same moment.
func (r *Reservoir[C]) leave(ctx context.Context, w *waiter[C]) {
	var fx effects[C]
	r.mu.Lock()
	queued := w.link.linked()
	if queued {
		r.mu.waiters.remove(&w.link)
		w.err = ctx.Err()
	}
	r.unlock(&fx)
	if !queued {
		<-w.ready
	}
}

// awaited ends a wait. A loan that was given to a caller who had just left goes
// to the next one.
func (r *Reservoir[C]) awaited(ctx context.Context, w *waiter[C]) (Loan[C], error) {
	var fx effects[C]
	now := r.clock.exact()
	r.mu.Lock()
	waited := time.Duration(now - w.since)
	loan, err := w.loan, w.err
	r.recycle(w)
	if err == nil && !r.out(loan) { // Close was faster
		err = ErrClosed
	} else if err == nil && ctx.Err() != nil {
		err = ctx.Err()
		r.settle(loan.entry, &fx)
		r.pump(&fx)
	}
	r.mu.stats.WaitTime += waited
	if err != nil {
		loan, err = Loan[C]{}, r.waitError(err, waited)
	} else {
		r.mu.stats.Acquired++
		r.mu.stats.AcquiredWaited++
		r.watch(loan.entry)
	}
	r.unlock(&fx)
	if end := r.cfg.Hooks.WaitEnd; end != nil {
		end(waited, err)
	}
	if acquired := r.cfg.Hooks.Acquired; acquired != nil && err == nil {
		acquired(waited)
	}
	return loan, err
}

// waitError counts a failed wait and gives its error the present state. The
// caller holds mu.
func (r *Reservoir[C]) waitError(err error, waited time.Duration) error {
	var failed *OpenError // which may have a deadline's error in it, not the caller's
	switch {
	case errors.As(err, &failed), errors.Is(err, ErrClosed):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errAcquireTimeout):
		r.mu.stats.Timeouts++
		return r.exhausted(err, waited)
	default:
		r.mu.stats.Canceled++
		return fmt.Errorf("reservoir: acquire after %v: %w", waited, err)
	}
}

// exhausted describes the present state. The caller holds mu.
func (r *Reservoir[C]) exhausted(cause error, waited time.Duration) error {
	return &ExhaustedError{
		Total: len(r.mu.all), InUse: r.inUse(), Idle: r.mu.idle.n, Opening: r.mu.count[opening],
		Waiting: r.mu.waiters.n, MaxSize: r.mu.maxSize, Waited: waited, LastOpen: r.mu.lastOpen, Cause: cause,
	}
}
