package fairshare

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// share deals the connections of one server out to its users.
//
// It knows demand from what the reservoirs ask of it: an open asks for a slot
// first and keeps it until the connection's Close has returned. While slots are
// free it grants them: to the user with the fewest connections, those whose callers
// wait first. When none is, it makes the division more equal until it is max-min
// fair: who gives up what, and when, stands in a table before policies.
//
// The lock is held for arithmetic alone, and for a time that does not grow with
// users, connections or tickets but by the logarithm: members are kept in rankings
// and lists, and what is counted over all of them in sum. What has to be done to
// reservoirs is done by one goroutine at a time, without the lock.
type Share struct {
	mu sync.Mutex

	// INVARIANT: held is the sum of the members' held and at most peak, which
	// is cap + overflow but for the time after these were lowered.
	held, peak int
	Bounds
	opening  int           // granted, and not open or failed yet
	openTime time.Duration // smoothed; 0: none yet

	shut  bool    // the server is unhealthy: nothing is granted but one open to the prober
	trial *Member // who that is, until he has it
	tried *Member // who had it; when it got no connection, it may have it again

	// inherited are slots of servers of the same name that were unregistered and
	// still drain: they count here. heir is where this one's do.
	inherited int
	heir      *Share

	members map[*Member]struct{}
	gone    map[string][]*Member // by user: those that have left and still hold slots
	floor   int                  // what every member can have whatever the others do
	sum     tally                // over all members
	tickets uint64

	needy, wishing ranking    // members with tickets, the poorest first: whose callers wait, and the others
	rich           ranking    // members that keep a connection, the richest first
	holders        *list.List // members with connections, the latest grant last
	idlers         *list.List // the same, in the order in which they are asked for idle ones
	givers         *list.List // members that are giving up connections, the latest asked last
	restores       []*Member  // whose reservoirs may grow again
	skipped        []*Member  // that are not in rich for the rest of the pass
	askCold, ask   int        // how many of idlers the pass may yet ask

	coming, asked int // the sums of the members' yielding and asks

	acting, again bool
	timer         *time.Timer // looks again at what time changes, while somebody is in need
	armed         bool
	stopped       bool

	over   atomic.Bool // held > cap: for the way of a return, without the lock
	hungry atomic.Bool // an idle connection would be taken at once; likewise
}

// bounds are how many connections a server may have, and how they are divided.
type Bounds struct {
	Max        int  // of all users together
	Overflow   int  // so many more while callers wait
	Reserved   int  // so many each user can have whatever the others do, as far as cap goes
	MaxOpening int  // opens at a time
	FailFast   bool // callers for whom nothing is or can be opened are refused
}

// tally is what is counted of a member, and summed up over all.
type tally struct {
	wanted  int // tickets on which callers wait
	without int // members with such tickets that have no connection
	waiting int // members whose callers wait
	several int // members with more than one connection
	unmet   int // connections below the floor
}

func (t *tally) add(o tally, sign int) {
	t.wanted += sign * o.wanted
	t.without += sign * o.without
	t.waiting += sign * o.waiting
	t.several += sign * o.several
	t.unmet += sign * o.unmet
}

// member is one user's part of a share.
type Member struct {
	share   *Share
	name    string // the user's
	pool    Pool
	waiting atomic.Int64 // callers in the queue of its reservoir
	queued  atomic.Int64 // of its opens, those that have no slot yet

	// guarded by share.mu
	joined  bool
	held    int
	opening int     // of held
	past    int     // what the user's removed pools hold: it counts against size
	heir    *Member // of which past it is, where it has left
	size    int     // what its reservoir may grow to when nothing is asked of it
	tickets []*ticket
	counted tally

	// INVARIANT: 0 <= asks <= yielding. Of less than nothing that is coming, settle
	// would ask for ever.
	yielding int       // of held: what it gives up, now or as loans come back
	asks     int       // of yielding: what is in use, and given up when it comes back
	asked    time.Time // when, the latest time
	limited  bool      // its reservoir was resized for that
	skipped  bool      // it had nothing to give in this pass
	since    time.Time // of its latest grant, or of the latest time it was asked to make way

	needs            bool // its callers wait, as of the latest update
	ranked, richness int  // its places in needy or wishing, and in rich
	holding, idling  *list.Element
	giving           *list.Element
}

// lender is what a share does to a user's reservoir.
type Pool interface {
	Resize(n int)
	Yield(n int, unused time.Duration) int
	Replace()
	Refuse()
}

