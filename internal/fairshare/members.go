package fairshare

import "slices"

// Who is in a share, and what those who are not any more still hold of it.

// join takes a member in. The caller calls settle.
func (m *Member) Join() {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	m.joined = true
	s.members[m] = struct{}{}
	for _, old := range s.gone[m.name] {
		old.heir = m
		m.past += old.held
	}
	s.refloor()
	s.update(m)
}

// leave takes a member out whose reservoir is closed, or closing: what it still
// holds goes on counting, also against its user's bound. The caller calls settle.
func (m *Member) Leave() {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, m)
	m.joined = false
	if m.held > 0 {
		s.gone[m.name] = append(s.gone[m.name], m)
	}
	s.expect(m, 0, 0)
	s.update(m)
	s.refloor()
}

// lapse takes note that a member that has left has given a slot back. The caller
// holds mu.
func (s *Share) lapse(m *Member) {
	if m.heir != nil {
		m.heir.past--
		s.update(m.heir)
	}
	if m.held > 0 {
		return
	}
	left := slices.DeleteFunc(s.gone[m.name], func(o *Member) bool { return o == m })
	if s.gone[m.name] = left; len(left) == 0 {
		delete(s.gone, m.name)
	}
}

// succeeds lets the slots of an unregistered server count here until they are free.
func (s *Share) Succeed(old *Share) {
	old.mu.Lock()
	old.heir = s
	held := old.held
	old.mu.Unlock()
	s.inherit(held)
}

func (s *Share) inherit(slots int) {
	s.mu.Lock()
	s.inherited += slots
	s.settleAndUnlock()
}
