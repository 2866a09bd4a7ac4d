package fairshare

import (
	"container/heap"
	"time"
)

// Dispatch grants what can be granted and sees to it that what should be free
// becomes free. It is called after every change, without the lock.
func (s *Share) Dispatch() {
	s.mu.Lock()
	s.dispatchAndUnlock()
}

// dispatchAndUnlock is Dispatch for who holds mu, which it gives back. One goroutine at
// a time makes a pass, which ends when a step has nothing to do. Others who come
// meanwhile grant what is free and leave: the pass sees what they have changed at its
// next step, or, if it was its last, by the timer at once. Pools are called by the one
// that makes the pass, so that their calls do not cross.
func (s *Share) dispatchAndUnlock() {
	granted := s.grant()
	if s.dispatching {
		s.repeat = true
		s.mu.Unlock()
		wake(granted)
		return
	}
	s.dispatching, s.repeat = true, false
	s.coldAsks, s.idleAsks = min(maxAsks, s.askOrder.Len()), min(maxAsks, s.askOrder.Len())
	for {
		step := s.next(time.Now())
		s.mu.Unlock()
		wake(granted)
		closes, asked := step.run()
		s.mu.Lock()
		s.correct(step, closes, asked)
		granted = s.grant()
		if step.done() {
			break
		}
	}
	for _, m := range s.skipped {
		m.skipped = false
		s.update(m)
	}
	s.skipped = s.skipped[:0]
	s.dispatching = false
	s.wantsIdle.Store(s.starving())
	s.schedule()
	s.mu.Unlock()
	wake(granted)
}

// wake lets opens go on. It is called without the lock.
func wake(granted []*ticket) {
	for _, t := range granted {
		close(t.ready)
	}
}

// grant deals free slots out. The caller holds mu and wakes the tickets. A share that
// has a successor grants nothing any more.
func (s *Share) grant() (granted []*ticket) {
	for s.opening < s.bounds.MaxOpening && s.successor == nil {
		m := s.nextToOpen()
		if m == nil {
			break
		}
		if s.shut {
			s.probing = nil
		}
		t := m.tickets[0]
		t.granted = true
		s.held++
		s.opening++
		m.held++
		m.opening++
		m.since = time.Now()
		s.dropTicket(t)
		s.holders.MoveToBack(m.holderEntry)
		s.askOrder.MoveToBack(m.askEntry)
		s.heldChanged()
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
		if m := s.probing; m != nil && m.rankPlace > 0 && m.needs && s.fits(m, true) {
			return m
		}
		return nil
	}
	if m := s.withCallers.first(); m != nil && s.fits(m, true) {
		return m
	}
	if m := s.withoutCallers.first(); m != nil && s.fits(m, false) {
		return m
	}
	return nil
}

// fits says whether one slot more can go to m. What is reserved for others is not free.
// The caller holds mu. Overflow is for callers who wait, not for what is opened in
// advance. A member below the floor has a claim that the others' opens have left room
// for.
func (s *Share) fits(m *Member, needs bool) bool {
	if m.full() {
		return false
	}
	limit := s.bounds.Max - s.inherited
	if needs {
		limit += s.bounds.Overflow
	}
	if m.held >= s.floor { // else what m lacks would count against it
		limit -= s.sum.unmet
	}
	return s.held < limit
}

// poorest finds the user with the fewest connections whose callers wait for a slot
// that is not free, or nil. The caller holds mu.
func (s *Share) poorest() *Member {
	m := s.withCallers.first()
	if m == nil || s.shut || s.successor != nil || m.full() || s.fits(m, true) {
		return nil
	}
	return m
}

// starving says whether callers wait who have no connection, while fewer are on their
// way than they need, those in use apart. The caller holds mu. A loan that was asked
// for may take as long as its caller likes, so it is not counted on.
func (s *Share) starving() bool {
	return s.sum.without > s.reclaims-s.loanReclaims && s.poorest() != nil
}

// schedule looks again, at once when something has changed meanwhile, or after a
// while as long as callers wait for what is not free, or more is held than may be: what was
// asked for may have been undone by a change of sizes. The caller holds mu.
func (s *Share) schedule() {
	wait := recheckEvery
	switch {
	case s.stopped:
		return
	case s.repeat:
		wait = 0
	case s.armed || s.poorest() == nil && s.held <= s.bounds.Max:
		return
	case s.sum.without > 0:
		wait = s.rotateEvery()
	}
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.timerFired)
		return
	}
	s.timer.Reset(wait)
}

// timerFired makes a pass for the sake of what time has changed: what was idle for
// long, turns of users, and what was asked for in vain.
func (s *Share) timerFired() {
	s.mu.Lock()
	s.armed = false
	s.overflowAsks = min(maxAsks, s.askOrder.Len())
	s.dispatchAndUnlock()
}

// A ranking keeps members in an order, the first of them at hand. Adding, removing and
// moving one take a time that grows with the logarithm of their number. It is a heap:
// only the first is in order. A change of what less compares needs a set.
type ranking struct {
	all   []*Member
	less  func(a, b *Member) bool
	place func(m *Member) *int // where a member's place is kept: from 1, 0 is none
}

// first is the first, or nil.
func (r *ranking) first() *Member {
	if len(r.all) == 0 {
		return nil
	}
	return r.all[0]
}

// set puts a member where it belongs: in, after its order has changed, or out.
func (r *ranking) set(m *Member, in bool) {
	switch at := *r.place(m); {
	case at == 0 && in:
		heap.Push(r, m)
	case at > 0 && in:
		heap.Fix(r, at-1)
	case at > 0:
		heap.Remove(r, at-1)
	}
}

// leave takes a member out that does not belong here any more, where one place is
// kept for two rankings.
func (r *ranking) leave(m *Member, stays bool) {
	if at := *r.place(m); !stays && at > 0 && at <= len(r.all) && r.all[at-1] == m {
		heap.Remove(r, at-1)
	}
}

// Len is for package heap, and so are the others.
func (r *ranking) Len() int { return len(r.all) }

// Less says what order is.
func (r *ranking) Less(i, j int) bool { return r.less(r.all[i], r.all[j]) }

// Swap swaps two.
func (r *ranking) Swap(i, j int) {
	r.all[i], r.all[j] = r.all[j], r.all[i]
	*r.place(r.all[i]), *r.place(r.all[j]) = i+1, j+1
}

// Push adds one at the end.
func (r *ranking) Push(x any) {
	m := x.(*Member) //nolint:forcetypeassert // set pushes nothing else
	r.all = append(r.all, m)
	*r.place(m) = len(r.all)
}

// Pop takes the last one out.
func (r *ranking) Pop() any {
	m := r.all[len(r.all)-1]
	r.all[len(r.all)-1] = nil
	r.all = r.all[:len(r.all)-1]
	*r.place(m) = 0
	return m
}
