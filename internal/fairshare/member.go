package fairshare

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Pool is what a share does to a user's pool. It is called without a lock, by one
// goroutine at a time. It may call the share and the member from within.
type Pool interface {
	// Resize bounds the pool: what is in use beyond n is closed when it comes back.
	Resize(n int)
	// Yield closes up to n connections that have been idle for so long, and returns
	// how many.
	Yield(n int, unused time.Duration) int
	// Replace closes every connection, those in use when they come back.
	Replace()
	// Refuse fails the callers who wait.
	Refuse()
}

// Member is one user's part of a share. One whose user is removed leaves, and its
// connections count until each is closed. The user, declared again, is another member,
// and these count against its size.
type Member struct {
	share   *Share
	name    string // the user's
	pool    Pool
	waiting atomic.Int64 // callers in the queue of its pool
	queued  atomic.Int64 // of its opens, those that have no slot yet

	// guarded by share.mu
	joined      bool
	held        int
	opening     int     // of held
	unadmitted  int     // opens that Admit has refused, and of whose end NotOpened has not told
	removedHeld int     // what the user's removed pools hold: it counts against size
	successor   *Member // in whose removedHeld this one's are, where it has left
	size        int     // what its pool may grow to when nothing is asked of it
	tickets     []*ticket
	gaveBack    uint64 // its latest slot: numbered among the tickets
	counted     tally

	// INVARIANT: 0 <= loanReclaims <= reclaims, and reclaims + overdue <= held. Of less
	// than nothing that is coming, a pass would ask for ever.
	reclaims     int       // of held: what it gives up, now or as loans come back
	loanReclaims int       // of reclaims: what is in use, and given up when it comes back
	overdue      int       // of held, beside reclaims: what it gives up as well, but not in time, so that nobody counts on it
	reclaimedAt  time.Time // when it was last asked for one, and not in vain
	shrunk       bool      // its pool was resized for that
	skipped      bool      // it had nothing to give in this pass
	since        time.Time // when its latest open was granted or ended, or it was last asked to make way

	needs                 bool // its callers wait, as of the latest update
	rankPlace             int  // in withCallers or withoutCallers
	richPlace             int  // in richest
	holderEntry, askEntry *list.Element
	reclaimEntry          *list.Element
	overdueEntry          *list.Element
}

// ticket is an open that waits for its slot. ready is closed outside the lock, after
// granted was set under it.
type ticket struct {
	m       *Member
	number  uint64
	ready   chan struct{}
	granted bool // guarded by share.mu
}

// NewMember makes a user's part, which Join takes in: name is the user's, size what
// pool may grow to.
func (s *Share) NewMember(name string, pool Pool, size int) *Member {
	return &Member{share: s, name: name, pool: pool, size: size}
}

// Join takes the member in: until then, it is granted nothing. The caller calls
// Dispatch.
func (m *Member) Join() {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	m.joined = true
	s.members[m] = struct{}{}
	for _, old := range s.removed[m.name] {
		old.successor = m
		m.removedHeld += old.held
	}
	s.updateFloor()
	s.update(m)
}

// Leave takes a member out whose pool is closed, or closing: what it still holds goes
// on counting, also against its user's bound. The caller calls Dispatch.
func (m *Member) Leave() {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, m)
	m.joined = false
	if m.held > 0 {
		s.removed[m.name] = append(s.removed[m.name], m)
	}
	m.overdue = 0
	s.setReclaims(m, 0, 0)
	s.update(m)
	s.updateFloor()
}

// releaseRemoved takes note that a member that has left has given a slot back. The caller
// holds mu.
func (s *Share) releaseRemoved(m *Member) {
	if m.successor != nil {
		m.successor.removedHeld--
		s.update(m.successor)
	}
	if m.held > 0 {
		return
	}
	left := slices.DeleteFunc(s.removed[m.name], func(o *Member) bool { return o == m })
	if s.removed[m.name] = left; len(left) == 0 {
		delete(s.removed, m.name)
	}
}

// Admit waits for a slot for an open, until ctx ends. The caller tells with Opened or
// NotOpened how the open has ended, also where that is by an error of Admit, and releases
// the slot when the connection is closed or there is none. A slot that is granted at the moment when ctx ends is given back,
// as an open that took no time. The error is a NotAdmittedError, and release is then
// nil.
func (m *Member) Admit(ctx context.Context) (release func(), err error) {
	s := m.share
	t := &ticket{m: m, ready: make(chan struct{})}
	s.mu.Lock()
	s.tickets++
	t.number = s.tickets
	m.tickets = append(m.tickets, t)
	m.queued.Add(1)
	s.update(m)
	s.dispatchAndUnlock()
	select {
	case <-t.ready:
	case <-ctx.Done():
		s.mu.Lock()
		granted := t.granted
		m.unadmitted++
		if !granted {
			s.dropTicket(t)
		}
		s.dispatchAndUnlock() // somebody may have been asked for it
		if granted {
			m.Opened(0)
			m.release()
		}
		return nil, NotAdmittedError{ctx.Err()}
	}
	var once sync.Once
	return func() { once.Do(m.release) }, nil
}

