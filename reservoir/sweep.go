package reservoir

import "time"

// overflowLinger is how long a connection beyond MaxSize stays idle before it is
// closed, so that a steady overflow does not dial for every call.
const overflowLinger = int64(time.Second)

// sweepBy makes the sweeper look at a time, or earlier. The caller holds mu.
//
// INVARIANT: no due moment lies before mu.sweepAt: an open retry, a waiter's deadline,
// what mu.timers holds.
func (r *Reservoir[C]) sweepBy(at int64) {
	if at < r.mu.sweepAt && (!r.mu.closed || r.leakAfter > 0) {
		r.mu.sweepAt = at
		r.sweepTimer.Reset(time.Duration(max(0, at-r.clock.exact())))
	}
}

// sweep does what is due and sets sweepTimer for what is due next. It runs on the
// timer's goroutine, briefly; in between there is none.
func (r *Reservoir[C]) sweep() {
	for r.sweepBatch() {
	}
}

// sweepBatch does a bounded part of what is due and says whether more is.
func (r *Reservoir[C]) sweepBatch() (more bool) {
	var fx effects[C]
	r.mu.Lock()
	r.mu.sweepAt = never
	if now := r.clock.read(); r.mu.closed {
		more = r.reportLeaks(now, &fx)
	} else {
		left := r.expireWaiters(now, batch, &fx)
		left = r.failPendingBatch(left, &fx)
		for ; left > 0 && r.mu.timers.first() <= now; left-- {
			r.handleDue(r.mu.timers[0], now, &fx)
		}
		r.reconcile(&fx)
		if more = left == 0; more {
			r.mu.sweepAt = now // the timer is due at once, for the next batch
		} else {
			r.sweepBy(min(r.mu.timers.first(), r.firstDeadline()))
		}
	}
	r.unlock(&fx)
	return more
}

// handleDue does what time has brought for one entry and sets its next key. The
// caller holds mu.
func (r *Reservoir[C]) handleDue(e *entry[C], now int64, fx *effects[C]) {
	switch e.state {
	case idle:
		r.handleIdleDue(e, now, fx)
	case loaned:
		r.reportLeak(e, now, fx)
	case checking:
		r.handleCheckDue(e, now, fx)
	case opening, resetting, closing, gone:
	}
	if e.timerIndex < 0 { // it is being closed
		return
	}
	if e.link.linked() {
		r.markStale(e, now)
	}
	r.mu.timers.set(e, r.nextDue(e, now))
}

// markStale counts a connection that has reached its replacement time. A connection in
// use is counted when it comes back: until then no successor is opened for it. The
// caller holds mu.
func (r *Reservoir[C]) markStale(e *entry[C], now int64) {
	if e.stale || now < e.lifetime.replaceAt {
		return
	}
	e.stale = true
	r.mu.stale++
	r.capSuperseded()
	if e.link.linked() {
		r.mu.staleIdle.pushBack(&e.staleLink)
	}
}

// handleIdleDue looks at the ages of an idle connection. The caller holds mu.
func (r *Reservoir[C]) handleIdleDue(e *entry[C], now int64, fx *effects[C]) {
	unused := now - e.idleSince
	switch {
	case now >= e.lifetime.expireAt:
		r.retire(e, Expired, nil, fx)
	case unused >= overflowLinger && r.exceeds(r.mu.maxSize):
		r.retire(r.oldestIdle(), OverCapacity, nil, fx)
	case !e.pastIdleTTL && now >= addSaturating(e.idleSince, r.idleTTL):
		e.pastIdleTTL = true
		r.mu.pastIdleTTL++
	}
	if e.state == idle && !e.dueLink.linked() && now >= addSaturating(e.knownGoodAt, r.checkInterval) {
		r.mu.dueChecks.pushBack(&e.dueLink)
		r.startDueChecks(now, fx)
	}
}

