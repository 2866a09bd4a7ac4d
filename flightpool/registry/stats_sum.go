package registry

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/reservoir"
)

// callCounters are counters as they were told last. They are differences of others,
// which are not read at one moment, and never go back.
type callCounters struct{ acquires, releases, failedWaits uint64 }

// counters returns how many calls got a connection, gave one back and did not
// wait.
func (u *userPool) counters(st reservoir.Stats) callCounters {
	u.mu.Lock()
	defer u.mu.Unlock()
	subtract := func(n uint64, minus int64) uint64 { return n - min(n, uint64(max(0, minus))) } //nolint:gosec // not negative
	r, probes := &u.lastCounters, u.probeLoans.Load()
	r.acquires = max(r.acquires, subtract(st.Acquired, probes))
	r.releases = min(max(r.releases, subtract(st.Acquired-min(st.Acquired, uint64(st.OnLoan)), probes)), r.acquires) //nolint:gosec // not negative
	r.failedWaits = max(r.failedWaits, subtract(u.failedWaits.Load(), u.failedProbeWaits.Load()))
	return *r
}

// recordStatement takes note of a statement that was sent, and counts it if it is to be.
func (u *userPool) recordStatement(w witness, counts bool, took time.Duration, err error) {
	if counts {
		u.queries.Add(1)
		u.queryTime.add(took)
		if err != nil {
			u.queryFailures.Add(1)
		}
	}
	if err == nil || !isServerFault(err) && !wasCancelled(err) {
		w.recordAnswer()
	}
}

// recordCancel counts a call of a Flight SQL server that was cut short.
func (u *userPool) recordCancel(_ string, r cancel.Report) {
	if r.Safe() {
		u.cancelsConfirmed.Add(1)
	} else {
		u.cancelsUnconfirmed.Add(1)
	}
}

// recordStop counts a statement of database/sql whose time was over, and tells of one that may
// run on at the server.
func (u *userPool) recordStop(err error) {
	if err == nil {
		u.cancelsConfirmed.Add(1)
		return
	}
	u.cancelsUnconfirmed.Add(1)
	if log := u.server.registry.cfg.Logger; log != nil {
		log.Warn("registry: a statement whose time was over could not be stopped on the server", "server", u.server.name, "user", u.name, "error", err)
	}
}

// canGetConn reports whether a connection is idle, or may be opened at once.
func (u *userPool) canGetConn() bool { return u.version.Load().Stats().Idle > 0 || u.member.Fits() }

// checkOne checks one connection. It is not counted as a call of the user's.
func (u *userPool) checkOne(ctx context.Context, g *currentVersion) error {
	u.mu.Lock()
	u.probesRunning++
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		u.probesRunning--
		u.unlockAndFoldIn()
	}()
	u.probeLoans.Add(1)
	u.failedProbeWaits.Add(1)
	err := g.CheckOne(ctx)
	switch waited := new(reservoir.OpenError); {
	case errors.As(err, &waited), errors.As(err, new(probeOpenError)), errors.Is(err, ErrExhausted), errors.Is(err, ErrClosed), errors.Is(err, ErrUnhealthy), errors.Is(err, context.Canceled):
		u.probeLoans.Add(-1)
	default:
		u.failedProbeWaits.Add(-1)
	}
	return err
}

// allVersions are the draining versions and the current one.
func (u *userPool) allVersions() []poolVersion {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := slices.Clone(u.draining)
	if !u.removed.Load() { // else it is among those that drain
		all = append(all, u.version.Load().poolVersion)
	}
	return all
}

// callCount counts what a user has asked for.
func (u *userPool) callCount() uint64 {
	c := u.counters(u.stats())
	return c.acquires + c.failedWaits + u.rejected.Load()
}

// stats adds up the numbers of all versions. A version is counted once: with mu held none moves from
// one group to another.
func (u *userPool) stats() reservoir.Stats {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum := u.closedVersions
	for _, g := range u.draining {
		addNumbers(&sum, g.Stats())
	}
	if !u.removed.Load() { // else it is among those that drain
		addNumbers(&sum, u.version.Load().Stats())
	}
	return sum
}

// addNumbers adds to each number in the struct to what from has there: counts, counters
// and times.
func addNumbers[T any](to *T, from T) {
	sum, more := reflect.ValueOf(to).Elem(), reflect.ValueOf(from)
	for i := range sum.NumField() {
		switch f := sum.Field(i); {
		case f.CanInt():
			f.SetInt(f.Int() + more.Field(i).Int())
		case f.CanUint():
			f.SetUint(f.Uint() + more.Field(i).Uint())
		}
	}
}

// removedStats keeps the counters of users whose pools are removed, so that a server's
// counters never go back. A pool that drains is counted by its own counters until
// foldIn takes it over. server.mu guards it, as it guards users: a pool that moves from
// the one to the other is in the sum once.
type removedStats struct {
	sum      PoolStats
	draining map[*userPool]struct{} // removed, and not closed yet
}

// foldIn keeps the counters of a removed pool that is closed.
func (s *server) foldIn(u *userPool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.removed.draining[u]; ok {
		delete(s.removed.draining, u)
		s.removed.sum = s.removed.sum.add(u.poolStats()) // under the lock: nothing is lost between the two
	}
}

// allPools are the users' pools, those that drain included, and the sum of those that
// are closed.
func (s *server) allPools() (pools []*userPool, closed PoolStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pools = slices.AppendSeq(slices.Collect(maps.Values(*s.users.Load())), maps.Keys(s.removed.draining))
	return pools, s.removed.sum
}
