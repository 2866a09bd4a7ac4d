package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// A preparation whose end fails is not kept, whatever succeeds behind the failure; and nothing is sent at the end that what
// was done does not ask for.
func TestTheEndOfAPreparationSendsWhatItMustAndTellsTheFirstFailure(t *testing.T) {
	const closes = "ClosePrepared" // of its proof, and of what it has prepared
	prepared := func(t *testing.T, s *SessionHandle) { _, err := s.PrepareQuery(t.Context(), "SELECT 2"); must(t, err) }
	doubt := func(t *testing.T, s *SessionHandle) { refused("INSERT 7")(t, s) }              // the server may be at its limit still
	policy := func(t *testing.T, s *SessionHandle) { leavePolicy(t, s.conn.(*fakeConn), s) } //nolint:forcetypeassert // else the test fails
	for name, tc := range map[string]struct {
		use  []func(t *testing.T, s *SessionHandle)
		fail map[string]error // at the end
		why  string
		want []string // before the proof is asked for
	}{
		"nothing is left":           {want: []string{closes}},
		"a statement":               {use: []func(*testing.T, *SessionHandle){prepared}, want: []string{closes, closes}},
		"in doubt":                  {use: []func(*testing.T, *SessionHandle){doubt}, want: []string{closes, "SELECT 1"}},
		"a policy":                  {use: []func(*testing.T, *SessionHandle){policy}, want: []string{closes, policyLook, policyReset, "SELECT 1"}},
		"in doubt, and not well":    {use: []func(*testing.T, *SessionHandle){doubt}, fail: map[string]error{"SELECT 1": limitError()}, why: "busy", want: []string{closes, "SELECT 1"}},
		"a statement, and in doubt": {use: []func(*testing.T, *SessionHandle){prepared, doubt}, fail: map[string]error{"ClosePrepared": sqlError("not closed")}, why: "not closed", want: []string{closes}},
		"a statement, and a policy": {use: []func(*testing.T, *SessionHandle){prepared, policy}, fail: map[string]error{"ClosePrepared": sqlError("not closed")}, why: "not closed", want: []string{closes}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{fail: map[string]error{"INSERT 7": limitError()}})
			r.policy.Kept = &Kept{}
			s, err := NewKeeping(t.Context(), r.conn, r.policy, func() {})
			must(t, err)
			set(t)(s)
			for _, use := range tc.use {
				use(t, s)
			}
			r.conn.fail = tc.fail
			sent := r.sent(func() { err = s.CloseKeeping(t.Context()) })
			if tc.why != "" {
				require.ErrorContains(t, err, tc.why, name)
				require.Equal(t, tc.want, sent, name)
				require.Nil(t, r.policy.Kept.of(r.conn), name)
				return
			}
			must(t, err)
			require.Equal(t, append([]string{}, tc.want...), sent[:len(sent)-1], name)
			require.Regexp(t, nonce, sent[len(sent)-1], name)
		})
	}
}

// While a preparation is being ended it takes no call any more: what that left would be kept unseen.
func TestNoCallBeginsWhileAPreparationIsBeingEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{work: map[string]time.Duration{"ClosePrepared": time.Second}}
		policy := &Policy{Target: "fake:1", OwnerContext: t.Context(), Kept: &Kept{}}
		s, err := NewKeeping(t.Context(), conn, policy, func() {})
		must(t, err)
		set(t)(s)
		_, err = s.PrepareQuery(t.Context(), "SELECT 2")
		must(t, err)
		ended := make(chan error, 1)
		go func() { ended <- s.CloseKeeping(t.Context()) }()
		time.Sleep(time.Second / 2)
		_, err = s.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrHandleClosed)
		must(t, <-ended)
		require.NotContains(t, conn.Log(), "INSERT 1")
	})
}

// plainConn is a Conn that is no pointer and can be compared.
type plainConn struct{ *fakeConn }

