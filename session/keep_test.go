package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
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

// preparedWithTemps is a session with a temporary table of OnConnect's, on a server that tells
// of temporary objects by their number.
func preparedWithTemps(t *testing.T, c *stateConn, mode SessionReset, prepare ...string) (*rig, error) {
	t.Helper()
	r := newRig(t, c.fakeConn)
	r.policy.Kept, r.policy.OnReturn = &Kept{}, mode
	s, err := NewKeeping(t.Context(), c, r.policy, func() {})
	must(t, err)
	for _, sql := range prepare {
		_, err = s.Update(t.Context(), sql)
		must(t, err)
	}
	err = s.CloseKeeping(t.Context())
	r.handle = New(c, r.policy, r.returned)
	return r, err
}

// TestTemporaryObjectsOfAPreparedSessionAreLookedAfter: where a borrower may have dropped or
// changed one, and that shows or is not known, the connection goes.
func TestTemporaryObjectsOfAPreparedSessionAreLookedAfter(t *testing.T) {
	const table, view, unknown = "CREATE TEMP TABLE mine (a INT)", "CREATE TEMP VIEW mine AS SELECT 1", "CALL prepare_it()"
	for name, c := range map[string]struct {
		prepare, borrower string
		mode              SessionReset
		atStart           error // of the look when the session is prepared
		then              func(*stateConn)
		why               string // the connection goes, "" if it does not
	}{
		"nothing changed":      {prepare: table, borrower: "DROP TABLE other"},
		"a table gone":         {prepare: table, borrower: "DROP TABLE mine", then: func(c *stateConn) { c.temps = 0 }, why: "are not what they were"},
		"a view gone":          {prepare: view, borrower: "DROP VIEW mine", then: func(c *stateConn) { c.temps = 0 }, why: "are not what they were"},
		"a procedure's gone":   {prepare: unknown, borrower: "DROP TABLE mine", then: func(c *stateConn) { c.temps = 0 }, why: "are not what they were"},
		"one more":             {prepare: table, borrower: "ALTER TABLE mine ADD b INT", then: func(c *stateConn) { c.temps = 2 }, why: "are not what they were"},
		"no word then":         {prepare: table, borrower: "DROP TABLE mine", then: func(c *stateConn) { c.fail = map[string]error{keptTempsQuery.sql: sqlError("no such")} }, why: "no such"},
		"no word at the start": {prepare: table, borrower: "DROP TABLE other", atStart: sqlError("no such"), why: "are not what they were"},
		"a read":               {prepare: table, borrower: "", then: func(c *stateConn) { c.temps = 0 }},
		"not looked after":     {prepare: table, borrower: "DROP TABLE mine", mode: ResetNone, then: func(c *stateConn) { c.temps = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := newStateConn()
				conn.temps = 1
				if c.atStart != nil {
					conn.fail = map[string]error{keptTempsQuery.sql: c.atStart}
				}
				r, err := preparedWithTemps(t, conn, c.mode, c.prepare)
				must(t, err)
				conn.fail = nil
				must(t, drained(r.handle.Query(t.Context(), "SELECT 1")))
				if c.borrower != "" {
					_, err = r.handle.Update(t.Context(), c.borrower)
					must(t, err)
				}
				if c.then != nil {
					c.then(conn)
				}
				_ = r.handle.Close()
				if c.why == "" {
					r.reused()
				} else {
					require.ErrorContains(t, r.discarded(), c.why)
				}
			})
		})
	}
}

// What OnConnect has set without temporary objects is not looked for among them.
func TestTemporaryObjectsAreLookedForWhereThereMayBeSome(t *testing.T) {
	for prepare, asked := range map[string]bool{"SET threads = 1": false, "CREATE TEMP TABLE mine (a INT)": true, "CREATE TEMP VIEW mine AS SELECT 1": true, "CALL prepare_it()": true} {
		for _, mode := range []SessionReset{ResetAuto, ResetNone} {
			synctest.Test(t, func(t *testing.T) {
				r, err := preparedWithTemps(t, newStateConn(), mode, prepare)
				must(t, err)
				want := asked && mode.mode == resetAuto
				require.Equal(t, want, slices.Contains(r.conn.Log(), keptTempsQuery.sql), "%s %v", prepare, mode)
			})
		}
	}
}

// TestAPreparationThatFailsAtItsEndIsTold: then the connection must be closed.
func TestAPreparationThatFailsAtItsEndIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		fail    map[string]error
		prepare string
		want    string
	}{
		"the look at temporary objects": {map[string]error{keptTempsQuery.sql: transportError()}, "CREATE TEMP TABLE mine (a INT)", "connection reset"},
		"its statement's close":         {map[string]error{"ClosePrepared": transportError()}, "", "connection reset"},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := newStateConn()
			conn.fail = c.fail
			var texts []string
			if c.prepare != "" {
				texts = []string{c.prepare}
			}
			r, err := preparedWithTemps(t, conn, ResetAuto, texts...)
			require.ErrorContains(t, err, c.want, name)
			require.Nil(t, r.policy.Kept.of(conn), name)
		})
	}
}

// TestASessionThatWasReplacedWhileItWasPreparedIsNotKept, since nothing of it is there.
func TestASessionThatWasReplacedWhileItWasPreparedIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ended, err := preparedRig(t, func(s *SessionHandle) {
			set(t)(s)
			conn := s.conn.(*fakeConn) //nolint:forcetypeassert // else the test fails
			conn.mu.Lock()
			defer conn.mu.Unlock()
			conn.reused = "SELECT 'somebody else'"
		})
		require.ErrorIs(t, err, backend.ErrSessionReplaced)
		require.Equal(t, 1, *ended)
		require.Nil(t, r.policy.Kept.of(r.conn))
	})
}

