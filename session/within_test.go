package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What is still under way in the transaction may take longer than the bound of a
// rollback, by the caller's own wish.
func TestTheRollbackBehindWithTransactionWaitsForWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		r.policy.CloseTimeout = time.Second
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		start := time.Now()
		err := r.handle.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
			_, err := s.UpdateWithOptions(ctx, "INSERT SLOW 1m", QueryOptions{NoCancel: true})
			return err
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 20*ms, time.Since(start))
		must(t, r.handle.BeginTransaction(t.Context()))
		require.Equal(t, time.Minute, time.Since(start))
		require.Equal(t, []string{"Begin", "tx1: INSERT SLOW 1m", "Rollback", "Begin"}, r.conn.Log())
		must(t, r.handle.Commit(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}

// The transaction of a WithTransaction that has returned is over for its caller.
func TestARollbackBehindWithTransactionThatFailsLosesTheSession(t *testing.T) {
	for name, closed := range map[string]bool{"then Close": false, "Close meanwhile": true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{ignoresCancel: true, work: map[string]time.Duration{"Rollback": time.Hour}})
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			err := r.handle.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
				<-ctx.Done()
				return errors.New("mine")
			})
			require.ErrorContains(t, err, "mine")
			if closed {
				_ = r.handle.Close()
			} else {
				err = r.handle.BeginTransaction(t.Context())
				require.ErrorIs(t, err, ErrSessionLost)
				require.ErrorContains(t, err, "rollback")
				time.Sleep(time.Minute)
				_ = r.discarded() // before Close: another connection can take its place
				_ = r.handle.Close()
			}
			time.Sleep(time.Minute)
			require.ErrorContains(t, r.discarded(), "session", name)
		})
	}
}

// A statement that is several to the server may leave an aborted transaction when
// it fails. The handle is led out of it, and its temporary objects live on.
func TestAHandleIsLedOutOfATransactionThatAStatementLeft(t *testing.T) {
	aborted := sqlError("Current transaction is aborted (please ROLLBACK)")
	for name, tc := range map[string]struct {
		refused int // how many statements are refused before the ROLLBACK helps
		probe   error
		log     []string
		lost    bool
	}{
		"none is left":  {log: []string{"SELECT 1", "INSERT 2"}},
		"it is aborted": {probe: aborted, log: []string{"SELECT 1", "ROLLBACK", "SELECT 1", "INSERT 2"}},
		"for good":      {refused: 1, probe: aborted, log: []string{"SELECT 1", "ROLLBACK", "SELECT 1"}, lost: true},
		"other SQL":     {probe: sqlError("no SELECT here"), log: []string{"SELECT 1", "INSERT 2"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			const load = "COPY FROM DATABASE a TO b"
			conn := &fakeConn{fail: map[string]error{load: sqlError("no such catalogue")}, failOnce: map[string][]error{}}
			if tc.probe != nil {
				conn.failOnce["SELECT 1"] = []error{tc.probe}
			}
			for range tc.refused {
				conn.failOnce["SELECT 1"] = append(conn.failOnce["SELECT 1"], tc.probe)
			}
			r := newRig(t, conn)
			_, err := r.handle.Update(t.Context(), load)
			require.ErrorContains(t, err, "no such catalogue")
			_, err = r.handle.Update(t.Context(), "INSERT 2")
			require.Equal(t, append([]string{load}, tc.log...), r.conn.Log(), name)
			if tc.lost {
				require.ErrorIs(t, err, ErrSessionLost, name)
				require.ErrorContains(t, r.discarded(), "refuses every statement", name)
			} else {
				must(t, err)
				_, err = r.handle.Update(t.Context(), "INSERT 3")
				must(t, err)
				require.Equal(t, "INSERT 3", r.conn.Log()[len(r.conn.Log())-1], "the probe is for the first")
				require.Len(t, r.conn.Log(), len(tc.log)+2)
			}
			_ = r.handle.Close()
		})
	}
}
