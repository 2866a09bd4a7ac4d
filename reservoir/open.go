package reservoir

import (
	"errors"
	"fmt"
	"time"
)

// open is the life of one open, on its own goroutine.
func (r *Reservoir[C]) open(e *entry[C]) {
	defer r.taskDone()
	began := r.clock.exact()
	if admit := r.cfg.Admit; admit != nil {
		failed := failureOf(func() (err error) { e.release, err = admit(r.ctx); return err })
		if failed != nil {
			failed.inAdmit = true
			r.openFailed(e, failed, began)
			return
		}
	}
	if !r.stillWanted(e) {
		r.skipOpen(e)
		return
	}
	if opening := r.cfg.Hooks.Opening; opening != nil {
		r.callHook(opening)
	}
	openBegan := r.clock.exact()
	if failed := r.callOpen(e); failed != nil {
		r.openFailed(e, failed, openBegan)
		return
	}
	until := never
	lasting, unusable := lookAt(func() (err error) { until, err = r.expiryAndWatch(e); return err })
	took := time.Duration(r.clock.exact() - openBegan)
	failed := r.opened(e, began, until, unusable, lasting)
	if hook := r.cfg.Hooks.Opened; hook != nil { // as Closed will be told
		r.callHook(func() { hook(took) })
	}
	if hook := r.cfg.Hooks.OpenFailed; hook != nil && failed {
		r.callHook(func() { hook(unusable, took) })
	}
}

// callOpen calls Open.
func (r *Reservoir[C]) callOpen(e *entry[C]) *failure {
	ctx, cancel := bounded(r.ctx, r.cfg.OpenTimeout)
	defer cancel()
	return failureOf(func() (err error) { e.value, err = r.cfg.Open(ctx); return err })
}

// expiryAndWatch calls ExpiresAt and Watch for a new connection, and returns until when
// it can be used.
func (r *Reservoir[C]) expiryAndWatch(e *entry[C]) (until int64, err error) {
	until = never
	if expiresAt := r.cfg.ExpiresAt; expiresAt != nil {
		if at := expiresAt(e.value); !at.IsZero() {
			left, guard := time.Until(at), r.guardWindow()
			if left <= guard {
				return until, fmt.Errorf("reservoir: ExpiresAt: a new connection ends in %v, within GuardWindow %v", left, guard)
			}
			until = addSaturating(r.clock.exact(), int64(left))
		}
	}
	if watch := r.cfg.Watch; watch != nil {
		watch(e.value, func(cause error) { r.markLost(e, cause) })
	}
	return until, nil
}

// guardWindow is the present GuardWindow, which Reconfigure may change.
func (r *Reservoir[C]) guardWindow() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg.GuardWindow
}

// wantedOpens is how many opens should be under way, those in Admit included. Where nothing is
// idle, one is in place of those whose callers have left: permissions may take longer than
// callers wait, and else none of them would ever be served. The caller holds mu.
func (r *Reservoir[C]) wantedOpens() int { return r.wantedOf(r.openCounts()) }

// wantedOf is wantedOpens of c. The caller holds mu.
func (r *Reservoir[C]) wantedOf(c counts) int {
	wanted := c.wantedOpens()
	if r.mu.abandoned && r.mu.idle.n == 0 {
		wanted = max(wanted, 1)
	}
	return wanted
}

// WantedPermissions is how many calls of Admit under way are for connections that are still
// wanted, as far as is known now: others may give up connections for them. The permissions of
// the rest would be given back, or, while opens fail, are for MinIdle and successors, for which nobody waits. Opens
// are taken to fail until one succeeds, or none has been made for five minutes.
func (r *Reservoir[C]) WantedPermissions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.openCounts()
	if r.mu.serverFails && r.clock.read() < addSaturating(r.mu.retryAt, int64(failureLasts)) {
		c.minIdle, c.stale, c.superseded = 0, 0, 0
	}
	wanted := r.wantedOf(c)
	admitted := r.mu.count[opening] - r.mu.unadmitted
	return max(0, min(r.mu.unadmitted, wanted-admitted))
}

// failureLasts is for how long the last open that has failed says that the next would, too.
const failureLasts = 5 * time.Minute

// stillWanted says whether an open that was decided earlier has a use now, beside those that were
// admitted before, and counts it if so. Resize may have left no room for it.
func (r *Reservoir[C]) stillWanted(e *entry[C]) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := r.wantedOpens()
	r.admitted(e)
	if r.exceeds(r.limit()) || e.generation != r.mu.generation || r.mu.count[opening]-r.mu.unadmitted > wanted {
		return false
	}
	r.mu.abandoned = false
	r.mu.stats.Opens++
	e.lastWaiterAtOpen = r.mu.lastWaiter
	return true
}

