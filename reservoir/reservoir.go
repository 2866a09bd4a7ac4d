package reservoir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/flightpool/flightpool/internal/invariant"
)

// A Reservoir keeps connections of type C ready and lends them. All methods are
// safe for concurrent use. Make one with New; end it with Close.
type Reservoir[C any] struct {
	cfg    Config[C] // resolved
	cleans bool      // Release has something to run first
	asks   bool      // Acquire has to look twice, at age or at the borrower

	idleTTL   int64 // of cfg; never: off
	keepAlive int64 // CheckInterval; 0: off

	clock clock
	alarm *time.Timer // runs sweep at mu.due

	ctx      context.Context //nolint:containedctx // what opens and checks run on: it lives as long as the reservoir
	cancel   context.CancelFunc
	drained  chan struct{} // closed when no connection is left after Close began
	finished chan struct{} // closed when the first Close returns

	// mu guards everything in it and the entries and waiters that it reaches.
	// It is the only lock. Nothing that can wait is done under it, and no
	// callback is called: see effects.
	mu struct {
		sync.Mutex
		closed bool

		// INVARIANT: count[s] is the number of entries of all in state s;
		// closed => idle and waiters are empty.
		all   []*entry[C]
		count [states]int

		// INVARIANT: a usable idle connection and a waiter never coexist: with
		// idle connections there are no waiters but those for whom a
		// connection is being checked.
		idle    list[*entry[C]]
		stale   int // of idle
		waiters list[*waiter[C]]

		lastWaiter  uint64 // the number of the latest
		refused     uint64 // waiters up to this one have seen an open begin and fail, and none succeed since
		free        *waiter[C]
		freeWaiters int

		targets []*target

		maxSize, minIdle int
		ceiling          int    // what the total may not exceed now; above the limit for a while after Resize
		generation       uint64 // counts Reset and Close: what is older is closed

		probing  bool // a check for the sweeper is under way
		failures int  // opens that failed in a row
		retryAt  int64
		doubt    int   // failures before the success that ended them,
		trusted  int64 // which counts from then on
		lastOpen error
		phase    uint64 // of the latest lifetime within its jitter
		due      int64  // when alarm fires

		stats Stats // the cumulative ones
	}
}

// New makes a reservoir and starts to open MinIdle connections; it does not
// wait for them (WaitReady does). It returns all faults of cfg at once.
func New[C any](cfg Config[C]) (*Reservoir[C], error) {
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	r := &Reservoir[C]{
		cfg:       cfg,
		cleans:    cfg.Reset != nil || cfg.CheckOnRelease,
		asks:      cfg.CheckOnAcquire || cfg.LeakAfter > 0,
		idleTTL:   int64(cfg.IdleTTL),
		keepAlive: int64(cfg.CheckInterval),
		drained:   make(chan struct{}),
		finished:  make(chan struct{}),
	}
	if r.idleTTL <= 0 {
		r.idleTTL = never
	}
	r.ctx, r.cancel = context.WithCancel(detached())
	r.clock.init(cfg.IdleTTL, cfg.MaxLifetime, cfg.GuardWindow, cfg.IdleBeforeCheck, cfg.CheckInterval, cfg.LeakAfter)
	r.mu.idle.init()
	r.mu.waiters.init()
	r.mu.maxSize, r.mu.minIdle = cfg.MaxSize, cfg.MinIdle
	r.mu.phase, r.mu.due = rand.Uint64(), never
	r.alarm = time.AfterFunc(time.Hour, r.sweep)
	r.alarm.Stop()

	var fx effects[C]
	r.mu.Lock()
	r.pump(&fx)
	r.unlock(&fx)
	return r, nil
}

// detached is the context that no caller can end: connections outlive the call
// that caused their opening.
func detached() context.Context { return context.Background() }

// bounded is the reservoir's context with a time limit; 0 is none.
func (r *Reservoir[C]) bounded(limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return context.WithCancel(r.ctx)
	}
	return context.WithTimeout(r.ctx, limit)
}

