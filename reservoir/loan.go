package reservoir

import (
	"fmt"
	"runtime"
	"strings"
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

// Release gives the connection back. With Config.Reset or CheckOnRelease it
// first runs those, for up to CheckTimeout; when they fail the connection is
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
	return r.mu.waiters.n == 0 && e.idleSince < e.fastPathUntil && e.generation == r.mu.generation && r.live() <= r.mu.maxSize
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
	r.mu.Lock()
	if !r.isOut(l) {
		r.mu.Unlock()
		return ErrReleased
	}
	held := r.endUse(e)
	_, unfit := r.mustClose(e, r.clock.now())
	if unfit {
		r.dispatch(e, &fx)
		r.reconcile(&fx)
	} else {
		r.move(e, resetting)
	}
	r.unlock(&fx)
	if !unfit {
		r.reset(e)
	}
	r.callReleased(held)
	return nil
}

// reset runs Reset and Check as configured.
func (r *Reservoir[C]) reset(e *entry[C]) {
	failed := Discarded
	callback.Guard(who, func() error {
		if r.cfg.Reset != nil {
			ctx, cancel := r.bounded(r.cfg.CheckTimeout)
			defer cancel()
			if err := r.cfg.Reset(ctx, e.value); err != nil {
				return err
			}
		}
		if r.cfg.CheckOnRelease {
			failed = Unhealthy
			return r.checkHere(r.ctx, e.value)
		}
		return nil
	}, func(err error) { r.resetDone(e, failed, err) })
}

// resetDone decides after Reset and Check.
func (r *Reservoir[C]) resetDone(e *entry[C], failed Reason, err error) {
	var fx effects[C]
	r.mu.Lock()
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

// A borrowStack is where a loan was taken, as bare addresses: it is written at every
// acquire and read hardly ever.
type borrowStack struct {
	pcs [16]uintptr
	n   int
}

// String names the callers, beginning with the first that is not this module's:
// the borrower.
func (t *borrowStack) String() string {
	var b strings.Builder
	frames, ours := runtime.CallersFrames(t.pcs[:t.n]), true
	for {
		f, more := frames.Next()
		if ours = ours && ownCode(f); !ours && f.Function != "" {
			fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return b.String()
		}
	}
}

// ownCode says whether a frame is this module's, its tests and examples apart.
func ownCode(f runtime.Frame) bool {
	const module = "github.com/flightpool/flightpool/"
	return strings.HasPrefix(f.Function, module) && !strings.HasPrefix(f.Function, module+"examples/") && !strings.HasSuffix(f.File, "_test.go")
}

// recordBorrower remembers who borrows. It runs on the borrower's goroutine; the
// stack is looked at before the lock is taken.
func (r *Reservoir[C]) recordBorrower(l Loan[C]) {
	var t borrowStack
	t.n = runtime.Callers(2, t.pcs[:])
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOut(l) {
		return
	}
	if l.entry.borrower == nil {
		l.entry.borrower = new(borrowStack)
	}
	*l.entry.borrower = t
}

// reportLeak reports a loan that is out too long, once. The caller holds mu.
func (r *Reservoir[C]) reportLeak(e *entry[C], now int64, fx *effects[C]) {
	held := now - e.borrowedAt
	if r.leakAfter <= 0 || e.reportedLoan == e.loanNumber || held < r.leakAfter {
		return
	}
	e.reportedLoan = e.loanNumber
	r.mu.stats.Leaks++
	if leaked := r.cfg.Hooks.Leaked; leaked != nil {
		var where borrowStack
		if e.borrower != nil {
			where = *e.borrower
		}
		r.mu.tasks++
		fx.afterUnlock(func() {
			defer r.taskDone()
			r.callHook(func() { leaked(Leak{Held: time.Duration(held), Stack: where.String()}) })
		})
	}
}
