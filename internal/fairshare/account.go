package fairshare

import (
	"container/list"
	"slices"

	"github.com/flightpool/flightpool/internal/invariant"
)

// keeps is what m has when what it gives up is gone.
func (m *Member) keeps() int { return m.held - m.yielding }

// full says that m's user has all that it may have, connections of old generations
// and of removed pools included, for which the present reservoir does not ask.
func (m *Member) full() bool { return m.held+m.past >= m.size }

// update takes account of a member whose callers, tickets or connections have
// changed. The caller holds mu.
func (s *Share) update(m *Member) {
	m.needs = m.joined && m.waiting.Load() > 0
	s.sum.add(m.counted, -1)
	m.counted = s.tallyOf(m)
	s.sum.add(m.counted, 1)

	queued := m.joined && len(m.tickets) > 0
	s.needy.leave(m, queued && m.needs)
	s.wishing.leave(m, queued && !m.needs)
	if queued && m.needs {
		s.needy.set(m, true)
	} else if queued {
		s.wishing.set(m, true)
	}
	s.rich.set(m, m.joined && m.keeps() > 0 && !m.skipped)
	listed(s.holders, &m.holding, m, m.joined && m.held > 0)
	listed(s.idlers, &m.idling, m, m.joined && m.held > 0)
	listed(s.givers, &m.giving, m, m.yielding > 0)
}

func (s *Share) tallyOf(m *Member) (t tally) {
	if !m.joined {
		return t
	}
	if m.needs {
		t.waiting = 1
		if !m.full() {
			t.wanted = len(m.tickets)
		}
		if m.held == 0 && !m.full() && len(m.tickets) > 0 {
			t.without = 1
		}
	}
	if m.held > 1 {
		t.several = 1
	}
	t.unmet = max(0, s.floor-m.held)
	return t
}

// listed puts a member at the end of a list, leaves it there, or takes it out.
func listed(l *list.List, at **list.Element, m *Member, in bool) {
	switch {
	case in && *at == nil:
		*at = l.PushBack(m)
	case !in && *at != nil:
		l.Remove(*at)
		*at = nil
	}
}

// refloor finds what every member can have, which takes a look at all of them only
// where something is reserved. The caller holds mu.
func (s *Share) refloor() {
	floor := 0
	if len(s.members) > 0 {
		floor = min(s.Reserved, s.Max/len(s.members))
	}
	if floor == s.floor {
		return
	}
	s.floor = floor
	for m := range s.members {
		s.update(m)
	}
}

// expect takes note of how many connections of m are coming, and how many of
// those are in use. The caller holds mu, and calls update.
func (s *Share) expect(m *Member, yielding, asks int) {
	invariant.Check(0 <= asks && asks <= yielding, "%d loans are asked for, but %d connections in all", asks, yielding)
	s.coming += yielding - m.yielding
	s.asked += asks - m.asks
	m.yielding, m.asks = yielding, asks
	if yielding == 0 && m.limited {
		m.limited = false
		s.restores = append(s.restores, m)
	}
}

// given takes note that one connection less is coming from m. The caller holds mu.
func (s *Share) given(m *Member) {
	yielding := max(0, m.yielding-1)
	s.expect(m, yielding, min(m.asks, yielding))
	s.update(m)
}

// note keeps what is derived from held. The caller holds mu.
func (s *Share) note() {
	s.over.Store(s.held > s.Max)
	s.peak = max(s.Max+s.Overflow, min(s.peak, s.held))
	invariant.Check(s.held <= s.peak, "%d slots are held, more than %d", s.held, s.peak)
	invariant.Check(s.held >= 0, "%d slots are held", s.held)
}

// drop removes a ticket. The caller holds mu.
func (s *Share) drop(t *ticket) {
	m := t.m
	m.tickets = slices.DeleteFunc(m.tickets, func(o *ticket) bool { return o == t })
	m.queued.Add(-1)
	s.update(m)
}
