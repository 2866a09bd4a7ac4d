package registry

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/invariant"
)

// share deals the connections of one server out to its users.
//
// It knows demand from what the reservoirs ask of it: an open asks for a slot
// first and keeps it until the connection's Close has returned. While slots are
// free it grants them. When none is, it makes the division more equal until it is
// max-min fair: nobody who wants more has two fewer than anybody else.
//
//   - A slot goes to the user with the fewest, those whose callers wait first.
//   - A user who wants more takes connections that another has not used for
//     coldAfter. Since reservoirs lend the connection that was used last, those
//     are exactly the ones beyond the other's peak.
//   - From a user with at least two more than he has he takes one even if it is
//     in use: as soon as it comes back, before its own user's next caller.
//   - Who has none, because there are more users than connections, gets the slot
//     of whoever has had his the longest, once a turn.
//
// The lock is held for arithmetic alone. What has to be done to reservoirs is
// done by one goroutine at a time, without it.
type share struct {
	mu sync.Mutex

	// INVARIANT: held is the sum of the members' held and at most peak, which
	// is cap + overflow but for the time after these were lowered.
	held, peak    int
	cap, overflow int
	reserve       int
	failFast      bool
	opening       int // granted, and not open or failed yet
	maxOpening    int
	pass          uint64 // counts the passes of settle

	shut  bool    // the server is unhealthy: nothing is granted but one open to the prober
	trial *member // who that is, until he has it
	tried *member // who had it; when he got no connection, he may have it again

	members []*member
	queue   []*ticket

	acting, again bool
	turned        time.Time   // the latest turn
	timer         *time.Timer // looks again at what time changes, while somebody is in need
	armed         bool

	over atomic.Bool // held > cap: for the way of a return, without the lock
}

// member is one user's part of a share.
type member struct {
	share   *share
	pool    lender
	waiting atomic.Int64 // callers in the queue of his reservoir
	queued  atomic.Int64 // of his opens, those that have no slot yet

	// guarded by share.mu
	//
	// INVARIANT: 0 <= asks <= yielding. Of less than nothing that is coming, settle
	// would ask for ever.
	held     int
	opening  int       // of held
	size     int       // what his reservoir may grow to when nothing is asked of him
	yielding int       // of held: what he gives up, now or as loans come back
	asks     int       // of yielding: what is in use, and given up when it comes back
	asked    time.Time // when, the latest time
	limited  bool      // his reservoir was resized for that
	tried    uint64    // the pass in which he had nothing to give
	since    time.Time // of his latest grant
}

// lender is what a share does to a user's reservoir.
type lender interface {
	resize(n int)
	yield(n int, unused time.Duration) int
	replace()
	failWaiters(err error)
}

// ticket is an open that waits for its slot.
type ticket struct {
	m       *member
	ready   chan struct{}
	granted bool // guarded by share.mu
	since   time.Time
}

const (
	coldAfter = 10 * time.Second
	turn      = 100 * time.Millisecond
	patience  = time.Second // until somebody else is asked
)

func newShare(d *ServerDefinition) *share {
	s := &share{}
	s.set(d)
	return s
}

// set takes the sizes over from a definition. The caller calls settle.
func (s *share) set(d *ServerDefinition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		m.yielding, m.asks, m.limited = 0, 0, false // the reservoirs get their sizes anew
	}
	s.cap, s.overflow, s.reserve, s.maxOpening = d.MaxConnections, d.overflow(), d.ReservedConnections, d.MaxConcurrentOpens
	s.failFast = d.OnExhausted == flightpool.FailFast && !d.ValidateOnAcquire // else who waits for a check is not known
	s.note()
}

func (s *share) join(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.share = s
	s.members = append(s.members, m)
}

// leave takes a member out whose reservoir is closed, or closing: what he still
// holds goes on counting.
func (s *share) leave(m *member) {
	s.mu.Lock()
	s.members = slices.DeleteFunc(s.members, func(o *member) bool { return o == m })
	s.mu.Unlock()
	s.settle()
}

// admit waits for a slot. It is the Admit of the members' reservoirs.
func (m *member) admit(ctx context.Context) (release func(), err error) {
	s := m.share
	t := &ticket{m: m, ready: make(chan struct{}), since: time.Now()}
	s.mu.Lock()
	s.queue = append(s.queue, t)
	m.queued.Add(1)
	s.mu.Unlock()
	s.settle()
	select {
	case <-t.ready:
	case <-ctx.Done():
		s.mu.Lock()
		granted := t.granted
		if !granted {
			s.drop(t)
		}
		s.mu.Unlock()
		if granted {
			s.opened(m)
			s.free(m)
		} else {
			s.settle() // somebody may have been asked for it
		}
		return nil, notAdmitted{ctx.Err()}
	}
	var once sync.Once
	return func() { once.Do(func() { s.free(m) }) }, nil
}

// given takes note that one connection less is coming from m. The caller holds mu.
func (m *member) given() {
	m.yielding = max(0, m.yielding-1)
	m.asks = min(m.asks, m.yielding)
}

// notAdmitted is the failure of an open that was never tried.
type notAdmitted struct{ cause error }

func (e notAdmitted) Error() string { return "registry: no slot: " + e.cause.Error() }
func (e notAdmitted) Unwrap() error { return e.cause }

// free takes a slot back.
func (s *share) free(m *member) {
	s.mu.Lock()
	s.held--
	m.held--
	m.given()
	s.note()
	s.mu.Unlock()
	s.settle()
}

// opened takes note that an open that was granted to m has ended, well or not.
func (s *share) opened(m *member) {
	s.mu.Lock()
	s.opening--
	m.opening--
	s.mu.Unlock()
	s.settle()
}

// unused takes note that an open that was granted to m has brought no connection:
// the prober may have another.
func (s *share) unused(m *member) {
	s.mu.Lock()
	if s.tried == m {
		s.trial = m
	}
	s.mu.Unlock()
	s.opened(m)
}

// demand takes note that a caller of m waits, or does not any more.
func (s *share) demand(m *member, change int64) {
	n := m.waiting.Add(change)
	if (change > 0 && n == 1) || (change < 0 && n == 0) {
		s.settle()
	}
}

// gate shuts out all opens but a trial, or lets them in again, as shut says under
// the lock: of two changes of health, the one that comes last here may be the
// older one.
func (s *share) gate(shut func() bool) {
	s.mu.Lock()
	s.shut = shut()
	s.mu.Unlock()
	s.settle()
}

// allow lets one open of m pass the gate; nil: of nobody.
func (s *share) allow(m *member) {
	s.mu.Lock()
	s.trial, s.tried = m, m
	s.mu.Unlock()
	s.settle()
}

// room says whether m could get one more connection at once.
func (s *share) room(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.shut && s.fits(m, true)
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
	s.armed = true // for good
	if s.timer != nil {
		s.timer.Stop()
	}
}

// bound bounds m's own connections.
func (s *share) bound(m *member, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.size = size
}

// note keeps what is derived from held. The caller holds mu.
func (s *share) note() {
	s.over.Store(s.held > s.cap)
	s.peak = max(s.cap+s.overflow, min(s.peak, s.held))
	invariant.Check(s.held <= s.peak, "%d slots are held, more than %d", s.held, s.peak)
	invariant.Check(s.held >= 0, "%d slots are held", s.held)
}

// drop removes a ticket. The caller holds mu.
func (s *share) drop(t *ticket) {
	s.queue = slices.DeleteFunc(s.queue, func(o *ticket) bool { return o == t })
	t.m.queued.Add(-1)
}
