package session

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

func must(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}

func TestTransactionIDGoesWithEveryStatementUntilCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx := t.Context()
		must(t, r.handle.BeginTransaction(ctx))
		_, err := r.handle.Update(ctx, "INSERT 1")
		must(t, err)
		must(t, r.handle.Commit(ctx))
		_, err = r.handle.Update(ctx, "INSERT 2")
		must(t, err)
		must(t, r.handle.Close())
		require.Equal(t, []string{"Begin", "tx1: INSERT 1", "Commit", "INSERT 2"}, r.conn.Log())
		r.reused()
	})
}

func TestDoubleBeginIsALocalErrorAndLeavesTheFirstIntact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		must(t, r.handle.BeginTransaction(t.Context()))
		require.ErrorIs(t, r.handle.BeginTransaction(t.Context()), ErrTxOpen)
		must(t, r.handle.Commit(t.Context()))
		require.Equal(t, []string{"Begin", "Commit"}, r.conn.Log())
	})
}

func TestAfterAFailedStatementOnlyRollbackIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx := t.Context()
		must(t, r.handle.BeginTransaction(ctx))
		_, err := r.handle.Update(ctx, "INSERT bad")
		require.Equal(t, backend.FaultStatement, backend.FaultIn(err))
		_, err = r.handle.Query(ctx, "SELECT 1")
		require.ErrorIs(t, err, backend.ErrTxAborted)
		_, err = r.handle.Update(ctx, "INSERT 2")
		require.ErrorIs(t, err, backend.ErrTxAborted)
		err = r.handle.Commit(ctx)
		require.ErrorIs(t, err, backend.ErrTxAborted, "Commit never reports success for an aborted transaction")
		require.Equal(t, []string{"Begin", "tx1: INSERT bad", "Rollback"}, r.conn.Log(), "Commit of an aborted transaction rolls back")
		must(t, r.handle.BeginTransaction(ctx))
		must(t, r.handle.Commit(ctx))
		must(t, r.handle.Close())
		r.reused()
	})
}

// Who waits for the end of a call finds the connection out of the pool's count, also
// where that end has lost the session.
func TestALostConnectionIsGoneBeforeTheNextCallIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{"INSERT 1": transportError()}})
		s := New(r.conn, r.policy, func(reason error) {
			time.Sleep(time.Second) // another goroutine is faster
			r.returned(reason)
		})
		must(t, s.BeginTransaction(t.Context()))
		failed := make(chan error)
		go func() {
			_, err := s.Update(t.Context(), "INSERT 1")
			failed <- err
		}()
		synctest.Wait()
		must(t, s.RollbackOpen(t.Context()))
		require.ErrorIs(t, r.discarded(), backend.ErrSessionLost)
		require.ErrorIs(t, <-failed, backend.ErrSessionLost)
		must(t, s.Close())
	})
}

// A hook of the owner's that ends the goroutine in which a lost connection is given back
// keeps no later call waiting.
func TestAReleaseThatEndsItsGoroutineEndsTheCall(t *testing.T) {
	for name, idle := range map[string]bool{"call": false, "idle": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{fail: map[string]error{"INSERT 1": transportError()}})
				s := New(r.conn, r.policy, func(reason error) {
					r.returned(reason)
					runtime.Goexit()
				})
				done := make(chan struct{})
				go func() {
					defer close(done)
					if idle {
						s.markLost(transportError())
					} else {
						_, _ = s.Update(t.Context(), "INSERT 1")
					}
				}()
				<-done
				require.ErrorIs(t, r.discarded(), backend.ErrSessionLost)
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				_, err := s.Update(ctx, "INSERT 2")
				require.ErrorIs(t, err, backend.ErrSessionLost)
				must(t, s.Close())
			})
		})
	}
}

// The end of a transaction is on record before the next call may begin another.
func TestATransactionThatBeginsRightAfterAnAbortedOneIsOnRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(*SessionHandle) error{
			"Commit":   func(s *SessionHandle) error { return s.Commit(t.Context()) },
			"Rollback": func(s *SessionHandle) error { return s.Rollback(t.Context()) },
		} {
			r := newRig(t, &fakeConn{})
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Update(t.Context(), "INSERT bad")
			require.Error(t, err)
			r.policy.Observe.Ended = func(time.Duration) { // as another goroutine may
				r.policy.Observe.Ended = nil
				must(t, r.handle.BeginTransaction(t.Context()))
			}
			_ = end(r.handle) // says that the first was aborted
			_, err = r.handle.Update(t.Context(), "INSERT 2")
			must(t, err)
			must(t, r.handle.Close())
			require.Equal(t, []string{"tx2: INSERT 2", "Rollback"}, r.conn.Log()[4:], name)
		}
	})
}

