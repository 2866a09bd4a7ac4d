package reservoir

import (
	"context"
	"runtime"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/invariant"
)

// A Loan is a connection on loan: its borrower alone may use it, until Release
// or Discard. A Loan is a value; copies are the same loan. The borrower must
// end it exactly once.
type Loan[C any] struct {
	r      *Reservoir[C]
	entry  *entry[C]
	number uint64
}

// Value returns the connection. Do not use it after the loan has ended. The
// zero Loan's is the zero C.
func (l Loan[C]) Value() C {
	if l.entry == nil {
		var none C
		return none
	}
	return l.entry.value
}

// ConnectionID is the ID of the connection in Connections. The zero Loan's is 0.
func (l Loan[C]) ConnectionID() uint64 {
	if l.entry == nil {
		return 0
	}
	return l.entry.id
}

// Release gives the connection back. With Config.Reset or CheckOnRelease it
// first runs those, each for up to CheckTimeout; when they fail the connection is
// closed, which is not the borrower's error. It returns ErrReleased, and does
// nothing, when the loan is not out any more.
func (l Loan[C]) Release() error {
	if l.entry == nil {
		return ErrReleased
	}
	if l.r.resets {
		return l.r.releaseWithReset(l)
	}
	return l.r.release(l)
}

// Discard gives the connection back to be closed: reason says what is wrong
// with it and reaches the hooks. It does not wait for the closing. It returns
// ErrReleased, and does nothing, when the loan is not out any more.
func (l Loan[C]) Discard(reason error) error {
	if l.entry == nil {
		return ErrReleased
	}
	return l.r.discard(l, Discarded, reason)
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

// isOut says whether a loan is still out. The caller holds mu.
func (r *Reservoir[C]) isOut(l Loan[C]) bool {
	return l.entry != nil && l.entry.state == loaned && l.entry.loanNumber == l.number
}

// release ends a loan whose connection is fine.
func (r *Reservoir[C]) release(l Loan[C]) error {
	e := l.entry
	r.mu.Lock()
	if !r.isOut(l) {
		r.mu.Unlock()
		return ErrReleased
	}
	held := r.endUse(e)
	handed := false
	if r.canRequeue(e) {
		if invariant.Enabled {
			r.verifyRequeue(e)
		}
		r.move(e, idle)
		r.mu.idle.pushFront(&e.link)
		r.verify()
		r.mu.Unlock()
	} else {
		var fx effects[C]
		r.dispatch(e, &fx)
		r.reconcile(&fx)
		handed = fx.wake != nil
		r.unlock(&fx)
	}
	r.callReleased(held)
	if handed {
		// The woken caller is next on this very processor: let it run now, not
		// when the releaser's time slice is over.
		runtime.Gosched()
	}
	return nil
}

// canRequeue says whether dispatch would just make a used connection the first
// idle one, and reconcile do nothing: the common case, worth a short way. The
// caller holds mu.
func (r *Reservoir[C]) canRequeue(e *entry[C]) bool {
	return r.mu.waiters.n == 0 && e.idleSince < e.fastPathUntil && e.generation == r.mu.generation && r.live() <= r.mu.maxSize && r.mu.promise.n == 0
}

// callReleased tells of the end of a loan.
func (r *Reservoir[C]) callReleased(held time.Duration) {
	if released := r.cfg.Hooks.Released; released != nil {
		r.callHookInline(func() { released(held) })
	}
}

// endUse marks the end of a use. The caller holds mu.
func (r *Reservoir[C]) endUse(e *entry[C]) (held time.Duration) {
	now := r.clock.now()
	e.idleSince, e.knownGoodAt = now, now
	return time.Duration(now - e.borrowedAt)
}

// releaseWithReset ends a loan whose connection has to be reset or checked first.
func (r *Reservoir[C]) releaseWithReset(l Loan[C]) error {
	var fx effects[C]
	e := l.entry
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	r.mu.Lock()
	if !r.isOut(l) {
		r.mu.Unlock()
		return ErrReleased
	}
	held := r.endUse(e)
	now := r.clock.now()
	reason, unfit := r.mustClose(e, now)
	if !unfit && r.isPromised(e, now) {
		reason, unfit = OverCapacity, true
	}
	if unfit {
		r.retire(e, reason, e.lost, &fx)
		r.reconcile(&fx)
	} else {
		r.move(e, resetting)
		e.cancelCheck = cancel
	}
	r.unlock(&fx)
	defer r.callReleased(held) // Reset may end the goroutine
	if !unfit {
		r.reset(ctx, e)
	}
	return nil
}

// reset runs Reset and Check as configured.
func (r *Reservoir[C]) reset(ctx context.Context, e *entry[C]) {
	failed := Discarded
	callback.Guard(who, func() error {
		if r.cfg.Reset != nil {
			limited, cancel := bounded(ctx, r.cfg.CheckTimeout)
			defer cancel()
			if err := r.cfg.Reset(limited, e.value); err != nil {
				return err
			}
		}
		if r.cfg.CheckOnRelease {
			failed = Unhealthy
			return r.checkHere(ctx, e.value)
		}
		return nil
	}, func(err error) { r.resetDone(e, failed, err) })
}

// resetDone decides after Reset and Check.
func (r *Reservoir[C]) resetDone(e *entry[C], failed Reason, err error) {
	var fx effects[C]
	r.mu.Lock()
	e.cancelCheck = nil
	if err != nil {
		r.retire(e, failed, err, &fx)
	} else {
		r.endUse(e)
		r.dispatch(e, &fx)
	}
	r.reconcile(&fx)
	r.unlock(&fx)
	if fx.wake != nil {
		runtime.Gosched()
	}
}

// discard ends a loan whose connection is not fine.
func (r *Reservoir[C]) discard(l Loan[C], reason Reason, cause error) error {
	var fx effects[C]
	r.mu.Lock()
	if !r.isOut(l) {
		r.mu.Unlock()
		return ErrReleased
	}
	held := r.endUse(l.entry)
	r.retire(l.entry, reason, cause, &fx)
	r.reconcile(&fx)
	r.unlock(&fx)
	r.callReleased(held)
	return nil
}
