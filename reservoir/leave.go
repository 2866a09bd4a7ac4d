package reservoir

import (
	"sync/atomic"
	"time"
)

// leavers are the callers who have given up and are still in the queue. A caller who
// gives up does not wait for the lock: it returns at once, and the first of those who
// leave together takes all of them out, a batch under each hold of the lock. So others
// who need the lock do not queue behind each of them.
type leavers[C any] struct {
	head    atomic.Pointer[waiter[C]] // chained by nextLeave
	inQueue atomic.Int64

	// What the callers have counted themselves, without the lock.
	timeouts, canceled atomic.Uint64

	// latestSnapshot is shared by the callers who leave together. One of them at a time waits for the lock to take it:
	// whoever holds looking.
	latestSnapshot atomic.Pointer[snapshot]
	looking        mutex
}

// A snapshot is what the reservoir was like at a time, or shortly after.
type snapshot struct {
	ExhaustedError
	takenAt int64
}

// How old a snapshot may be that is given to a caller who leaves.
const (
	snapshotLife   = int64(time.Millisecond)
	maxSnapshotAge = int64(100 * time.Millisecond) // while another holds the lock
)

// leaveQueue ends the wait of a caller whose ctx has ended. It returns false when the
// wait's result was decided before: then the caller has to take that.
func (r *Reservoir[C]) leaveQueue(w *waiter[C]) bool {
	// Counted before it has left: whoever takes it out of the queue at once
	// counts it back.
	r.leavers.inQueue.Add(1)
	if !w.status.CompareAndSwap(waiterQueued, waiterLeft) {
		r.leavers.inQueue.Add(-1)
		r.recheckAfterMiscount()
		return false
	}
	if r.leavers.push(w) && !r.removeLeavers(w, nil) {
		r.removeLaterLeavers(w)
	}
	return true
}

// push makes w the head of the list of leavers, and says whether it was empty.
func (l *leavers[C]) push(w *waiter[C]) bool {
	for {
		w.nextLeave = l.head.Load()
		if next := w.nextLeave; l.head.CompareAndSwap(next, w) {
			return next == nil
		}
	}
}

// dropWaiter ends the wait of a caller who takes no result.
func (r *Reservoir[C]) dropWaiter(w *waiter[C], woken bool) {
	defer func() { // Reset, too, may end the goroutine
		if !w.endTold {
			_, _ = r.endWait(w, Loan[C]{}, time.Duration(r.clock.exact()-w.since), errCallerGone)
		}
	}()
	if !woken {
		if r.leaveQueue(w) {
			r.leavers.canceled.Add(1)
			return
		}
		<-w.ready
	}
	if !w.endTold && (w.err == nil || w.err == errLeft) { //nolint:errorlint // as fail was given it
		_ = r.passOnLoan(w.loan, canceled)
		return
	}
	_ = w.loan.Release() // an error means that the loan is zero or was passed on; nothing is left to release
}

// recheckAfterMiscount reconciles again: while this caller counted as one who had left,
// FailFast may have failed too few callers.
func (r *Reservoir[C]) recheckAfterMiscount() {
	var fx effects[C]
	r.mu.Lock()
	if r.cfg.OnExhausted == FailFast {
		r.reconcile(&fx)
	}
	r.unlock(&fx)
}

// removeLaterLeavers takes those out of the queue who have left since the first did,
// on a goroutine of the reservoir: they are not that caller's to wait for. Once
// Close has begun they are few, and no goroutine is begun any more.
func (r *Reservoir[C]) removeLaterLeavers(first *waiter[C]) {
	remove := func() {
		for seen := first; ; {
			head := r.leavers.head.Load()
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
		r.mu.Lock()
		for n := 0; n < batch && w != seen; n++ {
			if w.link.linked() {
				r.decide(w)
			}
			w, w.nextLeave = w.nextLeave, nil // or none would be freed while others join
		}
		r.reconcile(&fx)
		r.unlock(&fx)
	}
	return r.leavers.head.CompareAndSwap(head, nil)
}

// endWaitOfLeaver ends the wait of a caller who has left, since its ctx has ended.
func (r *Reservoir[C]) endWaitOfLeaver(w *waiter[C], err error, how waitOutcome) (Loan[C], error) {
	now := r.clock.exact()
	waited := time.Duration(now - w.since)
	if how == timedOut {
		r.leavers.timeouts.Add(1)
		err = newExhaustedError(err, &r.snapshotAt(now).ExhaustedError, waited)
	} else {
		r.leavers.canceled.Add(1)
		err = &waitEndedError{waited, err}
	}
	return r.endWait(w, Loan[C]{}, waited, err)
}

// snapshotAt is what the reservoir is like now, as far as a caller who leaves has to know.
func (r *Reservoir[C]) snapshotAt(now int64) *snapshot {
	s := r.leavers.latestSnapshot.Load()
	switch {
	case s.isSince(now - snapshotLife):
		return s
	case r.mu.TryLock():
	case s.isSince(now - maxSnapshotAge):
		return s
	default:
		r.leavers.looking.Lock()
		defer r.leavers.looking.Unlock()
		if s = r.leavers.latestSnapshot.Load(); s.isSince(now - maxSnapshotAge) { // of the one before
			return s
		}
		r.mu.Lock()
	}
	s = &snapshot{takenAt: now}
	r.fillState(&s.ExhaustedError)
	r.leavers.latestSnapshot.Store(s)
	r.mu.Unlock()
	return s
}

// isSince says whether there is a snapshot, from that time or later.
func (s *snapshot) isSince(from int64) bool { return s != nil && s.takenAt >= from }

// waiting counts the callers in the queue who have not left. The caller holds mu.
func (r *Reservoir[C]) waiting() int {
	return max(0, r.mu.waiters.n-int(r.leavers.inQueue.Load()))
}

// passOnLoan passes a loan that was given to a caller who had just left on to the
// next one, and counts the caller.
func (r *Reservoir[C]) passOnLoan(loan Loan[C], how waitOutcome) *ExhaustedError {
	var fx effects[C]
	r.mu.Lock()
	if r.isOut(loan) { // else Close was faster
		loan.entry.idleSince = r.clock.now()
		r.dispatch(loan.entry, &fx)
		r.reconcile(&fx)
	}
	r.countOutcome(how)
	state := r.exhausted()
	r.unlock(&fx)
	return state
}
