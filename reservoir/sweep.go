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
	if at < r.mu.sweepAt && !r.mu.closed {
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
	if !r.mu.closed {
		now := r.clock.read()
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
	case unused >= overflowLinger && r.live() > r.mu.maxSize:
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
