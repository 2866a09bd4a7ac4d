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
