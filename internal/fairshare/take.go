package fairshare

import "time"

const (
	checkAgain  = 100 * time.Millisecond
	patience    = time.Second // until somebody else is asked
	askedAtOnce = 64          // users who are asked for idle connections in one pass
)

// cold is how long a connection must have been idle for another user to take it
// who has some already: ten times as long as an open takes, so that what is spent
// on opening the next is little beside what would have lain idle.
func (s *Share) cold() time.Duration {
	return min(max(10*s.openTime, 100*time.Millisecond), 10*time.Second)
}

// turn is how long a user keeps a connection while others have none, for the same
// reason.
func (s *Share) turn() time.Duration {
	return min(max(10*s.openTime, 10*time.Millisecond), time.Second)
}

// A policy plans to take a connection from somebody; false: it has no reason to, or
// finds nobody. The caller holds mu.
type policy func(s *Share, st *step, now time.Time) bool

// policies are who gives up what, and when, the first that applies first.
//
//	policy         for whom                  from whom                      what            when
//	overBound      nobody: the bound was     who keeps most                 idle, or in use at once
//	               lowered
//	overflowUnused nobody: no caller waits   who keeps most                 idle            at once
//	hungryTakes    who has none              anybody, those not used for    idle            at once
//	               and waits                 cold first
//	poorTakes      who has the fewest        who keeps most, if that is at  idle, or in use at once
//	               and waits                 least two more
//	wantingTakes   who waits                 anybody beyond the floor       idle for cold   at once
//	turnTakes      who has none and waits,   who has had its own longest    in use          after a turn
//	               while nobody has two
//
// What is in use is given up when it comes back, before its own user's next caller.
// After the first two a reason is a user whose callers wait for a slot that is not
// free, and for more of them than are coming already.
var policies = []policy{overBound, overflowUnused, hungryTakes, poorTakes, wantingTakes, turnTakes}

// overBound reaches a bound that was lowered.
func overBound(s *Share, st *step, now time.Time) bool {
	return s.held-s.coming-s.Max > s.Overflow && s.take(st, s.rich.first(), 0, true, now)
}

// overflowUnused ends what is beyond MaxConnections when nobody needs it.
func overflowUnused(s *Share, st *step, now time.Time) bool {
	st.skips = true // who has no idle one now
	return s.held-s.coming-s.Max > 0 && s.sum.waiting == 0 && s.take(st, s.rich.first(), 0, false, now)
}

// hungryTakes gives those who have nothing what nobody uses.
func hungryTakes(s *Share, st *step, now time.Time) bool {
	if !s.starving() {
		return false
	}
	if v := s.idler(nil, 1, &s.askCold); v != nil {
		return s.take(st, v, s.cold(), false, now)
	}
	return s.take(st, s.idler(nil, 1, &s.ask), 0, false, now)
}

// poorTakes makes the division more equal. What is coming already is taken to be
// for the poorest.
func poorTakes(s *Share, st *step, now time.Time) bool {
	poorest, richest := s.poorest(), s.rich.first()
	if poorest == nil || s.sum.wanted <= s.coming || richest == nil || richest.keeps() < poorest.held+s.coming+2 {
		return false
	}
	return s.take(st, richest, 0, true, now)
}

// wantingTakes gives who waits what others have not used for long.
func wantingTakes(s *Share, st *step, now time.Time) bool {
	poorest := s.poorest()
	if poorest == nil || s.sum.wanted <= s.coming {
		return false
	}
	return s.take(st, s.idler(poorest, s.floor+1, &s.askCold), s.cold(), false, now)
}

// turnTakes lets users take turns when there are more of them than connections.
func turnTakes(s *Share, st *step, now time.Time) bool {
	if s.poorest() == nil || s.sum.without <= s.coming || s.sum.several > 0 {
		return false
	}
	for range min(askedAtOnce, s.holders.Len()) {
		v := s.holders.Front().Value.(*Member) //nolint:forcetypeassert // nothing else is in it
		if now.Sub(v.since) < s.turn() {
			return false // the others came later
		}
		v.since = now
		s.holders.MoveToBack(v.holding)
		if v.keeps() > 0 {
			return s.take(st, v, 0, true, now)
		}
	}
	return false
}

