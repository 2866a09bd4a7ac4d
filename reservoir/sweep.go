package reservoir

import "time"

// arm makes the sweeper look at a time, or earlier. The caller holds mu.
//
// INVARIANT: no due moment lies before mu.due: an open retry, a waiter's
// deadline, a connection's staleness or end, a check, a leak.
func (r *Reservoir[C]) arm(at int64) {
	if at < r.mu.due {
		r.setAlarm(at)
	}
}

func (r *Reservoir[C]) setAlarm(at int64) {
	if !r.mu.closed {
		r.mu.due = at
		r.alarm.Reset(time.Duration(max(0, at-r.clock.exact())))
	}
}

// sweep does what is due and sets the alarm for what is due next. It runs on
// the alarm's goroutine, briefly; between alarms there is none.
func (r *Reservoir[C]) sweep() {
	var fx effects[C]
	r.mu.Lock()
	r.mu.due = never
	if !r.mu.closed {
		now := r.clock.read()
		next := r.expireWaiters(now, &fx)
		for _, e := range r.mu.all {
			next = min(next, r.age(e, now, &fx), r.findLeak(e, now, &fx))
		}
		r.arm(min(next, r.probe(now, &fx)))
		r.pump(&fx)
	}
	r.unlock(&fx)
}

// age looks at the age of an idle connection and returns when to look again.
// Those on loan are looked at when they come back. The caller holds mu.
func (r *Reservoir[C]) age(e *entry[C], now int64, fx *effects[C]) int64 {
	if e.state != idle {
		if now < e.span.soft && e.state != opening {
			return e.span.soft
		}
		return never
	}
	if now < e.span.soft {
		return e.span.soft
	}
	unused := now-e.idleSince >= r.idleTTL && r.mu.idle.n > r.mu.minIdle
	switch {
	case now >= e.span.last:
		r.retire(e, Expired, nil, fx)
		return never
	case unused: // not worth a replacement
		r.retire(e, Idled, nil, fx)
		return never
	case !e.stale:
		e.stale = true
		r.mu.stale++
	}
	return e.span.last
}

// probe starts the check of the coldest idle connection that is due for
// one, unless such a check is under way, and returns when to look again. The
// caller holds mu.
func (r *Reservoir[C]) probe(now int64, fx *effects[C]) int64 {
	if r.keepAlive <= 0 || r.mu.probing {
		return never
	}
	next := int64(never)
	for e := r.mu.idle.back(); e != nil; e = e.link.prev.self {
		due := e.proven + r.keepAlive
		if due <= now {
			r.startCheck(e, true, fx)
			return never // its end looks for the next
		}
		next = min(next, due)
	}
	return next
}

// mustCheck says whether an idle connection has to be checked before it is
// lent. Age alone decides, so that a younger one never has to when an older has
// not. The caller holds mu.
func (r *Reservoir[C]) mustCheck(e *entry[C], now int64) bool {
	return r.cfg.CheckOnAcquire && now-e.idleSince >= int64(r.cfg.IdleBeforeCheck)
}

// startCheck takes an idle connection aside to be checked. probe: for the
// sweeper, so that no waiter may count on it. The caller holds mu.
func (r *Reservoir[C]) startCheck(e *entry[C], probe bool, fx *effects[C]) {
	r.fromIdle(e)
	r.move(e, checking)
	e.probe = probe
	if probe {
		r.mu.probing = true
	}
	r.mu.stats.Checks++
	e.chain, fx.check = fx.check, e
}

// check calls Check, on its own goroutine.
func (r *Reservoir[C]) check(e *entry[C]) {
	began := r.clock.exact()
	guarded(func() error {
		ctx, cancel := r.bounded(r.cfg.CheckTimeout)
		defer cancel()
		return r.cfg.Check(ctx, e.value)
	}, func(err error) {
		r.checked(e, err)
		if checked := r.cfg.Hooks.Checked; checked != nil {
			checked(err, time.Duration(r.clock.exact()-began))
		}
	})
}

// checked decides after Check. A check for the sweeper does not make the
// connection younger: it stays where it was, for the idle TTL to find.
func (r *Reservoir[C]) checked(e *entry[C], err error) {
	var fx effects[C]
	r.mu.Lock()
	now := r.clock.read()
	if e.probe {
		r.mu.probing = false
	} else {
		e.idleSince = now
	}
	e.proven = now
	if err != nil {
		r.mu.stats.CheckFailures++
		r.retire(e, Unhealthy, err, &fx)
	} else {
		r.settle(e, &fx)
	}
	r.pump(&fx)
	r.arm(r.probe(now, &fx))
	r.unlock(&fx)
}
