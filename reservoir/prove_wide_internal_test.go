package reservoir

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"
)

// A wide program has what the others do not: permissions that are taken back, with force
// and without; releases, and changes of the configuration, beside everything else;
// replacement by age; opens that fail for good; callers whose contexts panic or end their
// goroutine; and calls beside Close. The streams of random numbers are its own, so that
// the other programs are what they were.
type wide struct {
	random  *rand.Rand // of the program
	dice    *rand.Rand // of the callbacks
	recalls []recalled

	forced    atomic.Bool
	strangers map[<-chan struct{}]bool // by Done of their contexts, which are of their own make
}

// recalled is a Recall, and the latest generation that it is for.
type recalled struct {
	force func(cause error) int
	last  uint64
}

func (w *wide) hasForced() bool { return w != nil && w.forced.Load() }

// strangersWaiting is how many of the queue are strangers. The caller holds the lock.
func (w *world) strangersWaiting() int {
	n := 0
	if w.wide == nil {
		return n
	}
	for x := w.r.mu.waiters.front(); x != nil; x = x.link.next.self {
		if w.wide.strangers[x.done] {
			n++
		}
	}
	return n
}

// perhapsPermanent is the error of an open, which may be one that stays.
func (w *world) perhapsPermanent(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wide == nil || w.wide.dice.IntN(4) > 0 {
		return err
	}
	return Permanent(err)
}

// ages draws what is to do with the ages of connections.
func (w *wide) ages(c *Config[*provenConn]) {
	if w == nil || c.MaxLifetime < time.Second {
		return
	}
	switch w.random.IntN(4) {
	case 0:
		c.ReplaceAfter, c.LifetimeJitter = c.MaxLifetime/4, c.MaxLifetime/8
	case 1:
		c.ReplaceAfter, c.LifetimeJitter = c.MaxLifetime/2, -1
	case 2:
		c.GuardWindow = c.MaxLifetime / 2 // with which some ends by ExpiresAt are too near
	}
}

func (w *world) wideStep(ctx context.Context) {
	switch w.wide.random.IntN(6) {
	case 0, 1:
		w.r.mu.Lock()
		last := w.r.mu.generation
		w.r.mu.Unlock()
		w.note("recall %d", last)
		w.wide.recalls = append(w.wide.recalls, recalled{w.r.Recall(), last})
	case 2, 3:
		w.force()
	case 4:
		w.reconfigureBesideAll()
	default:
		w.acquireAsStranger(ctx)
	}
}

// force uses the force of a Recall, after which nobody has what was recalled.
func (w *world) force() {
	if len(w.wide.recalls) == 0 {
		return
	}
	i := w.wide.random.IntN(len(w.wide.recalls))
	of := w.wide.recalls[i]
	w.wide.forced.Store(true)
	w.note("force %d: %d", of.last, of.force(errProve))
	synctest.Wait()
	left := w.loans[:0]
	for _, l := range w.loans {
		if w.isOut(l) {
			left = append(left, l)
		}
	}
	w.loans = left
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	for _, e := range w.r.mu.all {
		if e.generation <= of.last && (e.state == loaned || e.state == resetting || e.state == checking || e.state == idle) {
			w.failf("%d, recalled by force, is in state %d", e.value.id, e.state)
		}
	}
}

func (w *world) isOut(l Loan[*provenConn]) bool {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.r.isOut(l)
}

// releaseBehind releases a loan beside what the program does next.
func (w *world) releaseBehind(l Loan[*provenConn]) {
	go func() {
		if err := l.Release(); err != nil && !w.wide.hasForced() && !w.ending.Load() {
			w.failf("release: %v", err)
		}
	}()
}

