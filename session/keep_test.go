package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// preparedRig is one whose connection's session prepare has set up for its borrowers.
func preparedRig(t *testing.T, prepare func(s *SessionHandle)) (r *rig, ended *int, err error) {
	r = newRig(t, &fakeConn{})
	r.policy.Kept = &Kept{}
	ended = new(int)
	s, err := NewKeeping(t.Context(), r.conn, r.policy, func() { *ended++ })
	must(t, err)
	prepare(s)
	err = s.CloseKeeping(t.Context())
	synctest.Wait()
	return r, ended, err
}

func set(t *testing.T) func(s *SessionHandle) {
	return func(s *SessionHandle) {
		_, err := s.Update(t.Context(), "SET threads = 1")
		must(t, err)
	}
}

// TestAPreparedSessionIsProven before each change, and before a read that comes later than the
// proof is old.
func TestAPreparedSessionIsProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ended, err := preparedRig(t, set(t))
		must(t, err)
		require.Equal(t, 1, *ended)
		require.Empty(t, r.returns, "it was not lent")
		require.False(t, r.policy.Kept.MustProve(r.conn), "it has just been proven")
		s := New(r.conn, r.policy, r.returned)
		asks := func(run func() error) int {
			before := proofs(r.conn)
			must(t, run())
			return proofs(r.conn) - before
		}
		read := func() error { return drained(s.Query(t.Context(), "SELECT 2")) }
		require.Zero(t, asks(read))
		require.Positive(t, asks(func() error { _, err := s.Update(t.Context(), "INSERT 1"); return err }))
		time.Sleep(maxProofAge - 1)
		require.Zero(t, asks(read))
		time.Sleep(time.Nanosecond)
		require.True(t, r.policy.Kept.MustProve(r.conn))
		require.Positive(t, asks(read))
		require.False(t, r.policy.Kept.MustProve(r.conn))
		require.Positive(t, asks(func() error { return r.policy.Kept.Prove(t.Context(), r.conn) }))
		must(t, s.Close())
		r.policy.Kept.Forget(r.conn)
		time.Sleep(maxProofAge)
		require.False(t, r.policy.Kept.MustProve(r.conn), "nothing is kept of a connection that is closed")
		must(t, r.policy.Kept.Prove(t.Context(), r.conn))
	})
}

// TestASessionThatReplacedAPreparedOneRunsNothing that changes anything.
func TestASessionThatReplacedAPreparedOneRunsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, err := preparedRig(t, set(t))
		must(t, err)
		r.conn.mu.Lock()
		r.conn.reused = "SELECT 'somebody else'"
		r.conn.mu.Unlock()
		require.ErrorIs(t, r.policy.Kept.Prove(t.Context(), r.conn), backend.ErrSessionReplaced)
		s := New(r.conn, r.policy, r.returned)
		before := r.conn.Log()
		_, err = s.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrSessionReplaced)
		require.NotContains(t, r.conn.Log()[len(before):], "INSERT 1")
		var e *backend.Error
		require.True(t, errors.As(err, &e) && e.Unsent)
		_ = s.Close()
	})
}

// TestASessionInWhichNothingWasSetIsNotKept: it is like any other.
func TestASessionInWhichNothingWasSetIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ended, err := preparedRig(t, func(s *SessionHandle) { must(t, drained(s.Query(t.Context(), "SELECT 1"))) })
		must(t, err)
		require.Equal(t, 1, *ended)
		require.Nil(t, r.policy.Kept.of(r.conn))
		_, handles, _, _ := r.conn.left()
		require.Zero(t, handles, "the proof is closed")
		(*Kept)(nil).Forget(r.conn) // a pool without
		require.False(t, (*Kept)(nil).MustProve(r.conn))
	})
}

// TestASessionIsKeptAsItShouldBeOrNotAtAll: what is open, and what cannot be proven, is an error,
// and the connection must be closed.
func TestASessionIsKeptAsItShouldBeOrNotAtAll(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(ctx context.Context, s *SessionHandle)
		want    error
	}{
		"a transaction": {func(ctx context.Context, s *SessionHandle) { _ = s.BeginTransaction(ctx) }, ErrTxOpen},
		"a result":      {func(ctx context.Context, s *SessionHandle) { _, _ = s.Query(ctx, "SELECT 1000000") }, backend.ErrBusy},
		"closed":        {func(_ context.Context, s *SessionHandle) { _ = s.Close() }, backend.ErrHandleClosed},
		"discarded":     {func(_ context.Context, s *SessionHandle) { _ = s.Discard(errors.New("no good")) }, backend.ErrHandleClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, ended, err := preparedRig(t, func(s *SessionHandle) { set(t)(s); c.prepare(t.Context(), s) })
			require.ErrorIs(t, err, c.want, name)
			require.Equal(t, 1, *ended, name)
			require.Nil(t, r.policy.Kept.of(r.conn), name)
			tx, _, streams, _ := r.conn.left()
			require.Empty(t, tx, name)
			require.Zero(t, streams, name)
		})
	}
}

// TestAServerThatPreparesNothingKeepsNothing, and says why; one whose connection breaks meanwhile
// opens none.
func TestAServerThatPreparesNothingKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{fail: map[string]error{"Prepare": sqlError("no statements here")}}
		policy := &Policy{Target: "fake:1", OwnerContext: t.Context(), Kept: &Kept{}}
		s, err := NewKeeping(t.Context(), conn, policy, func() {})
		must(t, err)
		set(t)(s)
		err = s.CloseKeeping(t.Context())
		require.ErrorIs(t, err, errNotKept)
		require.ErrorContains(t, err, "no statements here")

		s, err = NewKeeping(t.Context(), conn, policy, func() {})
		must(t, err)
		must(t, s.CloseKeeping(t.Context())) // nothing was set
		require.Nil(t, policy.Kept.of(conn))

		conn.fail["Prepare"] = transportError()
		_, err = NewKeeping(t.Context(), conn, policy, func() {})
		require.Equal(t, backend.FaultTransport, backend.FaultIn(err))
	})
}
