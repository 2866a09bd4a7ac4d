package flightpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// queueing is GizmoSQL 1.36 with a queue of statements (max_concurrent_statements): it goes by its session,
// whatever id a request names, has the ends of transactions wait for nothing, and answers a cancel of what waits
// as if that were stopped.
func queueing() testserver.Profile {
	p := testserver.GizmoSQL()
	p.IgnoreTxID, p.EndsAnyTx, p.AbortedCommitOK = true, true, true
	p.MaxStatements = 1
	return p
}

// cutInTheQueue has a change of s cut while it waits for the statements of others: the second of them comes
// between the proof of the session, which waits too, and what is sent behind it.
func cutInTheQueue(r *rig, s *SessionHandle, wait string) {
	var others [2]*FlightSQLPool
	for i := range others {
		var err error
		others[i], err = New(r.Context(), "grpc://server:1", Config{Dialer: r.srv.Dial, MaxSize: 1, Auth: BasicAuth("u", "p")})
		require.NoError(r, err)
		require.NoError(r, others[i].WaitReady(r.Context(), 1))
	}
	for i, d := range []string{"300ms", wait} {
		go func() {
			time.Sleep(time.Duration(i) * 100 * ms)
			_, _ = firstValue(r.Context(), others[i], "SELECT sleep('"+d+"')")
			_ = others[i].Close(r.Context())
		}()
	}
	time.Sleep(50 * ms)
	cut, stop := context.WithTimeout(r.Context(), 350*ms)
	defer stop()
	_, err := s.Update(cut, "INSERT INTO t VALUES (1)")
	require.ErrorIs(r, err, context.DeadlineExceeded)
}

// TestARollbackOvertakesNoStatementThatWaits: by itself, behind the rollback, it would be stored.
func TestARollbackOvertakesNoStatementThatWaits(t *testing.T) {
	for _, wait := range []string{"200ms", "300ms", "400ms", "500ms", "700ms", "1s", "2s", "4s", "20s"} {
		t.Run(wait, func(t *testing.T) {
			inBubble(t, queueing(), Config{MaxSize: 1, Auth: BasicAuth("u", "p")}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				s := r.session()
				require.NoError(r, s.BeginTransaction(r.Context()))
				cutInTheQueue(r, s, wait)
				err := s.Rollback(r.Context())
				_ = s.Close()
				time.Sleep(time.Minute)
				stored := r.value(r.pool, "SELECT count(*) FROM t")
				t.Log(stored, err)
				require.Equal(r, "0", stored, "the transaction was rolled back: %v", err)
			})
		})
	}
}

// TestNoTransactionHasAStatementThatWaitedForAnother: nor would the next borrower know of it.
func TestNoTransactionHasAStatementThatWaitedForAnother(t *testing.T) {
	inBubble(t, queueing(), Config{MaxSize: 1, Auth: BasicAuth("u", "p")}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		cutInTheQueue(r, s, "2s")
		_ = s.Close()
		tx, err := r.pool.BeginTx(r.Context(), TxOptions{})
		require.NoError(r, err)
		_, err = tx.Update(r.Context(), "INSERT INTO t VALUES (2)")
		require.NoError(r, err)
		require.NoError(r, tx.Commit(r.Context()))
		time.Sleep(time.Minute)
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"), "the one that was cut was not committed")
	})
}
