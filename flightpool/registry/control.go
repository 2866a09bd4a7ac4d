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
func (m *member) room() bool {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.shut && (s.fits(m, true) || m.held == 0 && !m.full()) // who has none may take an idle one of another's
}

// connections is how many exist, those included that are being opened or closed.
func (s *share) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// numbers are the connections that exist, of them m's, and the bound.
func (m *member) numbers() (all, own, limit int) {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held, m.held, s.cap
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
func (m *member) bound(size int) {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	m.size = size
	s.update(m)
}