// idler finds a user but m to be asked for an idle connection, who keeps at least
// so many; left is how many may yet be asked. The caller holds mu.
func (s *Share) idler(m *Member, keeps int, left *int) *Member {
	for *left > 0 && s.idlers.Len() > 0 {
		*left--
		e := s.idlers.Front()
		s.idlers.MoveToBack(e)
		if v := e.Value.(*Member); v != m && v.keeps() >= keeps { //nolint:forcetypeassert // as above
			return v
		}
	}
	return nil
}

// step is what is to be done to reservoirs next.
type step struct {
	restore []*Member // let grow again
	sizes   []int     // to these
	refuse  []*Member // fail those who wait

	from   *Member // take one idle connection of this one
	unused time.Duration
	loan   bool // if it has none, one that is in use, when it comes back
	size   int
	skips  bool // if it has none, it is not asked again in this pass
}

// next plans the next step and counts on its success. The caller holds mu.
func (s *Share) next(now time.Time) (st step) {
	// INVARIANT: what is asked for is not taken back while there is a reason to
	// ask for it again: else a pass of settle would not end.
	s.relax(now, s.poorest() == nil && s.held <= s.Max+s.Overflow)
	for _, m := range s.restores {
		st.restore, st.sizes = append(st.restore, m), append(st.sizes, m.size)
	}
	s.restores = s.restores[:0]
	for _, applies := range policies {
		if applies(s, &st, now) {
			return st
		}
		st.skips = false
	}
	st.refuse = s.stranded()
	return st
}

// take plans to take a connection of v's. The caller holds mu.
func (s *Share) take(st *step, v *Member, unused time.Duration, loan bool, now time.Time) bool {
	if v == nil {
		return false
	}
	asks := v.asks
	if loan {
		asks++
	}
	s.expect(v, v.yielding+1, asks)
	v.asked = now
	st.from, st.unused, st.loan, st.size = v, unused, loan, v.keeps()
	v.limited = v.limited || loan && st.size > 0
	s.update(v)
	s.givers.MoveToBack(v.giving)
	return true
}

// relax lets those grow again who did not give up for a while what they were asked
// for, or all of them when nobody needs it any more. The caller holds mu.
func (s *Share) relax(now time.Time, all bool) {
	for e := s.givers.Front(); e != nil; {
		m := e.Value.(*Member) //nolint:forcetypeassert // as above
		e = e.Next()
		switch {
		case now.Sub(m.asked) >= patience:
			s.expect(m, 0, 0)
		case all && m.asks > 0:
			s.expect(m, m.yielding-m.asks, 0)
		case !all:
			return // the others were asked later
		}
		s.update(m)
	}
}

// stranded finds, under FailFast, those whose callers wait although nothing is
// being opened for them and nothing can be: several at a time may have found the
// same room, or hoped for the same idle connection. The caller holds mu.
func (s *Share) stranded() (found []*Member) {
	if !s.FailFast || s.shut {
		return nil
	}
	coming := s.coming - s.asked
	for _, m := range s.needy.all {
		switch {
		case m.opening > 0 || s.fits(m, true):
		case m.held == 0 && coming > 0:
			coming--
		default:
			found = append(found, m)
		}
	}
	return found
}

// idle says that there is nothing to do.
func (st *step) idle() bool { return st.from == nil }

// run does a step, without the lock. closes: an idle connection is being closed;
// asked: one in use will be.
func (st *step) run() (closes, asked bool) {
	for i, m := range st.restore {
		m.pool.Resize(st.sizes[i])
	}
	for _, m := range st.refuse {
		m.pool.Refuse()
	}
	switch {
	case st.from == nil:
	case st.from.pool.Yield(1, st.unused) > 0:
		return true, false
	case st.loan && st.size > 0:
		st.from.pool.Resize(st.size)
		return false, true
	case st.loan:
		st.from.pool.Replace() // no reservoir is smaller than one
		return false, true
	}
	return false, false
}

// account corrects what next has counted on. The caller holds mu.
func (s *Share) account(st step, closes, asked bool) {
	v := st.from
	switch {
	case v == nil:
	case closes && st.loan: // it was not needed
		s.expect(v, v.yielding, max(0, v.asks-1))
	case !closes && !asked:
		if st.skips {
			v.skipped = true
			s.skipped = append(s.skipped, v)
		}
		s.given(v)
	}
}
