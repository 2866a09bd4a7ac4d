package reservoir

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/ctxerr"
)

// The fates of a waiter.
const (
	waiterQueued  uint32 = iota
	waiterDecided        // its result is on its way
	waiterLeft           // the caller has gone and takes no result
)

// A waiter is a caller in the queue. Whoever decides its result takes it out of
// the queue, and only then wakes it, once.
//
// INVARIANT: a waiter in the queue waits or has left, and who has left is in the
// list of leavers until it is taken out of the queue.
type waiter[C any] struct {
	// What a caller touches who leaves, in one line of the processor's cache: when many leave, none of
	// it is in the cache any more.
	link      link[*waiter[C]] // in the queue
	nextLeave *waiter[C]       // in leavers
	ready     chan struct{}    // of capacity 1: waking never blocks
	done      <-chan struct{}  // the caller's ctx's
	since     int64
	// status says who decides how the wait ends: whoever moves it away from
	// waiterQueued, with the lock held to serve or fail the caller, or without it the
	// caller, who leaves.
	status  atomic.Uint32
	timed   bool // the caller's ctx has a deadline
	endTold bool // the end of the wait was told; the caller's own

	untimed    link[*waiter[C]] // in the list of those whose ctx has no deadline
	nextEffect *waiter[C]       // in an effect
	number     uint64           // in the order of arrival

	loan      Loan[C] // the result: a loan, or err
	err       error
	exhausted *ExhaustedError // of the reservoir, when err was decided
}

// newWaiter is a caller who is not in the queue yet. It calls methods of ctx, so
// the caller must not hold mu.
func (r *Reservoir[C]) newWaiter(ctx context.Context) *waiter[C] {
	done := ctx.Done()
	_, timed := ctx.Deadline()
	w, _ := r.freeWaiters.Get().(*waiter[C])
	if w == nil {
		w = &waiter[C]{ready: make(chan struct{}, 1)}
		w.link.self, w.untimed.self = w, w
	}
	w.status.Store(waiterQueued)
	w.done, w.timed = done, timed
	return w
}

// enqueue makes a caller the last in the queue. The caller holds mu.
//
// INVARIANT: since follows the order of the queue. All waiters have the same
// AcquireTimeout, so the first in the queue has the earliest deadline.
func (r *Reservoir[C]) enqueue(w *waiter[C]) {
	r.mu.lastWaiter++
	w.number, w.since = r.mu.lastWaiter, r.clock.read()
	r.mu.waiters.pushBack(&w.link)
	if !w.timed {
		r.mu.untimed.pushBack(&w.untimed)
	}
	r.sweepBy(r.firstDeadline())
}

// recycle keeps a waiter for reuse. Its caller did not wait, or was woken, and did
// not leave: one that has left may still be in the list of leavers.
func (r *Reservoir[C]) recycle(w *waiter[C]) {
	w.done, w.err, w.exhausted, w.loan, w.endTold = nil, nil, nil, Loan[C]{}, false
	r.freeWaiters.Put(w)
}

// decide takes a waiter out of the queue and says whether its caller still waits:
// then the result is the calling section's to set. The caller holds mu.
func (r *Reservoir[C]) decide(w *waiter[C]) bool {
	r.dequeue(w)
	if w.status.CompareAndSwap(waiterQueued, waiterDecided) {
		return true
	}
	r.leavers.inQueue.Add(-1)
	r.abandon()
	return false
}

// dequeue takes a waiter out of the queue. The caller holds mu.
func (r *Reservoir[C]) dequeue(w *waiter[C]) {
	r.mu.waiters.remove(&w.link)
	if w.untimed.linked() {
		r.mu.untimed.remove(&w.untimed)
	}
}

// firstDeadline is when the AcquireTimeout of the first waiter is over. The
// caller holds mu.
func (r *Reservoir[C]) firstDeadline() int64 {
	if w := r.mu.waiters.front(); w != nil {
		return addSaturating(w.since, int64(r.cfg.AcquireTimeout))
	}
	return never
}

// A waitOutcome is how a wait without a connection is counted.
type waitOutcome uint8

const (
	timedOut waitOutcome = iota
	canceled
	failed    // by an open, FailWaiters or Close
	rejected  // by FailFast
	uncounted // the waiter counts itself
)

// contextEnd is why ctx has ended, with its cause, once its Done is closed, and how a wait that this ends is counted. The
// cause does not count there: it may be what another call has failed with, of whatever kind.
func contextEnd(ctx context.Context) (how waitOutcome, err error) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		how = timedOut
	} else {
		how = canceled
	}
	return how, contextError(ctx)
}

// countOutcome counts a wait without a connection. The caller holds mu.
func (r *Reservoir[C]) countOutcome(how waitOutcome) {
	switch s := &r.mu.stats; how {
	case timedOut:
		s.Timeouts++
	case canceled:
		s.Canceled++
	case failed:
		s.Failed++
	case rejected:
		s.Rejected++
	case uncounted:
	}
}