// evictPastIdleTTL closes those that were idle for IdleTTL, coldest first, down to
// MinIdle of them. What was in use lately does not count for MinIdle: a steady
// borrower and MinIdle spare ones stay as they are. While Reconfigure has yet to look at
// them, nobody knows which are too long idle. The caller holds mu.
func (r *Reservoir[C]) evictPastIdleTTL(fx *effects[C]) {
	if r.mu.reconfiguring > 0 {
		return
	}
	for left := batch; r.mu.pastIdleTTL > r.mu.minIdle; left-- {
		e := r.oldestIdle()
		if e == nil || !e.pastIdleTTL {
			return
		}
		if left == 0 {
			r.sweepBy(r.clock.now()) // for the rest
			return
		}
		r.retire(e, IdleTimeout, nil, fx)
	}
}

// addSaturating is the time d after t, or never where the sum overflows. d <= 0 is off.
func addSaturating(t, d int64) int64 {
	if d <= 0 || d >= never-max(t, 0) {
		return never
	}
	return t + d
}

// timers is a heap of the entries that time may bring something for, the earliest
// first. Each has one key, the next moment at which to look at it.
//
// INVARIANT: an entry's key is never later than the next thing that time brings for it.
// It may be earlier, since borrowing and releasing do not touch the heap: handleDue
// finds that nothing is due yet and sets the next key. So a key is at most one period
// (IdleTTL, CheckInterval, LeakAfter) ahead of the time at which it was set.
type timers[C any] []*entry[C]

func (t timers[C]) first() int64 {
	if len(t) == 0 {
		return never
	}
	return t[0].dueAt
}

// set gives an entry its key, and a place if it has none.
func (t *timers[C]) set(e *entry[C], at int64) {
	e.dueAt = at
	if e.timerIndex < 0 {
		e.timerIndex = len(*t)
		*t = append(*t, e)
	}
	t.up(e.timerIndex)
	t.down(e.timerIndex)
}

func (t *timers[C]) remove(e *entry[C]) {
	at, last := e.timerIndex, len(*t)-1
	t.swap(at, last)
	(*t)[last] = nil
	*t = (*t)[:last]
	e.timerIndex = -1
	if at < last {
		moved := (*t)[at]
		t.up(at)
		t.down(moved.timerIndex)
	}
}

func (t *timers[C]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if (*t)[parent].dueAt <= (*t)[i].dueAt {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *timers[C]) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(*t); child++ {
			if (*t)[child].dueAt < (*t)[least].dueAt {
				least = child
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}

func (t *timers[C]) swap(i, j int) {
	h := *t
	h[i], h[j] = h[j], h[i]
	h[i].timerIndex, h[j].timerIndex = i, j
}

// schedule makes sure that an entry is looked at in time. The caller holds mu.
func (r *Reservoir[C]) schedule(e *entry[C], now int64) {
	at := r.nextDue(e, now)
	if e.timerIndex < 0 || at < e.dueAt {
		r.mu.timers.set(e, at)
	}
	r.sweepBy(at)
}

// nextDue is when time brings something for an entry, or when to think about
// it again. The caller holds mu.
func (r *Reservoir[C]) nextDue(e *entry[C], now int64) int64 {
	at := e.lifetime.replaceAt
	if e.stale {
		at = e.lifetime.expireAt
	}
	if at <= now { // it is in use: its return decides
		at = never
	}
	at = min(at, addSaturating(now, r.idleTTL), addSaturating(now, r.checkInterval), addSaturating(now, r.leakAfter))
	switch {
	case e.state == idle:
		if !e.pastIdleTTL {
			at = min(at, addSaturating(e.idleSince, r.idleTTL))
		}
		if !e.dueLink.linked() {
			at = min(at, addSaturating(e.knownGoodAt, r.checkInterval))
		}
		if r.exceeds(r.mu.maxSize) {
			at = min(at, addSaturating(e.idleSince, overflowLinger))
		}
	case e.state == loaned && e.reportedLoan != e.loanNumber:
		at = min(at, addSaturating(e.borrowedAt, r.leakAfter))
	case e.state == checking && !e.slow:
		at = min(at, addSaturating(e.checkBeganAt, r.slowCheckAfter()))
	case e.state == checking:
		at = min(at, addSaturating(now, r.slowCheckAfter()))
	}
	return max(at, now+1)
}
