package reservoir

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// pump serves waiters from what is idle and starts the opens that are missing.
// It only counts; it is called after every change, so nothing has to poll. The
// caller holds mu.
func (r *Reservoir[C]) pump(fx *effects[C]) {
	if r.mu.closed {
		return
	}
	r.serve(fx)
	missing := r.wanted() - r.mu.count[opening]
	if missing <= 0 {
		return
	}
	concurrent := r.cfg.MaxConcurrentOpens
	if r.mu.failures > 0 {
		if r.clock.now() < r.mu.retryAt && r.clock.read() < r.mu.retryAt {
			r.arm(r.mu.retryAt)
			return
		}
		concurrent = 1 // one open finds out whether the server takes more
	}
	r.makeRoom(concurrent, fx)
	for ; missing > 0 && r.mu.count[opening] < concurrent && r.mayOpen(); missing-- {
		e := r.birth()
		e.chain, fx.open = fx.open, e
	}
}

// serve gives idle connections to waiters; those that have to be checked first
// are checked on behalf of one waiter each. The caller holds mu.
func (r *Reservoir[C]) serve(fx *effects[C]) {
	for r.unserved() > 0 {
		now := r.clock.now()
		e := r.hottest(now, fx)
		if e == nil {
			return
		}
		if r.mustCheck(e, now) {
			r.startCheck(e, false, fx)
		} else if !r.handOff(e, now, fx) {
			return
		}
	}
}

// unserved counts the waiters for whom no check is under way. The caller holds mu.
func (r *Reservoir[C]) unserved() int {
	checks := r.mu.count[checking]
	if r.mu.probing {
		checks--
	}
	return max(0, r.mu.waiters.n-checks)
}

// wanted is how many opens should be under way now: one for each unserved
// waiter, and what idle connections lack, be it for MinIdle, to replace stale
// ones, or for WaitReady. The caller holds mu.
func (r *Reservoir[C]) wanted() int {
	fresh := r.mu.idle.n - r.mu.stale
	if r.mu.probing {
		fresh++ // it will be back
	}
	spare := max(r.mu.minIdle-fresh, r.mu.stale, r.readyTarget()-r.established())
	return r.unserved() + spare
}

// mayOpen says whether there is room for one connection more. Room beyond
// MaxSize is for waiters only. The caller holds mu.
//
// INVARIANT: opening + idle + in use + closing == len(all) <= limit.
func (r *Reservoir[C]) mayOpen() bool {
	return len(r.mu.all) < r.mu.maxSize || len(r.mu.all) < r.limit() && r.mu.count[opening] < r.unserved()
}

// makeRoom closes stale idle connections when there is no room to open their
// replacements first: so few that never more than atATime are missing at once.
// The caller holds mu.
func (r *Reservoir[C]) makeRoom(atATime int, fx *effects[C]) {
	for r.mu.stale > 0 && len(r.mu.all) >= r.mu.maxSize && r.mu.count[opening]+r.mu.count[closing] < atATime {
		r.retire(r.coldestStale(), Expired, nil, fx)
	}
}

// coldestStale finds the stale idle connection that was used longest ago. The
// caller holds mu; there is one.
func (r *Reservoir[C]) coldestStale() *entry[C] {
	e := r.mu.idle.back()
	for !e.stale {
		e = e.link.prev.self
	}
	return e
}

// open is the life of one open, on its own goroutine.
func (r *Reservoir[C]) open(e *entry[C]) {
	began := r.clock.exact()
	var release func()
	guarded(func() (err error) {
		if r.cfg.Admit != nil {
			release, err = r.cfg.Admit(r.ctx)
		}
		return err
	}, func(err error) {
		e.release = release
		switch {
		case err != nil:
			r.openFailed(e, err, began, errors.Is(err, ErrExhausted))
		case !r.stillWanted(e):
			r.elide(e)
		default:
			r.dial(e)
		}
	})
}

// dial calls Open.
func (r *Reservoir[C]) dial(e *entry[C]) {
	if opening := r.cfg.Hooks.Opening; opening != nil {
		opening()
	}
	began := r.clock.exact()
	var value C
	guarded(func() (err error) {
		ctx, cancel := r.bounded(r.cfg.OpenTimeout)
		defer cancel()
		value, err = r.cfg.Open(ctx)
		return err
	}, func(err error) {
		if err != nil {
			r.openFailed(e, err, began, false)
			return
		}
		e.value = value
		end := int64(never)
		guarded(func() (err error) { end, err = r.introduce(e); return err }, func(err error) {
			r.opened(e, end, err)
		})
		if opened := r.cfg.Hooks.Opened; opened != nil {
			opened(time.Duration(r.clock.exact() - began))
		}
	})
}

