package fairshare

import (
	"container/list"
	"slices"

	"github.com/flightpool/flightpool/internal/invariant"
)

// tally is what is counted of a member, and summed up over all.
type tally struct {
	wanted  int // tickets on which callers wait
	without int // members with such tickets that have no connection
	waiting int // members whose callers wait, and not for their user's own bound
	several int // members with more than one connection, those apart that are overdue
	unmet   int // connections below the floor
}

func (t *tally) add(o tally, sign int) {
	t.wanted += sign * o.wanted
	t.without += sign * o.without
	t.waiting += sign * o.waiting
	t.several += sign * o.several
	t.unmet += sign * o.unmet
}

// keeps is what m has when what it gives up is gone.
func (m *Member) keeps() int { return m.held - m.reclaims - m.overdue }

// poolSize is what m's pool may grow to now: no more than m keeps while it was asked for
// what is in use. Zero: all that it has is to be replaced.
func (m *Member) poolSize() int {
	if m.shrunk {
		return min(m.size, m.keeps())
	}
	return m.size
}

// full says that m's user has all that it may have, connections of superseded and of
// removed pools included, for which the present pool does not ask.
func (m *Member) full() bool { return m.held+m.removedHeld >= m.size }

// update takes account of a member whose callers, tickets or connections have
// changed. The caller holds mu.
//
// INVARIANT: whatever the order of a ranking depends on, which is held, reclaims,
// tickets, gaveBack and being full, is changed under mu and followed by update before a ranking
// is read. The same holds for sum. leave comes before set, since both rankings of
// tickets keep the place of a member in one field.
func (s *Share) update(m *Member) {
	m.needs = m.joined && m.waiting.Load() > 0
	s.sum.add(m.counted, -1)
	m.counted = s.tallyOf(m)
	s.sum.add(m.counted, 1)

	queued := m.joined && len(m.tickets) > 0
	s.withCallers.leave(m, queued && m.needs)
	s.withoutCallers.leave(m, queued && !m.needs)
	if queued && m.needs {
		s.withCallers.set(m, true)
	} else if queued {
		s.withoutCallers.set(m, true)
	}
	s.richest.set(m, m.joined && m.keeps() > 0 && !m.skipped)
	setListed(s.holders, &m.holderEntry, m, m.joined && m.held > 0)
	setListed(s.askOrder, &m.askEntry, m, m.joined && m.held > 0)
	setListed(s.reclaimOrder, &m.reclaimEntry, m, m.reclaims > 0)
	setListed(s.overdueOrder, &m.overdueEntry, m, m.overdue > 0)
}

// tallyOf is what m adds to sum. A member that has left adds nothing, and one that is
// full has no claim to slots, however many wait.
func (s *Share) tallyOf(m *Member) (t tally) {
	if !m.joined {
		return t
	}
	if m.needs && !m.full() { // more would not help who has all that its user may have
		t.waiting = 1
		t.wanted = len(m.tickets)
		if m.held == 0 && len(m.tickets) > 0 {
			t.without = 1
		}
	}
	if m.held-m.overdue > 1 {
		t.several = 1
	}
	t.unmet = max(0, s.floor-m.held)
	return t
}

// setListed puts a member at the end of a list, leaves it there, or takes it out.
func setListed(l *list.List, at **list.Element, m *Member, in bool) {
	switch {
	case in && *at == nil:
		*at = l.PushBack(m)
	case !in && *at != nil:
		l.Remove(*at)
		*at = nil
	}
}

// updateFloor finds what every member can have. It looks at all members only where
// something is reserved and the number of members, or the bounds, change it. The caller holds mu.
func (s *Share) updateFloor() {
	floor := 0
	if len(s.members) > 0 {
		floor = min(s.bounds.Reserved, s.bounds.Max/len(s.members))
	}
	if floor == s.floor {
		return
	}
	s.floor = floor
	for m := range s.members {
		s.update(m)
	}
}

// setReclaims takes note of how many connections of m are coming, and how many of
// those are in use. The caller holds mu, and calls update. A pool that was made smaller
// may grow again when nothing is asked of it any more.
func (s *Share) setReclaims(m *Member, reclaims, loans int) {
	invariant.Check(0 <= loans && loans <= reclaims, "%d connections in use are asked for, but %d in all", loans, reclaims)
	s.reclaims += reclaims - m.reclaims
	s.loanReclaims += loans - m.loanReclaims
	m.reclaims, m.loanReclaims = reclaims, loans
	if reclaims+m.overdue == 0 && m.shrunk {
		m.shrunk = false
		s.toResize = append(s.toResize, m)
	}
}

// reclaimed takes note that one connection less is coming from m. The caller holds mu.
// The one that came is taken for an idle one, as long as such are coming, and for one
// that is overdue when no other is coming.
func (s *Share) reclaimed(m *Member) {
	if m.reclaims == 0 {
		m.overdue = max(0, m.overdue-1)
	}
	left := max(0, m.reclaims-1)
	s.setReclaims(m, left, min(m.loanReclaims, left))
	s.update(m)
}

// heldChanged keeps what is derived from held. The caller holds mu. peak falls with
// held after a bound was lowered, and never rises above the bounds again.
func (s *Share) heldChanged() {
	s.overMax.Store(s.held > s.bounds.Max)
	s.peak = max(s.bounds.Max+s.bounds.Overflow, min(s.peak, s.held))
	invariant.Check(s.held <= s.peak, "%d slots are held, more than %d", s.held, s.peak)
	invariant.Check(s.held >= 0, "%d slots are held", s.held)
}

// dropTicket removes a ticket. The caller holds mu.
func (s *Share) dropTicket(t *ticket) {
	m := t.m
	m.tickets = slices.DeleteFunc(m.tickets, func(o *ticket) bool { return o == t })
	m.queued.Add(-1)
	s.update(m)
}
