package fleet

// reclaim asks the holders of this process's leases for n idle connections.
// The mutex of Leases guards what they answer.
type reclaim struct {
	n, inUse int // inUse: connections when it was asked
	open     int // holders that have not answered
	closing  int // connections that the others close
}

// reclaim asks for the idle ones of the connections above this process's share.
// A holder that has not answered within a beat is taken to have none.
func (l *Leases) reclaim(now instant) {
	l.mu.Lock()
	if l.asked != nil && l.asked.open > 0 {
		l.kept = l.asked.inUse
	}
	r := &reclaim{n: l.inUse - l.state.terms.level, inUse: l.inUse, open: len(l.reclaims)}
	if !l.state.short(now) || r.n <= 0 {
		l.asked, l.kept = nil, 0
		l.mu.Unlock()
		return
	}
	l.asked = r
	if r.open == 0 {
		l.kept = r.inUse
	}
	l.mu.Unlock()
	publish(l, &l.reclaims, r)
}

// reclaimed books a holder's answer. Whoever closes fewer than it was asked for
// has no idle ones left.
func (l *Leases) reclaimed(r *reclaim, closing int) {
	l.mu.Lock()
	r.open, r.closing = r.open-1, r.closing+max(closing, 0)
	if r.open == 0 && l.asked == r {
		l.kept = 0
		if r.closing < r.n {
			l.kept = r.inUse - r.closing
		}
	}
	l.mu.Unlock()
	wake(l.wakeup)
}

// keeps is how many connections above its share this process cannot give back,
// and those below; 0 when there are none above. mu is held.
func (l *Leases) keeps(now instant) int64 {
	if kept := min(l.kept, l.inUse); l.state.short(now) && kept > l.state.terms.level {
		return int64(kept)
	}
	return 0
}

// tellKept writes what this process keeps into its entry when the level should
// be another one for it, at most once in half a beat.
func (l *Leases) tellKept(now instant) *step {
	w, st := &l.work, &l.state
	l.mu.Lock()
	defer l.mu.Unlock()
	if !st.short(now) || now.until(w.keptAt) > 0 {
		return nil
	}
	level := int64(st.terms.level)
	told := max(min(st.shards[st.home].entry.Kept, int64(l.inUse)), level)
	if !differs(told, max(l.keeps(now), level)) {
		return nil
	}
	w.keptAt = now.add(st.terms.beatEvery() / 2)
	return l.step(st.home, 0)
}
