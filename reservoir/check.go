package reservoir

import (
	"context"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// maxKeepalives bounds the keepalive checks under way at a time, however large
// the reservoir.
const maxKeepalives = 64

// keepaliveLimit is how many connections may be in keepalive checks at a time.
// The caller holds mu.
func (r *Reservoir[C]) keepaliveLimit() int { return max(1, min(r.mu.maxSize/4, maxKeepalives)) }

// startDueChecks begins the keepalive checks that are due, as many as may run.
// The caller holds mu.
func (r *Reservoir[C]) startDueChecks(now int64, fx *effects[C]) {
	for r.mu.keepalives < r.keepaliveLimit() {
		e := r.mu.dueChecks.front()
		if e == nil {
			return
		}
		r.mu.dueChecks.remove(&e.dueLink)
		switch {
		case e.state == idle && now >= addSaturating(e.knownGoodAt, r.checkInterval):
			r.startCheck(e, true, fx)
		case e.timerIndex >= 0: // a Reconfigure has made the interval longer: its next check is still to come
			r.schedule(e, now)
		}
	}
}

// mustCheck says whether an idle connection has to be checked before it is lent. Only
// the idle time decides: if the newest idle connection needs a check, all do. The
// caller holds mu.
func (r *Reservoir[C]) mustCheck(e *entry[C], now int64) bool {
	return r.cfg.CheckOnAcquire && now-e.idleSince >= int64(r.cfg.IdleBeforeCheck)
}

// checkedLately finds the newest idle connection if it was checked a moment ago
// and not used since. The caller holds mu.
func (r *Reservoir[C]) checkedLately(fx *effects[C]) *entry[C] {
	now := r.clock.read() // the kept time could make a second of more
	e := r.newestIdle(now, fx)
	if e == nil || r.mu.waiters.n > 0 || e.checkedLoan != e.loanNumber || now-e.knownGoodAt >= int64(time.Second) {
		return nil
	}
	return e
}

// checkInBackground begins the check that kept TryAcquire from succeeding, one at a
// time. Beside waiters it was not a check that did: what is idle is theirs. The
// caller holds mu.
func (r *Reservoir[C]) checkInBackground(fx *effects[C]) {
	if r.mu.count[checking] == r.mu.keepalives && r.mu.waiters.n == 0 {
		if e := r.newestIdle(r.clock.now(), fx); e != nil {
			r.startCheck(e, false, fx)
		}
	}
}

// startCheck takes an idle connection aside to be checked. One in a keepalive
// check keeps its place in the idle list. The caller holds mu.
func (r *Reservoir[C]) startCheck(e *entry[C], keepalive bool, fx *effects[C]) {
	if keepalive {
		r.mu.keepalives++
	} else {
		r.leaveIdle(e)
	}
	r.move(e, checking)
	e.keepalive, e.slow, e.checkBeganAt = keepalive, false, r.clock.now()
	r.mu.stats.Checks++
	r.schedule(e, e.checkBeganAt)
	r.begin(e, fx)
}

// slowCheckAfter is how long a check may take before waiters stop counting on it:
// as long as an open takes, since that could serve them too. The caller holds mu.
func (r *Reservoir[C]) slowCheckAfter() int64 { return max(r.mu.openTime, int64(100*time.Millisecond)) }

// abandonCheckAfter is how long a check may take while callers wait whom nothing else
// can serve. Then it is ended, which closes the connection and so makes room.
const abandonCheckAfter = int64(time.Second)

// handleCheckDue looks at how long a check has taken. The caller holds mu.
func (r *Reservoir[C]) handleCheckDue(e *entry[C], now int64, fx *effects[C]) {
	took := now - e.checkBeganAt
	if took < r.slowCheckAfter() {
		return
	}
	if !e.slow {
		e.slow = true
		if !e.keepalive {
			r.mu.slowChecks++
		}
	}
	if c := r.counts(); took >= max(abandonCheckAfter, 4*r.mu.openTime) && c.uncheckedWaiters() > c.opening && c.room() == 0 {
		e.endCheck(fx)
	}
}

// endCheck ends the check or the reset of an entry, if that has begun. The caller holds mu.
func (e *entry[C]) endCheck(fx *effects[C]) {
	if e.cancelCheck != nil {
		fx.afterUnlock(e.cancelCheck)
		e.cancelCheck = nil
	}
}

// check calls Check, on its own goroutine.
func (r *Reservoir[C]) check(e *entry[C]) {
	defer r.taskDone()
	ctx, cancel := bounded(r.ctx, r.cfg.CheckTimeout)
	defer cancel()
	r.mu.Lock()
	e.cancelCheck = cancel
	recalled := e.recalled
	r.mu.Unlock()
	if recalled { // before the check had a context
		cancel()
	}
	began := r.clock.exact()
	err := callback.Isolate(who, func() error { return r.cfg.Check(ctx, e.value) })
	r.checkDone(e, err)
	r.callCheckedHook(err, began)
}

func (r *Reservoir[C]) callCheckedHook(err error, began int64) {
	if checked := r.cfg.Hooks.Checked; checked != nil {
		r.callHook(func() { checked(err, time.Duration(r.clock.exact()-began)) })
	}
}

// checkDone decides after Check. A keepalive check does not make the connection
// younger: it stays where it was, for the idle TTL to find.
func (r *Reservoir[C]) checkDone(e *entry[C], err error) {
	var fx effects[C]
	r.mu.Lock()
	now := r.clock.read()
	if e.keepalive {
		r.mu.keepalives--
	} else {
		e.idleSince, e.checkedLoan = now, e.loanNumber
		r.mu.lastCheckFailed = err != nil
		if e.slow {
			r.mu.slowChecks--
		}
	}
	e.knownGoodAt, e.cancelCheck = now, nil
	if err != nil {
		r.mu.stats.CheckFailures++
		r.retire(e, Unhealthy, err, &fx)
	} else {
		r.dispatch(e, &fx)
	}
	r.startDueChecks(now, &fx)
	r.reconcile(&fx)
	r.unlock(&fx)
}

// checkHere calls Check on the caller's goroutine, counts it and tells of it.
func (r *Reservoir[C]) checkHere(ctx context.Context, c C) (err error) {
	if r.cfg.CheckTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.CheckTimeout)
		defer cancel()
	}
	began := r.clock.exact()
	callback.Guard(who, func() error { return r.cfg.Check(ctx, c) }, func(e error) {
		err = e
		r.mu.Lock()
		r.mu.stats.Checks++
		if err != nil {
			r.mu.stats.CheckFailures++
		}
		r.mu.Unlock()
		if checked := r.cfg.Hooks.Checked; checked != nil {
			r.callHookInline(func() { checked(err, time.Duration(r.clock.exact()-began)) })
		}
	})
	return err
}

