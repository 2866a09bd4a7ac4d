package reservoir

import (
	"runtime"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/invariant"
)

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
	live := r.live()
	switch {
	case live > r.limit():
		return toClose, OverCapacity
	case r.mu.waiters.n > 0:
		return toWaiter, 0
	case live > r.mu.maxSize && r.cfg.OnExhausted.overflow() == 0:
		return toClose, OverCapacity
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

// isOut says whether a loan is still out. The caller holds mu.
func (r *Reservoir[C]) isOut(l Loan[C]) bool {
	return l.entry != nil && l.entry.state == loaned && l.entry.loanNumber == l.number
}

// release ends a loan whose connection is fine.
func (r *Reservoir[C]) release(l Loan[C]) error {
	e := l.entry
	r.mu.Lock()
	if !r.isOut(l) {
		r.mu.Unlock()
		return ErrReleased
	}
	held := r.endUse(e)
	handed := false
	if r.canRequeue(e) {
		if invariant.Enabled {
			r.verifyRequeue(e)
		}
		r.move(e, idle)
		r.mu.idle.pushFront(&e.link)
		r.verify()
		r.mu.Unlock()
	} else {
		var fx effects[C]
		r.dispatch(e, &fx)
		r.reconcile(&fx)
		handed = fx.wake != nil
		r.unlock(&fx)
	}
	r.callReleased(held)
	if handed {
		// The woken caller is next on this very processor: let it run now, not
		// when the releaser's time slice is over.
		runtime.Gosched()
	}
	return nil
}

// canRequeue says whether dispatch would just make a used connection the first
// idle one, and reconcile do nothing: the common case, worth a short way. The
// caller holds mu.
func (r *Reservoir[C]) canRequeue(e *entry[C]) bool {
	return r.mu.waiters.n == 0 && e.idleSince < e.fastPathUntil && e.generation == r.mu.generation && r.live() <= r.mu.maxSize
}

// callReleased tells of the end of a loan.
func (r *Reservoir[C]) callReleased(held time.Duration) {
	if released := r.cfg.Hooks.Released; released != nil {
		r.callHookInline(func() { released(held) })
	}
}

// endUse marks the end of a use. The caller holds mu.
func (r *Reservoir[C]) endUse(e *entry[C]) (held time.Duration) {
	now := r.clock.now()
	e.idleSince, e.knownGoodAt = now, now
	return time.Duration(now - e.borrowedAt)
}

// releaseWithReset ends a loan whose connection has to be reset or checked first.
func (r *Reservoir[C]) releaseWithReset(l Loan[C]) error {
	var fx effects[C]
	e := l.entry
	r.mu.Lock()
	if !r.isOut(l) {
		r.mu.Unlock()
		return ErrReleased
	}
	held := r.endUse(e)
	_, unfit := r.mustClose(e, r.clock.now())
	if unfit {
		r.dispatch(e, &fx)
		r.reconcile(&fx)
	} else {
		r.move(e, resetting)
	}
	r.unlock(&fx)
	if !unfit {
		r.reset(e)
	}
	r.callReleased(held)
	return nil
}

// reset runs Reset and Check as configured.
func (r *Reservoir[C]) reset(e *entry[C]) {
	failed := Discarded
	callback.Guard(who, func() error {
		if r.cfg.Reset != nil {
			ctx, cancel := r.bounded(r.cfg.CheckTimeout)
			defer cancel()
			if err := r.cfg.Reset(ctx, e.value); err != nil {
				return err
			}
		}
		if r.cfg.CheckOnRelease {
			failed = Unhealthy
			return r.checkHere(r.ctx, e.value)
		}
		return nil
	}, func(err error) { r.resetDone(e, failed, err) })
}

// resetDone decides after Reset and Check.
func (r *Reservoir[C]) resetDone(e *entry[C], failed Reason, err error) {
	var fx effects[C]
	r.mu.Lock()
	if err != nil {
		r.retire(e, failed, err, &fx)
	} else {
		r.endUse(e)
		r.dispatch(e, &fx)
	}
	r.reconcile(&fx)
	r.unlock(&fx)
	if fx.wake != nil {
		runtime.Gosched()
	}
}

// discard ends a loan whose connection is not fine.
func (r *Reservoir[C]) discard(l Loan[C], reason Reason, cause error) error {
	var fx effects[C]
	r.mu.Lock()
	if !r.isOut(l) {
		r.mu.Unlock()
		return ErrReleased
	}
	held := r.endUse(l.entry)
	r.retire(l.entry, reason, cause, &fx)
	r.reconcile(&fx)
	r.unlock(&fx)
	r.callReleased(held)
	return nil
}
