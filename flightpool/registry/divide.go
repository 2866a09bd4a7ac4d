package registry

import "time"

// settle grants what can be granted and sees to it that what should be free
// becomes free. It is called after every change, without the lock.
func (s *share) settle() {
	s.mu.Lock()
	granted := s.grant()
	if s.acting {
		s.again = true
		s.mu.Unlock()
		wake(granted)
		return
	}
	s.acting = true
	s.pass++
	for {
		s.again = false
		step := s.next()
		s.mu.Unlock()
		wake(granted)
		closes, asked := step.run()
		s.mu.Lock()
		s.account(step, closes, asked)
		granted = s.grant()
		if step.idle() && !s.again {
			break
		}
	}
	s.acting = false
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
func (s *share) grant() (granted []*ticket) {
	for s.opening < s.maxOpening {
		t := s.first()
		if t == nil {
			break
		}
		if s.shut {
			s.trial = nil
		}
		s.drop(t)
		s.held++
		s.opening++
		t.m.held++
		t.m.opening++
		t.granted, t.m.since = true, time.Now()
		s.note()
		granted = append(granted, t)
	}
	return granted
}

// first finds the ticket to be granted next: of the user with the fewest
// connections, those whose callers wait before those who only like to have one
// ready. Nil when there is no room for any. The caller holds mu.
func (s *share) first() (best *ticket) {
	for _, t := range s.queue {
		needs := t.m.waiting.Load() > 0
		if !s.fits(t.m, needs) || s.shut && (!needs || t.m != s.trial) {
			continue
		}
		if best == nil {
			best = t
			continue
		}
		bestNeeds := best.m.waiting.Load() > 0
		if needs && !bestNeeds || needs == bestNeeds && t.m.held < best.m.held {
			best = t
		}
	}
	return best
}

// fits says whether one slot more can go to m. What is reserved for others is
// not free. The caller holds mu.
func (s *share) fits(m *member, needs bool) bool {
	limit := s.cap
	if needs {
		limit += s.overflow
	}
	floor := s.floor()
	if m.held >= floor {
		for _, o := range s.members {
			if o != m {
				limit -= max(0, floor-o.held)
			}
		}
	}
	return s.held < limit
}

// floor is what every member can have whatever the others do. The caller holds mu.
func (s *share) floor() int {
	if len(s.members) == 0 {
		return 0
	}
	return min(s.reserve, s.cap/len(s.members))
}

// needy finds the user with the fewest connections whose callers wait for a slot
// that is not free, and how many slots are wanted in all. The caller holds mu.
func (s *share) needy() (poorest *ticket, wanted int) {
	if s.shut {
		return nil, 0
	}
	for _, t := range s.queue {
		if t.m.waiting.Load() == 0 || t.m.held >= t.m.size {
			continue
		}
		wanted++
		if poorest == nil || t.m.held < poorest.m.held {
			poorest = t
		}
	}
	return poorest, wanted
}

// rearm looks again after a turn while somebody is in need, or more is held than
// may be: what was asked for may have been undone by a change of sizes. The caller
// holds mu.
func (s *share) rearm() {
	if poorest, _ := s.needy(); s.armed || poorest == nil && s.held <= s.cap {
		return
	}
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(turn, s.tick)
		return
	}
	s.timer.Reset(turn)
}

func (s *share) tick() {
	s.mu.Lock()
	s.armed = false
	s.mu.Unlock()
	s.settle()
}