// introduce asks about a new connection and passes on how its loss is reported.
// It returns until when the connection can be used.
func (r *Reservoir[C]) introduce(e *entry[C]) (end int64, err error) {
	end = never
	if expiresAt := r.cfg.ExpiresAt; expiresAt != nil {
		if at := expiresAt(e.value); !at.IsZero() {
			left := time.Until(at)
			if left <= r.cfg.GuardWindow {
				return end, fmt.Errorf("reservoir: ExpiresAt: a new connection ends in %v, within GuardWindow %v", left, r.cfg.GuardWindow)
			}
			if end = r.clock.exact() + int64(left); end < 0 {
				end = never
			}
		}
	}
	if watch := r.cfg.Watch; watch != nil {
		watch(e.value, func(cause error) { r.lose(e, cause) })
	}
	return end, nil
}

// stillWanted says whether an open that was decided earlier has a use now, and
// counts it if so.
func (r *Reservoir[C]) stillWanted(e *entry[C]) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed || e.generation != r.mu.generation || r.mu.count[opening] > r.wanted() {
		return false
	}
	r.mu.stats.Opens++
	e.queue = r.mu.lastWaiter
	return true
}

// elide ends an open that has no use any more.
func (r *Reservoir[C]) elide(e *entry[C]) {
	_ = giveBack(e.release) // nobody is there to be told
	var fx effects[C]
	r.mu.Lock()
	r.mu.stats.OpensElided++
	r.bury(e, &fx)
	r.pump(&fx)
	r.unlock(&fx)
	if elided := r.cfg.Hooks.OpenElided; elided != nil {
		elided()
	}
}

// opened takes a new connection in, which can be used until end; unfit is why
// it can't be used at all.
func (r *Reservoir[C]) opened(e *entry[C], end int64, unfit error) {
	var fx effects[C]
	r.mu.Lock()
	now := r.clock.read()
	if unfit != nil {
		e.lost = unfit
	}
	if r.mu.failures > 0 {
		r.mu.doubt, r.mu.trusted = r.mu.failures, now+int64(infancy)
	}
	r.mu.failures, r.mu.retryAt, r.mu.lastOpen, r.mu.refused = 0, 0, nil, 0
	r.mu.phase += goldenStep
	lead := replacing(r.mu.maxSize, r.cfg.MaxConcurrentOpens, r.cfg.OpenTimeout)
	e.born, e.idleSince, e.proven = now, now, now
	e.span = plan(now, r.mu.phase, r.cfg.MaxLifetime, r.cfg.LifetimeJitter, r.cfg.GuardWindow, lead)
	e.span = e.span.until(now, end, r.cfg.GuardWindow, lead)
	e.calm = min(e.span.soft, e.span.last-r.clock.slack)
	r.arm(e.span.soft)
	if e.lost != nil {
		r.stillborn(e, now)
	}
	r.settle(e, &fx)
	if unfit != nil && r.live() == 0 {
		r.failWaiters(e.queue, &OpenError{Err: unfit}, &fx)
	}
	if e.state == idle && r.mu.stale > 0 && r.mu.idle.n > r.mu.minIdle {
		r.retire(r.coldestStale(), Expired, nil, &fx) // e replaces it
	}
	r.tellReady(&fx)
	r.pump(&fx)
	r.unlock(&fx)
}

// openFailed ends an open that made nothing. One that failed because a budget
// is full fails nobody: there may be room before their time is over.
func (r *Reservoir[C]) openFailed(e *entry[C], cause error, began int64, full bool) {
	_ = giveBack(e.release) // the open's own error matters more
	var fx effects[C]
	r.mu.Lock()
	now := r.clock.read()
	r.mu.stats.OpenFailures++
	r.mu.lastOpen = cause
	if !full {
		r.mu.refused = max(r.mu.refused, e.queue) // of opens that overlap, the last to fail may not be the last to begin
	}
	if now >= r.mu.retryAt { // opens that fail together are one failure
		r.failedAgain(r.mu.failures, now)
	}
	r.bury(e, &fx)
	if r.live() == 0 && !full {
		r.failWaiters(r.mu.refused, &OpenError{Err: cause}, &fx)
	}
	r.pump(&fx)
	r.unlock(&fx)
	if failed := r.cfg.Hooks.OpenFailed; failed != nil {
		failed(cause, time.Duration(r.clock.exact()-began))
	}
}

// failedAgain makes the next open wait, after so many that failed before this
// one. The caller holds mu.
func (r *Reservoir[C]) failedAgain(before int, now int64) {
	r.mu.failures = before + 1
	r.mu.retryAt = now + int64(pause(r.mu.failures, rand.Float64()))
}

// failWaiters fails those who came before an open began; for the later ones the
// next open is news. The caller holds mu.
func (r *Reservoir[C]) failWaiters(upTo uint64, err error, fx *effects[C]) {
	for w := r.mu.waiters.front(); w != nil && w.number <= upTo; w = r.mu.waiters.front() {
		r.fail(w, err, fx)
	}
}
