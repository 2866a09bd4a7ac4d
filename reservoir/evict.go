package reservoir

import (
	"time"
)

// CloseIdle closes up to n idle connections that were not used for at least unused,
// coldest first, without waiting, and returns how many. Unlike EvictIdle it goes
// below MinIdle; what is missing then is opened again as soon as Admit allows.
func (r *Reservoir[C]) CloseIdle(n int, unused time.Duration) int {
	yielded := 0
	r.retireIdle(OverCapacity, func(e *entry[C], now int64) bool {
		if yielded >= n || now-e.idleSince < int64(unused) {
			return false
		}
		yielded++
		return true
	})
	return yielded
}

// EvictIdle closes the idle connections above MinIdle, coldest first, without
// waiting, and returns how many.
func (r *Reservoir[C]) EvictIdle() int {
	evicted := 0
	r.retireIdle(IdleTimeout, func(*entry[C], int64) bool {
		if r.mu.idle.n-r.mu.outdated <= r.mu.minIdle {
			return false
		}
		evicted++
		return true
	})
	return evicted
}

// retireIdle closes idle connections, coldest first, a batch under each hold of
// the lock, for as long as more says so.
func (r *Reservoir[C]) retireIdle(reason Reason, more func(e *entry[C], now int64) bool) {
	for again := true; again; {
		var fx effects[C]
		r.mu.Lock()
		now := r.clock.read()
		for n := 0; n < batch; n++ {
			e := r.oldestIdle()
			if again = e != nil && more(e, now); !again {
				break
			}
			r.retire(e, reason, nil, &fx)
		}
		r.reconcile(&fx)
		r.unlock(&fx)
	}
}

// Reset replaces every connection, without waiting: idle ones are closed now,
// those on loan or being opened as soon as they come back.
func (r *Reservoir[C]) Reset() { r.replaceAll() }

// Recall is Reset where the permissions of Admit are taken back. It returns what closes
// those of the connections that are still on loan, under their borrowers, whose Release
// gives ErrReleased then, tells how many, and ends the checks and resets of others. Those
// that were opened since are not touched.
func (r *Reservoir[C]) Recall() (force func(cause error) int) {
	last := r.replaceAll()
	return func(cause error) int { return r.reclaimLoans(last, Outdated, cause) }
}

// replaceAll is Reset, and returns the latest generation that is replaced.
func (r *Reservoir[C]) replaceAll() (last uint64) {
	r.mu.Lock()
	last = r.mu.generation
	r.mu.generation++
	r.mu.outdated = r.mu.idle.n
	r.mu.failures, r.mu.retryAt, r.mu.serverFails = 0, 0, false
	r.mu.Unlock()
	for again := true; again; {
		var fx effects[C]
		r.mu.Lock()
		r.retireOutdated(Outdated, &fx)
		again = r.mu.outdated > 0
		r.reconcile(&fx)
		r.unlock(&fx)
	}
	return last
}

// retireOutdated closes some of the idle connections of an older generation,
// which are at the back. One in a check leaves the list, and goes when that is
// over. The caller holds mu.
func (r *Reservoir[C]) retireOutdated(reason Reason, fx *effects[C]) {
	for n := 0; n < batch; n++ {
		e := r.mu.idle.back()
		switch {
		case e == nil || e.generation == r.mu.generation:
			return
		case e.state == idle:
			r.retire(e, reason, nil, fx)
		default:
			r.leaveIdle(e)
		}
	}
}
