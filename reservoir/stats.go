package reservoir

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Reason is why a connection was closed.
type Reason uint8

// The reasons.
const (
	// Expired: older than MaxLifetime and its jitter, or about to be.
	Expired Reason = iota
	// IdleTimeout: idle for IdleTTL, or EvictIdle was called.
	IdleTimeout
	// Discarded: a borrower said so, or Config.Reset failed.
	Discarded
	// Outdated: opened before the last Reservoir.Reset.
	Outdated
	// OverCapacity: beyond MaxSize after Resize or an overflow, or CloseIdle or GiveUp was called.
	OverCapacity
	// Unhealthy: Check failed.
	Unhealthy
	// Shutdown: the reservoir closed.
	Shutdown
	// Lost: the connection ended by itself, as Config.Watch told.
	Lost

	reasons = iota
)

func (r Reason) String() string {
	names := [reasons]string{"expired", "idle", "discarded", "outdated", "surplus", "unhealthy", "shutdown", "lost"}
	if int(r) < len(names) {
		return names[r]
	}
	return "unknown"
}

// Stats is what a reservoir is and has done. Total is the sum of Idle, InUse,
// Opening and Closing, all taken at one moment.
type Stats struct {
	// Total counts the connections that exist, or may: those whose Open has
	// begun, or waits for Admit, and whose Close has not returned.
	Total int
	// Idle counts the connections that can be lent.
	Idle int
	// InUse counts loans, and connections that are being reset or checked.
	InUse int
	// OnLoan counts loans: those of InUse that a borrower has.
	OnLoan int
	// Opening counts opens under way, those that wait for Admit included.
	Opening int
	// Closing counts connections whose Close has not returned.
	Closing int
	// Waiting counts callers in the queue.
	Waiting int
	// MaxSize is the present bound of Total, without overflow, and MinIdle how many
	// connections are kept idle.
	MaxSize, MinIdle int

	// Acquired counts loans. AcquiredWaited of them had to wait, and Handoffs
	// of those got a connection that somebody just gave back or opened, as all do.
	Acquired, AcquiredWaited, Handoffs uint64
	// WaitTime is the sum of all waits, failed ones included.
	WaitTime time.Duration
	// Timeouts counts callers whom a deadline or AcquireTimeout ended, Canceled
	// those whose context was cancelled, Failed those to whom a failed open,
	// FailWaiters or Close gave an error, Rejected those refused by FailFast,
	// MaxWaiters or FailWaiters with ErrExhausted.
	Timeouts, Canceled, Failed, Rejected uint64
	// Opens counts calls of Open. OpenFailures counts those of Open and Admit
	// that failed, what can't be lent even once included, OpensSkipped permissions that were given back unused and opens
	// that Close has ended.
	Opens, OpenFailures, OpensSkipped uint64
	// Checks counts calls of Check, CheckFailures those that failed.
	Checks, CheckFailures uint64
	// Closed counts connections whose Close has returned, by Reason.
	Closed [reasons]uint64
	// CloseStalls counts closes that took longer than CloseTimeout.
	CloseStalls uint64
	// Leaks counts loans reported by LeakAfter.
	Leaks uint64
	// HookFailures counts hooks that panicked or ended their goroutine,
	// LastHookError is the latest of these.
	HookFailures  uint64
	LastHookError error
	// LastOpenError is why the latest open failed; nil when it did not.
	LastOpenError error
}

// Stats returns a snapshot. It takes the reservoir's lock for a moment.
func (r *Reservoir[C]) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.mu.stats
	waited := r.handoffs.Load()
	s.Acquired += waited
	s.AcquiredWaited, s.Handoffs, s.WaitTime = waited, waited, time.Duration(r.waitTime.Load())
	s.Total = len(r.mu.all)
	s.Idle = r.mu.count[idle]
	s.InUse = r.inUse()
	s.OnLoan = r.mu.count[loaned]
	s.Opening = r.mu.count[opening]
	s.Closing = r.mu.count[closing]
	s.Waiting = r.waiting()
	s.Timeouts += r.leavers.timeouts.Load()
	s.Canceled += r.leavers.canceled.Load()
	s.MaxSize, s.MinIdle = r.mu.maxSize, r.mu.minIdle
	s.LastOpenError = r.mu.lastOpenErr
	return s
}

// Info describes one open connection at one moment.
type Info[C any] struct {
	// ID is what no other connection of the process has or had.
	ID    uint64
	Value C
	// InUse says that it is on loan, or being reset or checked, OnLoan that a borrower has it.
	InUse, OnLoan bool
	// Opened is when Open returned, Used when the latest loan began or ended, or
	// else Opened.
	Opened, Used time.Time
	// Expires is from when on it is not lent; zero: never.
	Expires time.Time
	// Loans counts the loans so far.
	Loans uint64
	// Borrower is where the loan was taken, with LeakAfter; nil: there is none, or it is not known.
	Borrower *BorrowStack
}

// infoBatch is how many connections are described under one hold of the lock,
// so that looking at many does not hold borrowers up.
const infoBatch = 64

// Connections describes the open connections, idle and in use, each that is open all the
// while once, in the order of their IDs. It looks at a few of them at a time. The last takes
// the place of one that leaves: from the back none is missed, but one may be met twice.
func (r *Reservoir[C]) Connections() []Info[C] {
	r.mu.Lock()
	n := len(r.mu.all)
	r.mu.Unlock()
	all := make([]Info[C], 0, n) // not under the lock: it may be large
	for at := math.MaxInt; at > 0; {
		all, at = r.describe(all, at)
	}
	return eachOnce(all)
}

// describe adds the open connections of the last places before at. It returns where it began.
func (r *Reservoir[C]) describe(all []Info[C], at int) ([]Info[C], int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to := min(at, len(r.mu.all))
	from := max(0, to-infoBatch)
	for _, e := range r.mu.all[from:to] {
		if e.state == opening || e.state == closing {
			continue
		}
		info := Info[C]{
			ID: e.id, Value: e.value, InUse: e.state != idle, OnLoan: e.state == loaned, Loans: e.loanNumber,
			Opened: r.clock.start.Add(time.Duration(e.openedAt)), Used: r.clock.start.Add(time.Duration(max(e.openedAt, e.idleSince, e.borrowedAt))),
		}
		if t := e.knownBorrower(); t != nil && info.OnLoan {
			stack := *t
			info.Borrower = &stack
		}
		if e.lifetime.expireAt != never {
			info.Expires = r.clock.start.Add(time.Duration(e.lifetime.expireAt))
		}
		all = append(all, info)
	}
	return all, from
}

func eachOnce[C any](all []Info[C]) []Info[C] {
	slices.SortFunc(all, func(a, b Info[C]) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b Info[C]) bool { return a.ID == b.ID })
}
