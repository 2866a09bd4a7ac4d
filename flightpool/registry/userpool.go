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
	"github.com/flightpool/flightpool/internal/histogram"
	"github.com/flightpool/flightpool/internal/taskgroup"
	"github.com/flightpool/flightpool/reservoir"
)

// userPool is one local user's connections to one server. It has one current version,
// which new calls use, and may have others that drain. mu comes after server.mu.
type userPool struct {
	server *server
	name   string
	member *fairshare.Member

	version   atomic.Pointer[currentVersion]
	removed   atomic.Bool   // INVARIANT: set before its current version is closed
	removedCh chan struct{} // closed when it is removed

	waitTimes atomic.Pointer[histogram.Histogram] // nil: DisableStatistics
	traffic   byteCounter

	queries, queryFailures, rejected atomic.Uint64
	failedWaits                      atomic.Uint64 // those that ended without a connection
	created, destroyed               atomic.Uint64
	openFailures, resetFailures      atomic.Uint64

	cancelsConfirmed, cancelsUnconfirmed atomic.Uint64

	waitTimeSum timeSum // of the waits that brought a connection
	// Probes borrow connections too but are not counted as calls: loans that they have,
	// had or are about to have, and their waits that failed.
	probeLoans, failedProbeWaits atomic.Int64
	queryTime                    timeSum

	createdAt   time.Time
	lifetimeSum timeSum // of all connections so far, those that are open counted as if born with the pool

	mu             sync.Mutex
	draining       []poolVersion   // closed, and not done yet
	closedVersions reservoir.Stats // of those that are done
	probesRunning  int
	lastCounters   callCounters

	// accessed by maintain alone
	lastCallCount uint64
	lastActive    time.Time
}

// currentVersion is the version that new calls use, and what it was made with.
type currentVersion struct {
	poolVersion
	connKey connKey
	witness witness
}

// newUserPool makes a user's pool that has no version yet. Neither server nor share
// knows it before server.add.
func newUserPool(s *server, name string, d *ServerDefinition) *userPool {
	u := &userPool{server: s, name: name, createdAt: time.Now(), lastActive: time.Now(), removedCh: make(chan struct{})}
	u.member = s.allocator.NewMember(name, u, userMaxSize(d))
	u.setWaitStats(d)
	return u
}

// setWaitStats begins or ends to collect the times of waits, as d says.
func (u *userPool) setWaitStats(d *ServerDefinition) {
	if d.DisableStatistics {
		u.waitTimes.Store(nil)
		return
	}
	u.waitTimes.CompareAndSwap(nil, &histogram.Histogram{})
}

// Resize and the next three are called by package fairshare; all but Refuse are for the current version.
func (u *userPool) Resize(n int) { _ = u.version.Load().Resize(n) } // a closed one needs no size
func (u *userPool) Yield(n int, unused time.Duration) int {
	return u.version.Load().CloseIdle(n, unused)
}
func (u *userPool) Replace() { u.version.Load().Reset() }

// Refuse fails those who wait as if they had been refused at once, and counts them so.
func (u *userPool) Refuse() { u.failWaiters(errNoConnFree) }

// hooks let the registry count what its reservoirs do, and w judge it. They run outside the
// reservoir's lock, for all versions of the pool.
func (u *userPool) hooks(w witness) reservoir.Hooks {
	s, m := u.server, u.member
	return reservoir.Hooks{
		Opened: func(took time.Duration) {
			u.lifetimeSum.add(-time.Since(u.createdAt))
			u.created.Add(1)
			w.recordCheck(nil, true)
			m.Opened(took)
		},
		OpenFailed: func(err error, _ time.Duration) {
			if errors.As(err, new(fairshare.NotAdmittedError)) {
				m.NotOpened()
				return // it has shown nothing
			}
			u.openFailures.Add(1)
			w.recordCheck(err, true)
			if !errors.As(err, new(*reservoir.UnusableError)) { // else Opened was told
				m.NotOpened() // it may have waited at the gate since before the probe asked
			}
			if g := u.version.Load(); s.health.down.Load() != nil && g.Stats().InUse > 0 {
				g.FailWaiters(probeOpenError{err}) // the probe has its result; the reservoir would wait for a connection on loan
			}
		},
		OpenSkipped: func() { m.NotOpened() },
		WaitStart: func() {
			m.AddWaiting(1)
			if down := s.health.down.Load(); down != nil && !s.health.probeQueued() {
				u.failWaiters(down) // the server turned unhealthy between lookup and queueing
			}
		},
		WaitEnd: func(waited time.Duration, err error) {
			m.AddWaiting(-1)
			if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, errNoConnFree) { // else it goes on elsewhere, or was refused
				u.failedWaits.Add(1)
			}
			if waits := u.waitTimes.Load(); waits != nil && err == nil {
				waits.Add(waited)
				u.waitTimeSum.add(waited)
			}
		},
		Released: func(time.Duration) { m.Returned() },
		Checked:  func(err error, _ time.Duration) { w.recordCheck(err, false) },
		Closing: func(why reservoir.Reason, cause error) {
			if why == reservoir.Discarded { // of those that end while nobody has them, the opens that follow tell more
				w.recordLoss(cause)
			}
		},
		Closed: func(reservoir.Reason, error) {
			u.destroyed.Add(1)
			u.lifetimeSum.add(time.Since(u.createdAt))
		},
	}
}

