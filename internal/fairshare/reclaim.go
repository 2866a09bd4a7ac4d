package fairshare

import "time"

// The bounds of waiting and of work in a pass. A pass that has asked maxAsks users goes
// on with the others the next time, since who was asked moves to the end of the order.
const (
	recheckEvery   = 100 * time.Millisecond
	reclaimTimeout = time.Second // until another user is asked as well
	maxAsks        = 64          // users who are asked for idle connections in one pass
	maxRichestAsks = 8           // of those who keep most, when overflow ends
)

// coldAfter is how long a connection must have been idle for another user to take it
// who has some already: ten times as long as an open takes, so that what is spent
// on opening the next is little beside what would have lain idle.
func (s *Share) coldAfter() time.Duration {
	return min(max(10*s.openTime, 100*time.Millisecond), 10*time.Second)
}

// rotateEvery is how long a user keeps a connection while others have none, for the
// same reason.
func (s *Share) rotateEvery() time.Duration {
	return min(max(10*s.openTime, 10*time.Millisecond), time.Second)
}

// A policy plans to take a connection from somebody; false: it has no reason to, or
// finds nobody. The caller holds mu. It counts on the success of what it plans; correct
// takes back what did not succeed.
type policy func(s *Share, st *step, now time.Time) bool

// policies are who gives up what, and when, the first that applies first.
//
//	policy          for whom                  from whom                      what            when
//	shrinkToBound   nobody: the bound was     who keeps most                 idle, or in use at once
//	                lowered
//	endOverflow     nobody: no caller waits   who keeps most, then anybody   idle            at once
//	                but for its user's bound
//	idleForStarving who has none              anybody, those not used for    idle            at once
//	                and waits                 long first
//	equalize        who has the fewest        who keeps most, if that is at  idle, or in use at once
//	                and waits                 least two more
//	coldForWaiting  who waits                 anybody beyond the floor       idle for long   at once
//	rotate          who has none and waits,   who has had its own longest,   in use          after rotateEvery
//	                while nobody has two
//
// What is in use is given up when it comes back, before its own user's next caller.
// What has not come in reclaimTimeout is not counted on any more: see forgetReclaims.
// After the first two a reason is a user whose callers wait for a slot that is not
// free, and for more of them than are coming already.
var policies = []policy{shrinkToBound, endOverflow, idleForStarving, equalize, coldForWaiting, rotate}

// shrinkToBound reaches a bound that was lowered. Overflow is left to endOverflow.
func shrinkToBound(s *Share, st *step, now time.Time) bool {
	return s.held-s.reclaims-s.bounds.Max > s.bounds.Overflow && s.reclaim(st, s.richest.first(), 0, true, now)
}

// endOverflow ends what is beyond Max when no caller waits whom it could serve. What is
// in use stays until it is idle. The users who keep most may all have none that is
// idle: then the timer asks others in turn.
func endOverflow(s *Share, st *step, now time.Time) bool {
	st.skips = true // who has no idle one now
	if s.held-s.reclaims-s.bounds.Max <= 0 || s.sum.waiting > 0 {
		return false
	}
	v := s.richest.first()
	if len(s.skipped) >= maxRichestAsks {
		v = s.nextHolder(nil, 1, &s.overflowAsks)
	}
	return s.reclaim(st, v, 0, false, now)
}

// idleForStarving gives those who have nothing what nobody uses. Those not used for
// long are asked first, then all: a user without a connection needs one more than
// another needs its spare one.
func idleForStarving(s *Share, st *step, now time.Time) bool {
	if !s.starving() {
		return false
	}
	if v := s.nextHolder(nil, 1, &s.coldAsks); v != nil {
		return s.reclaim(st, v, s.coldAfter(), false, now)
	}
	return s.reclaim(st, s.nextHolder(nil, 1, &s.idleAsks), 0, false, now)
}

// equalize makes the division more equal. What is coming already is taken to be for the
// poorest; what is more than they need would go back to where it came from. A difference of
// one cannot be made less: a connection would go to and fro.
// Under FailFast the poorest are refused, while those for whom one is being opened wait
// for it alone: it is left to them.
func equalize(s *Share, st *step, now time.Time) bool {
	poorest, richest := s.poorest(), s.richest.first()
	if poorest == nil || max(s.sum.without, len(poorest.tickets)) <= s.reclaims || richest == nil || richest.keeps() < poorest.held+s.reclaims+2 {
		return false
	}
	if s.bounds.FailFast && richest.opening > 0 {
		return false
	}
	return s.reclaim(st, richest, 0, true, now)
}

// coldForWaiting gives who waits what others have not used for long. It costs a close
// and an open, hence only what has been idle for long beside that.
func coldForWaiting(s *Share, st *step, now time.Time) bool {
	poorest := s.poorest()
	if poorest == nil || s.sum.wanted <= s.reclaims {
		return false
	}
	return s.reclaim(st, s.nextHolder(poorest, s.floor+1, &s.coldAsks), s.coldAfter(), false, now)
}

