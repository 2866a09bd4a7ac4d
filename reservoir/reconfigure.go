package reservoir

import (
	"fmt"
	"math"
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

// Resize changes MaxSize to n, from 1 to 2^31-1, at once and without waiting; any
// other n is a *RangeError. When there are more connections than that, idle ones
// are closed now and loans when they end. While n is less than MinIdle, MinIdle
// is n.
func (r *Reservoir[C]) Resize(n int) error {
	if n < 1 || n > maxConnections {
		return &RangeError{"Resize", n, fmt.Sprintf("between 1 and %d", maxConnections)}
	}
	var fx effects[C]
	r.mu.Lock()
	if r.mu.closed {
		r.mu.Unlock()
		return ErrClosed
	}
	r.mu.maxSize, r.mu.minIdle = n, min(n, r.cfg.MinIdle)
	r.startDueChecks(r.clock.read(), &fx) // more may run now
	r.notifyReady(&fx)
	r.reconcile(&fx)
	r.unlock(&fx)
	r.closeOverCapacity()
	return nil
}

// closeOverCapacity closes the idle connections beyond MaxSize, and opens what there is
// room for.
func (r *Reservoir[C]) closeOverCapacity() {
	r.retireIdle(OverCapacity, func(*entry[C], int64) bool { return r.exceeds(r.mu.maxSize) })
}
