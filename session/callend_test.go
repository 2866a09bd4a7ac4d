package session

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

func answered(fault backend.Fault, stage backend.Stage, code codes.Code, text string) error {
	return &backend.Error{Stage: stage, Fault: fault, Err: status.Error(code, text)}
}

// What fails between its steps in a transaction may have been outside of it on a server that leaves transactions by itself,
// and have left one of its own there in which later changes would be told as stored. A refusal has left none that is sound.
func TestWhatFailsBetweenItsStepsMayHaveBeenOutsideOfItsTransaction(t *testing.T) {
	limit := answered(backend.FaultStatement, backend.StageExecute, codes.Unknown, "Query execution timed out after 3 seconds")
	refusal := answered(backend.FaultStatement, backend.StageExecute, codes.InvalidArgument, "f fails")
	for name, tc := range map[string]struct {
		forgives bool
		failure  error
		sent     []string
	}{
		"a time limit of a server that may leave":     {true, limit, []string{"ROLLBACK", "SELECT 1"}},
		"a refusal of such a server":                  {true, refusal, nil},
		"a time limit of one that minds transactions": {false, limit, nil},
		"a refusal of that":                           {false, refusal, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStepsConn()
			c.forgives, c.sound, c.failure, c.failures = tc.forgives, true, tc.failure, 1
			r := stateRig(t, c.stateConn)
			r.handle = New(c, r.policy, r.returned)
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Update(t.Context(), steps)
			require.Error(t, err, name)
			must(t, r.handle.Rollback(t.Context()))
			sent := r.sent(func() {
				_, err = r.handle.Update(t.Context(), "INSERT 1")
				must(t, err)
			})
			require.Equal(t, tc.sent, ofChain(sent), "%s: %q", name, sent)
			_ = r.handle.Close()
		})
	}
}

// A session in which a text failed that may have done something before is probed before the next borrower gets it, also
// where the transaction was the handle's, which is looked at by nothing else.
func TestASessionIsProbedBehindATextThatFailedInItsTransaction(t *testing.T) {
	refusal := answered(backend.FaultStatement, backend.StageExecute, codes.InvalidArgument, "no")
	missing := answered(backend.FaultUnsupported, backend.StageExecute, codes.Unimplemented, "not implemented")
	update := func(sql string, args ...any) func(ctx context.Context, s *SessionHandle) error {
		return func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, sql, args...); return err }
	}
	for name, tc := range map[string]struct {
		call    func(ctx context.Context, s *SessionHandle) error
		failure error
		probes  []string
	}{
		"several":                       {update("INSERT 1; INSERT 2"), refusal, []string{"SELECT 1"}},
		"several reads":                 {update("SELECT 2; SELECT 3"), refusal, []string{"SELECT 1"}},
		"steps":                         {update(steps), refusal, []string{"SELECT 1"}},
		"steps that the server lacks":   {update(steps), missing, []string{"SELECT 1"}},
		"one":                           {update("INSERT 1"), refusal, nil},
		"one that the server lacks":     {update("INSERT 1"), missing, nil},
		"several that the server lacks": {update("INSERT 1; INSERT 2"), missing, nil},
		"steps whose parameters do not fit, which are not run": {update(steps, sql.Named("b", 1)), nil, nil},
		"steps that succeed": {func(ctx context.Context, s *SessionHandle) error {
			_, _ = s.Update(ctx, steps)
			return errors.New("none")
		}, nil, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			must(t, r.handle.BeginTransaction(t.Context()))
			c.failAll = tc.failure
			require.Error(t, tc.call(t.Context(), r.handle), name)
			c.failAll = nil
			must(t, r.handle.Rollback(t.Context()))
			sent := r.sent(func() { must(t, r.handle.Close()) })
			require.Equal(t, tc.probes, ofChain(sent), "%s: %q", name, sent)
			r.reused()
		})
	}
}

