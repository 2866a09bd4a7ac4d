package registry

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// A countingVersion has lent a connection once, and tells whether it was asked with the
// pool's mu held.
type countingVersion struct {
	poolVersion
	u        *userPool
	unlocked int
}

func (v *countingVersion) Stats() reservoir.Stats {
	if v.u.mu.TryLock() {
		v.u.mu.Unlock()
		v.unlocked++
	}
	return reservoir.Stats{Acquired: 1}
}

// A version that moves from one group to the next while the groups are read would be
// missing from the sum, or in it twice: with mu held none moves.
func TestVersionsAreCountedWithTheLockThatMovesThem(t *testing.T) {
	u := &userPool{server: &server{}, removedCh: make(chan struct{})}
	old, current := &countingVersion{u: u}, &countingVersion{u: u}
	_, ok := u.setVersion(&currentVersion{poolVersion: old})
	require.True(t, ok)
	require.Equal(t, uint64(1), u.stats().Acquired)
	_, ok = u.setVersion(&currentVersion{poolVersion: current})
	require.True(t, ok)
	require.Equal(t, uint64(2), u.stats().Acquired, "one drains")
	u.versionClosed(old)
	require.Equal(t, uint64(2), u.stats().Acquired, "one is closed")
	_, ok = u.remove(false)
	require.True(t, ok)
	require.Equal(t, uint64(2), u.stats().Acquired, "the current one drains, too")
	u.versionClosed(current)
	require.Equal(t, uint64(2), u.stats().Acquired, "both are closed")
	require.Zero(t, old.unlocked+current.unlocked, "asked without the lock")
}

// A pool that is removed while the pools are read would be missing, or there twice. The
// race detector sees a read without the lock under which it is removed.
func TestPoolsAreReadWithTheLockThatRemovesThem(t *testing.T) {
	d := &ServerDefinition{MaxSize: 1}
	s := newServer(&Registry{life: t.Context()}, d)
	stays, goes := newUserPool(s, "stays", d), newUserPool(s, "goes", d)
	s.users.Store(&map[string]*userPool{"stays": stays})
	goes.removed.Store(true)
	for _, change := range []func(){
		func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.removed.draining[goes] = struct{}{}
		},
		func() { s.foldIn(goes) },
	} {
		var both sync.WaitGroup
		both.Go(change)
		both.Go(func() { s.allPools() })
		both.Wait()
	}
	pools, _ := s.allPools()
	require.Equal(t, []*userPool{stays}, pools)
}

// A probedVersion has lent five connections. Its check ends as the test says, without a
// loan.
type probedVersion struct {
	poolVersion
	check func() error
}

func (v probedVersion) Stats() reservoir.Stats         { return reservoir.Stats{Acquired: 5} }
func (v probedVersion) CheckOne(context.Context) error { return v.check() }

// A probe that is under way counts as a loan, of a pool that is removed meanwhile too.
// The counters of that are kept for good, so they wait for it.
func TestARemovedPoolIsCountedWhenItsProbeHasEnded(t *testing.T) {
	d := &ServerDefinition{MaxSize: 1}
	s := newServer(&Registry{life: t.Context()}, d)
	u := newUserPool(s, "u", d)
	v := &probedVersion{}
	_, ok := u.setVersion(&currentVersion{poolVersion: v})
	require.True(t, ok)
	v.check = func() error {
		_, removed := u.remove(false)
		require.True(t, removed)
		s.removed.draining[u] = struct{}{}
		u.versionClosed(v)
		return ErrClosed
	}
	require.ErrorIs(t, u.checkOne(t.Context(), u.version.Load()), ErrClosed)
	require.Empty(t, s.removed.draining)
	require.EqualValues(t, 5, s.poolStats().Acquires)
	require.EqualValues(t, 5, s.poolStats().Releases)
}
