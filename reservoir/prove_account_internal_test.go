package reservoir

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// An account is what a program has seen happen, to be compared with the
// reservoir's Stats and hooks.
type account struct {
	opens, admits, checks, checkFailures      atomic.Uint64
	acquired, timeouts, canceled, shed        atomic.Uint64
	failed, refused                           atomic.Uint64 // refused: with ErrClosed
	hooked, hookedByCallers                   bool
	opening, opened, openFailed, openElided   atomic.Uint64
	closing, closed, stalled, leaked, badHook atomic.Uint64
	told, waits, ends, shedTold               atomic.Uint64
	began                                     time.Time
	waited                                    atomic.Int64
	impossible                                atomic.Int64 // a time that was told and cannot be
	proved                                    bool         // calls of CheckOne have borrowed and waited, too
}

// ended counts an Acquire by how it has ended.
func (a *account) ended(err error) {
	var open *OpenError
	switch { // an error of the first ones may have the latest open's behind it
	case err == nil:
		a.acquired.Add(1)
	case errors.Is(err, errFailFast), errors.Is(err, errQueueFull):
		a.shed.Add(1)
	case errors.Is(err, errAcquireTimeout):
		a.timeouts.Add(1)
	case errors.Is(err, ErrClosed):
		a.refused.Add(1)
	case errors.As(err, &open):
		a.failed.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		a.timeouts.Add(1)
	case errors.Is(err, context.Canceled):
		a.canceled.Add(1)
	default:
		a.failed.Add(1)
	}
}

// hooks are those on the reservoir's goroutines. Each counts and is then as bad as
// it may be.
func (a *account) hooks(bad func()) Hooks {
	a.hooked = true
	count := func(n *atomic.Uint64) {
		n.Add(1)
		returned := false
		defer func() {
			if !returned {
				a.badHook.Add(1)
			}
		}()
		bad()
		returned = true
	}
	return Hooks{
		Opening: func() { count(&a.opening) }, Opened: func(took time.Duration) { a.lasted(took); count(&a.opened) },
		OpenFailed: func(_ error, took time.Duration) { a.lasted(took); count(&a.openFailed) }, OpenSkipped: func() { count(&a.openElided) },
		Leaked: func(l Leak) { a.lasted(l.Held); count(&a.leaked) }, Closing: func(Reason, error) { count(&a.closing) },
		CloseStalled: func(Reason) { count(&a.stalled) }, Closed: func(Reason, error) { count(&a.closed) },
	}
}

// callerHooks adds those on the callers' goroutines.
func (a *account) callerHooks(h *Hooks) {
	a.hookedByCallers = true
	h.Acquired = func(waited time.Duration) { a.lasted(waited); a.told.Add(1) }
	h.WaitStart = func() { a.waits.Add(1) }
	h.WaitEnd = func(waited time.Duration, _ error) { a.lasted(waited); a.waited.Add(int64(waited)); a.ends.Add(1) }
	h.Rejected = func() { a.shedTold.Add(1) }
	h.Released = func(held time.Duration) { a.lasted(held) }
	h.Checked = func(_ error, took time.Duration) { a.lasted(took) }
}

// lasted looks at a time that is told. It may be off by what the clock is.
func (a *account) lasted(d time.Duration) {
	if d < -maxSlack || d > time.Since(a.began)+maxSlack {
		a.impossible.Store(int64(d))
	}
}

