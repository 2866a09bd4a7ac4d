package reservoir

import "sync/atomic"

// A state is what a connection is doing. The transitions are drawn in doc.go.
type state uint8

const (
	opening   state = iota // Admit or Open is under way
	idle                   // in the idle list
	loaned                 // a borrower has it
	resetting              // its borrower has released it; Reset or Check is under way
	checking               // Check is under way
	closing                // Close is about to be called or has not returned
	gone                   // not in mu.all any more

	states = iota
)

// An entry is one connection from the decision to open it until its Close has
// returned. All fields are guarded by the reservoir's mutex, but for value and
// release, which are written once, before any other goroutine knows the entry.
type entry[C any] struct {
	id         uint64          // not changed after newEntry
	link       link[*entry[C]] // in the idle list: idle, or in a keepalive check
	staleLink  link[*entry[C]] // in staleIdle: in the idle list and stale
	dueLink    link[*entry[C]] // in dueChecks
	nextEffect *entry[C]       // in an effect
	index      int             // in mu.all
	timerIndex int             // in mu.timers; less than 0: not there
	dueAt      int64           // its key there

	value C
	state state

	// loanNumber numbers the loans of this entry. A Loan whose number is not this,
	// or whose entry is not loaned, is over.
	loanNumber uint64

	unadmitted       bool   // it is opening, and waits in Admit; counted in mu.unadmitted
	generation       uint64 // the reservoir's, when the open began
	lastWaiterAtOpen uint64 // when Admit, or then Open, was called

	keepalive   bool   // its check is one for CheckInterval, not for a waiter
	slow        bool   // its check takes so long that no waiter counts on it
	cancelCheck func() // ends its check, or its reset
	recalled    bool   // by force: its check ends at once. It is of an older generation, and closed next

	lifetime      lifetime
	fastPathUntil int64 // until then its age needs no thought
	stale         bool  // past lifetime.replaceAt, and idle since; counted in mu.stale until it closes
	pastIdleTTL   bool  // in the idle list for IdleTTL; counted in mu.pastIdleTTL

	openedAt     int64
	idleSince    int64
	knownGoodAt  int64 // when it was last known to work
	borrowedAt   int64
	checkBeganAt int64 // when its check began

	checkedLoan uint64 // the latest loan before the connection was opened or last checked for a waiter

	// lost is why the connection has ended by itself, when it has.
	//
	// INVARIANT: what is lost is not idle.
	lost error

	release func() // gives the permission of Admit back
	stalled bool   // its Close takes longer than CloseTimeout; counted in mu.stalled
	reason  Reason
	cause   error

	borrower     *BorrowStack // where the latest loan was taken, or one before, while leaks are looked for
	reportedLoan uint64       // the latest loan that was reported
}

// lastID is that of the latest entry of all reservoirs: what is known of connections by
// their IDs needs no reservoir besides.
var lastID atomic.Uint64

// newEntry adds an entry that is opening. The caller holds mu.
func (r *Reservoir[C]) newEntry() *entry[C] {
	e := &entry[C]{id: lastID.Add(1), index: len(r.mu.all), timerIndex: -1, state: opening, generation: r.mu.generation, lastWaiterAtOpen: r.mu.lastWaiter}
	e.link.self, e.staleLink.self, e.dueLink.self = e, e, e
	r.mu.all = append(r.mu.all, e)
	r.mu.count[opening]++
	if r.cfg.Admit != nil {
		e.unadmitted = true
		r.mu.unadmitted++
	}
	return e
}

// remove forgets an entry: it does not count any more. The caller holds mu.
func (r *Reservoir[C]) remove(e *entry[C]) {
	r.move(e, gone)
	if e.stalled {
		r.mu.stalled--
	}
	last := len(r.mu.all) - 1
	other := r.mu.all[last]
	r.mu.all[e.index], other.index = other, e.index
	r.mu.all[last] = nil
	r.mu.all = r.mu.all[:last]
}

// becomeIdle puts an entry into the idle list, unless it is there. The caller
// holds mu.
//
// INVARIANT: from front to back the idle list is ordered by idleSince, youngest
// first: what comes to the front has just been used, checked for a waiter or
// opened, what a keepalive check looks at keeps its place, and a successor has that
// of the connection that it is for.
func (r *Reservoir[C]) becomeIdle(e *entry[C], now int64) {
	r.move(e, idle)
	if !e.link.linked() {
		r.mu.idle.pushFront(&e.link)
		if e.stale {
			r.mu.staleIdle.pushBack(&e.staleLink)
		}
	}
	r.schedule(e, now)
}

