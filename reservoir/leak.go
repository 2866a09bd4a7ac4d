package reservoir

import (
	"fmt"
	"iter"
	"runtime"
	"strings"
	"time"
)

// A BorrowStack is where a loan was taken, as bare addresses: it is written at every
// acquire and read hardly ever. Up to sixteen frames of it are this module's, and six
// database/sql's; the others are for the borrower and a library between.
type BorrowStack struct {
	pcs  [32]uintptr
	n    int
	loan uint64 // its number
}

// Frames are the callers, beginning with the borrower: the first that is neither this
// module's nor database/sql's.
func (t *BorrowStack) Frames() iter.Seq[runtime.Frame] {
	return func(yield func(runtime.Frame) bool) {
		frames, ours := runtime.CallersFrames(t.pcs[:t.n]), true
		for more := t.n > 0; more; {
			var f runtime.Frame
			f, more = frames.Next()
			ours = ours && (ownCode(f) || strings.HasPrefix(f.Function, "database/sql."))
			if !ours && f.Function != "" && !yield(f) {
				return
			}
		}
	}
}

// String has a function a line, and behind it its file and line.
func (t *BorrowStack) String() string {
	var b strings.Builder
	for f := range t.Frames() {
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return b.String()
}

// ownCode says whether a frame is this module's, its tests and examples apart.
func ownCode(f runtime.Frame) bool {
	const module = "github.com/flightpool/flightpool/"
	return strings.HasPrefix(f.Function, module) && !strings.HasPrefix(f.Function, module+"examples/") && !strings.HasSuffix(f.File, "_test.go")
}

// recordBorrower remembers who borrows. It runs on the borrower's goroutine; the
// stack is looked at before the lock is taken.
func (r *Reservoir[C]) recordBorrower(l Loan[C]) {
	t := BorrowStack{loan: l.number}
	t.n = runtime.Callers(2, t.pcs[:])
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOut(l) {
		return
	}
	if l.entry.borrower == nil {
		l.entry.borrower = new(BorrowStack)
	}
	*l.entry.borrower = t
}

// knownBorrower is who has the latest loan; nil: it was not recorded, or not yet. The caller
// holds mu.
func (e *entry[C]) knownBorrower() *BorrowStack {
	if e.borrower == nil || e.borrower.loan != e.loanNumber {
		return nil
	}
	return e.borrower
}

// reportLeaks reports some of the loans that are out too long once the reservoir is closed:
// Close waits for them, and nothing else is due any more. It says whether there are more. The
// caller holds mu.
func (r *Reservoir[C]) reportLeaks(now int64, fx *effects[C]) (more bool) {
	left := batch
	for ; left > 0 && r.mu.timers.first() <= now; left-- {
		e, next := r.mu.timers[0], never // what is no loan becomes none any more
		if e.state == loaned {
			if r.reportLeak(e, now, fx); e.reportedLoan != e.loanNumber {
				next = addSaturating(e.borrowedAt, r.leakAfter)
			}
		}
		r.mu.timers.set(e, next)
	}
	if more = left == 0; more {
		r.mu.sweepAt = now // as in sweepBatch
	} else {
		r.sweepBy(r.mu.timers.first())
	}
	return more
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
		var where BorrowStack
		if t := e.knownBorrower(); t != nil {
			where = *t
		}
		r.mu.tasks++
		fx.afterUnlock(func() {
			go func() { // sweep does not wait for a hook: who waits for sweep may be what the hook waits for
				defer r.taskDone()
				r.callHook(func() { leaked(Leak{Held: time.Duration(held), Stack: where.String()}) })
			}()
		})
	}
}
