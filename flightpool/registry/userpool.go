package registry

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/fairshare"
	"github.com/flightpool/flightpool/reservoir"
)

// userPool is one local user's connections to one server.
type userPool struct {
	server *server
	name   string
	member *fairshare.Member

	gen     atomic.Pointer[current]
	removed atomic.Bool   // INVARIANT: set before its generation is closed
	gone    chan struct{} // closed when it is removed

	waits   atomic.Pointer[histogram] // nil: DisableStatistics
	traffic traffic

	queries, queryFailures, shed atomic.Uint64
	failedWaits                  atomic.Uint64 // those that ended without a connection
	created, destroyed           atomic.Uint64
	openFailures, resetFailures  atomic.Uint64
	released                     atomic.Uint64 // loans, those of probes included
	waited                       atomic.Int64  // nanoseconds, of the waits that brought a connection
	// Probes borrow, too, but are nobody's calls: loans that they have, had or are
	// about to have, and waits of theirs that ended without one.
	probes, probeWaits atomic.Int64
	queryTime          atomic.Int64 // nanoseconds

	born     time.Time
	lifetime atomic.Int64 // of all connections so far, those that are open counted as if born with the pool

	mu       sync.Mutex
	draining []generation    // closed, and not done yet
	retired  reservoir.Stats // of those that are done
	reported reported

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
	u := &userPool{server: s, name: name, born: time.Now(), active: time.Now(), gone: make(chan struct{})}
	u.member = s.share.NewMember(name, u, userSize(d))
	u.collect(d)
	return u
}

// collect begins or ends to collect the times of waits, as d says.
func (u *userPool) collect(d *ServerDefinition) {
	if d.DisableStatistics {
		u.waits.Store(nil)
		return
	}
	u.waits.CompareAndSwap(nil, &histogram{})
}

// What the share does to a pool acts on the generation that is current.
func (u *userPool) Resize(n int) { u.gen.Load().resize(n) }
func (u *userPool) Yield(n int, unused time.Duration) int {
	return u.gen.Load().yield(n, unused)
}
func (u *userPool) Replace() { u.gen.Load().replace() }

// Refuse fails those who wait as if they had been refused at once.
func (u *userPool) Refuse() {
	u.shed.Add(uint64(u.gen.Load().failWaiters(errTaken))) //nolint:gosec // a number of callers
}

// hooks are the registry's eyes and ears in a reservoir.
func (u *userPool) hooks() reservoir.Hooks {
	s, m := u.server, u.member
	return reservoir.Hooks{
		Opened: func(took time.Duration) {
			u.lifetime.Add(-int64(time.Since(u.born)))
			u.created.Add(1)
			s.health.note(nil, true)
			m.Opened(took)
		},
		OpenFailed: func(err error, _ time.Duration) {
			if errors.As(err, new(fairshare.NotAdmittedError)) {
				return // it has shown nothing
			}
			u.openFailures.Add(1)
			s.health.note(err, true)
			m.NotOpened() // it may have waited at the gate since before the probe asked
			if g := u.gen.Load(); s.health.down.Load() != nil && g.stats().InUse > 0 {
				g.failWaiters(unserved{err}) // the probe has its answer; the reservoir would wait for what is on loan
			}
		},
		OpenElided: func() { m.NotOpened() },
		WaitStart: func() {
			m.AddWaiting(1)
			if down := s.health.down.Load(); down != nil && !s.health.isAsking() {
				u.gen.Load().failWaiters(down) // he came while it turned
			}
		},
		WaitEnd: func(waited time.Duration, err error) {
			m.AddWaiting(-1)
			if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, errTaken) { // else it goes on elsewhere, or was refused
				u.failedWaits.Add(1)
			}
			if waits := u.waits.Load(); waits != nil && err == nil {
				waits.add(waited)
				u.waited.Add(int64(waited))
			}
		},
		Released: func(time.Duration) {
			u.released.Add(1)
			m.Returned()
		},
		Checked: func(err error, _ time.Duration) { s.health.note(err, false) },
		Closing: func(why reservoir.Reason, cause error) {
			if why == reservoir.Discarded || why == reservoir.Lost {
				s.health.lost(cause)
			}
			if why == reservoir.Shutdown && cause != nil {
				u.released.Add(1) // taken back from its borrower
			}
		},
		Closed: func(reservoir.Reason, error) {
			u.destroyed.Add(1)
			u.lifetime.Add(int64(time.Since(u.born)))
		},
	}
}

// unserved is the failure of an open that those get who wait.
type unserved struct{ error }

func (e unserved) Unwrap() error { return e.error }

// queried takes note of a statement.
func (u *userPool) queried(took time.Duration, err error) {
	u.queries.Add(1)
	u.queryTime.Add(int64(took))
	if err != nil {
		u.queryFailures.Add(1)
	}
}

// outdated says whether the present generation was made with something else than d
// says.
func (u *userPool) outdated(d *ServerDefinition) bool {
	mapping, _ := d.mapping(u.name)
	k := u.server.registry.kinds[d.Kind]
	return !reflect.DeepEqual(u.gen.Load().fixed, d.fixedFor(mapping, k.Flight != nil))
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
	u.member.Resize(userSize(d))
	u.collect(d)
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
	u.server.background(func(life context.Context) {
		old.superseded(life, d, u.gone)
		_ = u.finish(life, old.generation)
	})
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

// enter counts a call of Do on a generation; false: it is not the current one any
// more.
func (u *userPool) enter(g *current, calls *tasks) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.removed.Load() || u.gen.Load() != g {
		return false
	}
	calls.add() // INVARIANT: only while current, after which superseded waits
	return true
}

// remove makes the current generation the last one, and one that drains, unless the
// pool stays, of which it asks under mu.
func (u *userPool) remove(stays func() bool) (last generation, removed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if stays() {
		return nil, false
	}
	u.removed.Store(true)
	close(u.gone)
	g := u.gen.Load().generation
	u.draining = append(u.draining, g)
	return g, true
}

// inDo is busy for who does not hold mu.
func (u *userPool) inDo() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.busy()
}

// busy says that a call of Do uses the pool, a generation that drains included. The
// caller holds mu.
func (u *userPool) busy() bool {
	return u.gen.Load().busy() || slices.ContainsFunc(u.draining, generation.busy)
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