// Later statements could run where the option leads, which its caller was told has failed.
func TestASetOptionThatItsCallerLeavesAbortsTheTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{work: map[string]time.Duration{"SetOptions": time.Second}})
		must(t, r.handle.BeginTransaction(t.Context()))
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer stop()
		require.ErrorIs(t, r.handle.SetOption(ctx, "catalog", "other"), context.DeadlineExceeded)
		_, err := r.handle.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrTxAborted)
		must(t, r.handle.Rollback(t.Context()))
		_ = r.handle.Close() // this server does not tell where names are looked for
	})
}

func TestCommitErrorsTellWhatIsStored(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want error
		not  error
	}{
		"refused by the server: nothing":     {&backend.Error{Fault: backend.FaultStatement, Err: status.Error(codes.FailedPrecondition, "conflict")}, backend.ErrTxAborted, backend.ErrCommitUnknown},
		"connection lost: unknown":           {transportError(), backend.ErrCommitUnknown, backend.ErrTxAborted},
		"an answer nobody can read: unknown": {errors.New("?"), backend.ErrCommitUnknown, backend.ErrTxAborted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{fail: map[string]error{"Commit": tc.err}})
				must(t, r.handle.BeginTransaction(t.Context()))
				err := r.handle.Commit(t.Context())
				require.ErrorIs(t, err, tc.want)
				require.NotErrorIs(t, err, tc.not)
				require.False(t, backend.SafeToRetry(err))
				_ = r.handle.Close()
			})
		})
	}
}

func TestCommitOnALostTransportSaysThatNothingWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		must(t, r.handle.BeginTransaction(t.Context()))
		r.conn.cut()
		err := r.handle.Commit(t.Context())
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.NotErrorIs(t, err, backend.ErrCommitUnknown)
		require.NotContains(t, r.conn.Log(), "Commit")
		require.ErrorIs(t, r.handle.Rollback(t.Context()), backend.ErrSessionLost)
		must(t, r.handle.Close())
		require.ErrorIs(t, r.discarded(), backend.ErrSessionLost)
	})
}

func TestCommitOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{"slow Commit": errors.New("yes")}})
		must(t, r.handle.BeginTransaction(t.Context()))
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer stop()
		start := time.Now()
		err := r.handle.Commit(ctx)
		require.Equal(t, 10*time.Millisecond, time.Since(start), "the caller returns with its context")
		require.ErrorIs(t, err, backend.ErrCommitUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		must(t, r.handle.Close()) // must not cut the commit off
		time.Sleep(2 * time.Second)
		r.reused()
		r.clean("the server has finished it")
	})
}

func TestCloseRollsAnOpenTransactionBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		rolled := 0
		r.policy.Observe.RolledBack = func() { rolled++ }
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err := r.handle.Update(t.Context(), "INSERT 1")
		must(t, err)
		must(t, r.handle.Close())
		must(t, r.handle.Close())
		require.Equal(t, []string{"Begin", "tx1: INSERT 1", "Rollback"}, r.conn.Log())
		require.Equal(t, 1, rolled)
		r.reused()
		require.ErrorIs(t, r.handle.BeginTransaction(t.Context()), backend.ErrHandleClosed)
	})
}

func TestARollbackThatFailsAtCloseCostsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{"Rollback": sqlError("no")}})
		must(t, r.handle.BeginTransaction(t.Context()))
		require.Error(t, r.handle.Close())
		_ = r.discarded()
	})
}

func TestTransactionControlAsTextIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		for _, sql := range []string{"BEGIN", "commit", "INSERT 1; ROLLBACK", "SAVEPOINT a"} {
			_, err := r.handle.Execute(t.Context(), sql)
			require.Equal(t, backend.FaultUsage, backend.FaultIn(err), sql)
			_, err = r.handle.Update(t.Context(), sql)
			require.ErrorContains(t, err, "BeginTransaction", sql)
		}
		_, err := r.handle.Query(t.Context(), " -- nothing")
		require.ErrorContains(t, err, "no statement")
		_, err = r.handle.Query(t.Context(), "-- one\n/* SELECT 1")
		require.ErrorContains(t, err, "no statement: a comment that opens at byte 7 is never closed")
		require.Empty(t, r.conn.Log())
	})
}

