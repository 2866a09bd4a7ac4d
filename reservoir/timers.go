package reservoir

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
		if r.live() > r.mu.maxSize {
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
