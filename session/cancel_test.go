package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

const ms = time.Millisecond

func TestTheCallerReturnsWithItsContextAndTheSessionIsReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		start := time.Now()
		_, err := r.stateless().Query(ctx, "SELECT SLOW 1h")
		require.Equal(t, 20*ms, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, backend.FaultContext, backend.FaultIn(err))
		synctest.Wait()
		r.reused()
		require.Equal(t, "rpc", r.chains()[0].ConfirmedBy)
	})
}

func TestAStatementThatIgnoresTheCancelCostsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{ignoresCancel: true})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.stateless().Query(ctx, "SELECT SLOW 1h")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(5*time.Second - ms)
		synctest.Wait()
		r.held("it may still confirm within its budget")
		time.Sleep(2 * ms)
		require.ErrorContains(t, r.discarded(), "may still run")
	})
}

// A server that is cut between the statements as which it runs a change may be in their transaction
// still, and answers every probe: what was sent behind it would be stored with nothing.
func TestAChangeThatIsCutBetweenItsStepsCostsItsConnection(t *testing.T) {
	for sql, costs := range map[string]bool{
		"ALTER TABLE t ADD b INT DEFAULT f() -- SLOW 1h": true, "CREATE TABLE n AS PIVOT t ON a -- SLOW 1h": true, "CALL p() -- SLOW 1h": true, "EXPLAIN PIVOT t ON a -- SLOW 1h": true,
		"ALTER TABLE t ADD SLOW 1h": false, "UPDATE SLOW 1h": false, "SELECT SLOW 1h": false, "PIVOT t ON a -- SLOW 1h": false, "EXPLAIN SELECT 1 -- SLOW 1h": false,
	} {
		for _, inTx := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{})
				if inTx {
					must(t, r.handle.BeginTransaction(t.Context()))
				}
				ctx, stop := context.WithTimeout(t.Context(), 20*ms)
				defer stop()
				_, err := r.handle.Execute(ctx, sql)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				synctest.Wait()
				require.Equal(t, costs && !inTx, slices.Contains(r.conn.Log(), "ROLLBACK"), "of the steps' transaction: %s", sql)
				if costs && !inTx {
					_, err = r.handle.Update(t.Context(), "INSERT INTO t VALUES (1)")
					require.ErrorIs(t, err, backend.ErrSessionLost, sql)
					require.NotContains(t, r.conn.Log(), "INSERT INTO t VALUES (1)")
					require.ErrorContains(t, r.discarded(), "may be open", sql)
				}
				_ = r.handle.Close()
				if !costs {
					r.reused()
				}
			})
		}
	}
}

func TestAStatementThatEndsWithinTheBudgetSavesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{ignoresCancel: true})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.stateless().Update(ctx, "UPDATE SLOW 3s")
		require.Error(t, err)
		time.Sleep(4 * time.Second)
		r.reused()
	})
}

func TestTheServerIsAskedOnceTheRPCHasNotHelped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{ignoresCancel: true}
		asked := time.Duration(0)
		start := time.Now()
		conn.steps = func(op *backend.Operation) []cancel.Step {
			require.Equal(t, "SELECT SLOW 1h", op.Name())
			return []cancel.Step{
				{Name: "CancelFlightInfo", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
					return cancel.Unsupported, errors.New("unimplemented")
				}},
				{Name: "CancelQuery", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
					asked = time.Since(start)
					conn.mu.Lock()
					conn.freeAt = time.Now().Add(10 * ms)
					conn.mu.Unlock()
					return cancel.Requested, nil
				}},
				{Name: "never", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
					t.Error("the way before had worked")
					return cancel.Failed, nil
				}},
			}
		}
		r := newRig(t, conn)
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.stateless().Query(ctx, "SELECT SLOW 1h")
		require.Error(t, err)
		time.Sleep(time.Second)
		r.reused()
		require.Equal(t, 20*ms+250*ms, asked, "after the grace")
		require.Equal(t, "CancelQuery", r.chains()[0].ConfirmedBy)
	})
}

func TestAnUnansweredCancelCostsTheConnectionEvenWhenTheStatementEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{ignoresCancel: true}
		conn.steps = func(*backend.Operation) []cancel.Step {
			return []cancel.Step{{Name: "CancelFlightInfo", Timeout: 100 * ms, Do: func(ctx context.Context) (cancel.Outcome, error) {
				<-ctx.Done() // the request is out there, somewhere
				return cancel.Failed, ctx.Err()
			}}}
		}
		r := newRig(t, conn)
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.stateless().Query(ctx, "SELECT SLOW 1s")
		require.Error(t, err)
		time.Sleep(10 * time.Second)
		require.ErrorContains(t, r.discarded(), "unanswered")
	})
}

