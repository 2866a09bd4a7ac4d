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

// A rollback that was answered in time has rolled back, whatever a hook of the owner's that is told of it takes, and whatever
// another goroutine begins meanwhile.
func TestARollbackThatWasAnsweredIsNotTakenForALateOne(t *testing.T) {
	for name, meanwhile := range map[string]func(s *SessionHandle){
		"a slow hook": func(*SessionHandle) { time.Sleep(2 * time.Second) },
		"a change": func(s *SessionHandle) {
			go func() { _, _ = s.Update(context.Background(), "INSERT SLOW 1s") }()
			synctest.Wait()
		},
		"nothing at all": func(*SessionHandle) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := changedInTx(t, &fakeConn{forgives: true})
			r.policy.CloseTimeout = time.Second
			r.policy.Observe.Answered = func() {
				r.policy.Observe.Answered = nil
				meanwhile(r.handle)
			}
			require.NoError(t, r.handle.RollbackOpen(t.Context()), name)
			time.Sleep(time.Minute)
			must(t, r.handle.Close())
		})
	}
}

// One that is not answered within CloseTimeout says so. What a server may have stored that leaves transactions by itself is
// not known then.
func TestARollbackThatTakesLongerThanCloseTimeoutSaysWhatIsKnown(t *testing.T) {
	for _, forgives := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := changedInTx(t, &fakeConn{forgives: forgives, work: map[string]time.Duration{"Rollback": 3 * time.Second}})
			r.policy.CloseTimeout = time.Second
			err := r.handle.RollbackOpen(t.Context())
			require.ErrorContains(t, err, "no answer within CloseTimeout")
			require.Equal(t, backend.FaultTransport, backend.FaultIn(err))
			require.Equal(t, forgives, errors.Is(err, backend.ErrCommitUnknown), "%v", err)
			time.Sleep(time.Minute)
			_ = r.handle.Close()
		})
	}
}

// A session that is lost says that by itself: with it went what the server knew, and no COMMIT was sent.
func TestARollbackInALostSessionIsNoUnknownCommit(t *testing.T) {
	for sql, stored := range map[string]bool{"INSERT 1": true, "SELECT 1": false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true, failOnce: map[string][]error{"tx1: SELECT 2": {transportError()}}})
			must(t, r.handle.BeginTransaction(t.Context()))
			res, err := r.handle.Execute(t.Context(), sql)
			must(t, err)
			must(t, res.Close())
			require.ErrorIs(t, readAll(r.handle.Query(t.Context(), "SELECT 2")), backend.ErrSessionLost)
			err = r.handle.RollbackOpen(t.Context())
			require.Equal(t, stored, errors.Is(err, backend.ErrSessionLost), "%s: %v", sql, err)
			require.NotErrorIs(t, err, backend.ErrCommitUnknown, sql)
			require.False(t, backend.SafeToRetry(err), "%s: %v", sql, err)
			_ = r.handle.Close()
		})
	}
}

// A function that has committed and begun again by itself has its second transaction committed: what has gone well is no
// unknown COMMIT. Where that fails it is.
func TestAFunctionThatHasCommittedMayGoOnInAnother(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{failOnce: map[string][]error{}})
			err := r.handle.WithTransaction(t.Context(), func(ctx context.Context, s *SessionHandle) error {
				must(t, s.Commit(ctx))
				must(t, s.BeginTransaction(ctx))
				if fails {
					r.conn.failOnce["Commit"] = []error{sqlError("conflict")}
				}
				return nil
			})
			require.Equal(t, fails, errors.Is(err, backend.ErrCommitUnknown), "%v", err)
			require.Equal(t, fails, err != nil, "%v", err)
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// What was not sent to a transaction, and what its server has refused, has changed nothing in it, which a server can have
// left; a failure that leaves open whether it is a refusal may have.
func TestWhatAFailedStatementMayHaveChangedInItsTransaction(t *testing.T) {
	for name, tc := range map[string]struct {
		fails   error
		unknown bool
	}{
		"not sent":        {&backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Unsent: true, Err: errors.New("too many streams")}, false},
		"refused":         {sqlError("Parser Error: no such verb"), false},
		"failed somehow":  {sqlError("out of cheese"), true},
		"not answered":    {&backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: errors.New("busy")}, true},
		"done, of course": {nil, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true, failOnce: map[string][]error{"tx1: INSERT 1": {tc.fails}, "Rollback": {leftError()}}})
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			require.Equal(t, tc.fails != nil, err != nil, name)
			err = r.handle.Rollback(t.Context())
			require.Equal(t, tc.unknown, errors.Is(err, backend.ErrCommitUnknown), "%s: %v", name, err)
			_ = r.handle.Close()
		})
	}
}

// Without a transaction there is nothing to roll back, whatever was stored by itself before the session was lost.
func TestARollbackOfNothingInALostSessionIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true})
		must(t, r.handle.BeginTransaction(t.Context()))
		must(t, r.handle.Commit(t.Context()))
		_, err := r.handle.Update(t.Context(), "INSERT 1")
		must(t, err)
		r.conn.cut()
		require.Error(t, r.handle.Ping(t.Context()))
		require.NoError(t, r.handle.RollbackOpen(t.Context()))
		_ = r.handle.Close()
	})
}