// A handOffResult is how handOff ends.
type handOffResult uint8

const (
	handedOff handOffResult = iota
	noWaiter                // the queue is empty
	undecided               // many have left; whoever takes those out of the queue goes on
)

// handOff lends an entry to the first waiter who has not left and whose ctx
// lives; those before it whose ctx has ended are told so. The caller holds mu.
func (r *Reservoir[C]) handOff(e *entry[C], now int64, fx *effects[C]) handOffResult {
	var state *ExhaustedError
	for n := 0; ; n++ {
		w := r.mu.waiters.front()
		switch {
		case w == nil:
			return noWaiter
		case n >= batch && w.status.Load() == waiterLeft:
			return undecided
		case n < batch && w.contextEnded():
			r.fail(w, errLeft, uncounted, &state, fx)
		case r.decide(w): // after many, also one whose ctx has ended: that caller gives it back
			w.loan = r.lend(e, now)
			fx.wakeWaiter(w)
			return handedOff
		}
	}
}

// contextEnded says whether the caller's ctx has ended. It looks at the channel,
// since a ctx of the caller's own make may do anything in Err.
func (w *waiter[C]) contextEnded() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// exhausted describes the present state. The caller holds mu.
func (r *Reservoir[C]) exhausted() *ExhaustedError {
	e := new(ExhaustedError)
	r.fillState(e)
	return e
}

// fillState sets the fields of e that tell the present state. The caller holds mu.
func (r *Reservoir[C]) fillState(e *ExhaustedError) {
	e.Total, e.InUse, e.Idle, e.Opening = len(r.mu.all), r.inUse(), r.mu.count[idle], r.mu.count[opening]
	e.Waiting, e.MaxSize, e.LastOpen = r.waiting(), r.mu.maxSize, r.mu.lastOpenErr
}

// newExhaustedError is the error of a wait that state describes.
func newExhaustedError(err error, state *ExhaustedError, waited time.Duration) error {
	e := *state
	e.Waited, e.Cause = waited, err
	return &e
}

// await waits for w's result. Whatever ends the caller's goroutine meanwhile, a
// hook or a method of its ctx, leaves neither a place in the queue nor a loan
// behind.
func (r *Reservoir[C]) await(ctx context.Context, w *waiter[C]) (Loan[C], error) {
	woken, ended := false, false
	defer func() {
		switch {
		case !ended:
			r.dropWaiter(w, woken)
		case woken:
			r.recycle(w)
		}
	}()
	if start := r.cfg.Hooks.WaitStart; start != nil {
		r.callHookInline(start)
	}
	if w.done == nil {
		<-w.ready // a select of one costs more
	} else {
		select {
		case <-w.ready:
		case <-w.done:
			how, err := contextEnd(ctx) // before it leaves: from then on nothing of the caller's is called
			if r.leaveQueue(w) {
				ended = true
				return r.endWaitOfLeaver(w, err, how)
			}
			<-w.ready
		}
	}
	woken = true
	loan, err := r.takeResult(ctx, w)
	ended = true
	return loan, err
}

// contextError returns why ctx has ended, with its cause, once its Done is closed.
func contextError(ctx context.Context) error {
	if err := ctxerr.Of(ctx); err != nil {
		return err
	}
	return context.Canceled // a ctx of the caller's own make that does not say
}

// takeResult ends a wait whose result was decided.
func (r *Reservoir[C]) takeResult(ctx context.Context, w *waiter[C]) (Loan[C], error) {
	waited := time.Duration(r.clock.exact() - w.since)
	loan, err, state := w.loan, w.err, w.exhausted
	how := failed
	switch {
	case err == nil && ctx.Err() != nil, err == errLeft: //nolint:errorlint // as fail was given it
		how, err = contextEnd(ctx)
		state = r.passOnLoan(loan, how)
	case err == errAcquireTimeout: //nolint:errorlint // of this reservoir: an open may have failed with another's
		how = timedOut
	}
	if err == nil {
		r.handoffs.Add(1)
	} else {
		err = waitError(err, how, state, waited)
	}
	return r.endWait(w, loan, waited, err)
}

// endWait ends every wait, once, on the caller's goroutine.
func (r *Reservoir[C]) endWait(w *waiter[C], loan Loan[C], waited time.Duration, err error) (Loan[C], error) {
	w.endTold = true
	r.waitTime.Add(int64(waited))
	if end := r.cfg.Hooks.WaitEnd; end != nil {
		r.callHookInline(func() { end(waited, err) })
	}
	if err != nil {
		return Loan[C]{}, err
	}
	return r.reportAcquired(loan, waited), nil
}
