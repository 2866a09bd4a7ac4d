package reservoir

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
// returned. All fields are guarded by the reservoir's mutex, but for value,
// which is written once, before any other goroutine knows the entry.
type entry[C any] struct {
	link  link[*entry[C]] // in the idle list
	chain *entry[C]       // in an effect
	index int             // in mu.all

	value C
	state state

	// loan numbers the loans of this entry. A Loan whose number is not this,
	// or whose entry is not loaned, is over.
	loan uint64

	generation uint64 // the reservoir's, when the open began
	queue      uint64 // the number of the last waiter when Admit, or then Open, was called
	probe      bool   // checked by the sweeper, not for a waiter

	span      span
	calm      int64 // until then its age needs no thought
	stale     bool  // idle and counted in mu.stale
	born      int64
	idleSince int64
	proven    int64 // when it was last known to work
	borrowed  int64

	// lost is why the connection has ended by itself, when it has.
	//
	// INVARIANT: what is lost is not idle.
	lost error

	release func() // gives the permission of Admit back
	reason  Reason
	cause   error

	trace trace
}

// move changes the state of an entry. The caller holds mu.
func (r *Reservoir[C]) move(e *entry[C], to state) {
	r.mu.count[e.state]--
	r.mu.count[to]++
	e.state = to
}

// birth adds an entry that is opening. The caller holds mu.
func (r *Reservoir[C]) birth() *entry[C] {
	e := &entry[C]{index: len(r.mu.all), state: opening, generation: r.mu.generation, queue: r.mu.lastWaiter}
	e.link.self = e
	r.mu.all = append(r.mu.all, e)
	r.mu.count[opening]++
	return e
}

// bury removes an entry: it does not count any more. The caller holds mu.
func (r *Reservoir[C]) bury(e *entry[C], fx *effects[C]) {
	r.move(e, gone)
	last := len(r.mu.all) - 1
	other := r.mu.all[last]
	r.mu.all[e.index], other.index = other, e.index
	r.mu.all[last] = nil
	r.mu.all = r.mu.all[:last]
	if last == 0 && r.mu.closed {
		fx.later(r.signalDrained)
	}
}

// toIdle puts an entry into the idle list, by the time since when it is idle.
// The caller holds mu.
//
// INVARIANT: from front to back the idle list is ordered by idleSince,
// youngest first.
func (r *Reservoir[C]) toIdle(e *entry[C], now int64, fx *effects[C]) {
	r.move(e, idle)
	if now >= e.span.soft {
		e.stale = true
		r.mu.stale++
		r.arm(e.span.last)
	}
	l := &r.mu.idle
	if first := l.front(); first == nil || e.idleSince >= first.idleSince {
		l.pushFront(&e.link)
	} else {
		at := l.root.prev
		for at.self.idleSince < e.idleSince {
			at = at.prev
		}
		l.insertAfter(at, &e.link)
	}
	if r.keepAlive > 0 {
		r.arm(e.proven + r.keepAlive)
	}
	r.evictIdle(now, fx)
}

// fromIdle takes an entry out of the idle list. The caller holds mu and moves
// the entry on.
func (r *Reservoir[C]) fromIdle(e *entry[C]) {
	r.mu.idle.remove(&e.link)
	if e.stale {
		e.stale = false
		r.mu.stale--
	}
}

// lend gives an entry to a borrower. The caller holds mu.
func (r *Reservoir[C]) lend(e *entry[C], now int64) Loan[C] {
	if e.state == idle {
		r.fromIdle(e)
	}
	r.move(e, loaned)
	e.loan++
	e.borrowed = now
	return Loan[C]{r: r, entry: e, number: e.loan}
}

// retire sends an entry to be closed. The caller holds mu.
func (r *Reservoir[C]) retire(e *entry[C], reason Reason, cause error, fx *effects[C]) {
	if e.state == idle {
		r.fromIdle(e)
	}
	r.move(e, closing)
	e.reason, e.cause = reason, cause
	e.chain, fx.close = fx.close, e
}

// inUse counts what borrowers and checks have. The caller holds mu.
func (r *Reservoir[C]) inUse() int {
	return r.mu.count[loaned] + r.mu.count[resetting] + r.mu.count[checking]
}

// live counts the connections that are not on their way out. The caller holds mu.
func (r *Reservoir[C]) live() int { return len(r.mu.all) - r.mu.count[closing] }
