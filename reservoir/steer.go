package reservoir

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// Reconfigure takes over from cfg, while the reservoir works, the sizes, the policies
// and the times that the lock guards: MinIdle, MaxSize, MaxConcurrentOpens, MaxWaiters,
// OnExhausted, OpenRetry, AcquireTimeout, IdleTTL, MaxLifetime, ReplaceAfter,
// LifetimeJitter, GuardWindow, CheckInterval, IdleBeforeCheck and CheckOnAcquire. The
// other fields are ignored. Zero and negative values mean what they mean to New; every
// fault is returned, and nothing is changed then.
//
// Callers in the queue get the new AcquireTimeout, counted from their arrival.
// Connections keep the lifetime that they were opened with.
func (r *Reservoir[C]) Reconfigure(cfg Config[C]) error {
	cfg.Open, cfg.Close, cfg.Check = r.cfg.Open, r.cfg.Close, r.cfg.Check
	cfg, err := cfg.resolve()
	if err != nil {
		return err
	}
	var fx effects[C]
	r.mu.Lock()
	if r.mu.closed {
		r.mu.Unlock()
		return ErrClosed
	}
	r.applyConfig(cfg)
	r.mu.reconfiguring++                  // until rescheduleAll is done; closeOverCapacity evicts what waited for that
	r.startDueChecks(r.clock.read(), &fx) // more may run now
	r.sweepBy(r.firstDeadline())
	r.notifyReady(&fx)
	r.reconcile(&fx)
	r.unlock(&fx)
	r.rescheduleAll()
	r.closeOverCapacity()
	return nil
}

// applyConfig sets what Reconfigure may change. The caller holds mu.
func (r *Reservoir[C]) applyConfig(cfg Config[C]) {
	c := &r.cfg
	c.MinIdle, c.MaxSize, c.MaxConcurrentOpens, c.MaxWaiters = cfg.MinIdle, cfg.MaxSize, cfg.MaxConcurrentOpens, cfg.MaxWaiters
	c.OnExhausted, c.OpenRetry, c.AcquireTimeout, c.IdleTTL = cfg.OnExhausted, cfg.OpenRetry, cfg.AcquireTimeout, cfg.IdleTTL
	c.MaxLifetime, c.ReplaceAfter, c.LifetimeJitter, c.GuardWindow = cfg.MaxLifetime, cfg.ReplaceAfter, cfg.LifetimeJitter, cfg.GuardWindow
	c.CheckInterval, c.IdleBeforeCheck, c.CheckOnAcquire = cfg.CheckInterval, cfg.IdleBeforeCheck, cfg.CheckOnAcquire
	r.mu.maxSize, r.mu.minIdle = c.MaxSize, c.MinIdle
	r.idleTTL, r.checkInterval = int64(c.IdleTTL), int64(c.CheckInterval)
}

// rescheduleAll looks at every connection again, after periods have changed.
// The last entry takes the place of one that goes meanwhile, so from the back
// none is missed; those that come meanwhile are scheduled by the new periods.
func (r *Reservoir[C]) rescheduleAll() {
	for at := math.MaxInt; at > 0; {
		var fx effects[C]
		r.mu.Lock()
		at = min(at, len(r.mu.all))
		now := r.clock.read()
		for n := 0; n < batch && at > 0; n++ {
			at--
			e := r.mu.all[at]
			if e.pastIdleTTL && now < addSaturating(e.idleSince, r.idleTTL) {
				e.pastIdleTTL = false
				r.mu.pastIdleTTL--
			}
			if e.timerIndex >= 0 {
				r.schedule(e, now)
			}
		}
		if at == 0 {
			r.mu.reconfiguring--
		}
		r.unlock(&fx)
	}
}

// CloseIdle closes up to n idle connections that were not used for at least unused,
// coldest first, without waiting, and returns how many. Unlike EvictIdle it goes
// below MinIdle; what is missing then is opened again as soon as Admit allows.
func (r *Reservoir[C]) CloseIdle(n int, unused time.Duration) int {
	yielded := 0
	r.retireIdle(OverCapacity, func(e *entry[C], now int64) bool {
		if yielded >= n || now-e.idleSince < int64(unused) {
			return false
		}
		yielded++
		return true
	})
	return yielded
}

// FailWaiters fails every caller in the queue with err, at once, and returns how
// many. It is for owners who know that no connection will come.
func (r *Reservoir[C]) FailWaiters(err error) int {
	if err == nil {
		err = errNoReason
	}
	n := 0
	for last, more := uint64(0), true; more; {
		var fx effects[C]
		var state *ExhaustedError
		r.mu.Lock()
		if last == 0 {
			last = r.mu.lastWaiter
		}
		w := r.mu.waiters.front()
		for left := batch; left > 0 && w != nil && w.number <= last; left-- {
			if r.fail(w, err, failed, &state, &fx) {
				n++
			}
			w = r.mu.waiters.front()
		}
		more = w != nil && w.number <= last
		r.reconcile(&fx)
		r.unlock(&fx)
	}
	return n
}

// CheckOne borrows a connection as Acquire does, runs Config.Check on it and gives it
// back; one that fails is closed. A nil error means that a connection works now. Check
// and Reset run on a goroutine of the reservoir, each bounded by CheckTimeout: CheckOne
// returns when ctx ends, and they go on.
func (r *Reservoir[C]) CheckOne(ctx context.Context) error {
	done := ctx.Done()
	loan, err := r.Acquire(ctx)
	if err != nil {
		return err
	}
	if r.cfg.Check == nil && !r.resets {
		_ = loan.Release() // only a forced Close can have been faster
		return nil
	}
	r.mu.Lock()
	taken := !r.isOut(loan) // by Close
	if !taken {
		r.mu.tasks++
	}
	r.mu.Unlock()
	if taken {
		return ErrClosed
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

// Info describes one open connection at one moment.
type Info[C any] struct {
	Value C
	// InUse says that it is on loan, or being reset or checked.
	InUse bool
	// Opened is when Open returned, Used when the latest loan began or ended, or
	// else Opened.
	Opened, Used time.Time
	// Loans counts the loans so far.
	Loans uint64
}

// infoBatch is how many connections are described under one hold of the lock,
// so that looking at many does not hold borrowers up.
const infoBatch = 64

// Connections describes the open connections, idle and in use. It looks at a few
// of them at a time: one that moves meanwhile may be missing or twice in it.
func (r *Reservoir[C]) Connections() []Info[C] {
	r.mu.Lock()
	n := len(r.mu.all)
	r.mu.Unlock()
	all := make([]Info[C], 0, n) // not under the lock: it may be large
	for from, more := 0, true; more; from += infoBatch {
		r.mu.Lock()
		for _, e := range r.mu.all[min(from, len(r.mu.all)):min(from+infoBatch, len(r.mu.all))] {
			if e.state == opening || e.state == closing {
				continue
			}
			all = append(all, Info[C]{
				Value: e.value, InUse: e.state != idle, Loans: e.loanNumber,
				Opened: r.clock.start.Add(time.Duration(e.openedAt)), Used: r.clock.start.Add(time.Duration(max(e.openedAt, e.idleSince, e.borrowedAt))),
			})
		}
		more = from+infoBatch < len(r.mu.all)
		r.mu.Unlock()
	}
	return all
}
