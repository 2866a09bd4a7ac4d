package fleet

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/taskgroup"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/internal/fifo"
)

// Leases is a fleet's budget of connections in a Store. It is a lease.Leases and
// a lease.Revoker.
type Leases struct {
	cfg       Config
	store     *meter
	clock     func() instant
	id        string // this process's in the store
	started   time.Time
	stop      context.CancelFunc
	running   sync.WaitGroup  // the loop
	callbacks taskgroup.Group // the functions that OnRevoke registered, and those of holders
	wakeup    chan struct{}   // wakes the loop: there is something to do
	work      work            // of the loop's goroutine alone

	mu sync.Mutex
	// INVARIANT: holders counts as in use the grants whose release was not called, which
	// is at least the connections that exist. A grant needs fewer than capacity.
	holders     fifo.Shared[*lease.Holder]
	state       state
	allReleased chan struct{} // closed when closed && inUse == 0
	closed      bool
	counts      lease.Stats // the counters only
	revokes     subscribers
	keptConns   int // connections that holders need, as they have answered; 0: not known
	connsBefore int // connections before what may be an outage
}

// New joins the fleet that shares cfg.Budget. It makes what is missing of the
// budget in the store and takes no lease yet. When the store does not answer
// New succeeds all the same, cfg.Fallback decides, and joining goes on in the
// background; a wrong setting or a missing permission is a *ConfigError.
// ctx bounds New alone. Close ends the goroutines.
func New(ctx context.Context, store Store, cfg Config) (*Leases, error) {
	if store == nil {
		return nil, errors.New("lease: the store is nil")
	}
	return open(ctx, store, cfg, processClock())
}

func open(ctx context.Context, store Store, cfg Config, clock func() instant) (*Leases, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Leases{
		cfg: cfg, store: newMeter(store, cfg.RequestTimeout), clock: clock,
		id: newID(), started: time.Now(),
		wakeup: make(chan struct{}, 1), allReleased: make(chan struct{}),
		work:    work{pending: map[int]*unanswered{}, suspects: map[int]*suspicion{}},
		revokes: subscribers{},
	}
	var err error
	for tries := 0; tries == 0 || tries < 3 && err != nil && !isPermanent(err); tries++ {
		err = l.join(ctx)
	}
	if isPermanent(err) {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, errjoin.Join(ctxerr.Of(ctx), err)
	}
	if err != nil {
		l.updateState(func() { l.state.degraded, l.state.cause = true, err })
	}
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	l.running.Go(func() { l.loop(own) })
	return l, nil
}

// Acquire is as lease.Leases says.
func (l *Leases) Acquire(ctx context.Context) (func(), error) {
	ended, holder := ctx.Err() != nil, lease.HolderOf(ctx)
	var ticket *fifo.Ticket
	var refusal error
	l.updateState(func() {
		switch {
		case l.closed:
			refusal = l.fail(lease.ErrClosed, nil)
		case ended:
			refusal = l.fail(lease.ErrLimit, ctxerr.Of(ctx))
		default:
			ticket = l.holders.Join(holder) // answered by updateState if there is room
		}
		if refusal != nil {
			l.counts.Denied++
		}
	})
	if refusal != nil {
		return nil, refusal
	}
	wake(l.wakeup)
	select {
	case err := <-ticket.Answered():
		if err != nil {
			return nil, err
		}
		return sync.OnceFunc(func() { l.release(holder) }), nil
	case <-ctx.Done():
		return nil, l.endWait(ctx, holder, ticket)
	}
}

// endWait ends a wait whose ctx ended. A lease granted meanwhile goes back.
func (l *Leases) endWait(ctx context.Context, holder *lease.Holder, ticket *fifo.Ticket) error {
	ended := ctxerr.Of(ctx)
	var left bool
	var err error
	l.updateState(func() {
		left = l.holders.Leave(holder, ticket)
		l.counts.Denied++
		err = l.fail(lease.ErrLimit, errjoin.Join(ended, l.state.cause))
	})
	if !left && <-ticket.Answered() == nil {
		l.release(holder)
	}
	return err
}

func (l *Leases) release(holder *lease.Holder) {
	l.updateState(func() {
		l.holders.Release(holder)
		if l.closed && l.holders.InUse() == 0 {
			close(l.allReleased)
		}
	})
	wake(l.wakeup)
}

// updateState is the only way to change the state under mu: it runs f, then serves the
// waiters as far as the new state allows.
func (l *Leases) updateState(f func()) {
	now := l.clock()
	l.mu.Lock()
	f()
	s := l.grantWaiters(now)
	cause := l.state.cause
	l.mu.Unlock()
	if s.logFallback {
		l.cfg.Logger.Warn("leases cannot be renewed: the fallback decides",
			"budget", l.cfg.Budget, "fallback", l.cfg.Fallback.String(), "strict", l.cfg.Strict, "cause", cause)
	}
	for _, ticket := range s.granted {
		ticket.Answer(nil)
	}
	for _, ticket := range s.refused {
		ticket.Answer(s.refusal)
	}
}