// CheckOne borrows a connection as Acquire does, runs Config.Check on it and gives it
// back; one that fails is closed. A nil error means that a connection works now. Check
// and Reset run on a goroutine of the reservoir, each bounded by CheckTimeout: CheckOne
// returns when ctx ends, and they go on.
func (r *Reservoir[C]) CheckOne(ctx context.Context) error {
	done := ctx.Done()
	loan, err := r.Acquire(ctx)
	for ; err == nil; loan, err = r.Acquire(ctx) {
		if r.cfg.Check == nil && !r.resets {
			_ = loan.Release() // only a forced Close can have been faster
			return nil
		}
		r.mu.Lock()
		out := r.isOut(loan) // else Close or Recall was faster
		if out {
			r.mu.tasks++
		}
		r.mu.Unlock()
		if out {
			break
		}
	}
	if err != nil {
		return err
	}
	checked := make(chan error, 1)
	go r.checkLoan(loan, checked)
	select {
	case err = <-checked:
		return err
	case <-done:
		return fmt.Errorf("reservoir: check: %w", contextError(ctx))
	}
}

// checkLoan checks a connection that is on loan for it, and ends the loan.
func (r *Reservoir[C]) checkLoan(loan Loan[C], checked chan<- error) {
	defer r.taskDone()
	callback.Guard(who, func() error {
		if r.cfg.Check == nil {
			return nil // Reset alone is what may take long
		}
		return r.checkHere(r.ctx, loan.Value())
	}, func(err error) {
		defer func() { checked <- err }() // also when Reset ends this goroutine
		if err == nil {
			_ = loan.Release() // only a forced Close can have been faster
		} else {
			_ = r.discard(loan, Unhealthy, err)
			if r.ctx.Err() != nil {
				err = fmt.Errorf("%w during a check: %w", ErrClosed, err)
			}
		}
	})
}
