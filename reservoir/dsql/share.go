package dsql

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
)

// A share divides the connections of a Cluster among its views.
type share struct {
	mu   sync.Mutex
	size int
	// INVARIANT: the sum over members of max(used, reserve) is at most size, so
	// that whoever has less than its reserve can have one more at once.
	members map[*member]struct{}
	arrived uint64
}

// A member is one view's part. Guarded by the share's mutex.
type member struct {
	share        *share
	max, reserve int
	// INVARIANT: used <= max, and nobody waits while one more is allowed.
	used    int
	waiting list.List // of *applicant, in order of arrival
	closed  bool
	empty   chan struct{} // closed when closed && used == 0
}

// An applicant waits for its member to be allowed one more.
type applicant struct {
	number uint64
	place  *list.Element // nil: decided
	// INVARIANT: at most one is set, with place, before decided is closed.
	granted, refused bool
	decided          chan struct{}
}

func newShare(size int) *share { return &share{size: size, members: map[*member]struct{}{}} }

// join adds a member. The reserves must fit.
func (s *share) join(most, reserve int) (*member, error) {
	if most == 0 {
		most = s.size
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []error
	if most < 0 || most > s.size {
		faults = append(faults, fmt.Errorf("dsql: View.Max: %d is not between 1 and MaxOpen %d", most, s.size))
	}
	if reserve < 0 || reserve > most {
		faults = append(faults, fmt.Errorf("dsql: View.Reserve: %d is not between 0 and Max %d", reserve, most))
	} else if s.free() < reserve {
		faults = append(faults, fmt.Errorf("dsql: View.Reserve: %d connections are not free, only %d", reserve, s.free()))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	m := &member{share: s, max: most, reserve: reserve, empty: make(chan struct{})}
	m.waiting.Init()
	s.members[m] = struct{}{}
	return m, nil
}

// free counts what is neither used nor reserved. The caller holds mu.
func (s *share) free() int {
	free := s.size
	for m := range s.members {
		free -= max(m.used, m.reserve)
	}
	return free
}

// allows says whether the member may have one more. The caller holds mu.
func (m *member) allows() bool {
	return m.used < m.max && (m.used < m.reserve || m.share.free() > 0)
}

// try takes one if it is allowed at once.
func (m *member) try() (bool, error) {
	m.share.mu.Lock()
	defer m.share.mu.Unlock()
	if m.closed {
		return false, ErrClosed
	}
	if m.waiting.Len() > 0 || !m.allows() {
		return false, nil
	}
	m.used++
	return true, nil
}

// take waits until one more is allowed.
func (m *member) take(ctx context.Context) error {
	s := m.share
	s.mu.Lock()
	if m.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	if m.waiting.Len() == 0 && m.allows() {
		m.used++
		s.mu.Unlock()
		return nil
	}
	s.arrived++
	a := &applicant{number: s.arrived, decided: make(chan struct{})}
	a.place = m.waiting.PushBack(a)
	s.mu.Unlock()
	select {
	case <-a.decided:
	case <-ctx.Done():
		s.mu.Lock()
		if a.place != nil {
			m.waiting.Remove(a.place)
			a.place = nil
		}
		s.mu.Unlock()
	}
	switch {
	case a.refused:
		return ErrClosed
	case ctx.Err() != nil:
		if a.granted {
			m.give()
		}
		return context.Cause(ctx)
	}
	return nil
}

// give gives one back, and lets those in who may be.
func (m *member) give() {
	s := m.share
	s.mu.Lock()
	m.used--
	m.forget()
	granted := s.grant()
	s.mu.Unlock()
	for _, a := range granted {
		close(a.decided)
	}
}

// grant decides for as many applicants as possible: first for the member that
// has the least, among equals for who waits longest. The caller holds mu and
// closes what is returned.
func (s *share) grant() (granted []*applicant) {
	for {
		var next *member
		for m := range s.members {
			if m.waiting.Len() > 0 && m.allows() && (next == nil || m.before(next)) {
				next = m
			}
		}
		if next == nil {
			return granted
		}
		a := next.first()
		next.waiting.Remove(a.place)
		a.place, a.granted = nil, true
		next.used++
		granted = append(granted, a)
	}
}

func (m *member) first() *applicant { return m.waiting.Front().Value.(*applicant) }

func (m *member) before(other *member) bool {
	return m.used < other.used || m.used == other.used && m.first().number < other.first().number
}

// leave ends a member: its applicants are refused, its reserve is free. It
// waits for what it uses until ctx ends.
func (m *member) leave(ctx context.Context) error {
	s := m.share
	s.mu.Lock()
	decided := append(m.shut(), s.grant()...)
	s.mu.Unlock()
	for _, a := range decided {
		close(a.decided)
	}
	select {
	case <-m.empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("dsql: %d connections are still in use: %w", m.inUse(), context.Cause(ctx))
	}
}

// close ends all members, without waiting.
func (s *share) close() {
	s.mu.Lock()
	var refused []*applicant
	for m := range s.members {
		refused = append(refused, m.shut()...)
	}
	s.mu.Unlock()
	for _, a := range refused {
		close(a.decided)
	}
}

// shut refuses a member's applicants, whom it returns. The caller holds mu.
func (m *member) shut() (refused []*applicant) {
	if m.closed {
		return nil
	}
	m.closed, m.reserve = true, 0
	for m.waiting.Len() > 0 {
		a := m.first()
		m.waiting.Remove(a.place)
		a.place, a.refused = nil, true
		refused = append(refused, a)
	}
	m.forget()
	return refused
}

// forget drops a member that is closed and uses nothing. The caller holds mu.
func (m *member) forget() {
	if m.closed && m.used == 0 {
		close(m.empty)
		delete(m.share.members, m)
	}
}

func (m *member) inUse() int {
	m.share.mu.Lock()
	defer m.share.mu.Unlock()
	return m.used
}

// queue counts the applicants of all members.
func (s *share) queue() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range s.members {
		n += m.waiting.Len()
	}
	return n
}
