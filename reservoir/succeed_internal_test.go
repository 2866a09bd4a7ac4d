package reservoir

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// stale makes a reservoir with n idle connections that are past their replacement
// time, while no successor of them can be opened: each later open waits until the
// reservoir is closed. One that ended meanwhile would stand before that of arrive.
func stale(t *testing.T, n int) *Reservoir[int] {
	t.Helper()
	var opens atomic.Int64
	r, err := New(Config[int]{
		Open: func(ctx context.Context) (int, error) {
			if opens.Add(1) > int64(n) {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return 1, nil
		},
		Close:   func(int) error { return nil },
		MaxSize: 2 * n, MaxConcurrentOpens: n, MaxLifetime: -1, ReplaceAfter: -1, IdleTTL: -1,
	})
	require.NoError(t, err)
	require.NoError(t, r.WaitReady(t.Context(), n))
	time.Sleep(time.Minute)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.read()
	for e := r.mu.idle.back(); e != nil; e = e.link.prev.self {
		e.lifetime.replaceAt = now
		r.markStale(e, now)
	}
	return r
}

// arrive ends the open of one more connection, as open does.
func arrive(r *Reservoir[int]) *entry[int] {
	r.mu.Lock()
	e := r.newEntry()
	r.mu.Unlock()
	r.opened(e, r.clock.exact(), never, nil, false)
	return e
}

// While Reset is between two of its batches, a connection that was opened after it
// began stays before those that it is about to close: behind one of them it would
// hide that one from Reset, which goes on until all are closed.
func TestASuccessorDoesNotGetBehindWhatResetCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		r := stale(t, n)
		r.mu.Lock()
		r.mu.generation++ // as Reset begins
		r.mu.outdated = r.mu.idle.n
		r.mu.Unlock()
		e := arrive(r)
		var fx effects[int]
		r.mu.Lock()
		first, idleSince, now := r.mu.idle.front(), e.idleSince, r.clock.read()
		r.retireOutdated(Outdated, &fx)
		left := r.mu.outdated
		r.unlock(&fx)
		require.Zero(t, left, "Reset would not end")
		require.Same(t, e, first)
		require.Equal(t, now, idleSince)
		synctest.Wait()
		require.EqualValues(t, n, r.Stats().Closed[Outdated]+r.Stats().Closed[Expired])
		require.NoError(t, r.Close(t.Context()))
	})
}

// A connection can be stale itself when it is taken in, if the time goes on
// meanwhile: then nothing may be done with its place in the list by its own place.
func TestASuccessorThatIsStaleItselfKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := stale(t, 1)
		r.mu.Lock()
		e := r.mu.idle.front()
		before := e.idleSince
		r.takePlaceOfStale(e, r.clock.read())
		first, n, after := r.mu.idle.front(), r.mu.idle.n, e.idleSince
		r.mu.superseded = 0 // it is no successor
		r.mu.Unlock()
		require.Same(t, e, first)
		require.Equal(t, 1, n)
		require.Equal(t, before, after)
		require.NoError(t, r.Close(t.Context()))
	})
}