// reconfigureBesideAll changes sizes and times in several ways at once.
func (w *world) reconfigureBesideAll() {
	var changes sync.WaitGroup
	cfg, size := w.config(false), 1+w.wide.random.IntN(9)
	w.note("at once: tune MaxSize %d MinIdle %d, resize %d, reset", cfg.MaxSize, cfg.MinIdle, size)
	w.tunedAt.Store(w.r.clock.exact())
	changes.Go(func() {
		if err := w.r.Reconfigure(cfg); err != nil {
			w.failf("tune: %v", err)
		}
	})
	changes.Go(func() { _ = w.r.Resize(size) })
	if w.wide.random.IntN(2) == 0 {
		changes.Go(w.r.Reset)
	}
	changes.Wait()
	w.ceiling = math.MaxInt // of the two bounds, the higher one may have been first
}

// A hostileContext ends as its user likes: Err does not return then.
type hostileContext struct {
	context.Context
	done chan struct{}
	exit bool
}

func (c hostileContext) Done() <-chan struct{} { return c.done }

func (c hostileContext) Err() error {
	select {
	case <-c.done:
		if c.exit {
			runtime.Goexit()
		}
		panic(errProve)
	default:
		return nil
	}
}

// acquireAsStranger borrows for a moment, with a context that ends its caller's goroutine.
func (w *world) acquireAsStranger(ctx context.Context) {
	hostile := hostileContext{ctx, make(chan struct{}), w.wide.random.IntN(2) == 0}
	after := [...]time.Duration{0, time.Millisecond, time.Second, 10 * time.Second}[w.wide.random.IntN(4)]
	w.note("a stranger acquires, and ends after %v", after)
	w.account.proved = true // its waits are counted by nobody else
	time.AfterFunc(after, func() { close(hostile.done) })
	if w.wide.strangers == nil {
		w.wide.strangers = map[<-chan struct{}]bool{}
	}
	w.wide.strangers[hostile.done] = true
	go func() {
		defer func() { _ = recover() }()
		if l, err := w.r.Acquire(hostile); err == nil {
			_ = l.Release()
		}
	}()
}

// giveUp closes connections for others, and looks at what it says of them.
func (w *world) giveUp() {
	synctest.Wait()
	n := w.wide.random.IntN(4) * w.burst()
	w.r.mu.Lock()
	idles, leaving, used := w.r.mu.count[idle], w.r.mu.count[closing], w.r.inUse()
	for _, e := range w.r.mu.all {
		if e.stalled { // nobody knows when it will have closed
			leaving--
		}
	}
	w.r.mu.Unlock()
	got := w.r.GiveUp(n)
	w.note("give up %d: %d", n, got)
	w.r.mu.Lock()
	owed := w.r.mu.promise.n
	w.r.mu.Unlock()
	if closed := min(n, leaving+idles); got < closed || got > min(n, closed+used) || owed > max(0, n-closed) || owed > used {
		w.failf("asked to give up %d, with %d idle, %d in use and %d closing: %d, and %d to come", n, idles, used, leaving, got, owed)
	}
}

// besideClose does what may come while a reservoir closes.
func (w *world) besideClose(ctx context.Context) {
	if w.wide == nil {
		return
	}
	begun := w.wide.random.IntN(2) == 0
	if begun {
		synctest.Wait()
	}
	for range w.wide.random.IntN(6) {
		switch w.wide.random.IntN(9) {
		case 0:
			w.wide.forced.Store(true)
			w.r.Recall()(errProve)
		case 1:
			w.r.Reset()
		case 2:
			_ = w.r.Resize(1)
		case 3:
			_ = w.r.Reconfigure(w.config(false))
		case 4:
			w.r.CloseIdle(1, 0)
			w.r.EvictIdle()
			w.r.GiveUp(2)
		case 5:
			w.r.FailWaiters(errProve)
		case 6:
			w.arrivals++
			w.acquire(ctx)
		case 7:
			w.acquireAsStranger(ctx)
		default:
			if begun { // else it could be the first
				go func() { _ = w.r.Close(ctx) }()
			}
		}
	}
}
