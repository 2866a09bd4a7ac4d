package reservoir

// Timers is a heap of the entries that time may bring something for, the
// earliest first. Each has one key, the next moment at which to look at it.
//
// INVARIANT: an entry's key is never later than the next thing that time brings
// for it. It may be earlier, since borrowing and releasing do not touch the heap:
// look finds that nothing is due yet and sets the next key. So a key is at most
// one period (IdleTTL, CheckInterval, LeakAfter) ahead of the time at which it
// was set.
type timers[C any] []*entry[C]

func (t timers[C]) first() int64 {
	if len(t) == 0 {
		return never
	}
	return t[0].lookAt
}

// set gives an entry its key, and a place if it has none.
func (t *timers[C]) set(e *entry[C], at int64) {
	e.lookAt = at
	if e.timer < 0 {
		e.timer = len(*t)
		*t = append(*t, e)
	}
	t.up(e.timer)
	t.down(e.timer)
}

func (t *timers[C]) remove(e *entry[C]) {
	at, last := e.timer, len(*t)-1
	t.swap(at, last)
	(*t)[last] = nil
	*t = (*t)[:last]
	e.timer = -1
	if at < last {
		moved := (*t)[at]
		t.up(at)
		t.down(moved.timer)
	}
}

func (t *timers[C]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if (*t)[parent].lookAt <= (*t)[i].lookAt {
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
			if (*t)[child].lookAt < (*t)[least].lookAt {
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
	h[i].timer, h[j].timer = i, j
}

// schedule makes sure that an entry is looked at in time. The caller holds mu.
func (r *Reservoir[C]) schedule(e *entry[C], now int64) {
	at := r.nextLook(e, now)
	if e.timer < 0 || at < e.lookAt {
		r.mu.timers.set(e, at)
	}
	r.arm(at)
}

// nextLook is when time brings something for an entry, or when to think about
// it again. The caller holds mu.
func (r *Reservoir[C]) nextLook(e *entry[C], now int64) int64 {
	at := e.span.replaceAt
	if e.stale {
		at = e.span.expireAt
	}
	if at <= now { // it is in use: its return decides
		at = never
	}
	at = min(at, after(now, r.idleTTL), after(now, r.keepAlive), after(now, r.leakAfter))
	switch {
	case e.state == idle:
		if !e.aged {
			at = min(at, after(e.idleSince, r.idleTTL))
		}
		if !e.dueLink.linked() {
			at = min(at, after(e.proven, r.keepAlive))
		}
		if r.live() > r.mu.maxSize {
			at = min(at, after(e.idleSince, overflowLinger))
		}
	case e.state == loaned && e.leaked != e.loan:
		at = min(at, after(e.borrowed, r.leakAfter))
	case e.state == checking && !e.slow:
		at = min(at, after(e.checked, r.slowCheck()))
	case e.state == checking:
		at = min(at, after(now, r.slowCheck()))
	}
	return max(at, now+1)
}