// ticket is an open that waits for its slot.
type ticket struct {
	m       *Member
	number  uint64
	ready   chan struct{}
	granted bool // guarded by share.mu
}

func New(b Bounds) *Share {
	s := &Share{members: map[*Member]struct{}{}, gone: map[string][]*Member{}, holders: list.New(), idlers: list.New(), givers: list.New()}
	poorer := func(a, b *Member) bool {
		if a.full() != b.full() {
			return b.full() // what does not fit the first then fits nobody
		}
		if a.held != b.held {
			return a.held < b.held
		}
		return a.tickets[0].number < b.tickets[0].number
	}
	ranked := func(m *Member) *int { return &m.ranked }
	s.needy, s.wishing = ranking{less: poorer, place: ranked}, ranking{less: poorer, place: ranked}
	s.rich = ranking{less: func(a, b *Member) bool { return a.keeps() > b.keeps() }, place: func(m *Member) *int { return &m.richness }}
	s.Set(b)
	return s
}

// newMember makes a user's part, which join takes in: name is the user's, size what
// pool may grow to.
func (s *Share) NewMember(name string, pool Pool, size int) *Member {
	return &Member{share: s, name: name, pool: pool, size: size}
}

// set takes bounds over. The caller calls settle.
func (s *Share) Set(b Bounds) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range s.members { // the reservoirs get their sizes anew
		m.limited = false
		s.expect(m, 0, 0)
		s.update(m)
	}
	s.restores = nil
	s.Bounds = b
	s.refloor()
	s.note()
}

// admit waits for a slot. It is the Admit of the members' reservoirs.
func (m *Member) Admit(ctx context.Context) (release func(), err error) {
	s := m.share
	t := &ticket{m: m, ready: make(chan struct{})}
	s.mu.Lock()
	s.tickets++
	t.number = s.tickets
	m.tickets = append(m.tickets, t)
	m.queued.Add(1)
	s.update(m)
	s.settleAndUnlock()
	select {
	case <-t.ready:
	case <-ctx.Done():
		s.mu.Lock()
		granted := t.granted
		if !granted {
			s.drop(t)
		}
		s.settleAndUnlock() // somebody may have been asked for it
		if granted {
			m.Opened(0)
			m.free()
		}
		return nil, NotAdmittedError{ctx.Err()}
	}
	var once sync.Once
	return func() { once.Do(m.free) }, nil
}

// notAdmitted is the failure of an open that was never tried.
type NotAdmittedError struct{ cause error }

func (e NotAdmittedError) Error() string { return "registry: no slot: " + e.cause.Error() }
func (e NotAdmittedError) Unwrap() error { return e.cause }

// free takes a slot back.
func (m *Member) free() {
	s := m.share
	s.mu.Lock()
	s.held--
	m.held--
	s.given(m)
	if !m.joined {
		s.lapse(m)
	}
	s.note()
	heir := s.heir
	s.settleAndUnlock()
	if heir != nil {
		heir.inherit(-1)
	}
}

// opened takes note that an open that was granted to m has ended, well or not; it
// took so long, or did not come about.
func (m *Member) Opened(took time.Duration) {
	s := m.share
	s.mu.Lock()
	s.opening--
	m.opening--
	switch {
	case took == 0:
	case s.openTime == 0:
		s.openTime = took
	default:
		s.openTime += (took - s.openTime) / 8
	}
	s.settleAndUnlock()
}

// unused takes note that an open that was granted to m has brought no connection:
// the prober may have another.
func (m *Member) NotOpened() {
	s := m.share
	s.mu.Lock()
	if s.tried == m {
		s.trial = m
	}
	s.mu.Unlock()
	m.Opened(0)
}

// demand takes note that a caller of m waits, or does not any more.
func (m *Member) Wait(change int64) {
	s := m.share
	n := m.waiting.Add(change)
	if (change > 0 && n == 1) || (change < 0 && n == 0) {
		s.mu.Lock()
		s.update(m)
		s.settleAndUnlock()
	}
}

// callers is how many wait for a connection.
func (m *Member) Waiting() int { return int(m.waiting.Load()) }

// unadmitted is how many opens have no slot yet.
func (m *Member) Unadmitted() int { return int(m.queued.Load()) }

// returned takes note that a connection of m was given back.
func (m *Member) Returned() {
	s := m.share
	if s.over.Load() || s.hungry.Load() && m.waiting.Load() == 0 {
		s.Dispatch()
	}
}
