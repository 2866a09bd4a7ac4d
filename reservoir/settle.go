package reservoir

import (
	"runtime"
	"time"
)

// settle decides what becomes of a connection that nobody has: it is closed,
// goes to the first waiter, or is idle. Every path ends here: released, opened,
// checked, given back by a caller who had left. The caller holds mu, and calls
// pump afterwards.
func (r *Reservoir[C]) settle(e *entry[C], fx *effects[C]) {
	now := r.clock.now()
	if reason, unfit := r.unfit(e, now); unfit {
		r.retire(e, reason, e.lost, fx)
		return
	}
	if r.mu.waiters.n > 0 && r.live() <= r.limit() && r.handOff(e, now, fx) {
		return
	}
	if r.live() > r.mu.maxSize {
		r.retire(e, Surplus, nil, fx)
		return
	}
	r.toIdle(e, now, fx)
}

// unfit says whether a connection may not be lent at all. The caller holds mu.
func (r *Reservoir[C]) unfit(e *entry[C], now int64) (Reason, bool) {
	switch {
	case r.mu.closed:
		return Shutdown, true
	case e.generation != r.mu.generation:
		return Outdated, true
	case e.lost != nil:
		return Discarded, true
	case r.expired(e, now):
		return Expired, true
	}
	return 0, false
}

// expired says whether a connection is too old to be lent. Where the kept time
// is too coarse to tell, it reads the exact one. The caller holds mu.
func (r *Reservoir[C]) expired(e *entry[C], now int64) bool {
	return e.span.last-now <= r.clock.slack && (now >= e.span.last || r.clock.exact() >= e.span.last)
}

// limit is how many connections may exist, overflow included. The caller holds mu.
func (r *Reservoir[C]) limit() int { return r.mu.maxSize + r.cfg.OnExhausted.overflow() }

// hottest finds the idle connection that was used last, after it has closed
// those that may not be lent any more. It leaves it in the list; nil when there
// is none. The caller holds mu.
func (r *Reservoir[C]) hottest(now int64, fx *effects[C]) *entry[C] {
	r.evictIdle(now, fx)
	for {
		e := r.mu.idle.front()
		if e == nil || !r.expired(e, now) {
			return e
		}
		r.retire(e, Expired, nil, fx)
	}
}

// evictIdle closes what was idle for IdleTTL, coldest first, down to MinIdle.
// The caller holds mu.
func (r *Reservoir[C]) evictIdle(now int64, fx *effects[C]) {
	for r.mu.idle.n > r.mu.minIdle && r.aged(now) {
		r.retire(r.mu.idle.back(), Idled, nil, fx)
	}
}

// aged says whether the coldest idle connection was idle for IdleTTL. The
// caller holds mu; there is one.
func (r *Reservoir[C]) aged(now int64) bool { return now-r.mu.idle.back().idleSince >= r.idleTTL }

// out says whether a loan is still out. The caller holds mu.
func (r *Reservoir[C]) out(l Loan[C]) bool {
	return l.entry.state == loaned && l.entry.loan == l.number
}

// release ends a loan whose connection is fine.
func (r *Reservoir[C]) release(l Loan[C]) error {
	e := l.entry
	r.mu.Lock()
	if !r.out(l) {
		r.mu.Unlock()
		return ErrReleased
	}
	held := r.used(e)
	handed := false
	if r.simple(e) {
		r.move(e, idle)
		r.mu.idle.pushFront(&e.link)
		r.verify()
		r.mu.Unlock()
	} else {
		var fx effects[C]
		r.settle(e, &fx)
		r.pump(&fx)
		handed = fx.wake != nil
		r.unlock(&fx)
	}
	if released := r.cfg.Hooks.Released; released != nil {
		released(held)
	}
	if handed {
		// The woken caller is next on this very processor: let it run now, not
		// when the releaser's time slice is over.
		runtime.Gosched()
	}
	return nil
}

// simple says whether settle would just make a used connection the first idle
// one, and pump do nothing: the common case, worth a short way. The caller
// holds mu.
func (r *Reservoir[C]) simple(e *entry[C]) bool {
	return r.mu.waiters.n == 0 && e.idleSince < e.calm && e.generation == r.mu.generation && r.live() <= r.mu.maxSize &&
		(r.mu.idle.n == 0 || !r.aged(e.idleSince)) && (r.keepAlive == 0 || e.proven+r.keepAlive >= r.mu.due)
}

// used marks the end of a use. The caller holds mu.
func (r *Reservoir[C]) used(e *entry[C]) (held time.Duration) {
	now := r.clock.now()
	e.idleSince, e.proven = now, now
	return time.Duration(now - e.borrowed)
}

// clean ends a loan whose connection has to be reset or checked first.
func (r *Reservoir[C]) clean(l Loan[C]) error {
	var fx effects[C]
	e := l.entry
	r.mu.Lock()
	if !r.out(l) {
		r.mu.Unlock()
		return ErrReleased
	}
	held := r.used(e)
	_, unfit := r.unfit(e, r.clock.now())
	if unfit {
		r.settle(e, &fx)
		r.pump(&fx)
	} else {
		r.move(e, resetting)
	}
	r.unlock(&fx)
	if released := r.cfg.Hooks.Released; released != nil {
		released(held)
	}
	if !unfit {
		guarded(func() error { return r.wash(e.value) }, func(err error) { r.washed(e, err) })
	}
	return nil
}

// wash runs Reset and Check as configured.
func (r *Reservoir[C]) wash(c C) error {
	if r.cfg.Reset != nil {
		ctx, cancel := r.bounded(r.cfg.CheckTimeout)
		defer cancel()
		if err := r.cfg.Reset(ctx, c); err != nil {
			return err
		}
	}
	if !r.cfg.CheckOnRelease {
		return nil
	}
	ctx, cancel := r.bounded(r.cfg.CheckTimeout)
	defer cancel()
	return r.cfg.Check(ctx, c)
}

// washed decides after Reset and Check.
func (r *Reservoir[C]) washed(e *entry[C], err error) {
	var fx effects[C]
	r.mu.Lock()
	if err != nil {
		r.retire(e, Discarded, err, &fx)
	} else {
		r.used(e)
		r.settle(e, &fx)
	}
	r.pump(&fx)
	r.unlock(&fx)
	if fx.wake != nil {
		runtime.Gosched()
	}
}

// discard ends a loan whose connection is not fine.
func (r *Reservoir[C]) discard(l Loan[C], cause error) error {
	var fx effects[C]
	r.mu.Lock()
	if !r.out(l) {
		r.mu.Unlock()
		return ErrReleased
	}
	held := r.used(l.entry)
	r.retire(l.entry, Discarded, cause, &fx)
	r.pump(&fx)
	r.unlock(&fx)
	if released := r.cfg.Hooks.Released; released != nil {
		released(held)
	}
	return nil
}