// rotate lets users take turns when there are more of them than connections. Time
// counts from the end of the latest open, or the latest turn: nobody's ends while a
// connection is being opened for it. Somebody who has two would be asked before, by
// equalize.
func rotate(s *Share, st *step, now time.Time) bool {
	if s.poorest() == nil || s.sum.without <= s.reclaims || s.sum.several > 0 {
		return false
	}
	for range min(maxAsks, s.holders.Len()) {
		v := s.holders.Front().Value.(*Member) //nolint:forcetypeassert // nothing else is in it
		if now.Sub(v.since) < s.rotateEvery() {
			return false // the others came later
		}
		v.since = now
		s.holders.MoveToBack(v.holderEntry)
		if v.keeps() > 0 && v.opening == 0 {
			return s.reclaim(st, v, 0, true, now)
		}
	}
	return false
}

// nextHolder finds a user but m to be asked for an idle connection, who keeps at least
// so many; left is how many may yet be asked. The caller holds mu.
func (s *Share) nextHolder(m *Member, keeps int, left *int) *Member {
	for *left > 0 && s.askOrder.Len() > 0 {
		*left--
		e := s.askOrder.Front()
		s.askOrder.MoveToBack(e)
		if v := e.Value.(*Member); v != m && v.keeps() >= keeps { //nolint:forcetypeassert // as above
			return v
		}
	}
	return nil
}

// step is what is to be done to pools next. It is planned under the lock and run
// without it.
type step struct {
	resize []*Member // give their pools other sizes
	sizes  []int     // these
	refuse []*Member // fail those who wait

	from   *Member // reclaim one idle connection of this one
	at     time.Time
	unused time.Duration
	loan   bool // if it has none, one that is in use, when it comes back
	size   int  // of its pool then; zero: all are replaced
	skips  bool // if it has none, it is not asked again in this pass
}

// next plans the next step and counts on its success. The caller holds mu.
func (s *Share) next(now time.Time) (st step) {
	// INVARIANT: what is asked for is not taken back while there is a reason to
	// ask for it again: else a pass would not end.
	s.forgetReclaims(now, s.satisfied())
	for _, m := range s.toResize {
		st.resize, st.sizes = append(st.resize, m), append(st.sizes, m.poolSize())
	}
	s.toResize = s.toResize[:0]
	for _, applies := range policies {
		if applies(s, &st, now) {
			return st
		}
		st.skips = false
	}
	st.refuse = s.unservable()
	return st
}

// reclaim plans to take a connection of v's. The caller holds mu.
func (s *Share) reclaim(st *step, v *Member, unused time.Duration, loan bool, now time.Time) bool {
	if v == nil {
		return false
	}
	asks := v.loanReclaims
	if loan {
		asks++
	}
	s.setReclaims(v, v.reclaims+1, asks)
	st.at = now
	st.from, st.unused, st.loan = v, unused, loan
	if v.keeps() > 0 {
		v.shrunk = v.shrunk || loan
		st.size = v.poolSize()
	}
	s.update(v)
	return true
}

// unservable finds, under FailFast, those whose callers wait although nothing is
// being opened for them and nothing can be: several at a time may have found the
// same room, or hoped for the same idle connection. The caller holds mu.
func (s *Share) unservable() (found []*Member) {
	if !s.bounds.FailFast || s.shut {
		return nil
	}
	coming := s.reclaims - s.loanReclaims
	for _, m := range s.withCallers.all {
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

// done says that there is nothing to do.
func (st *step) done() bool { return st.from == nil }

// run does a step, without the lock. closes: an idle connection is being closed; asked:
// one in use will be. The size is what the pool keeps once all that is asked for has
// gone, so that the next connection that comes back is closed instead of lent.
func (st *step) run() (closes, asked bool) {
	for i, m := range st.resize {
		m.setPoolSize(st.sizes[i])
	}
	for _, m := range st.refuse {
		m.pool.Refuse()
	}
	switch {
	case st.from == nil:
	case st.from.pool.Yield(1, st.unused) > 0:
		return true, false
	case st.loan:
		st.from.setPoolSize(st.size)
		return false, true
	}
	return false, false
}

// setPoolSize has a pool keep no more than so many. It is called without the lock.
func (m *Member) setPoolSize(n int) {
	if n > 0 {
		m.pool.Resize(n)
		return
	}
	m.pool.Replace() // no pool is smaller than one
}

// correct corrects what next has counted on. The caller holds mu. What was asked for in vain
// does not put off the time at which what was asked for before is overdue.
func (s *Share) correct(st step, closes, asked bool) {
	v := st.from
	for i, m := range st.resize {
		s.checkSize(m, st.sizes[i])
	}
	if asked && st.size > 0 {
		s.checkSize(v, st.size)
	}
	if v == nil {
		return
	}
	if !closes && !asked {
		if st.skips {
			v.skipped = true
			s.skipped = append(s.skipped, v)
		}
		s.reclaimed(v)
		return
	}
	v.reclaimedAt = st.at
	if v.reclaimEntry != nil { // else Set has forgotten it meanwhile, or it has come
		s.reclaimOrder.MoveToBack(v.reclaimEntry)
	}
	if closes && st.loan { // one in use was not needed
		s.setReclaims(v, v.reclaims, max(0, v.loanReclaims-1))
	}
	if closes && v.poolSize() == 0 && v.loanReclaims+v.overdue > 0 { // its pool was made as small as one
		s.toResize = append(s.toResize, v)
	}
}

// checkSize has a pool resized once more whose size was to be another one by the time it
// was set: a change of sizes may have come in between, and its own size before this one.
// The caller holds mu.
func (s *Share) checkSize(m *Member, size int) {
	if m.joined && m.poolSize() != size {
		s.toResize = append(s.toResize, m)
		s.repeat = true
	}
}
