package fleet

// reclaimRequest asks the holders of this process's leases for n idle connections. The
// mutex of Leases guards what they answer. A new one replaces it at each heartbeat
// while the process is above its share.
type reclaimRequest struct {
	n, inUse   int // inUse: connections when it was asked
	unanswered int // holders that have not answered
	closing    int // connections that the others close
}

// requestReclaim asks for the idle ones of the connections above this process's share.
// A holder that has not answered within a heartbeat is taken to have none.
func (l *Leases) requestReclaim(now instant) {
	l.mu.Lock()
	// Asked a heartbeat ago: who has not answered counts as having no idle ones.
	if l.lastReclaim != nil && l.lastReclaim.unanswered > 0 {
		l.keptConns = l.lastReclaim.inUse
	}
	r := &reclaimRequest{n: l.inUse - l.state.terms.level, inUse: l.inUse, unanswered: len(l.reclaims)}
	if !l.state.isShort(now) || r.n <= 0 {
		l.lastReclaim, l.keptConns = nil, 0
		l.mu.Unlock()
		return
	}
	l.lastReclaim = r
	if r.unanswered == 0 {
		l.keptConns = r.inUse
	}
	l.mu.Unlock()
	publish(l, &l.reclaims, r)
}

// reclaimAnswered books a holder's answer. Whoever closes fewer than it was asked for
// has no idle ones left. An answer to a request that was replaced changes nothing.
func (l *Leases) reclaimAnswered(r *reclaimRequest, closing int) {
	l.mu.Lock()
	r.unanswered, r.closing = r.unanswered-1, r.closing+max(closing, 0)
	if r.unanswered == 0 && l.lastReclaim == r {
		l.keptConns = 0
		if r.closing < r.n {
			l.keptConns = r.inUse - r.closing
		}
	}
	l.mu.Unlock()
	wake(l.wakeup)
}

// keptAboveLevel is how many connections above its share this process cannot give back,
// and those below; 0 when there are none above. mu is held.
func (l *Leases) keptAboveLevel(now instant) int64 {
	if kept := min(l.keptConns, l.inUse); l.state.isShort(now) && kept > l.state.terms.level {
		return int64(kept)
	}
	return 0
}

// keptStep writes what this process keeps into its entry when the level should be
// another one for it, at most once in half a heartbeat.
func (l *Leases) keptStep(now instant) *step {
	w, st := &l.work, &l.state
	l.mu.Lock()
	defer l.mu.Unlock()
	if !st.isShort(now) || now.until(w.keptCheckAt) > 0 {
		return nil
	}
	level := int64(st.terms.level)
	told := max(min(st.shards[st.home].entry.Kept, int64(l.inUse)), level)
	if !worthWriting(told, max(l.keptAboveLevel(now), level)) {
		return nil
	}
	w.keptCheckAt = now.add(st.terms.heartbeatEvery() / 2)
	return l.newStep(st.home, 0)
}
