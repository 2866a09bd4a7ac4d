package registry

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/reservoir"
)

// userPool is one local user's connections to one server.
type userPool struct {
	server *server
	name   string
	member *member

	gen     atomic.Pointer[current]
	removed atomic.Bool // INVARIANT: set before its generation is closed

	waits   *histogram // nil: DisableStatistics
	traffic traffic

	queries, queryFailures, shed atomic.Uint64
	refused                      atomic.Uint64 // of shed, those who had begun to wait
	queryTime                    atomic.Int64  // nanoseconds

	born     time.Time
	lifetime atomic.Int64 // of all connections so far, those that are open counted as if born with the pool

	mu       sync.Mutex
	draining []generation    // closed, and not done yet
	retired  reservoir.Stats // of those that are done

	// the keeper's
	seen   uint64
	active time.Time
}

// current is the generation that new calls use, and what it was made with.
type current struct {
	generation
	fixed fixed
}

// newUser makes a user's pool that has no generation yet.
func newUser(s *server, name string, d *ServerDefinition) *userPool {
	u := &userPool{server: s, name: name, born: time.Now(), active: time.Now()}
	u.member = &member{pool: u, share: s.share, size: userSize(d)}
	if !d.DisableStatistics {
		u.waits = &histogram{}
	}
	return u
}

// lender, for the share: it acts on the generation that is current.
func (u *userPool) resize(n int) { u.gen.Load().resize(n) }
func (u *userPool) yield(n int, unused time.Duration) int {
	return u.gen.Load().yield(n, unused)
}
func (u *userPool) replace()              { u.gen.Load().replace() }
func (u *userPool) failWaiters(err error) { u.gen.Load().failWaiters(err) }

// refuse fails those who wait as if they had been refused at once.
func (u *userPool) refuse(err error) {
	n := uint64(u.gen.Load().failWaiters(err)) //nolint:gosec // a number of callers
	u.refused.Add(n)
	u.shed.Add(n)
}

// hooks are the registry's eyes and ears in a reservoir.
func (u *userPool) hooks() reservoir.Hooks {
	s, m := u.server, u.member
	return reservoir.Hooks{
		Opened: func(took time.Duration) {
			u.lifetime.Add(-int64(time.Since(u.born)))
			s.health.note(nil)
			s.share.opened(m, took)
		},
		OpenFailed: func(err error, _ time.Duration) {
			if errors.As(err, new(notAdmitted)) {
				return // it has shown nothing
			}
			s.health.note(err)
			s.share.unused(m) // it may have waited at the gate since before the probe asked
			if g := u.gen.Load(); s.health.down.Load() != nil && g.stats().InUse > 0 {
				g.failWaiters(err) // the probe has its answer; the reservoir would wait for what is on loan
			}
		},
		OpenElided: func() { s.share.unused(m) },
		WaitStart: func() {
			s.share.demand(m, 1)
			if down := s.health.down.Load(); down != nil && !s.health.isAsking() {
				u.gen.Load().failWaiters(down) // he came while it turned
			}
		},
		WaitEnd: func(waited time.Duration, err error) {
			s.share.demand(m, -1)
			if u.waits != nil && err == nil {
				u.waits.add(waited)
			}
		},
		Released: func(time.Duration) { s.share.returned(m) },
		Checked:  func(err error, _ time.Duration) { s.health.note(err) },
		Closing: func(why reservoir.Reason, cause error) {
			if why == reservoir.Discarded || why == reservoir.Lost {
				s.health.lost(cause)
			}
		},
		Closed: func(reservoir.Reason, error) { u.lifetime.Add(int64(time.Since(u.born))) },
	}
}

// queried takes note of a statement.
func (u *userPool) queried(took time.Duration, err error) {
	u.queries.Add(1)
	u.queryTime.Add(int64(took))
	if err != nil {
		u.queryFailures.Add(1)
	}
}

// prepare makes a generation for d if the present one was made with something
// else; nil: it can change in place.
func (u *userPool) prepare(ctx context.Context, k Kind, d *ServerDefinition) (*current, error) {
	mapping, _ := d.mapping(u.name)
	f := d.fixedFor(mapping, k.Flight != nil)
	if old := u.gen.Load(); old != nil && reflect.DeepEqual(old.fixed, f) {
		return nil, nil
	}
	g, err := u.build(ctx, k, d, f)
	if err != nil {
		return nil, err
	}
	return &current{g, f}, nil
}

// renew lets next take the place of the present generation, or, where it is nil,
// the present one change in place.
func (u *userPool) renew(ctx context.Context, next *current, d *ServerDefinition) error {
	u.server.share.bound(u.member, userSize(d))
	if next == nil {
		return u.gen.Load().tune(d)
	}
	old, ok := u.succeed(next)
	if !ok {
		return next.close(ctx) // it has opened nothing
	}
	if old == nil {
		return nil
	}
	u.server.background(func(life context.Context) { _ = u.finish(life, old.generation) })
	return next.tune(d)
}

// succeed makes a generation the current one, and the one before that drains,
// unless the pool was removed.
func (u *userPool) succeed(next *current) (old *current, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.removed.Load() {
		return nil, false
	}
	if old = u.gen.Swap(next); old != nil {
		u.draining = append(u.draining, old.generation)
	}
	return old, true
}

// remove makes the current generation the last one, and one that drains.
func (u *userPool) remove() generation {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.removed.Store(true)
	g := u.gen.Load().generation
	u.draining = append(u.draining, g)
	return g
}

// finish closes a generation that drains, waiting for its loans until ctx ends,
// and keeps its counters. With the last one of a removed pool the server takes
// over what it did.
func (u *userPool) finish(ctx context.Context, g generation) error {
	err := g.close(ctx)
	u.mu.Lock()
	u.draining = slices.DeleteFunc(u.draining, func(o generation) bool { return o == g })
	u.retired = added(u.retired, g.stats())
	done := u.removed.Load() && len(u.draining) == 0
	u.mu.Unlock()
	if done {
		u.server.past.left(u)
	}
	return err
}

// calls counts what a user has asked for.
func (u *userPool) calls() uint64 { return u.stats().Acquired + u.shed.Load() }

// stats adds all generations up.
func (u *userPool) stats() reservoir.Stats {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum := u.retired
	for _, g := range u.draining {
		sum = added(sum, g.stats())
	}
	if !u.removed.Load() { // else it is among those that drain
		sum = added(sum, u.gen.Load().stats())
	}
	return sum
}

// added is a and b together.
func added(a, b reservoir.Stats) reservoir.Stats {
	a.Total += b.Total
	a.Idle += b.Idle
	a.InUse += b.InUse
	a.Opening += b.Opening
	a.Closing += b.Closing
	a.Waiting += b.Waiting
	a.Acquired += b.Acquired
	a.AcquiredWaited += b.AcquiredWaited
	a.Handoffs += b.Handoffs
	a.WaitTime += b.WaitTime
	a.Timeouts += b.Timeouts
	a.Canceled += b.Canceled
	a.Shed += b.Shed
	a.Opens += b.Opens
	a.OpenFailures += b.OpenFailures
	a.OpensElided += b.OpensElided
	a.Checks += b.Checks
	a.CheckFailures += b.CheckFailures
	for i, n := range b.Closed {
		a.Closed[i] += n
	}
	a.CloseStalls += b.CloseStalls
	a.Leaks += b.Leaks
	if b.LastOpenError != nil {
		a.LastOpenError = b.LastOpenError
	}
	return a
}