// takePlaceOfStale makes an idle entry the successor of a stale one. If the stale one is
// idle too, the successor takes over its place in the idle list and its idleSince.
// Otherwise connections that are replaced more often than IdleTTL would never be idle
// for that long. The caller holds mu.
func (r *Reservoir[C]) takePlaceOfStale(e *entry[C], now int64) {
	r.mu.superseded++
	old := r.oldestStale()
	if old == nil || old == e || old.generation != r.mu.generation {
		return // what Reset is about to close stays at the back
	}
	r.mu.idle.remove(&e.link)
	e.idleSince = old.idleSince
	r.mu.idle.insertAfter(&old.link, &e.link)
	r.schedule(e, now)
}

// leaveIdle takes an entry out of the idle list if it is there. The caller holds
// mu and moves the entry on.
func (r *Reservoir[C]) leaveIdle(e *entry[C]) {
	if !e.link.linked() {
		return
	}
	r.mu.idle.remove(&e.link)
	if e.staleLink.linked() {
		r.mu.staleIdle.remove(&e.staleLink)
	}
	if e.pastIdleTTL {
		e.pastIdleTTL = false
		r.mu.pastIdleTTL--
	}
	if e.generation != r.mu.generation {
		r.mu.outdated--
	}
}

// newestIdle finds the idle connection that was used last, after it has closed
// those that may not be lent any more. It leaves it in the list; nil when there
// is none, or the sweep has to close more of them first. Those in keepalive checks, of which there are few, are passed over.
// The caller holds mu.
func (r *Reservoir[C]) newestIdle(now int64, fx *effects[C]) *entry[C] {
	for e := r.mu.idle.front(); e != nil; {
		next := e.link.next.self
		switch {
		case e.generation != r.mu.generation:
			return nil // Reset or Close is about to close it, and all behind it
		case e.state != idle:
		case !r.expired(e, now):
			return e
		case fx.begun >= batch:
			r.sweepBy(r.clock.now()) // which serves the rest of the waiters, too
			return nil
		default:
			r.retire(e, Expired, nil, fx)
		}
		e = next
	}
	return nil
}

// oldestIdle finds the idle connection that was used longest ago. The caller
// holds mu.
func (r *Reservoir[C]) oldestIdle() *entry[C] {
	e := r.mu.idle.back()
	for e != nil && e.state != idle {
		e = e.link.prev.self
	}
	return e
}

// oldestStale finds the idle connection that has been stale for longest. The
// caller holds mu.
func (r *Reservoir[C]) oldestStale() *entry[C] {
	e := r.mu.staleIdle.front()
	for e != nil && e.state != idle {
		e = e.staleLink.next.self
	}
	return e
}

// lend gives an entry to a borrower. The caller holds mu.
func (r *Reservoir[C]) lend(e *entry[C], now int64) Loan[C] {
	r.leaveIdle(e)
	r.move(e, loaned)
	e.loanNumber++
	e.borrowedAt = now
	return Loan[C]{r: r, entry: e, number: e.loanNumber}
}

// retire sends an entry to be closed. The caller holds mu.
func (r *Reservoir[C]) retire(e *entry[C], reason Reason, cause error, fx *effects[C]) {
	r.leaveIdle(e)
	r.forgetTimes(e)
	r.move(e, closing)
	r.capSuperseded()
	r.countPromised()
	e.reason, e.cause = reason, cause
	r.begin(e, fx)
}

// forgetTimes takes an entry out of everything that time brings. The caller
// holds mu.
func (r *Reservoir[C]) forgetTimes(e *entry[C]) {
	if e.timerIndex >= 0 {
		r.mu.timers.remove(e)
	}
	if e.dueLink.linked() {
		r.mu.dueChecks.remove(&e.dueLink)
	}
	if e.stale {
		e.stale = false
		r.mu.stale--
		r.mu.superseded = max(0, r.mu.superseded-1)
	}
}

// capSuperseded forgets successors that are gone, or stale themselves: what
// they were to replace needs another. The caller holds mu.
func (r *Reservoir[C]) capSuperseded() {
	r.mu.superseded = min(r.mu.superseded, r.established()-r.mu.stale)
}

// inUse counts what borrowers and checks have. The caller holds mu.
func (r *Reservoir[C]) inUse() int {
	return r.mu.count[loaned] + r.mu.count[resetting] + r.mu.count[checking]
}

// established counts the connections that are open. The caller holds mu.
func (r *Reservoir[C]) established() int { return r.mu.count[idle] + r.inUse() }