// An ingestion that failed outside of transactions may have left its rows in a temporary table of the server's own, whatever
// has succeeded since. In a transaction they are gone with it.
func TestTheRowsOfAnIngestionThatFailedAreLookedForAtTheEnd(t *testing.T) {
	for name, tc := range map[string]struct{ inTx, fails, then, looks bool }{
		"failed":                       {false, true, false, true},
		"failed, and others behind it": {false, true, true, true},
		"failed in a transaction":      {true, true, false, false},
		"stored":                       {false, false, false, false},
	} {
		for _, left := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c := newStateConn()
				r := stateRig(t, c)
				if tc.fails {
					c.fail = map[string]error{" ingest t": sqlError("no"), "tx1 ingest t": sqlError("no")}
				}
				if tc.inTx {
					must(t, r.handle.BeginTransaction(t.Context()))
				}
				_, err := r.handle.Ingest(t.Context(), "t", tenRows(t), backend.IngestOptions{Mode: backend.IngestAppend})
				require.Equal(t, tc.fails, err != nil, name)
				if tc.inTx {
					must(t, r.handle.Rollback(t.Context()))
				}
				if tc.then {
					_, err = r.handle.Update(t.Context(), "INSERT 1")
					must(t, err)
				}
				if left {
					c.temps = 1
				}
				sent := r.sent(func() { _ = r.handle.Close() })
				require.Equal(t, tc.looks, slices.Contains(sent, tempsQuery.sql), "%s: %q", name, sent)
				if tc.looks && left {
					require.ErrorContains(t, r.discarded(), "temporary objects", name)
				} else {
					r.reused()
				}
			})
		}
	}
}

// Where no statements are kept, one that may have been prepared all the same makes nothing to clean.
func TestAPreparingWithoutAnAnswerIsCleanedUpWhereStatementsAreKept(t *testing.T) {
	for name, keeps := range map[string]bool{"none are kept": false, "some are": true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{failOnce: map[string][]error{"Prepare": {answered(backend.FaultStatement, backend.StagePrepare, codes.Internal, "something happened")}}})
			if keeps {
				r.policy.Statements = NewStatements(2)
			}
			cleaned := 0
			r.policy.Observe.Reset = func(time.Duration, error) { cleaned++ }
			_, err := r.handle.Update(t.Context(), "INSERT 1", 7)
			require.Error(t, err, name)
			must(t, r.handle.Close())
			require.Equal(t, keeps, cleaned > 0, name)
			r.reused()
		})
	}
}

// On a server that gives no proof a session may be used for as long as it is without long pauses: what it answers shows that
// it was there.
func TestASessionWithoutAProofIsKeptByItsUse(t *testing.T) {
	for name, pause := range map[string]time.Duration{"short pauses": maxUnprovenPause - time.Second, "a long one": maxUnprovenPause} {
		synctest.Test(t, func(t *testing.T) {
			conn := &proofConn{fakeConn: &fakeConn{}, prepares: answered(backend.FaultUnsupported, backend.StagePrepare, codes.Unimplemented, "no")}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			must(t, r.handle.BeginTransaction(t.Context()))
			var err error
			for range 4 {
				time.Sleep(pause)
				if _, err = r.handle.Update(t.Context(), "INSERT 1"); err != nil {
					break
				}
			}
			if pause < maxUnprovenPause {
				require.NoError(t, err, name)
				must(t, r.handle.Commit(t.Context()))
			} else {
				require.ErrorIs(t, err, backend.ErrSessionLost, name)
			}
			_ = r.handle.Close()
		})
	}
}

// What an owner is told of the time of a call, and of its first batch, is counted from the statement, and not from what
// was asked before it.
func TestTheTimeOfACallIsThatOfItsStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true, work: map[string]time.Duration{"Prepare": time.Second}})
		var ended, first []time.Duration
		r.policy.Observe.Ended = func(took time.Duration) { ended = append(ended, took) }
		r.policy.Observe.FirstBatch = func(took time.Duration) { first = append(first, took) }
		start := time.Now()
		res, err := r.handle.QueryWithOptions(t.Context(), "WITH a AS (SELECT SLOW 20ms ) INSERT INTO t VALUES (1) RETURNING 1; SET threads = 1", QueryOptions{Route: RouteQuery})
		must(t, err)
		res.Release()
		synctest.Wait()
		require.Equal(t, time.Second+20*ms, time.Since(start), "it was proven before: %q", r.conn.Log())
		require.Equal(t, []time.Duration{20 * ms}, first)
		require.Equal(t, []time.Duration{20 * ms}, ended)
		_ = r.handle.Close()
	})
}

