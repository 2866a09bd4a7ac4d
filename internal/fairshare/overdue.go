package fairshare

import "time"

// forgetReclaims ceases to count on those who did not give up in reclaimTimeout what they
// were asked for: somebody else is asked as well. They still give it up when it comes back,
// as long as there is a reason to ask for it: a user who keeps connections for long is not
// asked again and again in place of the others. all: satisfied. The caller holds mu. A
// change of sizes may have undone what was asked for, so the pools get their sizes once
// more in the next step.
func (s *Share) forgetReclaims(now time.Time, all bool) {
	for e := s.reclaimOrder.Front(); e != nil; {
		m := e.Value.(*Member) //nolint:forcetypeassert // nothing else is in it
		late := now.Sub(m.reclaimedAt) >= reclaimTimeout
		if !late && !all {
			break // the others were asked later
		}
		e = e.Next()
		switch {
		case late:
			m.overdue += m.reclaims
			s.setReclaims(m, 0, 0)
			if m.shrunk {
				s.toResize = append(s.toResize, m)
			}
		case m.loanReclaims > 0:
			s.setReclaims(m, m.reclaims-m.loanReclaims, 0)
		}
		s.update(m)
	}
	looks := maxAsks
	if all {
		looks = s.overdueOrder.Len()
	}
	s.forgetOverdue(looks)
}

// satisfied says that nobody needs what others would give up. Under FailFast those who are
// refused do not wait, but come again: what was asked for on their account stands until there
// is room. The caller holds mu.
func (s *Share) satisfied() bool {
	room := !s.bounds.FailFast || s.held < s.bounds.Max
	return room && s.poorest() == nil && s.held <= s.bounds.Max+s.bounds.Overflow
}

// forgetOverdue looks at so many of those who give something up too late, and lets those grow
// again of whom nothing would be asked now. The caller holds mu.
func (s *Share) forgetOverdue(looks int) {
	poorest := s.poorest()
	for range min(looks, s.overdueOrder.Len()) {
		e := s.overdueOrder.Front()
		m := e.Value.(*Member) //nolint:forcetypeassert // nothing else is in it
		if s.stands(m, poorest) {
			s.overdueOrder.MoveToBack(e)
			continue
		}
		m.overdue = 0
		s.setReclaims(m, m.reclaims, m.loanReclaims)
		s.update(m)
	}
}

// stands says that what m was asked for would be asked for again: the reasons are those of
// shrinkToBound, rotate and equalize. Whoever has become one of the poor meanwhile gives
// nothing up. The caller holds mu.
func (s *Share) stands(m, poorest *Member) bool {
	if s.held > s.bounds.Max+s.bounds.Overflow {
		return true
	}
	return poorest != nil && (poorest.held == 0 || m.held >= poorest.held+2)
}
