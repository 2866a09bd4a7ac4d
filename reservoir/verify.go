package reservoir

import "github.com/flightpool/flightpool/internal/invariant"

// verify checks the invariants at the end of a section under the lock.
func (r *Reservoir[C]) verify() {
	if !invariant.Enabled {
		return
	}
	m := &r.mu
	total := 0
	for _, n := range m.count[:gone] {
		total += n
	}
	invariant.Check(total == len(m.all), "states sum to %d, there are %d connections", total, len(m.all))
	m.ceiling = max(r.limit(), min(m.ceiling, total))
	invariant.Check(total <= m.ceiling, "%d connections, more than %d", total, m.ceiling)
	invariant.Check(m.unadmitted >= 0 && m.unadmitted <= m.count[opening], "%d wait in Admit, %d are opening", m.unadmitted, m.count[opening])
	invariant.Check(m.stalled >= 0 && m.stalled <= m.count[closing], "%d closes are stalled of %d", m.stalled, m.count[closing])
	listed := max(0, min(m.idle.n-m.count[idle], m.keepalives)) // keepalive checks; those that Reset took out are not there
	invariant.Check(m.idle.n == m.count[idle]+listed, "%d in the idle list, %d are idle", m.idle.n, m.count[idle])
	invariant.Check(m.superseded >= 0 && m.superseded <= m.stale && m.stale+m.superseded <= r.established(), "%d superseded, %d stale, %d established", m.superseded, m.stale, r.established())
	invariant.Check(m.outdated >= 0 && m.outdated <= m.idle.n && m.pastIdleTTL >= 0 && m.pastIdleTTL <= m.idle.n, "%d outdated, %d aged of %d idle", m.outdated, m.pastIdleTTL, m.idle.n)
	invariant.Check(m.untimed.n <= m.waiters.n, "%d without a deadline of %d waiters", m.untimed.n, m.waiters.n)
	invariant.Check(len(m.timers) == r.established() || m.closed, "%d timers, %d established", len(m.timers), r.established())
	invariant.Check(r.leavers.inQueue.Load() >= 0, "%d of those in the queue have left", r.leavers.inQueue.Load())
	if !m.closed && m.waiters.n > 0 {
		now := r.clock.now()
		front := m.idle.front()
		first := r.mu.waiters.front()
		usable := first.status.Load() == waiterQueued && front != nil && front.state == idle && front.generation == m.generation && !r.expired(front, now)
		invariant.Check(!usable || r.mustCheck(front, now) && r.counts().uncheckedWaiters() == 0, "%d idle while %d wait", m.idle.n, m.waiters.n)
	}
	if len(m.all) <= 64 {
		r.verifyIdle()
		r.verifyTimers()
	}
	if !m.closed {
		r.verifySettled(r.openCounts(), r.clock.exact()) // which leaves the kept reading to its users
	}
}

// verifyIdle checks every connection of the idle list.
func (r *Reservoir[C]) verifyIdle() {
	stale, aged, outdated, younger := 0, 0, 0, never
	for e := r.mu.idle.front(); e != nil; e = e.link.next.self {
		invariant.Check(e.state == idle || e.state == checking && e.keepalive, "in the idle list in state %d", e.state)
		invariant.Check(e.idleSince <= younger, "idle list out of order: %d after %d", e.idleSince, younger)
		invariant.Check(outdated == 0 || e.generation != r.mu.generation, "a new connection behind an outdated one")
		invariant.Check(e.lost == nil || e.state != idle, "idle although lost: %v", e.lost)
		invariant.Check(e.stale == e.staleLink.linked(), "stale %v, in the list of stale ones %v", e.stale, e.staleLink.linked())
		younger = e.idleSince
		if e.stale {
			stale++
		}
		if e.pastIdleTTL {
			aged++
		}
		if e.generation != r.mu.generation {
			outdated++
		}
	}
	invariant.Check(stale == r.mu.staleIdle.n, "%d idle are stale, counted %d", stale, r.mu.staleIdle.n)
	invariant.Check(aged == r.mu.pastIdleTTL, "%d are aged, counted %d", aged, r.mu.pastIdleTTL)
	invariant.Check(outdated == r.mu.outdated, "%d are outdated, counted %d", outdated, r.mu.outdated)
}

// verifyTimers checks that nothing that time brings comes later than its timer. Once
// closed, time brings nothing for what is idle: Close is about to close it.
func (r *Reservoir[C]) verifyTimers() {
	stale := 0
	for _, e := range r.mu.all {
		if e.state == opening || e.state == closing {
			invariant.Check(e.timerIndex < 0, "in state %d with a timer", e.state)
			continue
		}
		if e.stale {
			stale++
		}
		invariant.Check(e.timerIndex >= 0 && r.mu.timers[e.timerIndex] == e, "not among the timers")
		invariant.Check(r.mu.closed || r.mu.sweepAt <= e.dueAt, "the alarm is at %d, a timer at %d", r.mu.sweepAt, e.dueAt)
		if e.state == idle && !r.mu.closed {
			exact := min(e.lifetime.expireAt, addSaturating(e.knownGoodAt, r.checkInterval))
			if e.dueLink.linked() {
				exact = e.lifetime.expireAt
			}
			if !e.pastIdleTTL {
				exact = min(exact, addSaturating(e.idleSince, r.idleTTL))
			}
			invariant.Check(e.dueAt <= max(exact, r.clock.exact()+1) || r.mu.reconfiguring > 0, "looked at %d, %d too late", e.dueAt, e.dueAt-exact)
		}
	}
	invariant.Check(stale == r.mu.stale, "%d are stale, counted %d", stale, r.mu.stale)
}

// verifyFastPath checks that acquire would lend the same connection and do nothing
// else, at the time by which tryFastPath decided: reading it again may give a later
// one.
func (r *Reservoir[C]) verifyFastPath(e *entry[C], now int64) {
	var fx effects[C]
	invariant.Check(r.mu.waiters.n == 0 && r.newestIdle(now, &fx) == e && !r.mustCheck(e, now) && fx.tasks == nil, "the quick way lends another connection than the long one")
	c := r.openCounts()
	c.idle--
	r.verifySettled(c, now)
}

// verifyRequeue checks that the long way would make the connection the first
// idle one and do nothing else.
func (r *Reservoir[C]) verifyRequeue(e *entry[C]) {
	to, reason := r.destinationOf(e, e.idleSince)
	invariant.Check(to == toIdle, "the quick way keeps a connection for which the verdict is %d, %v", to, reason)
	c := r.openCounts()
	c.idle++
	r.verifySettled(c, r.clock.now())
}

// verifySettled checks that demand asks for nothing more. What was left for the next
// batch is the sweep's, which is due.
func (r *Reservoir[C]) verifySettled(c counts, now int64) {
	open, retire := demand(c)
	settled := open == 0 && (retire == 0 || r.oldestStale() == nil)
	invariant.Check(settled || r.mu.sweepAt <= now, "%d opens and %d replacements are missing", open, retire)
}
