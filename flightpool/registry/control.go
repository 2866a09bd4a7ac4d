package registry

// What health and the server do to a share.

// gate shuts out all opens but a trial, or lets them in again, as shut says under
// the lock: of two changes of health, the one that comes last here may be the
// older one.
func (s *share) gate(shut func() bool) {
	s.mu.Lock()
	s.shut = shut()
	s.settleAndUnlock()
}

// allow lets one open of m pass the gate; nil: of nobody.
func (s *share) allow(m *member) {
	s.mu.Lock()
	s.trial, s.tried = m, m
	s.settleAndUnlock()
}

// room says whether m may get one more connection at once.
func (s *share) room(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.shut && (s.fits(m, true) || m.held == 0 && !m.full()) // who has none may take an idle one of another's
}

// numbers are the connections that exist, of them m's, and the bound.
func (s *share) numbers(m *member) (all, users, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m != nil {
		users = m.held
	}
	return s.held, users, s.cap
}

// stop ends the share's timer.
func (s *share) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// bound bounds m's own connections.
func (s *share) bound(m *member, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.size = size
	s.update(m)
}
