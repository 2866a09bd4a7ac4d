package flightpool

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

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

// cutInTheQueue has a change cut while it waits for the statements of others: the second of them comes
// between the proof of the session, which waits too, and what is sent behind it.
func cutInTheQueue(r *rig, wait string, change func(ctx context.Context) error) {
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
	require.ErrorIs(r, change(cut), context.DeadlineExceeded)
}

// insertOne is a change of s.
func insertOne(s *SessionHandle) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.Update(ctx, "INSERT INTO t VALUES (1)")
		return err
	}
}

// TestARollbackOvertakesNoStatementThatWaits: by itself, behind the rollback, it would be stored.
func TestARollbackOvertakesNoStatementThatWaits(t *testing.T) {
	for _, wait := range []string{"200ms", "300ms", "400ms", "500ms", "700ms", "1s", "2s", "4s", "20s"} {
		t.Run(wait, func(t *testing.T) {
			inBubble(t, queueing(), Config{MaxSize: 1, Auth: BasicAuth("u", "p")}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				s := r.session()
				require.NoError(r, s.BeginTransaction(r.Context()))
				cutInTheQueue(r, wait, insertOne(s))
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

// GizmoSQL refuses to cancel a prepared statement which is not the latest that it was sent: behind a proof it never is. Then an
// answer of the session is all that shows the end of the change, once the order is known.
func TestARollbackOvertakesNoPreparedStatementThatWaits(t *testing.T) {
	for _, cuts := range []int{0, 5} {
		for _, wait := range []string{"500ms", "1s", "2s", "4s", "20s"} {
			t.Run(fmt.Sprintf("%d cuts, %s", cuts, wait), func(t *testing.T) {
				inBubble(t, queueing(), Config{MaxSize: 1, Auth: BasicAuth("u", "p")}, func(r *rig) {
					r.exec("CREATE TABLE t (a BIGINT)")
					r.exec("INSERT INTO t VALUES (1)")
					refuseCancels(r)
					for range cuts {
						r.cancelled(r.pool, "SELECT sleep('2s')", 100*ms)
						time.Sleep(time.Minute)
					}
					s := r.session()
					require.NoError(r, s.BeginTransaction(r.Context()))
					q, err := s.PrepareQuery(r.Context(), "DELETE FROM t WHERE a = ?")
					require.NoError(r, err)
					cutInTheQueue(r, wait, func(ctx context.Context) error {
						_, err := q.Update(ctx, int64(1))
						return err
					})
					err = s.Rollback(r.Context())
					_ = s.Close()
					r.srv.Faults().Clear()
					time.Sleep(time.Minute)
					left := r.value(r.pool, "SELECT count(*) FROM t")
					require.Equal(r, "1", left, "the transaction was rolled back: %v", err)
					if cuts > 0 && wait != "20s" {
						require.NoError(r, err, "the session has answered in time")
					}
				})
			})
		}
	}
}

// Nor is a connection lent behind such a rollback: what waits would run in the next borrower's session, for as long as
// it takes.
func TestNoConnectionIsLentWhileAReadOfItWaits(t *testing.T) {
	inBubble(t, queueing(), Config{MaxSize: 1, Auth: BasicAuth("u", "p")}, func(r *rig) {
		refuseCancels(r)
		for range 5 {
			r.cancelled(r.pool, "SELECT sleep('2s')", 100*ms)
			time.Sleep(time.Minute)
		}
		r.srv.Faults().Clear()
		other, err := New(r.Context(), "grpc://server:1", Config{Dialer: r.srv.Dial, MaxSize: 1, Auth: BasicAuth("u", "p")})
		require.NoError(r, err)
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		go func() {
			_, _ = firstValue(r.Context(), other, "SELECT sleep('2s')")
			_ = other.Close(r.Context())
		}()
		time.Sleep(50 * ms)
		r.cancelled(s, "SELECT sleep('1h')", 100*ms)
		_ = s.Rollback(r.Context())
		_ = s.Close()
		next, stop := context.WithTimeout(r.Context(), time.Minute)
		defer stop()
		_, err = firstValue(next, r.pool, "SELECT 1")
		require.NoError(r, err)
	})
}

// refuseCancels has the server refuse them as GizmoSQL does of a prepared statement which is not the latest that it was sent.
func refuseCancels(r *rig) {
	for _, on := range []testserver.Point{testserver.OnCancel, "CancelQuery"} {
		r.srv.Faults().Set(testserver.Fault{On: on, Do: testserver.Fail(codes.InvalidArgument, "No active SQL statement to cancel.")})
	}
}

// TestNoTransactionHasAStatementThatWaitedForAnother: nor would the next borrower know of it.
func TestNoTransactionHasAStatementThatWaitedForAnother(t *testing.T) {
	inBubble(t, queueing(), Config{MaxSize: 1, Auth: BasicAuth("u", "p")}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		cutInTheQueue(r, "2s", insertOne(s))
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