// A server that confirms the end of transactions it does not know, and forgets
// sessions, must not make Commit lie.
func TestCommitInAReplacedSessionIsNotASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true})
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err := r.handle.Update(t.Context(), "INSERT 1")
		must(t, err)
		r.conn.replaceSession()
		err = r.handle.Commit(t.Context())
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.NotContains(t, r.conn.Log(), "Commit")
		_ = r.handle.Close()
		_ = r.discarded()
	})
}

func TestAStatementAfterAPauseIsNotRunInAReplacedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true})
		must(t, r.handle.BeginTransaction(t.Context()))
		time.Sleep(maxProofAge)
		r.conn.replaceSession()
		_, err := r.handle.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.NotContains(t, r.conn.Log(), "tx1: INSERT 1")
	})
}

func TestTheMarkerGoesWithItsTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true})
		for range 3 {
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Commit(t.Context()))
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Rollback(t.Context()))
		}
		must(t, r.handle.BeginTransaction(t.Context()))
		must(t, r.handle.Close())
		r.clean()
		r.reused()
	})
}

func TestWithTransactionCommitsRollsBackAndSurvivesPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		boom := errors.New("boom")
		insert := func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, "INSERT 1"); return err }
		must(t, r.handle.WithTransaction(t.Context(), insert))
		require.ErrorIs(t, r.handle.WithTransaction(t.Context(), func(context.Context, *SessionHandle) error { return boom }), boom)
		require.PanicsWithValue(t, "p", func() {
			_ = r.handle.WithTransaction(t.Context(), func(context.Context, *SessionHandle) error { panic("p") })
		})
		require.Equal(t, []string{"Begin", "tx1: INSERT 1", "Commit", "Begin", "Rollback", "Begin", "Rollback"}, r.conn.Log())
		ctx, stop := context.WithCancel(t.Context())
		err := r.handle.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error { stop(); return ctx.Err() })
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Equal(t, "Rollback", r.conn.Log()[len(r.conn.Log())-1], "the rollback goes out although the caller's context has ended")
		must(t, r.handle.Close())
		r.reused()
	})
}

func TestSavepointsNestAndLeadOutOfTheAbortedState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx := t.Context()
		require.ErrorIs(t, r.handle.Savepoint(ctx, "a"), ErrNoTx)
		require.ErrorIs(t, r.handle.RollbackTo(ctx, "a"), ErrNoTx)
		must(t, r.handle.BeginTransaction(ctx))
		require.ErrorContains(t, r.handle.Savepoint(ctx, ""), "needs a name")
		must(t, r.handle.Savepoint(ctx, "a"))
		must(t, r.handle.Savepoint(ctx, "b"))
		_, err := r.handle.Update(ctx, "INSERT bad")
		require.Error(t, err)
		require.ErrorIs(t, r.handle.ReleaseSavepoint(ctx, "a"), backend.ErrTxAborted)
		must(t, r.handle.RollbackTo(ctx, "a"))
		require.ErrorIs(t, r.handle.RollbackTo(ctx, "b"), ErrNoSavepoint)
		_, err = r.handle.Update(ctx, "INSERT 1")
		must(t, err)
		must(t, r.handle.ReleaseSavepoint(ctx, "a"))
		require.ErrorIs(t, r.handle.RollbackTo(ctx, "a"), ErrNoSavepoint)
		must(t, r.handle.Commit(ctx))
		require.Equal(t, []string{"Begin", "Savepoint a", "Savepoint b", "tx1: INSERT bad", "EndSavepoint sp-a 1", "tx1: INSERT 1", "EndSavepoint sp-a 0", "Commit"}, r.conn.Log())
	})
}

func TestARefusedCommitIsRolledBackAndTheSessionGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{}})
		must(t, r.handle.BeginTransaction(t.Context()))
		r.conn.fail["Commit"] = &backend.Error{Fault: backend.FaultStatement, Err: status.Error(codes.Aborted, "conflict")}
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted)
		r.conn.fail["Commit"] = nil
		// This server has forgotten the transaction with the commit it refused.
		r.conn.replaceSession()
		must(t, r.handle.Rollback(t.Context()))
		must(t, r.handle.BeginTransaction(t.Context()))
		must(t, r.handle.Commit(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}

func TestWithTransactionReturnsWithItsContextAndLaterCallsWaitForTheRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, frozen := range []string{"Rollback", "tx1: UPDATE", "Commit"} {
			r := newRig(t, &fakeConn{work: map[string]time.Duration{frozen: 2 * time.Second}})
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			start := time.Now()
			err := r.handle.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
				_, err := s.Update(ctx, "UPDATE")
				if frozen == "Rollback" {
					<-ctx.Done()
					return ctx.Err()
				}
				return err
			})
			stop()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 20*ms, time.Since(start), frozen)
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Commit(t.Context()))
			must(t, r.handle.Close())
			r.reused()
		}
	})
}