func TestAHandleGoesOnAfterAConfirmedCancelAndIsLostAfterAnUnconfirmedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.handle.Query(ctx, "SELECT SLOW 1h")
		require.Error(t, err)
		_, err = r.handle.Update(t.Context(), "INSERT 1") // waits for the outcome
		require.NoError(t, err)

		r.conn.ignoresCancel = true
		ctx, stop = context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err = r.handle.Query(ctx, "SELECT SLOW 1h")
		require.Error(t, err)
		short, stop := context.WithTimeout(t.Context(), 50*ms)
		defer stop()
		_, err = r.handle.Update(short, "INSERT 2")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, backend.SafeToRetry(err), "nothing of it was sent")
		_, err = r.handle.Update(t.Context(), "INSERT 3")
		require.ErrorIs(t, err, backend.ErrSessionLost)
		_ = r.discarded()
		must(t, r.handle.Close())
		_ = r.discarded()
		require.NotContains(t, r.conn.Log(), "INSERT 2")
		require.NotContains(t, r.conn.Log(), "INSERT 3")
	})
}

func TestACancelledStatementRollsItsTransactionBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		must(t, r.handle.BeginTransaction(t.Context()))
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.handle.Update(ctx, "UPDATE SLOW 1h")
		require.Error(t, err)
		_, err = r.handle.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrTxAborted)
		require.ErrorIs(t, r.handle.RollbackTo(t.Context(), "a"), backend.ErrTxAborted, "there is nothing left to roll back to")
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted)
		require.Equal(t, []string{"Begin", "tx1: UPDATE SLOW 1h", "Rollback"}, r.conn.Log(), "rolled back once, by the chain")
		must(t, r.handle.BeginTransaction(t.Context()))
		must(t, r.handle.Commit(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}

func TestADeadlineDuringAResultEndsItAlthoughNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		res, err := r.stateless().Query(ctx, "SELECT 5")
		must(t, err)
		require.True(t, res.Next())
		batch := res.RecordBatch()
		time.Sleep(20 * ms)
		synctest.Wait()
		r.reused()
		require.EqualValues(t, 1, batch.NumRows(), "the batch in the caller's hands stays valid")
		require.False(t, res.Next())
		require.ErrorIs(t, res.Err(), context.DeadlineExceeded)
		res.Release()
		r.clean()
	})
}

func TestTimeoutOfTheOptionsAndOfThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		r.policy.QueryTimeout = 30 * ms
		start := time.Now()
		_, err := r.handle.Query(t.Context(), "SELECT SLOW 1h")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 30*ms, time.Since(start))
		_, err = r.handle.QueryWithOptions(t.Context(), "SELECT SLOW 1h", QueryOptions{Timeout: 10 * ms})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		res, err := r.handle.QueryWithOptions(t.Context(), "SELECT SLOW 1s", QueryOptions{Timeout: -1})
		must(t, err)
		res.Release()
	})
}

func TestNoCancelLeavesTheStatementToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		start := time.Now()
		_, err := r.stateless().UpdateWithOptions(ctx, "UPDATE SLOW 1s", QueryOptions{NoCancel: true})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 20*ms, time.Since(start))
		time.Sleep(970 * ms)
		r.held("the statement is still at work")
		time.Sleep(20 * ms)
		r.reused()
		require.Empty(t, r.chains(), "nothing was cancelled")
	})
}

func TestNoCancelOfAResultDrainsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		res, err := r.stateless().QueryWithOptions(ctx, "SELECT 3", QueryOptions{NoCancel: true})
		must(t, err)
		time.Sleep(30 * ms)
		r.reused()
		require.False(t, res.Next())
		require.ErrorIs(t, res.Err(), context.DeadlineExceeded)
		res.Release()
		require.Empty(t, r.chains())
	})
}

func TestCloseDuringACallCancelsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		failed := make(chan error)
		go func() {
			_, err := r.handle.Update(t.Context(), "UPDATE SLOW 1h")
			failed <- err
		}()
		synctest.Wait()
		must(t, r.handle.Close())
		require.Error(t, <-failed)
		synctest.Wait()
		r.reused()
		require.Len(t, r.chains(), 1)
	})
}

func TestAnEndedContextSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		_, err := r.stateless().Update(ctx, "INSERT 1")
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, backend.SafeToRetry(err))
		require.Empty(t, r.conn.Log())
		r.reused()
	})
}

