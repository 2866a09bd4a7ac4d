package fairshare

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds are how many connections a server may have, and how they are divided. Max and
// MaxOpening are at least one; zero of the others is none. Reserved times the members
// may be more than Max: then each member can have an equal part of Max.
type Bounds struct {
	Max        int  // of all users together
	Overflow   int  // so many more while callers wait
	Reserved   int  // so many each user can have whatever the others do, as far as Max goes
	MaxOpening int  // opens at a time
	FailFast   bool // callers for whom nothing is being opened, or can be, are refused
}

// Share is the division of one server's connections. All its methods, and those of its
// members, may be called by many goroutines. There is one for each server, made by the
// registry, and stopped when the server goes.
type Share struct {
	mu sync.Mutex

	// INVARIANT: held is the sum of the members' held and at most peak, which
	// is Max + Overflow but for the time after these were lowered.
	held, peak int
	bounds     Bounds
	opening    int           // granted, and not open or failed yet
	openTime   time.Duration // smoothed; 0: none yet

	shut        bool    // nothing is granted but one open to probing
	probing     *Member // until its open is granted
	lastProbing *Member // whose open was; when it got no connection, it may have another

	// inherited are slots of shares that this one succeeds and that are not free yet:
	// they count here. successor is where this one's count.
	inherited int
	successor *Share

	members map[*Member]struct{}
	removed map[string][]*Member // by user: those that have left and still hold slots
	floor   int                  // what every member can have whatever the others do
	sum     tally                // over all members
	tickets uint64

	withCallers    ranking    // members with tickets whose callers wait, the poorest first
	withoutCallers ranking    // the other members with tickets, likewise
	richest        ranking    // members that keep a connection, the richest first
	holders        *list.List // members with connections, the latest grant last
	askOrder       *list.List // the same, in the order in which they are asked for idle ones
	reclaimOrder   *list.List // members that are giving up connections, the latest asked last
	overdueOrder   *list.List // members that have not given up in time what they were asked for
	toResize       []*Member  // whose pools have not the size that they should have
	skipped        []*Member  // that are not in richest for the rest of the pass

	coldAsks, idleAsks     int // how many of askOrder the pass may yet ask
	overflowAsks           int // the same, for what is beyond Max, since the timer fired
	reclaims, loanReclaims int // the sums of the members'

	dispatching, repeat bool
	timer               *time.Timer // looks again at what time changes, while callers wait
	armed               bool
	stopped             bool

	overMax   atomic.Bool // held > Max: for Returned, without the lock
	wantsIdle atomic.Bool // an idle connection would be taken at once; likewise
	failFast  atomic.Bool // bounds.FailFast: for AddWaiting, without the lock
}

// New makes a share without members.
func New(b Bounds) *Share {
	s := &Share{members: map[*Member]struct{}{}, removed: map[string][]*Member{}, holders: list.New(), askOrder: list.New(), reclaimOrder: list.New(), overdueOrder: list.New()}
	// Who is full comes last, so that the first tells whether anybody can be served. Of
	// members with as many connections, the one that has waited longest is first.
	poorer := func(a, b *Member) bool {
		if a.full() != b.full() {
			return b.full() // what does not fit the first then fits nobody
		}
		if a.held != b.held {
			return a.held < b.held
		}
		return a.waitsFrom() < b.waitsFrom()
	}
	ranked := func(m *Member) *int { return &m.rankPlace }
	s.withCallers, s.withoutCallers = ranking{less: poorer, place: ranked}, ranking{less: poorer, place: ranked}
	s.richest = ranking{less: func(a, b *Member) bool { return a.keeps() > b.keeps() }, place: func(m *Member) *int { return &m.richPlace }}
	s.Set(b)
	return s
}

// Set changes the bounds. The caller calls Dispatch. What was asked for under the old
// bounds is forgotten: connections that come back for it are not kept from anybody.
// More may be held than the new bounds allow, until the passes that follow have shrunk
// it; nothing is granted meanwhile.
func (s *Share) Set(b Bounds) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range s.members { // their pools get their sizes anew, by the caller
		m.shrunk, m.overdue = false, 0
		s.setReclaims(m, 0, 0)
		s.update(m)
	}
	s.toResize = nil
	s.bounds = b
	s.failFast.Store(b.FailFast)
	s.updateFloor()
	s.heldChanged()
}

// Gate shuts out all opens but the one that AllowOne lets pass, or lets them in again,
// as shut says under the lock: of two changes, the one that comes last here may be the
// older one. It is for a server that is unhealthy: one open finds out whether it is
// back.
func (s *Share) Gate(shut func() bool) {
	s.mu.Lock()
	s.shut = shut()
	s.dispatchAndUnlock()
}

// AllowOne lets one open of m pass the gate; nil: of no member. It passes once. If it
// brings no connection, NotOpened lets another of the same member pass.
func (s *Share) AllowOne(m *Member) {
	s.mu.Lock()
	s.probing, s.lastProbing = m, m
	s.dispatchAndUnlock()
}

// FitsNewcomer is Fits of a member that is yet to join: what is reserved is for it, too.
func (s *Share) FitsNewcomer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held < s.bounds.Max+s.bounds.Overflow-s.inherited
}

// Connections is how many exist, those included that are being opened or closed.
func (s *Share) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Stop ends the share's timer. Slots are granted and released as before; only what time
// alone would change is not looked at any more.
func (s *Share) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// Ended says that the share was stopped and that all its slots are free.
func (s *Share) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped && s.held == 0
}

// Succeed lets the slots of another share of the same server count here until they are
// free. That one grants none any more. It is for a server that is registered again
// under its name while the old one drains: both together have no more than Max. Each
// slot that the old one frees is passed on by release.
func (s *Share) Succeed(old *Share) {
	old.mu.Lock()
	old.successor = s
	held := old.held
	old.mu.Unlock()
	s.inherit(held)
}

// inherit counts so many slots more, or less, as held by predecessors.
func (s *Share) inherit(slots int) {
	s.mu.Lock()
	s.inherited += slots
	s.dispatchAndUnlock()
}
