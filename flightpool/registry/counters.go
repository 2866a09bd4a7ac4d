package registry

import (
	"context"
	"errors"
	"slices"

	"github.com/flightpool/flightpool/reservoir"
)

// reported are counters as they were told last. They are differences of others,
// which are not read at one moment, and never go back.
type reported struct{ acquires, releases, failedWaits uint64 }

// counters tells how many calls got a connection, gave one back and waited for
// none.
func (u *userPool) counters(st reservoir.Stats) reported {
	u.mu.Lock()
	defer u.mu.Unlock()
	less := func(n uint64, minus int64) uint64 { return n - min(n, uint64(max(0, minus))) } //nolint:gosec // not negative
	r, probes := &u.reported, u.probes.Load()
	r.acquires = max(r.acquires, less(st.Acquired, probes))
	r.releases = min(max(r.releases, less(u.released.Load(), probes)), r.acquires)
	r.failedWaits = max(r.failedWaits, less(u.failedWaits.Load(), u.probeWaits.Load()))
	return *r
}

// prove checks one connection, which is no call of the user's.
func (u *userPool) prove(ctx context.Context, g *current) error {
	u.probes.Add(1)
	u.probeWaits.Add(1)
	err := g.prove(ctx)
	switch waited := new(reservoir.OpenError); {
	case errors.As(err, &waited), errors.As(err, new(unserved)), errors.Is(err, ErrExhausted), errors.Is(err, ErrClosed), errors.Is(err, ErrUnhealthy), errors.Is(err, context.Canceled):
		u.probes.Add(-1)
	default:
		u.probeWaits.Add(-1)
	}
	return err
}

// generations are those that drain, and the current one.
func (u *userPool) generations() []generation {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := slices.Clone(u.draining)
	if !u.removed.Load() { // else it is among those that drain
		all = append(all, u.gen.Load().generation)
	}
	return all
}

// calls counts what a user has asked for.
func (u *userPool) calls() uint64 {
	c := u.counters(u.stats())
	return c.acquires + c.failedWaits + u.shed.Load()
}

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
	a.Failed += b.Failed
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