// TestAPreparationIsProbedAfterAFailureOfAScript, of which a part may run still.
func TestAPreparationIsProbedAfterAFailureOfAScript(t *testing.T) {
	for _, dead := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, _, err := preparedRig(t, func(s *SessionHandle) {
				set(t)(s)
				_, err := s.Update(t.Context(), "SET a = 1; bad")
				require.Error(t, err)
				if dead {
					s.conn.(*fakeConn).fail = map[string]error{"SELECT 1": transportError()} //nolint:forcetypeassert // else the test fails
				}
			})
			require.Equal(t, dead, err != nil, "%v", err)
			require.Equal(t, !dead, r.policy.Kept.of(r.conn) != nil)
			require.Contains(t, r.conn.Log(), "SELECT 1")
		})
	}
}

// TestAnEndedPreparationTakesNothingMore, and one that is lost says so.
func TestAnEndedPreparationTakesNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *SessionHandle
		_, ended, err := preparedRig(t, func(prepared *SessionHandle) { s = prepared; set(t)(s) })
		must(t, err)
		_, err = s.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrHandleClosed)
		require.ErrorIs(t, s.CloseKeeping(t.Context()), backend.ErrHandleClosed)
		must(t, s.Close())
		require.Equal(t, 1, *ended)

		_, ended, err = preparedRig(t, func(s *SessionHandle) {
			set(t)(s)
			s.conn.(*fakeConn).fail = map[string]error{"INSERT 1": transportError()} //nolint:forcetypeassert // else the test fails
			_, _ = s.Update(t.Context(), "INSERT 1")
		})
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.Equal(t, 1, *ended)

		_, ended, err = preparedRig(t, func(s *SessionHandle) {
			set(t)(s)
			s.conn.(*fakeConn).fail = map[string]error{"INSERT 1": &backend.Error{Fault: backend.FaultAuth, Err: errors.New("token is over")}} //nolint:forcetypeassert // else the test fails
			_, _ = s.Update(t.Context(), "INSERT 1")
		})
		require.ErrorContains(t, err, "token is over")
		require.Equal(t, 1, *ended)
	})
}

// TestAPreparationWaitsForACallThatIsBeingEnded, no longer than its context.
func TestAPreparationWaitsForACallThatIsBeingEnded(t *testing.T) {
	for _, patient := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{ignoresCancel: true}
			policy := &Policy{Target: "fake:1", OwnerContext: t.Context(), Kept: &Kept{}}
			s, err := NewKeeping(t.Context(), conn, policy, func() {})
			must(t, err)
			set(t)(s)
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			_, err = s.UpdateWithOptions(ctx, "INSERT SLOW 20s", QueryOptions{NoCancel: true})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			limit := time.Second
			if patient {
				limit = time.Minute
			}
			ctx, stop = context.WithTimeout(t.Context(), limit)
			defer stop()
			err = s.CloseKeeping(ctx)
			require.Equal(t, patient, err == nil, "%v", err)
			if !patient {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			time.Sleep(time.Minute)
		})
	}
}

// valueConn is a Conn that is no pointer, and which has a slice in it.
type valueConn struct {
	*fakeConn
	_ []int
}

func TestAConnectionThatCannotBeToldFromOthersIsNotPrepared(t *testing.T) {
	conn, k := valueConn{fakeConn: &fakeConn{}}, &Kept{}
	_, err := NewKeeping(t.Context(), conn, &Policy{OwnerContext: t.Context(), Kept: k}, func() {})
	require.ErrorContains(t, err, "make it a pointer")
	require.Equal(t, backend.FaultUsage, backend.FaultIn(err))
	k.Forget(conn)
	require.Empty(t, conn.Log())
}

// ledConn is a Conn that may be led to another session unseen.
type ledConn struct{ *fakeConn }

func (c ledConn) BeginProven(ctx context.Context, prove func(context.Context) error) (backend.TxID, error) {
	if err := prove(ctx); err != nil {
		return "", err
	}
	return c.Begin(ctx)
}

// TestAChangeIsGivenTheProofOfItsSession where the connection may be led to another one: it is
// asked behind what the connection does before.
func TestAChangeIsGivenTheProofOfItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		led := &ledConn{&fakeConn{}}
		policy := &Policy{Target: "fake:1", OwnerContext: t.Context(), Kept: &Kept{}}
		s, err := NewKeeping(t.Context(), led, policy, func() {})
		must(t, err)
		set(t)(s)
		must(t, s.CloseKeeping(t.Context()))
		prepared, plain := New(led, policy, func(error) {}), New(&ledConn{&fakeConn{}}, policy, func(error) {})
		change, read, open := sqlscan.Parse("INSERT 1"), sqlscan.Parse("SELECT 1"), transaction{phase: txOpen}
		require.Nil(t, plain.proofOfUpdate(transaction{}, change), "nothing was prepared")
		require.Nil(t, prepared.proofOfUpdate(transaction{}, read))
		require.Nil(t, prepared.proofOfUpdate(open, change), "the connection watches it")
		prove := prepared.proofOfUpdate(transaction{}, change)
		must(t, prove(t.Context()))
		led.reused = "SELECT 'somebody else'"
		require.ErrorIs(t, prove(t.Context()), backend.ErrSessionReplaced)

		r, _, err := preparedRig(t, set(t))
		must(t, err)
		require.Nil(t, New(r.conn, r.policy, r.returned).proofOfUpdate(transaction{}, change), "it stays in its session")
	})
}