// waitsFrom tells since when a member with tickets waits, as the number of a ticket: from its
// first ticket, or from when it last gave a slot back, or its turns would be as many as its
// tickets.
func (m *Member) waitsFrom() uint64 { return max(m.tickets[0].number, m.gaveBack) }

// NotAdmittedError is the failure of an open that was never tried.
type NotAdmittedError struct{ cause error }

func (e NotAdmittedError) Error() string { return "registry: no slot: " + e.cause.Error() }
func (e NotAdmittedError) Unwrap() error { return e.cause }

// release takes a slot back. It is called once for each slot, whichever way the
// connection has ended.
func (m *Member) release() {
	s := m.share
	s.mu.Lock()
	s.held--
	m.held--
	s.tickets++
	m.gaveBack = s.tickets
	s.reclaimed(m)
	if !m.joined {
		s.releaseRemoved(m)
	}
	s.heldChanged()
	successor := s.successor
	s.dispatchAndUnlock()
	if successor != nil {
		successor.inherit(-1)
	}
}

// Opened takes note that an open that was granted has ended, and how long it took. Zero
// says that it brought no connection, or was not tried: it teaches nothing. The average
// is smoothed over about eight opens.
func (m *Member) Opened(took time.Duration) {
	s := m.share
	s.mu.Lock()
	s.opening--
	m.opening--
	if m.holderEntry != nil {
		m.since = time.Now()
		s.holders.MoveToBack(m.holderEntry)
	}
	switch {
	case took == 0:
	case s.openTime == 0:
		s.openTime = took
	default:
		s.openTime += (took - s.openTime) / 8
	}
	s.dispatchAndUnlock()
}

// NotOpened takes note that an open has brought no connection: the member that AllowOne
// named may have another. Who calls it may not know whether the open was granted, so that
// as many calls as opens were not admitted change nothing.
func (m *Member) NotOpened() {
	s := m.share
	s.mu.Lock()
	if m.unadmitted > 0 {
		m.unadmitted--
		s.mu.Unlock()
		return
	}
	if s.lastProbing == m {
		s.probing = m
	}
	s.mu.Unlock()
	m.Opened(0)
}

// AddWaiting takes note that callers wait, or do not any more. It is called for each
// wait, so the lock is taken only for the first and the last who wait, and for all who come
// under FailFast: those who were refused may still be counted. update reads the
// number again under the lock: of two that cross, the later one counts.
func (m *Member) AddWaiting(change int64) {
	s := m.share
	n := m.waiting.Add(change)
	if (change > 0 && (n == 1 || s.failFast.Load())) || (change < 0 && n == 0) {
		s.mu.Lock()
		s.update(m)
		s.dispatchAndUnlock()
	}
}

// Returned takes note that a caller has given a connection back to the pool. It is on
// the path of every query: without need it reads two flags and takes no lock.
func (m *Member) Returned() {
	s := m.share
	if s.overMax.Load() || s.wantsIdle.Load() && m.waiting.Load() == 0 {
		s.Dispatch()
	}
}

// Waiting is how many callers wait for a connection.
func (m *Member) Waiting() int { return int(m.waiting.Load()) }

// Unadmitted is how many opens have no slot yet.
func (m *Member) Unadmitted() int { return int(m.queued.Load()) }

// HasRoom says whether the member may get one more connection at once. Under FailFast
// the registry refuses a caller who finds none. It holds for the moment only.
func (m *Member) HasRoom() bool {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.shut && (s.fits(m, true) || m.held == 0 && !m.full()) // without any it may take an idle one of another member's
}

// Fits says whether the member would be granted one more connection, were the gate open.
// While the gate is shut it holds until AllowOne names a member.
func (m *Member) Fits() bool {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fits(m, true)
}

// Numbers are the connections that exist, of them the member's, and Max.
func (m *Member) Numbers() (all, own, limit int) {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held, m.held, s.bounds.Max
}

// Resize bounds the member's own connections. The caller resizes the pool itself, and
// calls Dispatch.
func (m *Member) Resize(size int) {
	s := m.share
	s.mu.Lock()
	defer s.mu.Unlock()
	m.size = size
	s.update(m)
}
