package fleet

import "time"

// In an outage others may have opened connections by the Fallback that the store does
// not know. So that nobody takes their room, a process whose Fallback is a Share has no
// more than that, or than the connections that it had, while there may be one, and for
// answerTime after it, in which those others tell what they have. Of an outage a
// process knows by its own requests alone. Reads may succeed while no write does, so
// that it is writes that prove that there is none. Who has nothing to write learns of
// such an outage when no round can begin.

// outage is what a process knows of one. The mutex of Leases guards it; the loop alone
// writes it.
type outage struct {
	failing     bool          // no heartbeat has succeeded since failingFrom, or nothing could be taken
	failingFrom instant       // it may have begun then
	wroteAt     instant       // the latest write of an entry that was answered was sent then
	roundFailed bool          // the write that begins the next round was not answered
	holdUntil   time.Duration // others tell what they have until then; monotonic, which never runs ahead
	recount     bool          // every shard is to be read after that
	heartbeatAt instant       // the latest heartbeat that left nothing undone was sent then; long ago before the first
}

// failed notes that there may be an outage since from.
func (o *outage) failed(from instant) {
	if !o.failing {
		o.failing, o.failingFrom = true, from
	}
}

// fallbackShare is what the Fallback grants if that is a part of the limit.
func (l *Leases) fallbackShare() (share int, bounded bool) {
	share = l.cfg.Fallback.Allows()
	return share, share > 0 && share < l.state.terms.limit
}

// fallbackAfter is how long after the last request that succeeded here the Fallback may
// grant something elsewhere: what another had last may be a heartbeat older.
func (l *Leases) fallbackAfter() time.Duration {
	t := l.state.terms
	return t.validity() - l.cfg.OpenTimeout - t.heartbeatEvery() - l.cfg.RequestTimeout
}

// outageLasts reports whether requests have failed for so long that the Fallback may
// have granted something elsewhere: from the first heartbeat that failed, or after
// which nothing could be taken.
func (l *Leases) outageLasts(now instant) bool {
	o := &l.state.outage
	_, lasted := now.since(o.failingFrom)
	return o.failing && lasted >= l.fallbackAfter()-l.state.terms.heartbeatEvery()
}

// holdLeft is for how long yet there may be an outage, or others may have to tell what
// they have.
func (l *Leases) holdLeft(now instant) time.Duration {
	if _, bounded := l.fallbackShare(); !bounded {
		return 0
	}
	if l.outageLasts(now) {
		return l.answerTime()
	}
	left := max(l.state.outage.holdUntil-now.mono, 0)
	if l.state.outage.recount {
		return max(left, time.Millisecond)
	}
	return left
}

// hold begins the time in which others tell what they have. mu is held.
func (l *Leases) hold(now instant) {
	l.state.outage.holdUntil, l.state.outage.recount = now.mono+l.answerTime(), true
}

// noteSurvey notes that every shard was read at now.
func (l *Leases) noteSurvey(now instant) {
	l.updateState(func() {
		o := &l.state.outage
		o.recount = o.recount && now.mono < o.holdUntil
	})
}

// unproven reports whether this process has written nothing for so long that the store
// may have taken no writes.
func (l *Leases) unproven(now instant) bool {
	_, bounded := l.fallbackShare()
	_, quiet := now.since(l.state.outage.wroteAt)
	return bounded && quiet >= l.fallbackAfter()
}

// outageSuspected reports whether others may have connections by the Fallback that the
// store does not know. mu is held.
func (l *Leases) outageSuspected(now instant) bool {
	_, bounded := l.fallbackShare()
	return bounded && (!l.usable(now) || l.holdLeft(now) > 0)
}

// capByOutage is how many of some leases may have connections while there may be an
// outage: those that were taken in advance have none of their own then. mu is held.
func (l *Leases) capByOutage(leases int, now instant) int {
	if !l.outageSuspected(now) {
		return leases
	}
	share, _ := l.fallbackShare()
	return min(leases, max(share, l.connsBefore))
}

// noteHeartbeat notes that a heartbeat has succeeded, with nothing left undone. Who has
// just joined, or stood still, cannot know whether there was an outage.
func (l *Leases) noteHeartbeat(sent, now instant) {
	o := &l.state.outage
	_, apart := now.since(o.heartbeatAt)
	_, bounded := l.fallbackShare()
	hold := bounded && (l.outageLasts(now) || apart >= l.state.terms.validity())
	l.updateState(func() {
		if hold {
			l.hold(now)
		}
		o.failing, o.heartbeatAt = false, sent
	})
}

// noteFailure notes that a heartbeat failed, or left something undone.
func (l *Leases) noteFailure(from instant) {
	l.updateState(func() { l.state.outage.failed(from) })
}

// noteWrite notes that a write of an entry was answered, sent at sent.
func (l *Leases) noteWrite(sent, now instant) {
	l.updateState(func() {
		o := &l.state.outage
		if !l.state.joinedAny() && l.unproven(now) {
			l.hold(now)
		}
		o.wroteAt = sent
	})
	if len(l.work.pending) == 0 && l.outageLasts(now) {
		l.work.heartbeatAt = now // which ends it
	}
}

// noteLostWrite notes that a write of an entry was not answered. The outage may be as
// old as the latest that was.
func (l *Leases) noteLostWrite(now instant) {
	from := l.state.outage.wroteAt.add(l.state.terms.heartbeatEvery())
	if !from.before(now) {
		from = now
	}
	l.noteFailure(from)
}