// What the chain says it found out is what it has found out: no probe counts that
// was cut off, refused or left halfway.
func TestAChainConfirmsByAProbeThatWasAnsweredAndByNoOther(t *testing.T) {
	slow := func(ctx context.Context, r *rig) { // a change, cut after 20 ms
		_, err := r.handle.Update(ctx, "UPDATE SLOW 1h")
		require.ErrorIs(r.t, err, context.DeadlineExceeded)
	}
	lateNo := sqlError("no such transaction any more")
	for name, tc := range map[string]struct {
		conn      *fakeConn
		begin     bool
		run       func(ctx context.Context, r *rig)
		mean      func(r *rig) // 100 ms after the deadline
		by        string
		discarded string
		rollbacks int
	}{
		"a connection that is cut meanwhile": {
			conn: &fakeConn{ignoresCancel: true}, run: slow, mean: func(r *rig) { r.conn.cut() }, discarded: "may still run",
		},
		"a rollback that is not answered": {
			conn: &fakeConn{ignoresCancel: true}, begin: true, run: slow, discarded: "may still run", rollbacks: 2,
		},
		"a rollback that is answered in the end": {
			conn: &fakeConn{ignoresCancel: true, work: map[string]time.Duration{"Rollback": 2 * time.Second}}, begin: true,
			run: func(ctx context.Context, r *rig) {
				_, err := r.handle.Update(ctx, "UPDATE SLOW 200ms")
				require.ErrorIs(r.t, err, context.DeadlineExceeded)
			}, by: "probe", rollbacks: 2,
		},
		"a rollback that is cut off and had ended it": {
			conn: &fakeConn{failOnce: map[string][]error{"Rollback": {lateNo, notThere()}}, work: map[string]time.Duration{"SELECT 1": 300 * ms}}, begin: true,
			run: slow, by: "probe", rollbacks: 3,
		},
		"rows of a probe that fail": {
			conn: &fakeConn{fail: map[string]error{"stream": sqlError("rows")}}, run: slow, discarded: "may still run",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, tc.conn)
			if tc.begin {
				must(t, r.handle.BeginTransaction(t.Context()))
			}
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			tc.run(ctx, r)
			if tc.mean != nil {
				time.Sleep(100 * ms)
				tc.mean(r)
			}
			time.Sleep(time.Minute)
			require.Len(t, r.chains(), 1, name)
			require.Equal(t, tc.by, r.chains()[0].ConfirmedBy, name)
			rollbacks := 0
			for _, call := range r.conn.Log() {
				if call == "Rollback" {
					rollbacks++
				}
			}
			require.Equal(t, tc.rollbacks, rollbacks, "%s: %q", name, r.conn.Log())
			if tc.begin && tc.by != "" {
				_, err := r.handle.Update(t.Context(), "INSERT 1")
				require.ErrorIs(t, err, backend.ErrTxAborted, name)
				must(t, r.handle.Rollback(t.Context()))
			}
			_ = r.handle.Close()
			if tc.discarded == "" {
				r.reused()
			} else {
				require.ErrorContains(t, r.discarded(), tc.discarded, name)
			}
		})
	}
}

func notThere() error {
	return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.NotFound, "no such transaction")}
}