// grantResult is what became of waiters.
type grantResult struct {
	granted, refused []*fifo.Ticket
	refusal          error
	logFallback      bool // the Fallback decides from now on
}

// grantWaiters grants what there is room for. When nothing can be taken because the
// store does not answer the Fallback decides about the rest; when the validity
// lapsed because the process stood still, the rest waits for the next answer.
//
// INVARIANT: what the Fallback decides is told before it takes effect.
func (l *Leases) grantWaiters(now instant) (s grantResult) {
	usable := l.usable(now)
	capacity := l.capacity(now)
	fallbacks := l.counts.Fallbacks
	l.state.lost = l.state.lost && l.holders.InUse() > l.state.held()-l.state.overLimit()
	for l.holders.InUse() < capacity && l.holders.Waiting() > 0 {
		s.granted = append(s.granted, l.holders.Next())
		l.counts.Granted++
		if !usable && l.holders.InUse() > l.state.held() {
			l.counts.Fallbacks++
		}
	}
	if !l.outageSuspected(now) {
		l.connsBefore = l.holders.InUse()
	}
	if !usable && l.state.cause != nil && l.holders.Waiting() > 0 {
		s.refusal = l.fail(lease.ErrUnavailable, l.state.cause)
		s.refused = l.holders.All()
		l.counts.Denied += uint64(len(s.refused))
	}
	if (s.refusal != nil || l.counts.Fallbacks > fallbacks) && !l.state.degraded {
		l.state.degraded, l.state.cause = true, cmp.Or(l.state.cause, errLapsed)
	}
	s.logFallback = l.state.degraded && !l.state.degradedLogged
	l.state.degradedLogged = l.state.degraded
	return s
}

// valid reports whether a connection whose open starts now exists before the
// leases' validity ends.
func (l *Leases) valid(now instant) bool {
	return now.add(l.cfg.OpenTimeout).before(l.state.validUntil)
}

// usable reports whether more leases can be taken, as far as is known.
func (l *Leases) usable(now instant) bool {
	return l.valid(now) && now.add(l.cfg.OpenTimeout).before(l.state.usableUntil)
}

// capacity is how many connections this process may have. Leases whose
// validity lapsed still cover what they covered unless the mode is strict: the
// count of connections does not rise, and whether they went to others is only
// known when the store answers. What is above a limit that was lowered is not
// granted again, and while the fleet is short nobody is granted more than the
// level.
func (l *Leases) capacity(now instant) int {
	free := l.state.held() - l.state.returning() - l.state.overLimit()
	if !l.valid(now) {
		return l.lapsedCapacity(free, now)
	}
	if l.state.isShort(now) {
		free = min(free, l.state.terms.level)
	}
	free = l.capByOutage(free, now)
	if !l.usable(now) {
		free = max(free, l.cfg.Fallback.Allows())
	}
	return free
}

func (l *Leases) lapsedCapacity(held int, now instant) int {
	if l.cfg.Strict || l.state.cause == nil { // it stood still: the next answer tells
		return 0
	}
	return max(l.capByOutage(held, now), l.cfg.Fallback.Allows())
}

// Stats is as lease.Leases says.
func (l *Leases) Stats() lease.Stats {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.counts
	s.Limit, s.Used, s.Owners = l.state.terms.limit, l.state.used(), l.state.owners
	held := l.state.held()
	s.InUse, s.Waiting = l.holders.InUse(), l.holders.Waiting()
	s.Spare, s.Unbacked = max(held-l.holders.InUse(), 0), max(l.holders.InUse()-held, 0)
	if l.state.isShort(now) {
		s.Share = l.state.terms.level
	}
	s.Degraded = l.state.degraded
	if s.Degraded {
		s.Cause = l.state.cause
	}
	s.Traffic = l.store.traffic()
	return s
}

// fail is called under mu.
func (l *Leases) fail(reason, cause error) error {
	e := &lease.Error{
		Budget: l.cfg.Budget, Reason: reason, Used: l.state.used(), Limit: cmp.Or(l.state.terms.limit, l.cfg.Limit),
		Held: l.state.held(), Err: cause,
	}
	if l.state.terms.level > 0 {
		e.Share = l.state.terms.level
	}
	return e
}

var (
	_ lease.Leases  = (*Leases)(nil)
	_ lease.Revoker = (*Leases)(nil)
)