// compare says which figure of the closed reservoir is not what has happened.
func (a *account) compare(s Stats, made int, cfg Config[*provenConn]) string {
	closed := uint64(0)
	for _, n := range s.Closed {
		closed += n
	}
	unmade, skipped := a.admits.Load()-uint64(made), s.OpenFailures+s.OpensSkipped
	allLent := cfg.ExpiresAt == nil && cfg.Watch == nil // else some that were made can't be lent even once, which is a failed open
	type figure struct {
		name       string
		stats, was uint64
		known      bool
	}
	for _, f := range []figure{
		{"Opens", s.Opens, a.opens.Load(), true},
		{"Closed", closed, uint64(made), true},
		{"Checks", s.Checks, a.checks.Load(), true},
		{"CheckFailures", s.CheckFailures, a.checkFailures.Load(), true},
		{"OpenFailures and OpensSkipped", skipped, unmade, cfg.Admit != nil && allLent},
		{"OpenFailures and OpensSkipped", skipped, min(max(skipped, unmade), unmade+s.Closed[Lost]+s.Closed[Outdated]), cfg.Admit != nil},
		{"Acquired", s.Acquired, a.acquired.Load(), !a.proved},
		{"Timeouts", s.Timeouts, a.timeouts.Load(), !a.proved},
		{"Canceled", s.Canceled, a.canceled.Load(), !a.proved},
		{"Shed", s.Rejected, a.shed.Load(), !a.proved},
		{"Failed", min(s.Failed, a.failed.Load()+a.refused.Load()), s.Failed, !a.proved},
		{"Failed", max(s.Failed, a.failed.Load()), s.Failed, !a.proved},
		{"Opening", s.Opens, a.opening.Load(), a.hooked},
		{"OpenFailed", s.OpenFailures, a.openFailed.Load(), a.hooked},
		{"OpenSkipped", s.OpensSkipped, a.openElided.Load(), a.hooked},
		{"Closing", closed, a.closing.Load(), a.hooked},
		{"Closed", closed, a.closed.Load(), a.hooked},
		{"CloseStalled", s.CloseStalls, a.stalled.Load(), a.hooked},
		{"Leaked", s.Leaks, a.leaked.Load(), a.hooked},
		{"Leaks without LeakAfter", s.Leaks, 0, cfg.LeakAfter <= 0},
		{"HookFailures", s.HookFailures, a.badHook.Load(), true},
		{"Acquired", s.Acquired, a.told.Load(), a.hookedByCallers},
		{"WaitEnd", a.ends.Load(), a.waits.Load(), a.hookedByCallers},
	} {
		if f.known && f.stats != f.was {
			return fmt.Sprintf("%s: %d are counted, %d have happened", f.name, f.stats, f.was)
		}
	}
	if d := time.Duration(a.impossible.Load()); d != 0 {
		return fmt.Sprintf("a time of %v is told", d)
	}
	if waited := time.Duration(a.waited.Load()); a.hookedByCallers && waited != s.WaitTime {
		return fmt.Sprintf("WaitTime is %v, and %v were told", s.WaitTime, waited)
	}
	return ""
}

// burst is how often something is done: many times where that is more than is
// done in one section under the lock.
func (w *world) burst() int {
	if !w.large || w.more.IntN(2) == 0 {
		return 1
	}
	return 1 + w.more.IntN(3*batch)
}

// A readyCall is a call of WaitReady.
type readyCall struct {
	n    int
	done atomic.Bool
}

func (w *world) waitReady(ctx context.Context) {
	call := &readyCall{n: w.more.IntN(w.r.Stats().MaxSize + 1)}
	w.note("wait for %d to be ready", call.n)
	w.ready = append(w.ready, call)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_ = w.r.WaitReady(ctx, call.n)
		call.done.Store(true)
	}()
}

// described compares Connections with the entries, at rest.
func (w *world) described() string {
	type connection struct {
		value         int
		id            uint64
		inUse, onLoan bool
		loans         uint64
	}
	has := map[connection]int{}
	w.r.mu.Lock()
	for _, e := range w.r.mu.all {
		if e.state != opening && e.state != closing {
			has[connection{e.value.id, e.id, e.state != idle, e.state == loaned, e.loanNumber}]++
		}
	}
	w.r.mu.Unlock()
	for _, info := range w.r.Connections() {
		if info.Value == nil {
			return "Connections describes one that is not open"
		}
		has[connection{info.Value.id, info.ID, info.InUse, info.OnLoan, info.Loans}]--
	}
	for c, n := range has {
		if n != 0 {
			return fmt.Sprintf("Connections differs by %d in %+v", -n, c)
		}
	}
	return ""
}
