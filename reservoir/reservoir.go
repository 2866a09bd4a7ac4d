package reservoir

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A Reservoir keeps connections of type C ready and lends them. All methods are
// safe for concurrent use. Make one with New; end it with Close.
type Reservoir[C any] struct {
	cfg    Config[C] // resolved
	resets bool      // Release has something to run first

	// Periods of cfg in nanoseconds; 0: off.
	idleTTL, checkInterval, leakAfter int64

	clock      clock
	sweepTimer *time.Timer // runs sweep at mu.sweepAt

	ctx     context.Context //nolint:containedctx // what opens and checks run on: it lives as long as the reservoir
	cancel  context.CancelFunc
	drained chan struct{} // closed when nothing is left after Close began

	freeWaiters sync.Pool // of *waiter[C]; its own, since their channels belong to the bubble of a test
	leavers     leavers[C]
	handoffs    atomic.Uint64 // waits that ended with a connection
	waitTime    atomic.Int64

	// mu guards everything in it and the entries and waiters that it reaches.
	// It is the only lock. Nothing that can wait is done under it, and no
	// callback is called: see effects. What is done for many connections or
	// waiters is done in batches, each under a hold of its own.
	mu struct {
		mutex
		closed       bool
		shuttingDown bool // Close has not yet woken all waiters and closed all idle connections
		tasks        int  // goroutines of the reservoir, begun or decided on

		// INVARIANT: count[s] is the number of entries of all in state s.
		all   []*entry[C]
		count [states]int

		// INVARIANT: a usable idle connection and a waiter never coexist: with
		// idle connections there are no waiters but those for whom a
		// connection is being checked. After Close or Reset those of an older
		// generation are at the back of idle, and about to be closed.
		idle        list[*entry[C]] // also those in keepalive checks
		staleIdle   list[*entry[C]] // of idle, those that are stale
		outdated    int             // of idle, those of an older generation
		pastIdleTTL int             // of idle, those that were idle for IdleTTL

		// INVARIANT: superseded <= stale, and no more than are not stale.
		stale      int // past their replacement time
		superseded int // of stale, those for which a successor has been opened

		dueChecks       list[*entry[C]] // idle connections whose keepalive check is due
		unadmitted      int             // of count[opening], those that wait in Admit
		abandoned       bool            // a caller has left unserved, and no open was wanted since that had waited in Admit beside it
		keepalives      int             // keepalive checks under way
		slowChecks      int             // checks for waiters that take long
		lastCheckFailed bool            // the latest check for a waiter has failed

		timers        timers[C]
		sweepAt       int64 // when sweepTimer fires
		reconfiguring int   // calls of Reconfigure that have yet to look at every connection

		waiters         list[*waiter[C]]
		untimed         list[*waiter[C]] // of waiters, those whose ctx has no deadline
		lastWaiter      uint64           // the number of the latest
		pendingFailures []pendingFailure // failed opens whose callers are being told, in order
		readyWaits      []*readyWait

		maxSize, minIdle int
		promise          promise
		stalled          int    // of count[closing], those whose Close takes longer than CloseTimeout
		ceiling          int    // what the total may not exceed now; above the limit for a while after Resize
		generation       uint64 // counts Reset and Close: what is older is closed

		failures      int  // opens that failed in a row
		serverFails   bool // one of these was made: Admit had allowed it
		retryAt       int64
		failedUpTo    uint64 // waiters up to this one have seen an open begin and fail, and none succeed since
		priorFailures int    // failures before the success that ended them,
		stableAt      int64  // which counts from then on
		lastOpenErr   error
		openTime      int64  // how long opens take, Admit included
		jitterPhase   uint64 // of the latest lifetime within its jitter

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
		resets:    cfg.Reset != nil || cfg.CheckOnRelease,
		leakAfter: int64(cfg.LeakAfter),
		drained:   make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(detached())
	r.clock.init(cfg.IdleTTL, cfg.MaxLifetime, cfg.GuardWindow, cfg.IdleBeforeCheck, cfg.CheckInterval, cfg.LeakAfter)
	r.mu.idle.init()
	r.mu.staleIdle.init()
	r.mu.dueChecks.init()
	r.mu.waiters.init()
	r.mu.untimed.init()
	r.mu.jitterPhase, r.mu.sweepAt = rand.Uint64(), never
	r.applyConfig(cfg)
	r.sweepTimer = time.AfterFunc(time.Hour, r.sweep)
	r.sweepTimer.Stop()

	var fx effects[C]
	r.mu.Lock()
	r.reconcile(&fx)
	r.unlock(&fx)
	return r, nil
}

// detached is the context that no caller can end: connections outlive the call
// that caused their opening.
func detached() context.Context { return context.Background() }

// bounded is a context of the reservoir's with a time limit; 0 is none.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// A clock tells the time in nanoseconds since its start. Reading the system's
// costs more than all the rest of an acquire and a release, so a reading is
// kept for up to slack: reading it arms a one-shot timer that marks it stale.
// An unused clock has no timer running.
//
// A kept reading is never ahead of the time and less than slack behind it. On a
// saturated machine the timer comes late; therefore a reading is also used for maxUses
// times only, so that no more than the time of that many uses is added. Who decides
// something that slack could turn asks for the exact time.
type clock struct {
	start      time.Time
	slack      int64 // 0: every reading is exact
	fresh      atomic.Bool
	staleTimer *time.Timer
	cached     int64 // INVARIANT: guarded by the reservoir's mutex, never decreases
	usesLeft   int   // how often cached may still be used; guarded likewise
}

// The slack is a part of the shortest duration that matters, within bounds.
const (
	maxSlack  = 10 * time.Millisecond
	minSlack  = 100 * time.Microsecond
	slackPart = 128
	maxUses   = 64
)

func (c *clock) init(durations ...time.Duration) {
	c.start = time.Now()
	slack := maxSlack
	for _, d := range durations {
		if d > 0 {
			slack = min(slack, d/slackPart)
		}
	}
	if slack < minSlack {
		return
	}
	c.slack = int64(slack)
	c.staleTimer = time.AfterFunc(time.Hour, func() { c.fresh.Store(false) })
	c.staleTimer.Stop()
}

// now returns the cached time. The caller holds the reservoir's mutex.
func (c *clock) now() int64 {
	if c.usesLeft > 0 && c.fresh.Load() {
		c.usesLeft--
		return c.cached
	}
	return c.read()
}

// read keeps the exact time and returns it. The caller holds the reservoir's mutex.
func (c *clock) read() int64 {
	c.cached, c.usesLeft = c.exact(), maxUses
	if c.slack > 0 && c.fresh.CompareAndSwap(false, true) {
		c.staleTimer.Reset(time.Duration(c.slack))
	}
	return c.cached
}

// exact is the exact time. It needs no lock.
func (c *clock) exact() int64 { return int64(time.Since(c.start)) }

// stop ends keeping. The caller holds the reservoir's mutex.
func (c *clock) stop() {
	if c.slack > 0 {
		c.slack = 0
		c.fresh.Store(false)
		c.staleTimer.Stop()
	}
}

// A link is a value's place in a list. A value that may be in one list holds
// one link, so that entering and leaving take O(1) and no allocation.
type link[T any] struct {
	prev, next *link[T]
	self       T
}

// linked says whether the value is in a list.
func (l *link[T]) linked() bool { return l.next != nil }

// A list is a ring of links around a root. The root's self is the zero T, so
// that the neighbours of an empty list's root, and the value after the last,
// read as nil.
type list[T any] struct {
	root link[T]
	n    int
}

func (l *list[T]) init() { l.root.prev, l.root.next = &l.root, &l.root }

func (l *list[T]) front() T { return l.root.next.self }
func (l *list[T]) back() T  { return l.root.prev.self }

func (l *list[T]) pushFront(x *link[T]) { l.insertAfter(&l.root, x) }
func (l *list[T]) pushBack(x *link[T])  { l.insertAfter(l.root.prev, x) }

func (l *list[T]) insertAfter(at, x *link[T]) {
	x.prev, x.next = at, at.next
	at.next.prev = x
	at.next = x
	l.n++
}

func (l *list[T]) remove(x *link[T]) {
	x.prev.next, x.next.prev = x.next, x.prev
	x.prev, x.next = nil, nil
	l.n--
}

// move changes the state of an entry. The caller holds mu.
func (r *Reservoir[C]) move(e *entry[C], to state) {
	r.mu.count[e.state]--
	r.mu.count[to]++
	e.state = to
}

// live counts the connections that are not on their way out. The caller holds mu.
func (r *Reservoir[C]) live() int { return len(r.mu.all) - r.mu.count[closing] }

// exceeds says whether there are more connections than limit that are not on their way out.
// Opens that still wait in Admit are none yet: they give way to those that exist, whose
// callers would otherwise have to wait for them. The caller holds mu.
func (r *Reservoir[C]) exceeds(limit int) bool { return r.live()-r.mu.unadmitted > limit }

// admitted takes note that an open waits in Admit no longer. The caller holds mu.
func (r *Reservoir[C]) admitted(e *entry[C]) {
	if e.unadmitted {
		e.unadmitted = false
		r.mu.unadmitted--
		r.mu.abandoned = r.mu.abandoned && r.mu.unadmitted > 0
	}
}

// abandon takes note that a caller has left unserved. The caller holds mu.
func (r *Reservoir[C]) abandon() { r.mu.abandoned = r.mu.unadmitted > 0 }
