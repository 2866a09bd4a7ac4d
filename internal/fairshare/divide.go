package fairshare

import "time"

// settle grants what can be granted and sees to it that what should be free
// becomes free. It is called after every change, without the lock.
func (s *Share) Dispatch() {
	s.mu.Lock()
	s.settleAndUnlock()
}

// settleAndUnlock is settle for who holds mu.
func (s *Share) settleAndUnlock() {
	granted := s.grant()
	if s.acting {
		s.again = true
		s.mu.Unlock()
		wake(granted)
		return
	}
	s.acting, s.again = true, false
	s.askCold, s.ask = min(askedAtOnce, s.idlers.Len()), min(askedAtOnce, s.idlers.Len())
	for {
		step := s.next(time.Now())
		s.mu.Unlock()
		wake(granted)
		closes, asked := step.run()
		s.mu.Lock()
		s.account(step, closes, asked)
		granted = s.grant()
		if step.idle() {
			break
		}
	}
	for _, m := range s.skipped {
		m.skipped = false
		s.update(m)
	}
	s.skipped = s.skipped[:0]
	s.acting = false
	s.hungry.Store(s.starving())
	s.rearm()
	s.mu.Unlock()
	wake(granted)
}

func wake(granted []*ticket) {
	for _, t := range granted {
		close(t.ready)
	}
}

// grant deals free slots out. The caller holds mu and wakes the tickets.
func (s *Share) grant() (granted []*ticket) {
	for s.opening < s.MaxOpening && s.heir == nil {
		m := s.nextToOpen()
		if m == nil {
			break
		}
		if s.shut {
			s.trial = nil
		}
		t := m.tickets[0]
		t.granted = true
		s.held++
		s.opening++
		m.held++
		m.opening++
		m.since = time.Now()
		s.drop(t)
		s.holders.MoveToBack(m.holding)
		s.idlers.MoveToBack(m.idling)
		s.note()
		granted = append(granted, t)
	}
	return granted
}

// nextToOpen finds the user whose open is granted next: the one with the fewest
// connections, those whose callers wait before those who only like to have one
// ready. Nil when there is no room for any: what does not fit the poorest fits
// nobody of the same sort. The caller holds mu.
func (s *Share) nextToOpen() *Member {
	if s.shut {
		if m := s.trial; m != nil && m.ranked > 0 && m.needs && s.fits(m, true) {
			return m
		}
		return nil
	}
	if m := s.needy.first(); m != nil && s.fits(m, true) {
		return m
	}
	if m := s.wishing.first(); m != nil && s.fits(m, false) {
		return m
	}
	return nil
}

// fits says whether one slot more can go to m. What is reserved for others is
// not free. The caller holds mu.
func (s *Share) fits(m *Member, needs bool) bool {
	if m.full() {
		return false
	}
	limit := s.Max - s.inherited
	if needs {
		limit += s.Overflow
	}
	if m.held >= s.floor { // else what m lacks would count against it
		limit -= s.sum.unmet
	}
	return s.held < limit
}

// poorest finds the user with the fewest connections whose callers wait for a slot
// that is not free, or nil. The caller holds mu.
func (s *Share) poorest() *Member {
	m := s.needy.first()
	if m == nil || s.shut || s.heir != nil || m.full() || s.fits(m, true) {
		return nil
	}
	return m
}

// starving says whether callers wait who have no connection, while fewer are on
// their way than they need, those in use apart. The caller holds mu.
func (s *Share) starving() bool {
	return s.sum.without > s.coming-s.asked && s.poorest() != nil
}

// rearm looks again, at once when something has changed meanwhile, or after a
// while as long as somebody is in need, or more is held than may be: what was
// asked for may have been undone by a change of sizes. The caller holds mu.
func (s *Share) rearm() {
	wait := checkAgain
	switch {
	case s.stopped:
		return
	case s.again:
		wait = 0
	case s.armed || s.poorest() == nil && s.held <= s.Max:
		return
	case s.sum.without > 0:
		wait = s.turn()
	}
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.tick)
		return
	}
	s.timer.Reset(wait)
}

func (s *Share) tick() {
	s.mu.Lock()
	s.armed = false
	s.settleAndUnlock()
}
