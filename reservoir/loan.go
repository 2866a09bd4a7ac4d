package reservoir

import (
	"fmt"
	"runtime"
	"strings"
	"time"
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