// skipOpen ends an open that has no use any more.
func (r *Reservoir[C]) skipOpen(e *entry[C]) {
	_ = releasePermission(e.release) // its error has no receiver: the open is not reported
	var fx effects[C]
	r.mu.Lock()
	r.mu.stats.OpensSkipped++
	r.countPermission()
	r.remove(e)
	r.reconcile(&fx)
	r.unlock(&fx)
	if elided := r.cfg.Hooks.OpenSkipped; elided != nil {
		r.callHook(elided)
	}
}

// opened takes a new connection in, which can be used until a time; unusable is
// why it can't be used at all, and lasting that this is Permanent; it counts as a failed open, as opened says, unless Close has begun.
func (r *Reservoir[C]) opened(e *entry[C], began, until int64, unusable error, lasting bool) (failed bool) {
	var fx effects[C]
	r.mu.Lock()
	now := r.clock.read()
	r.mu.openTime = smoothedOpenTime(r.mu.openTime, now-began)
	if failed = unusable != nil && !r.mu.closed; failed {
		r.mu.stats.OpenFailures++
	}
	if unusable != nil {
		e.lost = unusable
	}
	if r.mu.failures > 0 {
		r.mu.priorFailures, r.mu.stableAt = r.mu.failures, now+int64(earlyLossWindow)
	}
	r.mu.failures, r.mu.retryAt, r.mu.lastOpenErr, r.mu.failedUpTo = 0, 0, nil, 0
	r.mu.serverFails = false
	r.mu.lastCheckFailed = false
	r.mu.jitterPhase += goldenStep
	together := counts{maxSize: r.mu.maxSize, maxOpens: r.cfg.MaxConcurrentOpens}.maxReplacing()
	e.lifetime = lifetimeParams{
		opened: now, maxAge: r.cfg.baseLifetime(), guard: int64(r.cfg.GuardWindow), notAfter: until,
		replaceAfter: int64(r.cfg.ReplaceAfter),
		jitter:       jitterPart(r.mu.jitterPhase, r.cfg.LifetimeJitter),
		replaceTime:  replaceLead(r.mu.maxSize, together, r.mu.openTime, int64(r.cfg.LifetimeJitter)),
	}.plan()
	e.openedAt, e.idleSince, e.knownGoodAt = now, now, now
	e.fastPathUntil = min(e.lifetime.replaceAt, e.lifetime.expireAt-r.clock.slack)
	if e.lost != nil {
		r.countEarlyLoss(e, now)
	} else {
		r.mu.pendingFailures = nil // e can serve those who have not been told yet
	}
	r.schedule(e, now)
	r.dispatch(e, &fx)
	if unusable != nil && r.live() == 0 && !r.mu.closed {
		r.failWaitersUpTo(e.lastWaiterAtOpen, unusable, lasting, &fx)
	}
	if c := r.counts(); e.state == idle && c.stale > c.superseded && c.idle > c.minIdle && c.established > c.readyTarget {
		r.takePlaceOfStale(e, now)
	}
	r.notifyReady(&fx)
	r.reconcile(&fx)
	r.unlock(&fx)
	return failed
}

// earlyLossWindow is the age up to which a connection that ends by itself counts
// as a failed open. Without it, a server that takes connections and drops them
// would be asked for new ones without a pause.
const earlyLossWindow = time.Second

var errLost = errors.New("reservoir: the connection has ended")

// markLost takes note that a connection has ended by itself.
func (r *Reservoir[C]) markLost(e *entry[C], cause error) {
	if cause == nil {
		cause = errLost
	}
	var fx effects[C]
	r.mu.Lock()
	if e.lost == nil { // the first reason counts
		e.lost = cause
		e.fastPathUntil = -never // its release takes the long way
		switch e.state {
		case idle:
			r.countEarlyLoss(e, r.clock.read())
			r.dispatch(e, &fx)
			r.reconcile(&fx)
		case loaned, resetting, checking:
			r.countEarlyLoss(e, r.clock.read())
			r.reconcile(&fx)
		case opening, closing, gone: // opening: opened reads e.lost; closing and gone need nothing
		}
	}
	r.unlock(&fx)
}

// countEarlyLoss counts a lost connection as a failed open if it was that young.
// The caller holds mu.
func (r *Reservoir[C]) countEarlyLoss(e *entry[C], now int64) {
	if now-e.openedAt >= int64(earlyLossWindow) || now < r.mu.retryAt || r.mu.closed {
		return
	}
	if now >= r.mu.stableAt {
		r.mu.priorFailures = 0
	}
	r.mu.lastOpenErr, r.mu.serverFails = e.lost, true
	r.backOff(r.mu.priorFailures, now)
}