// The server's clock begins when the proof is sent, not when it answers.
func TestAProofThatComesLateIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{forgives: true}
		r := newRig(t, conn)
		must(t, r.handle.BeginTransaction(t.Context()))
		conn.late = func() {
			time.Sleep(20 * time.Minute)
			conn.replaceSession()
			conn.late = nil
		}
		_, err := r.handle.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.NotContains(t, conn.Log(), "tx1: INSERT 1")
	})
}

// A server that is slow loses no session whose transactions it knows, and which it replaces after
// long pauses at most.
func TestAProofOfASlowServerMayComeLate(t *testing.T) {
	for forgives, lost := range map[bool]bool{true: true, false: false} {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{forgives: forgives}
			r := newRig(t, conn)
			r.policy.OnReturn = ResetNone
			_, err := r.handle.Update(t.Context(), "SET threads = 1")
			must(t, err)
			time.Sleep(maxProofAge)
			asked := 0
			conn.late = func() { asked++; time.Sleep(maxProofAge + time.Second) }
			_, err = r.handle.Update(t.Context(), "INSERT 1")
			require.Equal(t, lost, errors.Is(err, backend.ErrSessionLost), "%v", err)
			require.Equal(t, map[bool]int{true: maxProofTries, false: 1}[lost], asked)
		})
	}
}

// Some servers confirm the COMMIT of a transaction in which anything has failed,
// also what they run for a catalogue call or a savepoint, and store nothing.
func TestWhateverTheServerFailsInATransactionAbortsIt(t *testing.T) {
	calls := map[string]func(ctx context.Context, s *SessionHandle) error{
		"Metadata": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataTables})
			return err
		},
		"Savepoint a":         func(ctx context.Context, s *SessionHandle) error { return s.Savepoint(ctx, "a") },
		"EndSavepoint sp-b 1": func(ctx context.Context, s *SessionHandle) error { return s.RollbackTo(ctx, "b") },
		"EndSavepoint sp-b 0": func(ctx context.Context, s *SessionHandle) error { return s.ReleaseSavepoint(ctx, "b") },
	}
	for name, call := range calls {
		for fault, aborts := range map[backend.Fault]bool{backend.FaultStatement: true, backend.FaultUnsupported: false, backend.FaultUsage: false} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{fail: map[string]error{name: &backend.Error{Fault: fault, Stage: backend.StageExecute, Err: errors.New("no")}}})
				ctx := t.Context()
				must(t, r.handle.BeginTransaction(ctx))
				must(t, r.handle.Savepoint(ctx, "b"))
				require.Error(t, call(ctx, r.handle))
				sent := len(r.conn.Log())
				if aborts && name == "EndSavepoint sp-b 1" {
					require.ErrorContains(t, call(ctx, r.handle), "no", "it may be asked again")
					require.ErrorIs(t, r.handle.Commit(ctx), backend.ErrTxAborted)
				} else if aborts {
					require.ErrorIs(t, call(ctx, r.handle), backend.ErrTxAborted, name)
					require.Len(t, r.conn.Log(), sent, "%s: nothing is sent in an aborted transaction", name)
					require.ErrorIs(t, r.handle.Commit(ctx), backend.ErrTxAborted, name)
				} else {
					must(t, r.handle.Commit(ctx))
				}
				must(t, r.handle.Close())
				r.clean()
			})
		}
	}
}

// A session that says that its transaction is aborted, where the handle has
// none, refuses everybody.
func TestASessionThatRefusesEverythingIsGivenUp(t *testing.T) {
	for _, text := range []string{"TransactionContext Error: Current transaction is aborted (please ROLLBACK)", "FATAL Error: database has been invalidated because of a previous fatal error"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{fail: map[string]error{"SELECT 2": sqlError(text)}})
			_, err := r.handle.Query(t.Context(), "SELECT 2")
			require.Error(t, err)
			_ = r.handle.Close()
			require.ErrorContains(t, r.discarded(), text)
		})
	}
}