// A step whose caller has left it while the session was asked what has to hold before is not sent, if it would be cut: nothing
// of it is cancelled, or told as answered, and it has changed nothing. One that is left to its end is sent.
func TestWhatItsCallerHasLeftBeforeIsNotSentUnlessItIsLeftToItsEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		mode callMode
		own  bool // the step has a goroutine of its own
		sent bool
	}{
		"cut":                            {cancelWhenLeft, true, false},
		"cut, in its caller's goroutine": {cancelWhenLeft, false, false},
		"cut after the budget":           {cancelAfterBudget, true, false},
		"left for the budget":            {finishWithinBudget, true, true},
		"left to its end":                {finishWhenLeft, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true})
			must(t, r.handle.BeginTransaction(t.Context()))
			said := 0
			r.policy.Observe.Answered = func() { said++ }
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			c, err := r.handle.begin(ctx, "Update", QueryOptions{ownGoroutine: tc.own, asUpdate: true}, tc.mode)
			must(t, err)
			must(t, r.handle.checkStatement(c, sqlscan.Parse("INSERT 1")))
			c.beforeSend = func(context.Context) error { time.Sleep(30 * ms); return nil }
			sent, underWay := false, false
			c.afterStep = func() { underWay = r.handle.changeUnderWay() } // what a rollback beside it would find
			err = runStepWithoutValue(c, func(context.Context) error { sent = true; return nil }, errorOutcome)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			if !tc.own {
				require.True(t, backend.SafeToRetry(err), "%s: nothing was sent", name)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, tc.sent, sent, name)
			require.Equal(t, tc.sent, underWay, name)
			require.Equal(t, tc.sent, said > 0, name)
			require.Empty(t, r.chains(), name)
			require.Equal(t, tc.sent, r.handle.txState().hasChanged, name)
			must(t, r.handle.Rollback(t.Context()))
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// A COMMIT whose caller leaves while the session is proven before it is sent: its caller was told that it may be.
func TestACommitWhoseCallerLeavesBeforeItIsSentAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true})
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err := r.handle.Update(t.Context(), "INSERT 1")
		must(t, err)
		r.conn.late = func() { time.Sleep(30 * ms) }
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		require.ErrorIs(t, r.handle.Commit(ctx), backend.ErrCommitUnknown)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Contains(t, r.conn.Log(), "Commit")
		_ = r.handle.Close()
	})
}

// A credential that is refused before anything of a change of several is sent has left nothing half done: the call can be made
// again. Behind its first part nobody knows.
func TestACredentialThatIsRefusedBeforeAChangeLeavesNothingHalfDone(t *testing.T) {
	const changes = "INSERT 1; INSERT 2"
	expired := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultAuth, Unsent: true, Err: status.Error(codes.Unauthenticated, "token expired")}
	for name, before := range map[string]bool{"before it": true, "behind its first part": false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true})
			_, err := r.handle.Update(t.Context(), "CREATE TEMP TABLE a (x INT)")
			must(t, err)
			if before {
				r.conn.failAll = expired // the proof is asked for
			} else {
				r.conn.fail = map[string]error{changes: expired}
			}
			_, err = r.handle.Update(t.Context(), changes)
			require.Equal(t, backend.FaultAuth, backend.FaultIn(err), name)
			require.Equal(t, before, !slices.Contains(r.conn.Log(), changes), "%s: %q", name, r.conn.Log())
			require.Equal(t, before, backend.SafeToRetry(err), "%s: %v", name, err)
			_ = r.handle.Close()
		})
	}
}

// What a call that fails does to its session: the loss of the connection goes before whatever the server has said, and a
// statement that may run on is cancelled, although the session was given up meanwhile.
func TestAFailureIsThatOfItsConnectionAndAStatementIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &pingingConn{fakeConn: &fakeConn{}}
		conn.ping = func() error { conn.cut(); return sqlError("no") }
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		require.ErrorIs(t, r.handle.Ping(t.Context()), backend.ErrSessionLost)
		require.ErrorContains(t, r.discarded(), "cut")
		must(t, r.handle.Close())
	})
	for name, gone := range map[string]bool{"given up meanwhile": true, "kept": false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			if gone {
				time.AfterFunc(10*ms, func() { r.handle.markLost(errors.New("given up")) })
			}
			_, err := r.handle.Update(ctx, "UPDATE SLOW 1h")
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Len(t, r.chains(), 1, name)
			require.Equal(t, gone, r.handle.isLost(), name)
			if gone {
				require.ErrorContains(t, r.discarded(), "given up", name)
			}
			must(t, r.handle.Close())
		})
	}
}

// pingingConn says what comes of a ping.
type pingingConn struct {
	*fakeConn
	ping func() error
}

func (c *pingingConn) Ping(context.Context) error { return c.ping() }
