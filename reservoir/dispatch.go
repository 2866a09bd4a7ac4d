package reservoir

// A destination is what becomes of a connection that is neither lent nor being checked.
type destination uint8

const (
	toClose destination = iota
	toWaiter
	toIdle
)

// dispatch carries out what becomes of a connection that nobody has: it is
// closed, goes to the first waiter, or is idle. Every path ends here: released,
// opened, checked, given back by a caller who had left. The caller holds mu, and
// calls reconcile afterwards.
func (r *Reservoir[C]) dispatch(e *entry[C], fx *effects[C]) {
	now := r.clock.now()
	r.endPromise(now)
	if _, unfit := r.mustClose(e, now); !unfit { // what is closed anyway needs no successor
		r.markStale(e, now)
	}
	to, reason := r.destinationOf(e, now)
	if to == toWaiter {
		switch r.handOff(e, now, fx) {
		case handedOff:
		case noWaiter: // no waiter was left: decide again without them
			to, reason = r.destinationOf(e, now)
		case undecided:
			to = toIdle
		}
	}
	switch to {
	case toClose:
		r.retire(e, reason, e.lost, fx)
	case toIdle:
		r.becomeIdle(e, now)
	case toWaiter: // done
	}
}

// destinationOf decides what becomes of a connection, and changes nothing. The caller
// holds mu.
func (r *Reservoir[C]) destinationOf(e *entry[C], now int64) (destination, Reason) {
	if reason, unfit := r.mustClose(e, now); unfit {
		return toClose, reason
	}
	if e.stale {
		if _, retire := demand(r.openCounts()); retire > 0 {
			return toClose, Expired
		}
	}
	switch {
	case r.exceeds(r.limit()), r.isPromised(e, now):
		return toClose, OverCapacity
	case r.mu.waiters.n > 0:
		return toWaiter, 0
	}
	return toIdle, 0
}

// mustClose says whether a connection may not be lent at all. The caller holds mu.
func (r *Reservoir[C]) mustClose(e *entry[C], now int64) (Reason, bool) {
	switch {
	case r.mu.closed:
		return Shutdown, true
	case e.generation != r.mu.generation:
		return Outdated, true
	case e.lost != nil:
		return Lost, true
	case r.expired(e, now):
		return Expired, true
	}
	return 0, false
}

// expired says whether a connection is too old to be lent. Near its end the kept
// time is too coarse to tell, and the exact one is read. The caller holds mu.
func (r *Reservoir[C]) expired(e *entry[C], now int64) bool {
	return e.lifetime.expireAt-now <= r.clock.slack && r.clock.exact() >= e.lifetime.expireAt
}

// limit is how many connections may exist, overflow included. The caller holds mu.
func (r *Reservoir[C]) limit() int { return r.mu.maxSize + r.cfg.OnExhausted.overflow() }