// What is no statement may abort a transaction as well where the server refuses
// it, so the transaction is asked.
func TestARefusalBesideATransactionIsFollowedByAProbe(t *testing.T) {
	calls := map[string]func(ctx context.Context, s *SessionHandle, q *PreparedQuery) error{
		"Options": func(ctx context.Context, s *SessionHandle, _ *PreparedQuery) error {
			_, err := s.Options(ctx)
			return err
		},
		"Ping":          func(ctx context.Context, s *SessionHandle, _ *PreparedQuery) error { return s.Ping(ctx) },
		"ClosePrepared": func(ctx context.Context, _ *SessionHandle, q *PreparedQuery) error { return q.Close(ctx) },
	}
	for name, call := range calls {
		for _, aborted := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				conn := &fakeConn{fail: map[string]error{name: sqlError("no")}}
				if aborted {
					conn.fail["tx1: SELECT 1"] = sqlError("current transaction is aborted")
				}
				r := newRig(t, conn)
				must(t, r.handle.BeginTransaction(ctx))
				q, err := r.handle.PrepareQuery(ctx, "SELECT 2")
				must(t, err)
				require.ErrorContains(t, call(ctx, r.handle, q), "no")
				err = r.handle.Commit(ctx)
				if aborted {
					require.ErrorIs(t, err, backend.ErrTxAborted, name)
				} else {
					must(t, err)
				}
				_ = r.handle.Close()
			})
		}
	}
}

// Servers end savepoints by their names, which some fold, and mean the latest of a name.
func TestNoTwoSavepointsOfATransactionHaveOneNameOnTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx := t.Context()
		must(t, r.handle.BeginTransaction(ctx))
		for _, name := range []string{"a", "A", "a", `"a"`, "Flightpool_SP9", "a savepoint", strings.Repeat("a", 31)} {
			must(t, r.handle.Savepoint(ctx, name))
		}
		must(t, r.handle.RollbackTo(ctx, "A"))
		must(t, r.handle.ReleaseSavepoint(ctx, "A"))
		must(t, r.handle.Savepoint(ctx, "A"))
		r.conn.failOnce = map[string][]error{"Savepoint flightpool_sp8": {sqlError("no")}}
		require.Error(t, r.handle.Savepoint(ctx, "a"))
		must(t, r.handle.RollbackTo(ctx, "a"))
		must(t, r.handle.Savepoint(ctx, "A"))
		must(t, r.handle.Savepoint(ctx, "b"))
		must(t, r.handle.Rollback(ctx))
		must(t, r.handle.BeginTransaction(ctx))
		must(t, r.handle.Savepoint(ctx, "A"))
		must(t, r.handle.Rollback(ctx))
		require.Equal(t, []string{
			"Begin", "Savepoint a", "Savepoint flightpool_sp1", "Savepoint flightpool_sp2", "Savepoint flightpool_sp3", "Savepoint flightpool_sp4",
			"Savepoint flightpool_sp5", "Savepoint flightpool_sp6",
			"EndSavepoint sp-flightpool_sp1 1", "EndSavepoint sp-flightpool_sp1 0", "Savepoint flightpool_sp7",
			"Savepoint flightpool_sp8", "EndSavepoint sp-a 1", "Savepoint flightpool_sp9", "Savepoint b", "Rollback",
			"Begin", "Savepoint A", "Rollback",
		}, r.conn.Log())
	})
}

// What goes with the preparing goes with each, also where the execution has headers of its own.
func TestAStatementIsPreparedAgainWithItsOwnHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s := New(w, &Policy{OwnerContext: t.Context()}, func(error) {})
		ctx := t.Context()
		of := metadata.Pairs("x-tenant", "a")
		q, err := s.PrepareQueryWithOptions(ctx, "SELECT 2", QueryOptions{Headers: of})
		must(t, err)
		of.Set("x-tenant", "b")
		must(t, s.BeginTransaction(ctx))
		res, err := q.QueryWithOptions(ctx, QueryOptions{Headers: metadata.Pairs("x-call", "1")})
		must(t, err)
		must(t, res.Close())
		must(t, s.Rollback(ctx))
		must(t, s.Close())
		require.Equal(t, []metadata.MD{metadata.Pairs("x-tenant", "a"), metadata.Pairs("x-tenant", "a")}, w.preparedWith)
	})
}