// Resize changes MaxSize to n, at least 1, at once and without waiting. When
// there are more connections than that, idle ones are closed now and loans when
// they end. While n is less than MinIdle, MinIdle is n.
func (r *Reservoir[C]) Resize(n int) error {
	if n < 1 {
		return fmt.Errorf("reservoir: Resize: MaxSize: %d is less than 1", n)
	}
	var fx effects[C]
	r.mu.Lock()
	if r.mu.closed {
		r.mu.Unlock()
		return ErrClosed
	}
	r.mu.maxSize, r.mu.minIdle = n, min(n, r.cfg.MinIdle)
	r.shrink(&fx)
	r.tellReady(&fx)
	r.pump(&fx)
	r.unlock(&fx)
	return nil
}

// shrink closes the idle connections beyond MaxSize. The caller holds mu.
func (r *Reservoir[C]) shrink(fx *effects[C]) {
	for e := r.mu.idle.back(); e != nil && r.live() > r.mu.maxSize; e = r.mu.idle.back() {
		r.retire(e, Surplus, nil, fx)
	}
}

// Reset replaces every connection, without waiting: idle ones are closed now,
// those on loan or being opened as soon as they come back.
func (r *Reservoir[C]) Reset() {
	var fx effects[C]
	r.mu.Lock()
	r.mu.generation++
	r.mu.failures, r.mu.retryAt = 0, 0
	for e := r.mu.idle.back(); e != nil; e = r.mu.idle.back() {
		r.retire(e, Outdated, nil, &fx)
	}
	r.pump(&fx)
	r.unlock(&fx)
}

// EvictIdle closes the idle connections above MinIdle, coldest first, without
// waiting, and returns how many.
func (r *Reservoir[C]) EvictIdle() int {
	var fx effects[C]
	r.mu.Lock()
	n := 0
	for ; r.mu.idle.n > r.mu.minIdle; n++ {
		r.retire(r.mu.idle.back(), Idled, nil, &fx)
	}
	r.pump(&fx)
	r.unlock(&fx)
	return n
}

// verify checks the invariants at the end of a section under the lock.
func (r *Reservoir[C]) verify() {
	if !invariant.Enabled {
		return
	}
	m := &r.mu
	total := 0
	for _, n := range m.count[:gone] {
		total += n
	}
	invariant.Check(total == len(m.all), "states sum to %d, there are %d connections", total, len(m.all))
	m.ceiling = max(r.limit(), min(m.ceiling, total))
	invariant.Check(total <= m.ceiling, "%d connections, more than %d", total, m.ceiling)
	invariant.Check(m.idle.n == m.count[idle], "%d in the idle list, %d are idle", m.idle.n, m.count[idle])
	invariant.Check(!m.closed || m.idle.n == 0 && m.waiters.n == 0, "closed with %d idle, %d waiting", m.idle.n, m.waiters.n)
	invariant.Check(m.idle.n == 0 || r.unserved() == 0, "%d idle while %d wait unserved", m.idle.n, r.unserved())
	if len(m.all) <= 64 {
		r.verifyIdle()
	}
}

// verifyIdle checks every idle connection.
func (r *Reservoir[C]) verifyIdle() {
	stale, younger := 0, int64(never)
	for e := r.mu.idle.front(); e != nil; e = e.link.next.self {
		invariant.Check(e.state == idle, "in the idle list in state %d", e.state)
		invariant.Check(e.idleSince <= younger, "idle list out of order: %d after %d", e.idleSince, younger)
		invariant.Check(e.generation == r.mu.generation, "idle of an old generation")
		invariant.Check(e.lost == nil, "idle although lost: %v", e.lost)
		younger = e.idleSince
		if e.stale {
			stale++
		}
	}
	invariant.Check(stale == r.mu.stale, "%d are stale, counted %d", stale, r.mu.stale)
}