// A connection that is a value can be told from others by what is in it.
func TestAConnectionThatIsAValueCanBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := &Policy{Target: "fake:1", OwnerContext: t.Context(), Kept: &Kept{}}
		conn := plainConn{&fakeConn{}}
		s, err := NewKeeping(t.Context(), conn, policy, func() {})
		must(t, err)
		set(t)(s)
		must(t, s.CloseKeeping(t.Context()))
		require.NotNil(t, policy.Kept.of(conn))
		require.Nil(t, policy.Kept.of(plainConn{&fakeConn{}}))
		policy.Kept.Forget(conn)
		require.Nil(t, policy.Kept.of(conn))
	})
}

// What OnConnect sets is that of every session, and so is what it makes: it has nothing to do with what another session
// has changed meanwhile, nor is a statement of another prepared again for it.
func TestWhatAPreparationSetsAndMakesConcernsNoOtherSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := newStateConn()
		r := stateRig(t, other)
		r.policy.Kept = &Kept{}
		exec("SET threads = 1")(t, r.handle)
		changes := r.handle.objectsChanged()
		own := newStateConn()
		own.settings["threads"] = "1" // as the other has made it
		s, err := NewKeeping(t.Context(), own, r.policy, func() {})
		must(t, err)
		exec("SET threads = 7")(t, s)
		exec("CREATE TABLE IF NOT EXISTS t (a INT)")(t, s)
		require.Equal(t, changes, r.handle.objectsChanged())
		require.Len(t, r.policy.changed.byKey, 1, "that of the other")
		require.Equal(t, 1, r.policy.changed.byKey["threads"].holders)
		must(t, s.CloseKeeping(t.Context()))
		require.Equal(t, "7", own.settings["threads"])
		must(t, r.handle.Close())
		r.reused()
		require.Equal(t, "3", other.settings["threads"])
	})
}

// A session that cannot read a setting beside another that has changed it has nothing to compare with: the other's value is
// not put into its session.
func TestASettingThatOneOfTwoSessionsCannotRead(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			if before {
				exec("SET threads = 1")(t, r.handle)
			}
			deaf := newStateConn()
			deaf.fail = map[string]error{"SELECT current_setting('threads')": sqlError("no such setting")}
			var discarded error
			other := New(deaf, r.policy, func(discard error) { discarded = discard })
			exec("SET threads = 2")(t, other)
			if !before {
				exec("SET threads = 1")(t, r.handle)
			}
			require.ErrorContains(t, other.Close(), "could not tell it before")
			require.ErrorContains(t, discarded, "could not tell it before")
			require.Equal(t, "2", deaf.settings["threads"])
			must(t, r.handle.Close())
			r.reused()
			require.Equal(t, "3", c.settings["threads"])
		})
	}
}

// Nothing is held for a session whose connection is given back already.
func TestASessionWithoutAConnectionHoldsNoSetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := stateRig(t, newStateConn())
		must(t, r.handle.Close())
		changed, key := r.policy.changedSettings("threads")
		require.False(t, r.handle.holdSetting(changed, key))
		require.Empty(t, changed.byKey)
		require.Nil(t, r.handle.mu.releaseConn)
		r.reused()
	})
}

// A statement that was prepared outside of transactions is not stale for what was made before it.
func TestWhatWasMadeBeforeAStatementOutsideOfTransactionsIsNotBeyondIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		exec("CREATE TABLE t (a INT)")(t, r.handle)
		behind := r.handle.objectsNow()
		require.False(t, behind.inTx)
		require.False(t, behind.stale(r.handle, false))
		begin(t, r.handle)
		require.False(t, r.handle.objectsNow().inTx, "the transaction has begun behind it")
		other := New(&fakeConn{}, r.policy, func(error) {})
		exec("CREATE TABLE u (a INT)")(t, other)
		now := r.handle.objectsNow()
		require.True(t, now.inTx, "which it need not have seen")
		require.True(t, now.stale(r.handle, false))
		require.False(t, now.stale(r.handle, true))
		must(t, other.Close())
	})
}

// To ask whether a connection can be told from others, as is done beside every call whose statement may be kept, allocates
// nothing.
func TestAConnectionIsToldFromOthersWithoutAnAllocation(t *testing.T) {
	conn := &fakeConn{}
	require.Zero(t, testing.AllocsPerRun(100, func() { canBeKept(conn) }))
}