// failWaiters fails the callers who wait, those as well of Do on a version that has a successor.
func (u *userPool) failWaiters(err error) {
	for _, g := range u.allVersions() {
		g.FailWaiters(err)
	}
}

// probeOpenError is the failure of an open, for the callers that wait.
type probeOpenError struct{ error }

func (e probeOpenError) Unwrap() error { return e.error }

// needsNewVersion reports whether the current version was made with other values than
// d's. Sizes and most times are no part of it: they change in place.
func (u *userPool) needsNewVersion(d *ServerDefinition) bool {
	g := u.version.Load()
	return g.witness.place != d.place || !reflect.DeepEqual(g.connKey, u.connKeyOf(d))
}

// connKeyOf is what d has the pool's connections made with.
func (u *userPool) connKeyOf(d *ServerDefinition) connKey {
	mapping, _ := d.mapping(u.name)
	return d.connKeyFor(mapping, u.server.registry.kinds[d.Kind].Flight != nil)
}

// newVersionFor makes a version for d.
func (u *userPool) newVersionFor(ctx context.Context, d *ServerDefinition) (*currentVersion, error) {
	f := u.connKeyOf(d)
	w := witness{u.server, d.place}
	g, err := u.buildVersion(ctx, u.server.registry.kinds[d.Kind], d, f, w)
	if err != nil {
		return nil, err
	}
	return &currentVersion{g, f, w}, nil
}

// applyDefinition makes next the current version, or, where it is nil, changes the
// current one in place.
func (u *userPool) applyDefinition(ctx context.Context, next *currentVersion, d *ServerDefinition) error {
	u.member.Resize(userMaxSize(d))
	u.setWaitStats(d)
	if next == nil {
		return u.version.Load().reconfigure(d)
	}
	old, ok := u.setVersion(next)
	if !ok {
		return next.Close(ctx) // it has opened nothing
	}
	if old == nil {
		return nil
	}
	u.server.drainInBackground(u.name, func(ctx context.Context) error {
		old.awaitDoCalls(ctx, d, u.removedCh)
		return u.closeVersion(ctx, old.poolVersion)
	})
	return next.reconfigure(d)
}

// setVersion makes a version the current one and lets the one before drain, unless
// the pool was removed.
func (u *userPool) setVersion(next *currentVersion) (old *currentVersion, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.removed.Load() {
		return nil, false
	}
	if old = u.version.Swap(next); old != nil {
		u.draining = append(u.draining, old.poolVersion)
	}
	return old, true
}

// beginDo counts a call of Do on a version; false: it is not the current one any
// more.
func (u *userPool) beginDo(g *currentVersion, calls *taskgroup.Group) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.removed.Load() || u.version.Load() != g {
		return false
	}
	calls.Add() // INVARIANT: only while current, after which awaitDoCalls waits
	return true
}

// remove makes the current version drain, and the pool removed, unlessDo unless a call
// of Do uses it.
func (u *userPool) remove(unlessDo bool) (last poolVersion, removed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if unlessDo && u.hasDoCallsLocked() {
		return nil, false
	}
	u.removed.Store(true)
	close(u.removedCh)
	g := u.version.Load().poolVersion
	u.draining = append(u.draining, g)
	return g, true
}

// hasDoCalls is hasDoCallsLocked for callers that do not hold mu.
func (u *userPool) hasDoCalls() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hasDoCallsLocked()
}

// hasDoCallsLocked reports whether a call of Do uses the pool, draining versions
// included. The caller holds mu.
func (u *userPool) hasDoCallsLocked() bool {
	return u.version.Load().hasDoCalls() || slices.ContainsFunc(u.draining, poolVersion.hasDoCalls)
}

// closeVersion closes a draining version, waiting for its loans until ctx ends, and
// keeps its counters. What is not closed then, of a driver that hangs, is counted until
// it is.
func (u *userPool) closeVersion(ctx context.Context, g poolVersion) error {
	err := g.Close(ctx)
	if left := new(reservoir.CloseError); errors.As(err, &left) && left.Remaining > 0 {
		go func() {
			if g.awaitClosed(u.server.life) == nil {
				u.versionClosed(g)
			}
		}()
		return err
	}
	u.versionClosed(g)
	return err
}

// versionClosed keeps the counters of a version that is closed.
func (u *userPool) versionClosed(g poolVersion) {
	u.mu.Lock()
	u.draining = slices.DeleteFunc(u.draining, func(o poolVersion) bool { return o == g })
	addNumbers(&u.closedVersions, g.Stats())
	u.unlockAndFoldIn()
}

// unlockAndFoldIn unlocks mu, and has the server take over the counters if nothing can
// change them any more. A probe that is under way may, although the last version is
// closed.
func (u *userPool) unlockAndFoldIn() {
	done := u.removed.Load() && len(u.draining) == 0 && u.probesRunning == 0
	u.mu.Unlock()
	if done {
		u.server.foldIn(u)
	}
}
