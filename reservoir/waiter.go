package reservoir

import "context"

// A waiter is a caller in the queue. Whoever takes it out of the queue decides
// its fate, and only then wakes it, once.
type waiter[C any] struct {
	link  link[*waiter[C]]
	chain *waiter[C] // in an effect, or in the free list

	ready chan struct{}   // of capacity 1: waking never blocks
	ctx   context.Context //nolint:containedctx // the caller's, for as long as it waits in Acquire

	number   uint64 // in the order of arrival
	since    int64
	deadline int64

	loan Loan[C] // the fate: a loan, or err
	err  error
}

// maxFreeWaiters bounds the waiters kept for reuse. They are kept here and not
// in a sync.Pool because their channels belong to the reservoir's testing/synctest
// bubble when it has one.
const maxFreeWaiters = 1024

// enqueue makes ctx's caller the last in the queue. The caller holds mu.
//
// INVARIANT: deadlines follow the order of the queue, since all waiters have
// the same timeout; the sweeper looks at the first only.
func (r *Reservoir[C]) enqueue(ctx context.Context) *waiter[C] {
	w := r.mu.free
	if w == nil {
		w = &waiter[C]{ready: make(chan struct{}, 1)}
		w.link.self = w
	} else {
		r.mu.free, w.chain = w.chain, nil
		r.mu.freeWaiters--
	}
	r.mu.lastWaiter++
	w.ctx, w.number = ctx, r.mu.lastWaiter
	w.since, w.deadline = r.clock.read(), never
	if r.cfg.AcquireTimeout > 0 {
		w.deadline = w.since + int64(r.cfg.AcquireTimeout)
		r.arm(w.deadline)
	}
	r.mu.waiters.pushBack(&w.link)
	return w
}

// recycle ends a waiter. The caller holds mu, was woken or has left the queue.
func (r *Reservoir[C]) recycle(w *waiter[C]) {
	w.ctx, w.err, w.loan = nil, nil, Loan[C]{}
	if r.mu.freeWaiters < maxFreeWaiters && !r.mu.closed {
		w.chain, r.mu.free = r.mu.free, w
		r.mu.freeWaiters++
	}
}

// fail takes a waiter out of the queue with an error. The caller holds mu.
func (r *Reservoir[C]) fail(w *waiter[C], err error, fx *effects[C]) {
	r.mu.waiters.remove(&w.link)
	w.err = err
	fx.notify(w)
}

// handOff lends an entry to the first waiter whose ctx lives; those before it
// whose ctx has ended are told so. It returns false when there is none. The
// caller holds mu.
func (r *Reservoir[C]) handOff(e *entry[C], now int64, fx *effects[C]) bool {
	for w := r.mu.waiters.front(); w != nil; w = r.mu.waiters.front() {
		if err := w.ctx.Err(); err != nil {
			r.fail(w, err, fx)
			continue
		}
		r.mu.waiters.remove(&w.link)
		w.loan = r.lend(e, now)
		r.mu.stats.Handoffs++
		fx.notify(w)
		return true
	}
	return false
}

// expireWaiters fails those whose AcquireTimeout is over and returns the next
// deadline. The caller holds mu.
func (r *Reservoir[C]) expireWaiters(now int64, fx *effects[C]) int64 {
	for w := r.mu.waiters.front(); w != nil; w = r.mu.waiters.front() {
		if w.deadline > now {
			return w.deadline
		}
		r.fail(w, errAcquireTimeout, fx)
	}
	return never
}
