package fairshare

// What health and the server do to a share.

// gate shuts out all opens but a trial, or lets them in again, as shut says under
// the lock: of two changes of health, the one that comes last here may be the
// older one.
func (s *Share) Gate(shut func() bool) {
	s.mu.Lock()
	s.shut = shut()
	s.settleAndUnlock()
}

// allow lets one open of m pass the gate; nil: of nobody.
func (s *Share) AllowOne(m *Member) {
	s.mu.Lock()
	s.trial, s.tried = m, m
	s.settleAndUnlock()
}

// room says whether m may get one more connection at once.
func (m *Member) HasRoom() bool {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.shut && (s.fits(m, true) || m.held == 0 && !m.full()) // who has none may take an idle one of another's
}

// connections is how many exist, those included that are being opened or closed.
func (s *Share) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// numbers are the connections that exist, of them m's, and the bound.
func (m *Member) Numbers() (all, own, limit int) {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held, m.held, s.Max
}

// stop ends the share's timer.
func (s *Share) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// bound bounds m's own connections.
func (m *Member) Resize(size int) {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	m.size = size
	s.update(m)
}