// handleIsText is a statement whose handle is its text.
type handleIsText struct{ *fakePrepared }

func (h handleIsText) FirstHandle() string { return h.sql }

// The handle of the one before is that of the next where it is the text.
func TestAStatementThatIsPreparedAgainUnderItsHandleIsNotClosed(t *testing.T) {
	for handle, of := range map[string]func(*fakePrepared) backend.Prepared{
		"its text":   func(p *fakePrepared) backend.Prepared { return handleIsText{p} },
		"not known":  func(p *fakePrepared) backend.Prepared { return p },
		"its number": func(p *fakePrepared) backend.Prepared { return numbered{p} },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{prepared: of})
			ctx := t.Context()
			q, err := r.handle.PrepareQuery(ctx, "INSERT 1")
			must(t, err)
			must(t, r.handle.BeginTransaction(ctx))
			_, err = q.Update(ctx)
			must(t, err)
			must(t, r.handle.Commit(ctx))
			must(t, q.Close(ctx))
			log := []string{"Prepare", "Begin", "Prepare", "ClosePrepared", "tx1: INSERT 1", "Commit", "ClosePrepared"}
			switch handle {
			case "its text":
				log = slices.Delete(log, 3, 4)
			case "not known":
				log = slices.Delete(log, 2, 4)
			}
			require.Equal(t, log, r.conn.Log(), handle)
		})
	}
}

// numbered is a statement with a handle of its own.
type numbered struct{ *fakePrepared }

func (n numbered) FirstHandle() string { return strconv.Itoa(n.no) }

// A server that has refused once to say how it treats transactions that it does not know, and refuses the proof
// within one, has not replaced the session.
func TestAServerIsAskedAgainHowItTreatsTransactionsBeforeOneBegins(t *testing.T) {
	askedAgain := map[string]int{"at once": 3, "behind a statement that was prepared": 7}
	for name, begins := range map[string]func(ctx context.Context, s *SessionHandle) error{
		"at once": func(ctx context.Context, s *SessionHandle) error { return s.BeginTransaction(ctx) },
		"behind a statement that was prepared": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.PrepareQuery(ctx, "SELECT 2")
			return errors.Join(err, s.BeginTransaction(ctx))
		},
	} {
		for _, again := range []string{"answered", "limit"} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.faults = map[int]worldFault{1: {"refused", false}}
				ctx := t.Context()
				s := New(w, &Policy{OwnerContext: ctx}, func(error) {})
				if again == "limit" {
					w.faults[askedAgain[name]] = worldFault{"limit", false}
					require.ErrorContains(t, begins(ctx, s), "injected: limit")
					require.Zero(t, w.txNo)
					return
				}
				must(t, begins(ctx, s))
				require.Equal(t, "RejectsUnknownTx", w.log[askedAgain[name]-1])
				_, err := s.Update(ctx, "INSERT INTO t VALUES (1)")
				must(t, err)
				must(t, s.Commit(ctx))
				require.Equal(t, 1, w.stored[1], name)
				must(t, s.Close())
			})
		}
	}
}

// The server may have a savepoint whose answer nobody has waited for, and ends the latest of a name: the next of that name has
// another one there.
func TestASavepointIsNotNamedAsOneThatTheServerMayHave(t *testing.T) {
	for name, tc := range map[string]struct {
		fails error
		takes time.Duration
		again string // as what the server is sent the name again
	}{
		"left by its caller": {takes: time.Second, again: "Savepoint flightpool_sp1"},
		"failed somehow":     {fails: sqlError("out of cheese"), again: "Savepoint flightpool_sp1"},
		"has none":           {fails: &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "no savepoints")}, again: "Savepoint B"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{failOnce: map[string][]error{"Savepoint b": {tc.fails}}, work: map[string]time.Duration{"Savepoint b": tc.takes}})
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Savepoint(t.Context(), "a"))
			ctx, stop := context.WithTimeout(t.Context(), 500*ms)
			defer stop()
			require.Error(t, r.handle.Savepoint(ctx, "b"), name)
			must(t, r.handle.RollbackTo(t.Context(), "a"))
			must(t, r.handle.Savepoint(t.Context(), "B"))
			require.Equal(t, tc.again, r.conn.Log()[len(r.conn.Log())-1], name)
			must(t, r.handle.RollbackTo(t.Context(), "B"))
			must(t, r.handle.Commit(t.Context()))
			must(t, r.handle.Close())
		})
	}
}
