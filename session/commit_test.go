package session

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A server that leaves a transaction and goes on outside of it says so at the
// end, by a status.
func TestARollbackThatTheServerHadLeftBeforeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := &Error{Stage: StageExecute, Fault: FaultStatement, Err: status.Error(codes.FailedPrecondition, "transaction aborted and rolled back")}
		for _, failed := range []bool{false, true} {
			r := newRig(t, &fakeConn{forgives: true, failOnce: map[string][]error{"Rollback": {once}}})
			must(t, r.handle.BeginTransaction(t.Context()))
			sql := "INSERT 1"
			if failed {
				sql = "INSERT bad"
			}
			_, err := r.handle.Update(t.Context(), sql)
			require.Equal(t, failed, err != nil)
			err = r.handle.Rollback(t.Context())
			if failed {
				require.NoError(t, err, "the handle knew that it was aborted, and ran nothing after that")
			} else {
				require.ErrorIs(t, err, ErrCommitUnknown)
			}
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Rollback(t.Context()))
			must(t, r.handle.Close())
			r.reused()
		}
	})
}

// Servers that count handles give ours to a statement of the next session.
func TestAProofIsItsValueNotItsHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{forgives: true}
		r := newRig(t, conn)
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err := r.handle.Update(t.Context(), "INSERT 1")
		must(t, err)
		conn.reused = "SELECT 'somebody else'"
		require.ErrorIs(t, r.handle.Commit(t.Context()), ErrSessionLost)
		require.NotContains(t, conn.Log(), "Commit")
	})
}

// The session may be replaced while a long statement runs: what counts is when
// it was sent.
func TestTheAgeOfAProofCountsFromTheSendingOfTheLastStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{forgives: true}
		r := newRig(t, conn)
		must(t, r.handle.BeginTransaction(t.Context()))
		read := func(sql string) error {
			res, err := r.handle.Query(t.Context(), sql)
			if err == nil {
				for res.Next() {
				}
				err = res.Err()
				res.Release()
			}
			return err
		}
		must(t, read("SELECT SLOW 6s"))
		conn.reused = "SELECT 'somebody else'"
		require.ErrorIs(t, read("SELECT 2"), ErrSessionLost)
		require.NotContains(t, conn.Log(), "tx1: SELECT 2")
	})
}

func TestAConnectionWhoseRefusedCommitWasNotRolledBackIsNotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &Error{Fault: FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
		r := newRig(t, &fakeConn{
			fail:     map[string]error{"Commit": &Error{Fault: FaultStatement, Err: status.Error(codes.Aborted, "conflict")}},
			failOnce: map[string][]error{"Rollback": {busy}},
		})
		must(t, r.handle.BeginTransaction(t.Context()))
		require.ErrorIs(t, r.handle.Commit(t.Context()), ErrTxAborted)
		_ = r.handle.Rollback(t.Context())
		_ = r.handle.Close()
		require.ErrorContains(t, r.discarded(), "a refused commit could not be rolled back")
	})
}
