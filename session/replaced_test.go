package session

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// A COMMIT that was not sent, for a result that is open, does not say that nothing is stored where the
// session was replaced behind the proof of a statement, which the server has stored at once then.
func TestACommitThatWasNotSentTellsOfAReplacedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true})
		err := r.handle.WithTransaction(t.Context(), func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Update(ctx, "INSERT 1")
			must(t, err)
			r.conn.replaceSession()
			_, err = s.Query(ctx, "SELECT 3")
			return err
		})
		require.ErrorIs(t, err, backend.ErrBusy)
		require.ErrorIs(t, err, backend.ErrSessionLost)
		_ = r.handle.Close()
		_ = r.discarded()
	})
}

// With a session that is lost goes what a server knew of having left its transaction: no end of that
// transaction is one of which nothing was sent, upon which the whole of it would be repeated.
func TestTheEndOfATransactionInALostSessionIsNotSafeToRepeat(t *testing.T) {
	ends := map[string]func(s *SessionHandle, ctx context.Context) error{"Commit": (*SessionHandle).Commit, "Rollback": (*SessionHandle).Rollback, "RollbackOpen": (*SessionHandle).RollbackOpen}
	for name, end := range ends {
		for _, before := range []string{"", "SELECT 3", "BAD"} {
			for _, forgives := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, &fakeConn{forgives: forgives})
					must(t, r.handle.BeginTransaction(t.Context()))
					_, err := r.handle.Update(t.Context(), "INSERT 1")
					must(t, err)
					if before == "BAD" { // the session is lost after it
						_, err = r.handle.Update(t.Context(), before)
						require.Error(t, err)
					}
					r.conn.cut()
					if before == "SELECT 3" {
						_, err = r.handle.Query(t.Context(), before)
						require.ErrorIs(t, err, backend.ErrSessionLost)
					}
					err = end(r.handle, t.Context())
					if forgives {
						require.ErrorIs(t, err, backend.ErrSessionLost)
						require.False(t, backend.SafeToRetry(err), "%s after %q: %v", name, before, err)
					}
					_ = r.handle.Close()
				})
			}
		}
	}
}
