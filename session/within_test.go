package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
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
				require.ErrorIs(t, err, backend.ErrSessionLost)
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
				require.ErrorIs(t, err, backend.ErrSessionLost, name)
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

// What fn did itself leaves WithTransaction nothing to undo, and nothing to say but that it may be stored.
func TestWithTransactionSaysWhatFnSaidWhereNothingIsLeftToUndo(t *testing.T) {
	mine := errors.New("mine")
	for name, tc := range map[string]struct {
		fn    func(r *rig)
		after []string // sent after the BEGIN
	}{
		"rolled back":    {func(r *rig) { must(r.t, r.handle.Rollback(r.t.Context())) }, []string{"Rollback"}},
		"committed":      {func(r *rig) { must(r.t, r.handle.Commit(r.t.Context())) }, []string{"Commit"}},
		"cut":            {func(r *rig) { r.conn.cut(); _ = r.handle.Ping(r.t.Context()) }, []string{}},
		"closed":         {func(r *rig) { must(r.t, r.handle.Close()) }, []string{"Rollback"}},
		"nothing undone": {func(*rig) {}, []string{"Rollback"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			err := r.handle.WithTransaction(t.Context(), func(context.Context, *SessionHandle) error {
				tc.fn(r)
				return mine
			})
			if name == "committed" {
				require.ErrorIs(t, err, backend.ErrCommitUnknown)
				require.ErrorIs(t, err, mine)
			} else {
				require.Equal(t, mine, err, name)
			}
			require.Equal(t, tc.after, r.conn.Log()[1:], name)
			_ = r.handle.Close()
		})
	}
}

func TestWithTransactionTellsOfARollbackThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := errors.New("mine")
		no := sqlError("not now")
		r := newRig(t, &fakeConn{failOnce: map[string][]error{"Rollback": {no, no, no}}})
		err := r.handle.WithTransaction(t.Context(), func(context.Context, *SessionHandle) error { return mine })
		require.ErrorIs(t, err, mine)
		require.ErrorContains(t, err, "not now")
		_ = r.handle.Close() // whose rollback succeeds
		require.ErrorContains(t, r.discarded(), "rollback failed: ")
		require.ErrorContains(t, r.discarded(), "not now")
	})
}

// A Rollback after a refused Commit is no mistake, also where WithTransaction has
// sent the Commit.
func TestARollbackAfterARefusedWithTransactionIsNoMistake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.Aborted, "conflict")}
		r := newRig(t, &fakeConn{failOnce: map[string][]error{"Commit": {refusal}}})
		err := r.handle.WithTransaction(t.Context(), func(context.Context, *SessionHandle) error { return nil })
		require.ErrorIs(t, err, backend.ErrTxAborted)
		must(t, r.handle.Rollback(t.Context()))
		require.ErrorIs(t, r.handle.Rollback(t.Context()), ErrNoTx)
		must(t, r.handle.Close())
		r.reused()
	})
}

// The transaction that fn ends itself, in time or too late, costs no session when
// the rollback behind the caller finds none.
func TestARollbackBehindThatFindsNoTransactionCostsNoSession(t *testing.T) {
	for name, tc := range map[string]struct {
		fn   func(ctx context.Context, s *SessionHandle)
		work map[string]time.Duration
		sent []string
	}{
		"rolled back before": {
			fn:   func(ctx context.Context, s *SessionHandle) { must(t, s.Rollback(ctx)) },
			sent: []string{"Begin", "Rollback"},
		},
		"a commit under way": {
			fn: func(ctx context.Context, s *SessionHandle) {
				require.ErrorIs(t, s.Commit(ctx), backend.ErrCommitUnknown)
			},
			work: map[string]time.Duration{"Commit": time.Second},
			sent: []string{"Begin", "Commit"},
		},
		"another one, too late as well": {
			fn: func(ctx context.Context, s *SessionHandle) {
				must(t, s.Commit(ctx))
				_ = s.WithTransaction(ctx, func(ctx context.Context, _ *SessionHandle) error { <-ctx.Done(); return ctx.Err() })
			},
			work: map[string]time.Duration{"Rollback": time.Second},
			sent: []string{"Begin", "Commit", "Begin", "Rollback"},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{work: tc.work})
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			err := r.handle.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
				tc.fn(ctx, s)
				<-ctx.Done()
				return ctx.Err()
			})
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.Equal(t, name != "rolled back before", errors.Is(err, backend.ErrCommitUnknown), name)
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Commit(t.Context()))
			must(t, r.handle.Close())
			require.Equal(t, append(tc.sent, "Begin", "Commit"), r.conn.Log(), name)
			r.reused()
		})
	}
}

// A rollback behind the caller that the server refuses leaves a transaction
// which nobody owns: the connection goes at once, not with the handle.
func TestARefusedRollbackBehindLetsGoOfTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{"Rollback": sqlError("not now")}})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		err := r.handle.WithTransaction(ctx, func(ctx context.Context, _ *SessionHandle) error {
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.ErrorContains(t, r.discarded(), "rollback failed")
		require.ErrorIs(t, r.handle.Ping(t.Context()), backend.ErrSessionLost)
		must(t, r.handle.Close())
		_ = r.discarded()
	})
}

// A result that is not to be cancelled is read to its end before the rollback,
// also where that takes longer than a rollback may.
func TestTheRollbackBehindWaitsForAResultThatIsNotToBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{pace: 10 * time.Second})
		r.policy.CloseTimeout = time.Second
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		start := time.Now()
		err := r.handle.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
			_, err := s.QueryWithOptions(t.Context(), "SELECT 12", QueryOptions{NoCancel: true})
			must(t, err)
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(start))
		must(t, r.handle.BeginTransaction(t.Context()))
		require.Equal(t, 3*time.Minute, time.Since(start))
		require.Equal(t, []string{"Begin", "tx1: SELECT 12", "Rollback", "Begin"}, r.conn.Log())
		must(t, r.handle.Rollback(t.Context()))
		must(t, r.handle.Close())
		r.reused()
		r.clean()
	})
}

