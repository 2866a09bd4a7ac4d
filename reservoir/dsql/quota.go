package dsql

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// A quota divides the connections of a Cluster among its views.
type quota struct {
	mu   sync.Mutex
	size int
	// INVARIANT: the sum over all viewQuotas of max(used, reserve) is at most size, so
	// that whoever has less than its reserve can have one more at once.
	members    map[*viewQuota]struct{}
	lastNumber uint64
}

// A viewQuota is one view's part. Guarded by the quota's mutex.
type viewQuota struct {
	total        *quota
	max, reserve int
	// INVARIANT: used <= max, and nobody waits while one more is allowed.
	used    int
	waiting list.List // of *quotaWaiter, in order of arrival
	closed  bool
	drained chan struct{} // closed when closed && used == 0
}

// A quotaWaiter waits until its viewQuota allows one more connection.
type quotaWaiter struct {
	number  uint64
	element *list.Element // nil: decided
	// INVARIANT: at most one is set, with element, before decided is closed.
	granted, refused bool
	decided          chan struct{}
}

func newQuota(size int) *quota { return &quota{size: size, members: map[*viewQuota]struct{}{}} }

// join adds a viewQuota. The reserves must fit.
func (s *quota) join(most, reserve int) (*viewQuota, error) {
	if most == 0 {
		most = s.size
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []error
	if most < 0 || most > s.size {
		faults = append(faults, fmt.Errorf("dsql: View.Max: %d is not between 1 and MaxSize %d", most, s.size))
	}
	if reserve < 0 || reserve > most {
		faults = append(faults, fmt.Errorf("dsql: View.Reserve: %d is not between 0 and Max %d", reserve, most))
	} else if s.free() < reserve {
		faults = append(faults, fmt.Errorf("dsql: View.Reserve: %d connections are not free, only %d", reserve, s.free()))
	}
	if err := errjoin.Join(faults...); err != nil {
		return nil, err
	}
	m := &viewQuota{total: s, max: most, reserve: reserve, drained: make(chan struct{})}
	m.waiting.Init()
	s.members[m] = struct{}{}
	return m, nil
}

// free counts what is neither used nor reserved. The caller holds mu.
func (s *quota) free() int {
	free := s.size
	for m := range s.members {
		free -= max(m.used, m.reserve)
	}
	return free
}

// canGrant says whether the view may have one more. The caller holds mu.
func (m *viewQuota) canGrant() bool {
	return m.used < m.max && (m.used < m.reserve || m.total.free() > 0)
}

// tryAcquire takes one if it is allowed at once.
func (m *viewQuota) tryAcquire() (bool, error) {
	m.total.mu.Lock()
	defer m.total.mu.Unlock()
	if m.closed {
		return false, ErrClosed
	}
	if m.waiting.Len() > 0 || !m.canGrant() {
		return false, nil
	}
	m.used++
	return true, nil
}

// acquire waits until one more is allowed.
func (m *viewQuota) acquire(ctx context.Context) error {
	s := m.total
	s.mu.Lock()
	if m.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	if m.waiting.Len() == 0 && m.canGrant() {
		m.used++
		s.mu.Unlock()
		return nil
	}
	s.lastNumber++
	a := &quotaWaiter{number: s.lastNumber, decided: make(chan struct{})}
	a.element = m.waiting.PushBack(a)
	s.mu.Unlock()
	select {
	case <-a.decided:
	case <-ctx.Done():
		s.mu.Lock()
		if a.element != nil {
			m.waiting.Remove(a.element)
			a.element = nil
		}
		s.mu.Unlock()
	}
	switch {
	case a.refused:
		return ErrClosed
	case ctx.Err() != nil:
		if a.granted {
			m.release()
		}
		return ctxerr.Of(ctx)
	}
	return nil
}

// release returns one, and grants what waiters may now have.
func (m *viewQuota) release() {
	s := m.total
	s.mu.Lock()
	m.used--
	m.removeIfDrained()
	granted := s.grant()
	s.mu.Unlock()
	for _, a := range granted {
		close(a.decided)
	}
}

// grant decides for as many waiters as possible: first for the viewQuota that has the
// least, among equals for the one whose waiter has waited longest. The caller holds mu
// and closes what is returned.
func (s *quota) grant() (granted []*quotaWaiter) {
	for {
		var next *viewQuota
		for m := range s.members {
			if m.waiting.Len() > 0 && m.canGrant() && (next == nil || m.goesBefore(next)) {
				next = m
			}
		}
		if next == nil {
			return granted
		}
		a := next.firstWaiter()
		next.waiting.Remove(a.element)
		a.element, a.granted = nil, true
		next.used++
		granted = append(granted, a)
	}
}

func (m *viewQuota) firstWaiter() *quotaWaiter { return m.waiting.Front().Value.(*quotaWaiter) }

func (m *viewQuota) goesBefore(other *viewQuota) bool {
	return m.used < other.used || m.used == other.used && m.firstWaiter().number < other.firstWaiter().number
}

// close ends a viewQuota: its waiters are refused, its reserve is free. It waits for
// what it uses until ctx ends.
func (m *viewQuota) close(ctx context.Context) error {
	s := m.total
	s.mu.Lock()
	decided := append(m.refuseAll(), s.grant()...)
	s.mu.Unlock()
	for _, a := range decided {
		close(a.decided)
	}
	select {
	case <-m.drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("dsql: %d connections are still in use: %w", m.inUse(), ctxerr.Of(ctx))
	}
}

// close ends all viewQuotas, without waiting.
func (s *quota) close() {
	s.mu.Lock()
	var refused []*quotaWaiter
	for m := range s.members {
		refused = append(refused, m.refuseAll()...)
	}
	s.mu.Unlock()
	for _, a := range refused {
		close(a.decided)
	}
}

// refuseAll refuses the waiters of a viewQuota, and returns them. The caller holds mu.
func (m *viewQuota) refuseAll() (refused []*quotaWaiter) {
	if m.closed {
		return nil
	}
	m.closed, m.reserve = true, 0
	for m.waiting.Len() > 0 {
		a := m.firstWaiter()
		m.waiting.Remove(a.element)
		a.element, a.refused = nil, true
		refused = append(refused, a)
	}
	m.removeIfDrained()
	return refused
}

// removeIfDrained drops a viewQuota that is closed and uses nothing. The caller holds
// mu.
func (m *viewQuota) removeIfDrained() {
	if m.closed && m.used == 0 {
		close(m.drained)
		delete(m.total.members, m)
	}
}

func (m *viewQuota) inUse() int {
	m.total.mu.Lock()
	defer m.total.mu.Unlock()
	return m.used
}

// waiting counts the waiters of all viewQuotas.
func (s *quota) waiting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range s.members {
		n += m.waiting.Len()
	}
	return n
}
