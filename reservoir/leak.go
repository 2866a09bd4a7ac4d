package reservoir

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// A borrowStack is where a loan was taken, as bare addresses: it is written at every
// acquire and read hardly ever. Up to eight frames of it are this module's, and six
// database/sql's; the others are for the borrower and a library between.
type borrowStack struct {
	pcs [32]uintptr
	n   int
}

// String names the callers, beginning with the borrower: the first that is neither this
// module's nor database/sql's.
func (t *borrowStack) String() string {
	var b strings.Builder
	frames, ours := runtime.CallersFrames(t.pcs[:t.n]), true
	for {
		f, more := frames.Next()
		if ours = ours && (ownCode(f) || strings.HasPrefix(f.Function, "database/sql.")); !ours && f.Function != "" {
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
