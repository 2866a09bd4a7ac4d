package reservoir

// counts is all that decides how many connections are opened and replaced.
type counts struct {
	waiters        int // callers in the queue
	checkedWaiters int // of them, those for whom a check is under way that can be relied on

	idle        int // usable now, or as soon as a keepalive check is over
	established int // idle, in use, or being checked
	opening     int
	closing     int

	stale      int // of established, those that are past their replacement time
	superseded int // of stale, those for which a successor has been opened

	minIdle, maxSize, overflow int
	readyTarget                int // how many WaitReady asks for
	maxOpens                   int // opens at a time
	opensFailing               bool
	paused                     bool // after a failure, until the next attempt is due
}

func (c counts) total() int { return c.established + c.opening + c.closing }

// uncheckedWaiters counts the waiters whom only another connection can serve.
func (c counts) uncheckedWaiters() int { return max(0, c.waiters-c.checkedWaiters) }

// wantedOpens is how many opens should be under way: one for each waiter of
// uncheckedWaiters, what is missing to MinIdle or for WaitReady, and a successor for
// each stale connection that has none.
func (c counts) wantedOpens() int {
	return c.uncheckedWaiters() + max(0, c.minIdle-c.idle, c.readyTarget-c.established) + c.stale - c.superseded
}

// room is how many connections more may exist. Room beyond maxSize is for
// waiters only.
//
// INVARIANT: established + opening + closing <= maxSize + overflow.
func (c counts) room() int {
	within := max(0, c.maxSize-c.total())
	beyond := max(0, min(c.maxSize+c.overflow-max(c.total(), c.maxSize), c.uncheckedWaiters()-c.opening-within))
	return within + beyond
}

// maxReplacing is how many connections may be missing at a time while a full
// reservoir replaces its stale ones.
func (c counts) maxReplacing() int { return max(1, min(c.maxSize/4, c.maxOpens)) }

// demand decides how many opens to start now and how many stale connections to
// close now. It is the only place that does.
//
// A stale connection is closed when its successor has come, unless callers wait:
// then it is used on. Where there is no room to open the successor first, it is
// closed first, a few at a time, and none while opens fail.
func demand(c counts) (open, retire int) {
	atOnce := c.maxOpens
	if c.opensFailing {
		atOnce = 1 // while opens fail there is one attempt at a time
	}
	if !c.paused {
		open = max(0, min(c.wantedOpens()-c.opening, c.room(), atOnce-c.opening))
	}
	if c.uncheckedWaiters() == 0 {
		retire = c.superseded
	}
	if c.total() >= c.maxSize && !c.opensFailing {
		lacking := c.wantedOpens() - c.opening - c.closing // opens that have neither begun nor a place coming
		retire = max(retire, min(c.stale-c.superseded, c.maxReplacing()-c.opening-c.closing, lacking))
	}
	return open, retire
}

// soonAvailable counts the connections that will be there soon for those who wait now,
// those included whose place will be free as soon as a Close has returned.
func (c counts) soonAvailable() int {
	n := c.opening + c.checkedWaiters + c.idle
	if !c.paused {
		n += max(0, c.maxSize+c.overflow-c.established-c.opening)
	}
	return n
}

// counts takes stock. The caller holds mu.
func (r *Reservoir[C]) counts() counts {
	m := &r.mu
	return counts{
		waiters: m.waiters.n, checkedWaiters: m.count[checking] - m.keepalives - m.slowChecks,
		idle: m.idle.n - m.outdated, established: r.established(), opening: m.count[opening], closing: m.count[closing],
		stale: m.stale, superseded: m.superseded,
		minIdle: m.minIdle, maxSize: m.maxSize, readyTarget: r.readyWanted(), overflow: r.cfg.OnExhausted.overflow(),
		maxOpens: r.cfg.MaxConcurrentOpens, opensFailing: m.failures > 0, paused: r.paused(),
	}
}

// openCounts is counts for those who decide on opens: after a check has failed,
// opens race the checks that follow. The caller holds mu.
func (r *Reservoir[C]) openCounts() counts {
	c := r.counts()
	if r.mu.lastCheckFailed {
		c.checkedWaiters = 0
	}
	return c
}

// paused says whether the next open has to wait for its time. The caller holds mu.
func (r *Reservoir[C]) paused() bool {
	return r.clock.now() < r.mu.retryAt && r.clock.read() < r.mu.retryAt
}

// reconcile serves waiters from what is idle and carries out demand. It is
// called after every change, so nothing has to poll. What a caller who has to wait
// does not need stands in functions of its own: the frames of counts would make
// the stack of every such goroutine grow. The caller holds mu.
func (r *Reservoir[C]) reconcile(fx *effects[C]) {
	if r.mu.closed {
		return
	}
	r.serve(fx)
	r.evictPastIdleTTL(fx)
	if len(r.mu.all) >= r.limit() && r.mu.stale == 0 && r.cfg.OnExhausted != FailFast {
		return // as demand would say: there is no room, and nothing to replace
	}
	r.meetDemand(fx)
}

// meetDemand carries out demand, until it asks for nothing more: what has begun may
// leave no room for the rest, so that others are closed first. The caller holds mu.
func (r *Reservoir[C]) meetDemand(fx *effects[C]) {
	for left := batch; ; {
		c := r.openCounts()
		open, retire := demand(c)
		before := left
		for ; retire > 0 && left > 0; retire-- {
			e := r.oldestStale()
			if e == nil {
				break
			}
			r.retire(e, Expired, nil, fx)
			left--
		}
		for ; open > 0 && left > 0; open-- {
			r.begin(r.newEntry(), fx)
			left--
		}
		if left == 0 {
			r.sweepBy(r.clock.now()) // for the rest
			break
		}
		if left == before {
			if c.paused && c.wantedOpens() > c.opening {
				r.sweepBy(r.mu.retryAt)
			}
			break
		}
	}
	if r.cfg.OnExhausted == FailFast {
		r.failExcess(fx)
	}
}

// batch bounds what is done with connections or waiters in one section under
// the lock.
const batch = 64

// serve gives idle connections to waiters; those that have to be checked first
// are checked on behalf of one waiter each. The caller holds mu.
func (r *Reservoir[C]) serve(fx *effects[C]) {
	for r.mu.waiters.n > 0 {
		now := r.clock.now()
		e := r.newestIdle(now, fx)
		if e == nil {
			return
		}
		if !r.mustCheck(e, now) {
			if r.handOff(e, now, fx) != handedOff {
				return
			}
			continue
		}
		if !r.checkForWaiter(e, fx) {
			return
		}
	}
}

// checkForWaiter begins the check of an idle connection if there is a waiter for
// whom no other check is under way. The caller holds mu.
func (r *Reservoir[C]) checkForWaiter(e *entry[C], fx *effects[C]) bool {
	wanted := r.counts().uncheckedWaiters() > 0
	if wanted {
		r.startCheck(e, false, fx)
	}
	return wanted
}
