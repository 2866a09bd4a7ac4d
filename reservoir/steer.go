package reservoir

import (
	"context"
	"time"
)

// Tune takes over from cfg, while the reservoir works, the sizes, the policies
// and the times that the lock guards: MinIdle, MaxSize, MaxConcurrentOpens,
// MaxWaiters, OnExhausted, AcquireTimeout, IdleTTL, MaxLifetime, LifetimeJitter,
// GuardWindow, CheckInterval, IdleBeforeCheck and CheckOnAcquire. The other
// fields are ignored. Zero and negative values mean what they mean to New; every
// fault is returned, and nothing is changed then.
//
// Callers in the queue get the new AcquireTimeout, counted from their arrival.
// Connections keep the lifetime that they were opened with.
func (r *Reservoir[C]) Tune(cfg Config[C]) error {
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
	r.adopt(cfg)
	r.shrink(&fx)
	r.deadlines()
	r.tellReady(&fx)
	r.pump(&fx)
	r.arm(r.probe(r.clock.read(), &fx))
	r.unlock(&fx)
	return nil
}

// adopt sets what Tune may change. The caller holds mu.
func (r *Reservoir[C]) adopt(cfg Config[C]) {
	c := &r.cfg
	c.MinIdle, c.MaxSize, c.MaxConcurrentOpens, c.MaxWaiters = cfg.MinIdle, cfg.MaxSize, cfg.MaxConcurrentOpens, cfg.MaxWaiters
	c.OnExhausted, c.AcquireTimeout, c.IdleTTL = cfg.OnExhausted, cfg.AcquireTimeout, cfg.IdleTTL
	c.MaxLifetime, c.LifetimeJitter, c.GuardWindow = cfg.MaxLifetime, cfg.LifetimeJitter, cfg.GuardWindow
	c.CheckInterval, c.IdleBeforeCheck, c.CheckOnAcquire = cfg.CheckInterval, cfg.IdleBeforeCheck, cfg.CheckOnAcquire
	r.mu.maxSize, r.mu.minIdle = c.MaxSize, c.MinIdle
	r.asks = c.CheckOnAcquire || c.LeakAfter > 0
	r.keepAlive = int64(c.CheckInterval)
	if r.idleTTL = int64(c.IdleTTL); r.idleTTL <= 0 {
		r.idleTTL = never
	}
}

// deadlines gives every waiter the present AcquireTimeout. The caller holds mu.
func (r *Reservoir[C]) deadlines() {
	for w := r.mu.waiters.front(); w != nil; w = w.link.next.self {
		w.deadline = never
		if r.cfg.AcquireTimeout > 0 {
			w.deadline = w.since + int64(r.cfg.AcquireTimeout)
			r.arm(w.deadline)
		}
	}
}

// Yield closes up to n idle connections that were not used for at least unused,
// coldest first, without waiting, and returns how many. Unlike EvictIdle it goes
// below MinIdle; what is missing then is opened again as soon as Admit allows.
func (r *Reservoir[C]) Yield(n int, unused time.Duration) int {
	var fx effects[C]
	r.mu.Lock()
	now, yielded := r.clock.read(), 0
	for e := r.mu.idle.back(); e != nil && yielded < n && now-e.idleSince >= int64(unused); e = r.mu.idle.back() {
		r.retire(e, Surplus, nil, &fx)
		yielded++
	}
	r.pump(&fx)
	r.unlock(&fx)
	return yielded
}

// FailWaiters fails every caller in the queue with err, at once, and returns how
// many. It is for owners who know that no connection will come.
func (r *Reservoir[C]) FailWaiters(err error) int {
	var fx effects[C]
	r.mu.Lock()
	failed := r.mu.waiters.n
	for w := r.mu.waiters.front(); w != nil; w = r.mu.waiters.front() {
		r.fail(w, err, &fx)
	}
	r.pump(&fx)
	r.unlock(&fx)
	return failed
}

// Prove borrows a connection as Acquire does, runs Config.Check on it and gives
// it back; one that fails is closed. A nil error means that a connection works
// now. CheckTimeout bounds the check.
func (r *Reservoir[C]) Prove(ctx context.Context) error {
	loan, err := r.Acquire(ctx)
	if err != nil || r.cfg.Check == nil {
		_ = loan.Release() // the zero Loan's is no concern
		return err
	}
	if r.cfg.CheckTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.CheckTimeout)
		defer cancel()
	}
	began := r.clock.exact()
	guarded(func() error { return r.cfg.Check(ctx, loan.Value()) }, func(e error) { err = e })
	if err == nil {
		_ = loan.Release() // only a forced Close can have been faster
	} else {
		_ = loan.Discard(err)
	}
	if checked := r.cfg.Hooks.Checked; checked != nil {
		checked(err, time.Duration(r.clock.exact()-began))
	}
	return err
}

// Info describes one open connection at one moment.
type Info[C any] struct {
	Value C
	// InUse says that it is on loan, or being reset or checked.
	InUse bool
	// Opened is when Open returned, Used when the latest loan began or ended.
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
	var all []Info[C]
	for from, more := 0, true; more; from += infoBatch {
		r.mu.Lock()
		for _, e := range r.mu.all[min(from, len(r.mu.all)):min(from+infoBatch, len(r.mu.all))] {
			if e.state == opening || e.state == closing {
				continue
			}
			all = append(all, Info[C]{
				Value: e.value, InUse: e.state != idle, Loans: e.loan,
				Opened: r.clock.start.Add(time.Duration(e.born)), Used: r.clock.start.Add(time.Duration(max(e.idleSince, e.borrowed))),
			})
		}
		more = from+infoBatch < len(r.mu.all)
		r.mu.Unlock()
	}
	return all
}