// A transaction whose read was let go far from its end goes on as soon as the
// session answers in it, and ends where it cannot or nothing would show it.
func TestWhatATransactionCostsThatAReadIsLetGoIn(t *testing.T) {
	for name, tc := range map[string]struct {
		conn   *fakeConn
		by     string
		why    string // of ErrTxAborted; none: it goes on
		probed bool   // in the transaction
	}{
		"it goes on":            {conn: &fakeConn{}, by: "rpc", probed: true},
		"it answers too late":   {conn: &fakeConn{work: map[string]time.Duration{"tx1: SELECT 1": time.Second}}, by: "probe", probed: true},
		"it is refused":         {conn: &fakeConn{fail: map[string]error{"tx1: SELECT 1": sqlError("the probe's refusal")}}, by: "rpc", why: "the probe's refusal", probed: true},
		"nothing would show it": {conn: &fakeConn{forgives: true}, by: "rpc", why: "result released before its end"},
	} {
		synctest.Test(t, func(t *testing.T) {
			tc.conn.pace = 100 * ms
			r := newRig(t, tc.conn)
			must(t, r.handle.BeginTransaction(t.Context()))
			res, err := r.handle.Query(t.Context(), "SELECT 500")
			must(t, err)
			require.True(t, res.Next())
			res.Release()
			time.Sleep(time.Minute)
			require.Len(t, r.chains(), 1, name)
			require.Equal(t, tc.by, r.chains()[0].ConfirmedBy, "%s: %q %v", name, r.conn.Log(), r.chains()[0])
			require.Equal(t, tc.probed, slices.Contains(r.conn.Log(), "tx1: SELECT 1"), name)
			require.Equal(t, tc.why != "", slices.Contains(r.conn.Log(), "Rollback"), name)
			err = r.handle.Commit(t.Context())
			if tc.why == "" {
				must(t, err)
			} else {
				require.ErrorIs(t, err, backend.ErrTxAborted, name)
				require.ErrorContains(t, err, tc.why, name)
			}
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// In a transaction that is aborted already there is nothing to keep: it is rolled
// back without asking in it.
func TestACallThatIsCutInAnAbortedTransactionRollsItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{work: map[string]time.Duration{"Ping": time.Hour}})
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err := r.handle.Update(t.Context(), "INSERT bad")
		require.Error(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		require.ErrorIs(t, r.handle.Ping(ctx), context.DeadlineExceeded)
		must(t, r.handle.Rollback(t.Context()))
		require.Equal(t, []string{"Begin", "tx1: INSERT bad", "Ping", "Rollback"}, r.conn.Log())
		must(t, r.handle.Close())
		r.reused()
	})
}

// A way of the server's has its whole time for the answer, and the probe after it
// a time of its own. One that the server turns out not to have has done nothing,
// however late that is told.
func TestAWayToCancelHasItsTimeAndTheProbeItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		takes  time.Duration
		answer cancel.Outcome
		err    error
		reused bool
		by     string
	}{
		"in time":           {takes: 950 * ms, answer: cancel.Confirmed, reused: true, by: "CancelQuery"},
		"too late":          {takes: 1050 * ms, answer: cancel.Failed, err: context.DeadlineExceeded, by: "probe"},
		"not there, late":   {takes: 1050 * ms, answer: cancel.Unsupported, err: errors.New("unimplemented"), reused: true, by: "probe"},
		"failed, late":      {takes: 1050 * ms, answer: cancel.Failed, reused: true, by: "probe"}, // the server has answered
		"failed, in time":   {takes: 950 * ms, answer: cancel.Failed, err: errors.New("busy"), reused: true, by: "probe"},
		"confirmed at last": {takes: 1050 * ms, answer: cancel.Confirmed, reused: true, by: "CancelQuery"},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{ignoresCancel: true}
			conn.steps = func(*backend.Operation) []cancel.Step {
				return []cancel.Step{{Name: "CancelQuery", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
					time.Sleep(tc.takes)
					if tc.answer == cancel.Confirmed {
						conn.mu.Lock()
						conn.freeAt = time.Now().Add(100 * ms)
						conn.mu.Unlock()
					}
					return tc.answer, tc.err
				}}}
			}
			r := newRig(t, conn)
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			_, err := r.stateless().Query(ctx, "SELECT SLOW 3s")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			require.Equal(t, tc.by, r.chains()[0].ConfirmedBy, "%s: %v", name, r.chains()[0])
			if tc.reused {
				r.reused()
			} else {
				require.ErrorContains(t, r.discarded(), "unanswered", name)
			}
		})
	}
}

// The pause in which a cut statement may come to its turn is counted from its sending,
// where that is known.
func TestAStatementThatWasSentLongAgoIsNotWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		limit, pause time.Duration
		run          func(ctx context.Context, s *SessionHandle) error
	}{
		"a change, just sent": {20 * ms, 230 * ms, func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Update(ctx, "UPDATE SLOW 1h")
			return err
		}},
		"a change, sent before": {10 * time.Second, 0, func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Update(ctx, "UPDATE SLOW 1h")
			return err
		}},
		"one of two requests": {10 * time.Second, 250 * ms, func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Query(ctx, "SELECT SLOW 1h") // the fake names it at once
			return err
		}},
		"with code of its caller's": {10 * time.Second, 250 * ms, func(ctx context.Context, s *SessionHandle) error {
			_, err := s.UpdateWithOptions(ctx, "UPDATE SLOW 1h", QueryOptions{Progress: func(float64, bool) {}})
			return err
		}},
		"with parameters": {10 * time.Second, 250 * ms, func(ctx context.Context, s *SessionHandle) error {
			params := numbers(1)
			defer params.Release()
			_, err := s.UpdateWithRecordBatch(ctx, "UPDATE SLOW 1h", params)
			return err
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true})
			must(t, r.handle.BeginTransaction(t.Context()))
			ctx, stop := context.WithTimeout(t.Context(), tc.limit)
			defer stop()
			require.ErrorIs(t, tc.run(ctx, r.handle), context.DeadlineExceeded, name)
			began := time.Now()
			_ = r.handle.Rollback(t.Context())
			require.Equal(t, tc.pause, time.Since(began), name)
			must(t, r.handle.Close())
		})
	}
}

// A credential that expires while a session is idle costs the connection, which is not
// worth an error of Close.
func TestACloseThatFindsTheCredentialExpiredSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := &backend.Error{Stage: backend.StageAuth, Fault: backend.FaultAuth, Err: status.Error(codes.Unauthenticated, "token expired")}
		r := newRig(t, &fakeConn{fail: map[string]error{"ClosePrepared": expired}})
		_, err := r.handle.PrepareQuery(t.Context(), "SELECT 1")
		must(t, err)
		must(t, r.handle.Close())
		require.ErrorIs(t, r.discarded(), expired)
	})
}
