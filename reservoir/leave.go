package reservoir

import (
	"sync/atomic"
	"time"
)

// Leavers are the callers who have given up and are still in the queue. A caller
// who gives up does not wait for the lock: it returns at once, and the first of
// those who leave together takes all of them out, a batch under each hold of the
// lock. So others who need the lock do not queue behind each of them.
type leavers[C any] struct {
	latest  atomic.Pointer[waiter[C]] // chained by nextLeave
	inQueue atomic.Int64

	// What the callers have counted themselves, without the lock.
	timeouts, canceled atomic.Uint64

	// state is shared by those who leave together.
	state atomic.Pointer[description]
}

// A description is what the reservoir was like at a time.
type description struct {
	ExhaustedError
	at int64
}

// recently is how old a description may be that is given to a caller who leaves
// while others are being taken out of the queue.
const recently = int64(100 * time.Millisecond)

// leave ends the wait of a caller whose ctx has ended. It returns false when the
// wait's result was decided before: then the caller has to take that.
func (r *Reservoir[C]) leave(w *waiter[C], how ending) bool {
	// Counted before it has left: whoever takes it out of the queue at once
	// counts it back.
	r.leavers.inQueue.Add(1)
	if !w.fate.CompareAndSwap(waits, left) {
		r.leavers.inQueue.Add(-1)
		r.countedTooFew()
		return false
	}
	w.late = how == timedOut
	w.asks = w.late && !r.describedAt(r.clock.exact()-recently)
	next := r.leavers.join(w)
	switch {
	case next != nil && w.asks:
		<-w.ready
	case next == nil && !r.removeLeavers(w, nil):
		r.removeOthers(w)
	}
	return true
}

// join makes w the head of the list of leavers, and returns the one before.
func (l *leavers[C]) join(w *waiter[C]) *waiter[C] {
	for {
		w.nextLeave = l.latest.Load()
		if next := w.nextLeave; l.latest.CompareAndSwap(next, w) {
			return next
		}
	}
}

// drop ends the wait of a caller who takes no result.
func (r *Reservoir[C]) drop(w *waiter[C], woken bool) {
	if !woken {
		if r.leave(w, canceled) {
			r.leavers.canceled.Add(1)
			return
		}
		<-w.ready
	}
	_ = w.loan.Release() // the zero Loan's, and one that was given on, are no concern
}

// countedTooFew looks again at what was decided while a caller who was given a
// result counted as one who had left.
func (r *Reservoir[C]) countedTooFew() {
	var fx effects[C]
	r.mu.Lock()
	if r.cfg.OnExhausted == FailFast {
		r.reconcile(&fx)
	}
	r.unlock(&fx)
}

// removeOthers takes those out of the queue who have left since the first did,
// on a goroutine of the reservoir: they are not that caller's to wait for. Once
// Close has begun they are few, and no goroutine is begun any more.
func (r *Reservoir[C]) removeOthers(first *waiter[C]) {
	remove := func() {
		for seen := first; ; {
			head := r.leavers.latest.Load()
			if r.removeLeavers(head, seen) {
				return
			}
			seen = head
		}
	}
	r.mu.Lock()
	closed := r.mu.closed
	if !closed {
		r.mu.tasks++
	}
	r.mu.Unlock()
	if closed {
		remove()
		return
	}
	go func() {
		defer r.taskDone()
		remove()
	}()
}

// removeLeavers takes those out of the queue who have left, from head up to
// seen. It returns false when others have joined them meanwhile. The list keeps
// its head as long as somebody is at work on it.
func (r *Reservoir[C]) removeLeavers(head, seen *waiter[C]) bool {
	for w := head; w != seen; {
		var fx effects[C]
		described := false
		r.mu.Lock()
		for n := 0; n < batch && w != seen; n++ {
			if w.link.linked() {
				r.decide(w)
			}
			described = described || w.late
			if w.asks {
				fx.notify(w)
			}
			w, w.nextLeave = w.nextLeave, nil // or none would be freed while others join
		}
		if described {
			r.describe()
		}
		r.reconcile(&fx)
		r.unlock(&fx)
	}
	return r.leavers.latest.CompareAndSwap(head, nil)
}

// describe takes down what the reservoir is like, for those who leave. What it needs
// of the stack is its own: within the frame of removeLeavers, which runs on a caller's
// goroutine, it would make the stack of each of them grow. The caller holds mu.
//
//go:noinline
func (r *Reservoir[C]) describe() {
	d := &description{at: r.clock.now()}
	r.describeIn(&d.ExhaustedError)
	r.leavers.state.Store(d)
}

// gaveUp ends the wait of a caller who has left, since its ctx has ended.
func (r *Reservoir[C]) gaveUp(err error, how ending, since int64) (Loan[C], error) {
	waited := time.Duration(r.clock.exact() - since)
	if how == timedOut {
		r.leavers.timeouts.Add(1)
		err = ended(err, &r.leavers.state.Load().ExhaustedError, waited)
	} else {
		r.leavers.canceled.Add(1)
		err = &waitEndedError{waited, err}
	}
	return r.endWait(Loan[C]{}, waited, err)
}

// describedAt says whether there is a description from that time or later.
func (r *Reservoir[C]) describedAt(from int64) bool {
	d := r.leavers.state.Load()
	return d != nil && d.at >= from
}

// waiting counts the callers in the queue who have not left. The caller holds mu.
func (r *Reservoir[C]) waiting() int {
	return max(0, r.mu.waiters.n-int(r.leavers.inQueue.Load()))
}

// tooLate passes a loan that was given to a caller who had just left on to the
// next one, and counts the caller.
func (r *Reservoir[C]) tooLate(loan Loan[C], how ending) *ExhaustedError {
	var fx effects[C]
	r.mu.Lock()
	if r.out(loan) { // else Close was faster
		loan.entry.idleSince = r.clock.now()
		r.dispatch(loan.entry, &fx)
		r.reconcile(&fx)
	}
	r.countEnding(how)
	state := r.exhausted()
	r.unlock(&fx)
	return state
}