// A reader of fn's that stays behind in its result is waited for, and not asked
// again and again.
func TestTheRollbackWaitsForAReaderThatIsStillInsideItsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &scriptConn{fakeConn: &fakeConn{}}
		conn.script = func(context.Context, backend.Call) *scriptStream {
			return &scriptStream{next: func(int) (arrow.RecordBatch, error) { time.Sleep(time.Second); return numbers(1), nil }}
		}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		start := time.Now()
		err := r.handle.WithTransaction(t.Context(), func(ctx context.Context, s *SessionHandle) error {
			res, err := s.Query(ctx, "SELECT SCRIPT")
			must(t, err)
			go func() {
				for res.Next() {
					continue
				}
				res.Release()
			}()
			time.Sleep(1500 * ms)
			return errors.New("mine")
		})
		require.ErrorContains(t, err, "mine")
		require.Less(t, time.Since(start), 5*time.Second)
		must(t, r.handle.BeginTransaction(t.Context()))
		must(t, r.handle.Commit(t.Context()))
		must(t, r.handle.Close())
		r.reused()
		r.clean()
	})
}

// The end of the pool ends the waiting for a statement that is not to be
// cancelled.
func TestTheRollbackBehindEndsWithThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		life, end := context.WithCancel(t.Context())
		r.policy.OwnerContext = life
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		err := r.handle.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
			_, err := s.UpdateWithOptions(ctx, "INSERT SLOW 1h", QueryOptions{NoCancel: true})
			return err
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		failed := make(chan error, 1)
		go func() { failed <- r.handle.Ping(t.Context()) }() // waits for the INSERT
		synctest.Wait()
		end()
		synctest.Wait()
		require.ErrorIs(t, r.handle.BeginTransaction(t.Context()), backend.ErrSessionLost)
		time.Sleep(2 * time.Hour)
		require.ErrorIs(t, <-failed, backend.ErrSessionLost)
		_ = r.discarded()
		must(t, r.handle.Close())
	})
}

// What a COMMIT leaves that its caller has not waited for is rolled back behind
// the caller, who was told nothing to roll back.
func TestACommitThatFailsBehindWithTransactionLeavesNoTransaction(t *testing.T) {
	limit := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
	for name, conn := range map[string]*fakeConn{
		"it was refused, and the rollback too": {
			fail:     map[string]error{"Commit": sqlError("conflict")},
			failOnce: map[string][]error{"Rollback": {limit}},
			work:     map[string]time.Duration{"Commit": time.Second},
		},
		"it was refused": {
			failOnce: map[string][]error{"Commit": {sqlError("conflict")}},
			work:     map[string]time.Duration{"Commit": time.Second},
		},
		"it was done": {work: map[string]time.Duration{"Commit": time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, conn)
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			err := r.handle.WithTransaction(ctx, func(context.Context, *SessionHandle) error { return nil })
			require.ErrorIs(t, err, backend.ErrCommitUnknown, name)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.NoError(t, r.handle.BeginTransaction(t.Context()), name)
			require.NoError(t, r.handle.Rollback(t.Context()), name)
			require.ErrorIs(t, r.handle.Rollback(t.Context()), ErrNoTx, name)
			_ = r.handle.Close()
			r.clean()
		})
	}
}

// What fn has committed is not taken for undone, whatever fails after it.
func TestWhatTheFunctionOfWithTransactionHasCommittedIsNotToldAsUndone(t *testing.T) {
	commits := func(ctx context.Context, s *SessionHandle) error { return s.Commit(ctx) }
	for _, tc := range []struct {
		name   string
		end    func(ctx context.Context, s *SessionHandle) error
		then   func(ctx context.Context, s *SessionHandle) error
		stored bool
	}{
		{"returns nil", commits, func(context.Context, *SessionHandle) error { return nil }, true},
		{"a read fails", commits, func(ctx context.Context, s *SessionHandle) error { _, err := s.Query(ctx, "SELECT 3"); return err }, true},
		{"it begins another", commits, func(ctx context.Context, s *SessionHandle) error {
			must(t, s.BeginTransaction(ctx))
			_, err := s.Query(ctx, "SELECT 3")
			return err
		}, true},
		{"rolled back", (func(ctx context.Context, s *SessionHandle) error { return s.Rollback(ctx) }), func(context.Context, *SessionHandle) error { return nil }, false},
		{"aborted", func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Update(ctx, "BAD")
			require.Error(t, err)
			require.ErrorIs(t, s.Commit(ctx), backend.ErrTxAborted)
			return nil
		}, func(ctx context.Context, s *SessionHandle) error { _, err := s.Query(ctx, "SELECT 3"); return err }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{fail: map[string]error{"SELECT 3": transportError(), "tx2: SELECT 3": transportError()}})
			err := r.handle.WithTransaction(t.Context(), func(ctx context.Context, s *SessionHandle) error {
				_, err := s.Update(ctx, "INSERT 1")
				must(t, err)
				must(t, tc.end(ctx, s))
				return tc.then(ctx, s)
			})
			require.Error(t, err, tc.name)
			require.Equal(t, tc.stored, errors.Is(err, backend.ErrCommitUnknown), "%s: %v", tc.name, err)
			require.False(t, tc.stored && backend.SafeToRetry(err), "%s: %v", tc.name, err)
			_ = r.handle.Close()
		})
	}
}
