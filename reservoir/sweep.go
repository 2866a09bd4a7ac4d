package reservoir

import "time"

// overflowLinger is how long a connection beyond MaxSize stays idle before it is
// closed, so that a steady overflow does not dial for every call.
const overflowLinger = int64(time.Second)

// arm makes the sweeper look at a time, or earlier. The caller holds mu.
//
// INVARIANT: no due moment lies before mu.due: an open retry, a waiter's
// deadline, what mu.timers holds.
func (r *Reservoir[C]) arm(at int64) {
	if at < r.mu.due && !r.mu.closed {
		r.mu.due = at
		r.alarm.Reset(time.Duration(max(0, at-r.clock.exact())))
	}
}

// sweep does what is due and sets the alarm for what is due next. It runs on
// the alarm's goroutine, briefly; between alarms there is none.
func (r *Reservoir[C]) sweep() {
	for r.sweepBatch() {
	}
}

// sweepBatch does a bounded part of what is due and says whether more is.
func (r *Reservoir[C]) sweepBatch() (more bool) {
	var fx effects[C]
	r.mu.Lock()
	r.mu.due = never
	if !r.mu.closed {
		now := r.clock.read()
		left := r.expireWaiters(now, batch, &fx)
		left = r.failBatch(left, &fx)
		for ; left > 0 && r.mu.timers.first() <= now; left-- {
			r.look(r.mu.timers[0], now, &fx)
		}
		r.reconcile(&fx)
		if more = left == 0; more {
			r.mu.due = now // the next batch is that alarm
		} else {
			r.arm(min(r.mu.timers.first(), r.firstDeadline()))
		}
	}
	r.unlock(&fx)
	return more
}

// look does what time has brought for one entry and sets its next key. The
// caller holds mu.
func (r *Reservoir[C]) look(e *entry[C], now int64, fx *effects[C]) {
	switch e.state {
	case idle:
		r.lookAtIdle(e, now, fx)
	case loaned:
		r.findLeak(e, now, fx)
	case checking:
		r.lookAtCheck(e, now, fx)
	case opening, resetting, closing, gone:
	}
	if e.timer < 0 { // it is being closed
		return
	}
	if e.link.linked() {
		r.markStale(e, now)
	}
	r.mu.timers.set(e, r.nextLook(e, now))
}

// markStale counts a connection that has reached its replacement time. One in
// use is not counted before it comes back: who keeps a connection for long needs
// no second one. The caller holds mu.
func (r *Reservoir[C]) markStale(e *entry[C], now int64) {
	if e.stale || now < e.span.replaceAt {
		return
	}
	e.stale = true
	r.mu.stale++
	r.countSuccessors()
	if e.link.linked() {
		r.mu.staleIdle.pushBack(&e.staleLink)
	}
}

// lookAtIdle looks at the ages of an idle connection. The caller holds mu.
func (r *Reservoir[C]) lookAtIdle(e *entry[C], now int64, fx *effects[C]) {
	unused := now - e.idleSince
	switch {
	case now >= e.span.expireAt:
		r.retire(e, Expired, nil, fx)
	case unused >= overflowLinger && r.live() > r.mu.maxSize:
		r.retire(r.oldestIdle(), Surplus, nil, fx)
	case !e.aged && now >= after(e.idleSince, r.idleTTL):
		e.aged = true
		r.mu.aged++
	}
	if e.state == idle && !e.dueLink.linked() && now >= after(e.proven, r.keepAlive) {
		r.mu.dueChecks.pushBack(&e.dueLink)
		r.startDueChecks(now, fx)
	}
}

// evictAged closes those that were idle for IdleTTL, coldest first, down to
// MinIdle of them. What was in use lately does not count for MinIdle: a steady
// borrower and MinIdle spare ones stay as they are. While Tune has yet to look at
// them, nobody knows which are too long idle. The caller holds mu.
func (r *Reservoir[C]) evictAged(fx *effects[C]) {
	if r.mu.tuning > 0 {
		return
	}
	for left := batch; r.mu.aged > r.mu.minIdle; left-- {
		e := r.oldestIdle()
		if e == nil || !e.aged {
			return
		}
		if left == 0 {
			r.arm(r.clock.now()) // for the rest
			return
		}
		r.retire(e, Idled, nil, fx)
	}
}

// after is the time d after t; never when there is none. d <= 0 is off.
func after(t, d int64) int64 {
	if d <= 0 || d >= never-max(t, 0) {
		return never
	}
	return t + d
}
