package registry

import (
	"fmt"
	"slices"
	"time"

	"github.com/flightpool/flightpool/internal/invariant"
)

// errTaken is for callers under FailFast.
var errTaken = fmt.Errorf("%w: the server's connections are taken and the policy is FailFast", ErrExhausted)

// step is what is to be done to reservoirs next.
type step struct {
	restore []*member // let grow again
	sizes   []int     // to these
	refuse  []*member // fail those who wait

	from    *member // take one idle connection of his
	unused  time.Duration
	loan    bool // if he has none, one that is in use, when it comes back
	size    int
	replace *member // else all of this one's
}

// next plans the next step and counts on its success. The caller holds mu.
func (s *share) next() step {
	poorest, wanted := s.needy()
	// INVARIANT: what is asked for is not taken back while there is a reason to
	// ask for it again: else a pass of settle would not end.
	st := s.relax(poorest == nil && s.held <= s.cap+s.overflow)
	st.refuse = s.stranded()
	coming := s.coming()
	excess := s.held - coming - s.cap
	switch {
	case excess > s.overflow: // the bound was lowered
		st.take(s.victim(nil, 1), 0, true)
	case excess > 0 && s.waiters() == 0: // nobody needs the overflow
		st.take(s.victim(nil, 1), 0, false)
	case poorest == nil:
	case s.starves(poorest):
		s.turned = time.Now()
		if st.replace = s.longest(poorest.m); st.replace != nil {
			st.replace.since = s.turned
		}
	case wanted <= coming:
	default:
		// What is coming already is taken to be for the poorest.
		if v := s.victim(poorest.m, poorest.m.held+coming+2); v != nil {
			st.take(v, 0, true)
		} else {
			st.take(s.victim(poorest.m, s.floor()+1), coldAfter, false)
		}
	}
	return st
}

// take plans to take a connection of v's. The caller holds mu.
func (st *step) take(v *member, unused time.Duration, loan bool) {
	if v == nil {
		return
	}
	v.yielding++
	v.asked = time.Now()
	v.tried = v.share.pass
	st.from, st.unused, st.size = v, unused, v.held-v.yielding
	if st.loan = loan; loan {
		v.asks++
		v.limited = v.limited || st.size > 0
	}
}

// starves says whether a caller who has no connection has waited for a turn while
// nobody has two. The caller holds mu.
func (s *share) starves(t *ticket) bool {
	if t.m.held > 0 || time.Since(t.since) < turn || time.Since(s.turned) < turn {
		return false
	}
	return !slices.ContainsFunc(s.members, func(v *member) bool { return v.held > 1 })
}

// stranded finds, under FailFast, those whose callers wait although nothing is
// being opened for them and nothing can be: several at a time may have found the
// same room. The caller holds mu.
func (s *share) stranded() (found []*member) {
	if !s.failFast || s.shut {
		return nil
	}
	for _, m := range s.members {
		if m.waiting.Load() > 0 && m.opening == 0 && !s.fits(m, true) {
			found = append(found, m)
		}
	}
	return found
}

// coming is how many slots are under way to become free. The caller holds mu.
func (s *share) coming() (n int) {
	for _, m := range s.members {
		n += m.yielding
	}
	return n
}

// victim finds the member but m who keeps most, and at least n, connections when
// what he gives up is gone, and was not tried in vain just now. The caller holds mu.
func (s *share) victim(m *member, n int) (found *member) {
	for _, v := range s.members {
		keeps := v.held - v.yielding
		if v != m && keeps >= max(n, 1) && v.tried != s.pass && (found == nil || keeps > found.held-found.yielding) {
			found = v
		}
	}
	return found
}

// waiters counts the callers in all queues. The caller holds mu.
func (s *share) waiters() (n int64) {
	for _, m := range s.members {
		n += m.waiting.Load()
	}
	return n
}

// relax lets those grow again who have given up what they were asked for, or did
// not for a while, or all of them when nobody needs it any more. The caller holds mu.
func (s *share) relax(all bool) (st step) {
	for _, m := range s.members {
		if all {
			invariant.Check(m.asks <= m.yielding, "%d loans are asked for, but %d connections in all", m.asks, m.yielding)
			m.yielding, m.asks = m.yielding-m.asks, 0
		}
		if time.Since(m.asked) >= patience {
			m.yielding, m.asks = 0, 0
		}
		if m.limited && m.yielding == 0 {
			m.limited = false
			st.restore, st.sizes = append(st.restore, m), append(st.sizes, m.size)
		}
	}
	return st
}

// longest finds the member but m whose latest grant is the oldest. The caller
// holds mu.
func (s *share) longest(m *member) (found *member) {
	for _, o := range s.members {
		if o != m && o.held > 0 && (found == nil || o.since.Before(found.since)) {
			found = o
		}
	}
	return found
}

// idle says that there is nothing to do.
func (st *step) idle() bool { return st.from == nil && st.replace == nil }

// run does a step, without the lock. closes: an idle connection is being closed;
// asked: one in use will be.
func (st *step) run() (closes, asked bool) {
	for i, m := range st.restore {
		m.pool.resize(st.sizes[i])
	}
	for _, m := range st.refuse {
		m.pool.failWaiters(errTaken)
	}
	switch {
	case st.from != nil && st.from.pool.yield(1, st.unused) > 0:
		return true, false
	case st.loan && st.size > 0:
		st.from.pool.resize(st.size)
		return false, true
	case st.loan:
		st.from.pool.replace() // no reservoir is smaller than one
		return false, true
	case st.replace != nil:
		st.replace.pool.replace()
	}
	return false, false
}

// account corrects what next has counted on. The caller holds mu.
func (s *share) account(st step, closes, asked bool) {
	v := st.from
	switch {
	case v == nil:
		return
	case closes && st.loan: // it was not needed
		v.asks = max(0, v.asks-1)
	case !closes && !asked:
		v.given()
		return
	}
	v.tried = 0 // he may have more
}
