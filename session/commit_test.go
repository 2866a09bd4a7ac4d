package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// A server that leaves a transaction and goes on outside of it says so at the
// end, by a status.
func TestARollbackThatTheServerHadLeftBeforeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.FailedPrecondition, "transaction aborted and rolled back")}
		for _, statements := range [][]string{{"INSERT 1"}, {"INSERT 1", "INSERT bad"}, {"INSERT 1; INSERT bad", ""}, {"SELECT 1", "INSERT bad"}, {"SELECT 1"}, {"INSERT bad"}} {
			r := newRig(t, &fakeConn{forgives: true, failOnce: map[string][]error{"Rollback": {once}}})
			must(t, r.handle.BeginTransaction(t.Context()))
			for _, sql := range statements {
				if sql == "" {
					continue
				}
				res, err := r.handle.Execute(t.Context(), sql)
				require.Equal(t, strings.HasSuffix(sql, "bad"), err != nil)
				if err == nil {
					must(t, res.Close())
				}
			}
			end := r.handle.Rollback
			if len(statements) == 2 {
				end = r.handle.Commit
			}
			err := end(t.Context())
			switch {
			case strings.HasPrefix(statements[0], "INSERT 1"):
				require.ErrorIs(t, err, backend.ErrCommitUnknown, "%s: the server may have left it before the failure", statements)
				require.NotErrorIs(t, err, backend.ErrTxAborted)
			case len(statements) == 2:
				require.ErrorIs(t, err, backend.ErrTxAborted, "nothing had been changed")
				require.NotErrorIs(t, err, backend.ErrCommitUnknown)
			default:
				require.NoError(t, err, "nothing had been changed")
			}
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Rollback(t.Context()))
			must(t, r.handle.Close())
			r.reused()
		}
	})
}

// A session that has taken the place of ours confirms the rollback of a transaction that
// the server had left: that nothing is stored is not known.
func TestARollbackThatAnotherSessionConfirmsProvesNothing(t *testing.T) {
	for _, pause := range []time.Duration{0, maxProofAge - 1, maxProofAge} {
		for _, end := range []string{"Commit", "Rollback", "cancel", "WithTransaction"} {
			for _, statement := range []string{"INSERT 1", "SELECT 1"} {
				synctest.Test(t, func(t *testing.T) {
					conn := &fakeConn{forgives: true}
					r := newRig(t, conn)
					failed := errors.New("the caller's")
					run := func(ctx context.Context, s *SessionHandle) error {
						res, err := s.Execute(ctx, statement)
						must(t, err)
						must(t, res.Close())
						if end == "Commit" {
							_, err := s.Update(ctx, "INSERT bad")
							require.Error(t, err)
						}
						if end == "cancel" {
							ctx, stop := context.WithTimeout(ctx, pause-pause%maxProofAge+time.Millisecond*2) // a probe is sent before the rollback
							defer stop()
							time.AfterFunc(time.Millisecond, func() {
								conn.mu.Lock()
								defer conn.mu.Unlock()
								conn.reused = "SELECT 'somebody else'"
							})
							_, err := s.Update(ctx, "INSERT SLOW 1m")
							require.ErrorIs(t, err, context.DeadlineExceeded)
							return s.Commit(t.Context())
						}
						time.Sleep(pause)
						conn.reused = "SELECT 'somebody else'"
						switch end {
						case "Rollback":
							return s.Rollback(ctx)
						case "WithTransaction":
							return failed
						default:
							return s.Commit(ctx)
						}
					}
					var err error
					if end == "WithTransaction" {
						err = r.handle.WithTransaction(t.Context(), run)
						require.ErrorIs(t, err, failed)
					} else {
						must(t, r.handle.BeginTransaction(t.Context()))
						err = run(t.Context(), r.handle)
					}
					lost := statement == "INSERT 1" || end == "cancel" // which cuts a change
					require.Equal(t, lost, errors.Is(err, backend.ErrSessionLost), "%s: %v", end, err)
					require.Equal(t, !lost && end != "Rollback" && end != "WithTransaction", errors.Is(err, backend.ErrTxAborted), "%s: %v", end, err)
					var e *backend.Error
					require.False(t, end != "cancel" && errors.As(err, &e) && e.Unsent, "the rollback was sent")
					_ = r.handle.Close()
				})
			}
		}
	}
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
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrSessionLost)
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
		require.ErrorIs(t, read("SELECT 2"), backend.ErrSessionLost)
		require.NotContains(t, conn.Log(), "tx1: SELECT 2")
	})
}

func TestAConnectionWhoseRefusedCommitWasNotRolledBackIsNotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &backend.Error{Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
		r := newRig(t, &fakeConn{
			fail:     map[string]error{"Commit": &backend.Error{Fault: backend.FaultStatement, Err: status.Error(codes.Aborted, "conflict")}},
			failOnce: map[string][]error{"Rollback": {busy}},
		})
		must(t, r.handle.BeginTransaction(t.Context()))
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted)
		_ = r.handle.Rollback(t.Context())
		_ = r.handle.Close()
		require.ErrorContains(t, r.discarded(), "a refused commit could not be rolled back")
	})
}

// A refusal of a rollback is followed by a second one, and that by a transaction
// of our own: only what they answer together says that nothing is left.
func TestWhatTheAnswersToARollbackSayTogether(t *testing.T) {
	refusal := func(code codes.Code) error {
		return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(code, code.String())}
	}
	for name, tc := range map[string]struct {
		forgives     bool // so that the handle holds a proof
		answers      []error
		begin        error
		want, and    error
		discarded    string
		stillAborted bool
	}{
		"not there":                             {answers: []error{refusal(codes.NotFound), refusal(codes.NotFound)}},
		"not there, of one that forgives":       {forgives: true, answers: []error{refusal(codes.NotFound), refusal(codes.NotFound)}, want: backend.ErrCommitUnknown},
		"left":                                  {forgives: true, answers: []error{refusal(codes.FailedPrecondition), refusal(codes.NotFound)}, want: backend.ErrCommitUnknown},
		"left, as a state":                      {forgives: true, answers: []error{refusal(codes.FailedPrecondition), refusal(codes.FailedPrecondition), nil}, want: backend.ErrCommitUnknown},
		"left, and something else":              {forgives: true, answers: []error{refusal(codes.FailedPrecondition), refusal(codes.Internal), nil}, want: backend.ErrCommitUnknown, discarded: "rollback refused"},
		"left, of one that keeps its word":      {answers: []error{refusal(codes.FailedPrecondition), refusal(codes.NotFound)}},
		"the second is cut":                     {answers: []error{refusal(codes.Internal), transportError()}, want: backend.ErrSessionLost, discarded: "connection reset"},
		"the second is cut, one that forgives":  {forgives: true, answers: []error{refusal(codes.FailedPrecondition), transportError()}, want: backend.ErrCommitUnknown, and: backend.ErrSessionLost, discarded: "connection reset"},
		"no transaction of our own":             {forgives: true, answers: []error{refusal(codes.Internal), refusal(codes.FailedPrecondition)}, begin: refusal(codes.Aborted), want: backend.ErrCommitUnknown, discarded: "rollback failed", stillAborted: true},
		"ours cannot be ended":                  {answers: []error{refusal(codes.Internal), refusal(codes.FailedPrecondition), refusal(codes.Internal)}, want: status.Error(codes.FailedPrecondition, ""), discarded: "rollback failed", stillAborted: true},
		"ours can, and the refusal is no state": {answers: []error{refusal(codes.Internal), refusal(codes.Internal), nil}, discarded: "rollback refused"},
		"ours can, and the refusal is one":      {answers: []error{refusal(codes.Internal), refusal(codes.FailedPrecondition), nil}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: tc.forgives, failOnce: map[string][]error{}})
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			must(t, err)
			r.conn.failOnce["Rollback"] = tc.answers
			if tc.begin != nil {
				r.conn.failOnce["Begin"] = []error{tc.begin}
			}
			err = r.handle.Rollback(t.Context())
			switch _, isStatus := status.FromError(tc.want); {
			case tc.want == nil:
				require.NoError(t, err, name)
			case isStatus:
				require.Equal(t, status.Code(tc.want), status.Code(err), name)
				require.NotErrorIs(t, err, backend.ErrCommitUnknown, name)
			default:
				require.ErrorIs(t, err, tc.want, name)
			}
			if tc.and != nil {
				require.ErrorIs(t, err, tc.and, name)
			}
			if tc.stillAborted {
				_, err := r.handle.Update(t.Context(), "INSERT 1")
				require.ErrorIs(t, err, backend.ErrTxAborted, name)
			}
			_ = r.handle.Close()
			if tc.discarded != "" {
				require.ErrorContains(t, r.discarded(), tc.discarded, name)
			} else {
				r.reused()
			}
		})
	}
}

// A COMMIT that was refused left the transaction aborted: that the server has
// left it since is no news, and only a status that speaks of a state before says
// that something may be stored.
func TestARefusedCommitIsARefusalAlsoWhereTheProofIsNeeded(t *testing.T) {
	refusal := func(code codes.Code) error {
		return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(code, code.String())}
	}
	for name, tc := range map[string]struct {
		forgives bool
		sql      string
		commit   codes.Code
		want     error
		not      error
	}{
		"a conflict":               {true, "INSERT 1", codes.Aborted, backend.ErrTxAborted, backend.ErrCommitUnknown},
		"a state":                  {true, "INSERT 1", codes.FailedPrecondition, backend.ErrCommitUnknown, backend.ErrTxAborted},
		"a state, of another kind": {false, "INSERT 1", codes.FailedPrecondition, backend.ErrTxAborted, backend.ErrCommitUnknown},
		"a state, nothing changed": {true, "SELECT 1", codes.FailedPrecondition, backend.ErrTxAborted, backend.ErrCommitUnknown},
		"a proxy's, no such RPC":   {true, "INSERT 1", codes.Unimplemented, backend.ErrCommitUnknown, backend.ErrTxAborted},
		"a proxy's, a limit":       {true, "INSERT 1", codes.OutOfRange, backend.ErrCommitUnknown, backend.ErrTxAborted},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: tc.forgives, failOnce: map[string][]error{
				"Commit":   {refusal(tc.commit)},
				"Rollback": {refusal(codes.FailedPrecondition), refusal(codes.NotFound)},
			}})
			must(t, r.handle.BeginTransaction(t.Context()))
			res, err := r.handle.Execute(t.Context(), tc.sql)
			must(t, err)
			must(t, res.Close())
			err = r.handle.Commit(t.Context())
			require.ErrorIs(t, err, tc.want, name)
			require.NotErrorIs(t, err, tc.not, name)
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Commit(t.Context()))
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// A transaction that a refused COMMIT may have left open takes nothing more.
func TestNothingIsSentInATransactionWhoseRefusedCommitWasNotRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := sqlError("not now")
		r := newRig(t, &fakeConn{
			fail:     map[string]error{"Commit": sqlError("conflict")},
			failOnce: map[string][]error{"Rollback": {no, no, no}},
		})
		must(t, r.handle.BeginTransaction(t.Context()))
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted)
		_, err := r.handle.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrTxAborted)
		require.NotContains(t, r.conn.Log(), "tx1: INSERT 1")
		_ = r.handle.Close()
		_ = r.discarded()
	})
}

// Nobody knows what became of a COMMIT that the server has cut short: it is not
// followed by a ROLLBACK, which would be taken for the next transaction's.
func TestACommitThatTheServerCutsShortIsNotRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultContext, Err: status.Error(codes.Canceled, "cut short")}
		r := newRig(t, &fakeConn{failOnce: map[string][]error{"Commit": {cut}}})
		must(t, r.handle.BeginTransaction(t.Context()))
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrCommitUnknown)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"Begin", "Commit"}, r.conn.Log(), "nothing is sent in it any more")
		_ = r.handle.Close()
		_ = r.discarded()
	})
}

// A BEGIN that failed costs the session where a transaction may be open, and
// nothing else does.
func TestABeginThatFailsCostsTheSessionOnlyWhereOneMayBeOpen(t *testing.T) {
	fault := func(f backend.Fault, unsent bool) error {
		return &backend.Error{Stage: backend.StageExecute, Fault: f, Unsent: unsent, Err: errors.New(f.String())}
	}
	for name, tc := range map[string]struct {
		err    error
		lost   bool
		reused bool
	}{
		"refused":              {fault(backend.FaultStatement, false), false, true},
		"no transactions":      {fault(backend.FaultUnsupported, false), false, true},
		"cut short":            {&backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.Canceled, "")}, true, false},
		"failed":               {sqlError("oops"), true, false},
		"failed, not told how": {&backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.Unknown, "")}, true, false},
		"refused in words":     {sqlError("cannot begin a transaction: denied"), false, true},
		"one is open":          {sqlError("TransactionContext Error: cannot start a transaction within a transaction"), true, false},
		"one is open, by code": {&backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.FailedPrecondition, "a transaction is already open")}, true, false},
		"refused by code":      {&backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.PermissionDenied, "")}, false, true},
		"too late":             {&backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.DeadlineExceeded, "")}, true, false},
		"not sent":             {fault(backend.FaultLimit, true), false, true},
		"no credential":        {fault(backend.FaultAuth, false), false, false},
		"at its limit":         {fault(backend.FaultLimit, false), true, false},
		"unreadable":           {errors.New("?"), true, false},
		"a broken connection":  {transportError(), true, false},
		"not sent, and broken": {fault(backend.FaultTransport, true), true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{failOnce: map[string][]error{"Begin": {tc.err}}})
			err := r.handle.BeginTransaction(t.Context())
			require.Error(t, err, name)
			require.Equal(t, tc.lost, errors.Is(err, backend.ErrSessionLost), name)
			_, err = r.handle.Update(t.Context(), "INSERT 1")
			require.Equal(t, tc.lost, err != nil, name)
			_ = r.handle.Close()
			if tc.reused {
				r.reused()
			} else {
				_ = r.discarded()
			}
		})
	}
}

// What a call says that its caller had left aborts a transaction where a
// statement of it may have failed, or its caller believes so.
func TestWhatACallThatWasLeftDoesToItsTransaction(t *testing.T) {
	unsupported := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultUnsupported, Err: errors.New("not here")}
	for name, tc := range map[string]struct {
		call   func(ctx context.Context, s *SessionHandle) error
		fail   error
		aborts bool
	}{
		"a change that was done": {aborts: true, call: func(ctx context.Context, s *SessionHandle) error {
			_, err := s.UpdateWithOptions(ctx, "INSERT 1", QueryOptions{NoCancel: true})
			return err
		}},
		"a change that the server does not have": {aborts: true, fail: unsupported, call: func(ctx context.Context, s *SessionHandle) error {
			_, err := s.UpdateWithOptions(ctx, "INSERT 1", QueryOptions{NoCancel: true})
			return err
		}},
		"a change that failed": {aborts: true, fail: sqlError("no"), call: func(ctx context.Context, s *SessionHandle) error {
			_, err := s.UpdateWithOptions(ctx, "INSERT 1", QueryOptions{NoCancel: true})
			return err
		}},
		"a look at the catalogue": {call: func(ctx context.Context, s *SessionHandle) error {
			_, err := s.MetadataWithOptions(ctx, backend.MetadataRequest{}, QueryOptions{NoCancel: true})
			return err
		}},
		"a look at the catalogue that failed": {aborts: true, fail: sqlError("no"), call: func(ctx context.Context, s *SessionHandle) error {
			_, err := s.MetadataWithOptions(ctx, backend.MetadataRequest{}, QueryOptions{NoCancel: true})
			return err
		}},
		"a look at the catalogue that was cut": {call: func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Metadata(ctx, backend.MetadataRequest{})
			return err
		}},
		"a savepoint":      {aborts: true, call: func(ctx context.Context, s *SessionHandle) error { return s.Savepoint(ctx, "b") }},
		"a savepoint back": {aborts: true, call: func(ctx context.Context, s *SessionHandle) error { return s.RollbackTo(ctx, "a") }},
		"a savepoint less": {aborts: true, call: func(ctx context.Context, s *SessionHandle) error { return s.ReleaseSavepoint(ctx, "a") }},
		"a ping":           {call: func(ctx context.Context, s *SessionHandle) error { return s.Ping(ctx) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Savepoint(t.Context(), "a"))
			slow := []string{"tx1: INSERT 1", "Metadata", "Savepoint b", "EndSavepoint sp-a 0", "EndSavepoint sp-a 1", "Ping"}
			r.conn.work, r.conn.failOnce = map[string]time.Duration{}, map[string][]error{}
			for _, call := range slow {
				r.conn.work[call] = 100 * ms
				if tc.fail != nil {
					r.conn.failOnce[call] = []error{tc.fail}
				}
			}
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			start := time.Now()
			require.ErrorIs(t, tc.call(ctx, r.handle), context.DeadlineExceeded, name)
			require.Equal(t, 20*ms, time.Since(start), name)
			_, err := r.handle.Update(t.Context(), "INSERT 2")
			if tc.aborts {
				require.ErrorIs(t, err, backend.ErrTxAborted, name)
				require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted, name)
			} else {
				must(t, err)
				must(t, r.handle.Commit(t.Context()))
			}
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// A transaction that comes when nobody waits for it any more is rolled back; where
// it cannot be, later statements would be in it.
func TestATransactionThatComesLateIsRolledBackOrCostsTheSession(t *testing.T) {
	for _, refused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{work: map[string]time.Duration{"Begin": 100 * ms}, failOnce: map[string][]error{}})
			if refused {
				no := sqlError("not now")
				r.conn.failOnce["Rollback"] = []error{no, no, no}
			}
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			require.ErrorIs(t, r.handle.BeginTransaction(ctx), context.DeadlineExceeded)
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			if refused {
				require.ErrorIs(t, err, backend.ErrSessionLost)
				require.NotContains(t, r.conn.Log(), "INSERT 1")
				require.ErrorContains(t, r.discarded(), "roll back")
				must(t, r.handle.Close())
				return
			}
			must(t, err)
			require.Equal(t, []string{"Begin", "Rollback", "INSERT 1"}, r.conn.Log())
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// What an answer to a COMMIT means whose code may come after it as well stands in
// the server's own words: not in its name, and not where they say that the server
// does not know it either.
func TestWhatAnInternalAnswerToACommitMeans(t *testing.T) {
	for text, want := range map[string]error{
		"duckdb error: TransactionContext Error: Failed to commit: PRIMARY KEY or UNIQUE constraint violation: duplicate key \"1\"": backend.ErrTxAborted,
		"cannot commit - no transaction is active":       backend.ErrTxAborted,
		"could not serialize access due to other update": backend.ErrTxAborted,
		"the index is broken":                            backend.ErrCommitUnknown,
		"TransactionContext Error: Failed to commit: Failed to commit DuckLake transaction: server closed the connection unexpectedly": backend.ErrCommitUnknown,
		"commit failed: connection refused":                backend.ErrCommitUnknown,
		"Failed to commit: IO Error: HTTP PUT: timed out":  backend.ErrCommitUnknown,
		"aborted after commit: could not write the answer": backend.ErrCommitUnknown,
	} {
		for _, code := range []codes.Code{codes.Internal, codes.Unknown, codes.Canceled, codes.DeadlineExceeded} {
			synctest.Test(t, func(t *testing.T) {
				answer := &backend.Error{Op: "EndTx", Target: "unlocked.example:1", Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(code, text)}
				r := newRig(t, &fakeConn{failOnce: map[string][]error{"Commit": {answer}}})
				must(t, r.handle.BeginTransaction(t.Context()))
				_, err := r.handle.Update(t.Context(), "INSERT 1")
				must(t, err)
				err = r.handle.Commit(t.Context())
				require.ErrorIs(t, err, want, "%s: %s", code, text)
				require.NotErrorIs(t, err, map[error]error{backend.ErrTxAborted: backend.ErrCommitUnknown, backend.ErrCommitUnknown: backend.ErrTxAborted}[want], text)
				_ = r.handle.Close()
			})
		}
	}
}

// GizmoSQL has the status of a wrong statement for what DuckDB refuses at a COMMIT, with which it ends the transaction. Of other
// words, or where its own database has not answered, it is not known what they come behind.
func TestACommitThatDuckDBHasRolledBackIsKnownToHaveStoredNothing(t *testing.T) {
	for text, want := range map[string]error{
		"TransactionContext Error: Failed to commit: PRIMARY KEY or UNIQUE constraint violation: duplicate key \"1\"":     backend.ErrTxAborted,
		"TransactionContext Error: cannot commit - no transaction is active":                                              backend.ErrCommitUnknown,
		"TransactionContext Error: Failed to commit: Failed to commit DuckLake transaction: server closed the connection": backend.ErrCommitUnknown,
		"no route": backend.ErrCommitUnknown,
	} {
		synctest.Test(t, func(t *testing.T) {
			refused := func(text string) error {
				return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.InvalidArgument, text)}
			}
			none := refused("TransactionContext Error: cannot rollback - no transaction is active")
			r := newRig(t, &fakeConn{forgives: true, failOnce: map[string][]error{"Commit": {refused(text)}, "Rollback": {none, none}}})
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			must(t, err)
			err = r.handle.Commit(t.Context())
			require.ErrorIs(t, err, want, text)
			require.NotErrorIs(t, err, map[error]error{backend.ErrTxAborted: backend.ErrCommitUnknown, backend.ErrCommitUnknown: backend.ErrTxAborted}[want], text)
			_ = r.handle.Close()
		})
	}
}

// A page of a proxy in place of the answer to a COMMIT is no word of the server's.
func TestACommitThatAProxyAnswersIsUnknown(t *testing.T) {
	for code, fault := range map[codes.Code]backend.Fault{codes.PermissionDenied: backend.FaultStatement, codes.Unimplemented: backend.FaultUnsupported, codes.Unknown: backend.FaultTransport, codes.Unauthenticated: backend.FaultAuth} {
		synctest.Test(t, func(t *testing.T) {
			answer := &backend.Error{Op: "EndTx", Stage: backend.StageExecute, Fault: fault, Err: status.Error(code, "transport: the server has answered with HTTP status 403 and content type \"text/html\"")}
			r := newRig(t, &fakeConn{failOnce: map[string][]error{"Commit": {answer}}})
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			must(t, err)
			err = r.handle.Commit(t.Context())
			require.ErrorIs(t, err, backend.ErrCommitUnknown, code)
			require.NotErrorIs(t, err, backend.ErrTxAborted)
			_ = r.handle.Close()
		})
	}
}

// The cancel chain's rollback is answered so once; the Commit behind it tells.
func TestACutStatementOfATransactionThatTheServerHadLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.FailedPrecondition, "transaction aborted and rolled back")}
		for _, end := range []string{"Commit", "Rollback"} {
			conn := &fakeConn{forgives: true, failOnce: map[string][]error{"Rollback": {once}}}
			r := newRig(t, conn)
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			must(t, err)

			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			_, err = r.handle.Update(ctx, "INSERT SLOW 1m")
			stop()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			if end == "Commit" {
				err = r.handle.Commit(t.Context())
			} else {
				err = r.handle.Rollback(t.Context())
			}
			require.ErrorIs(t, err, backend.ErrCommitUnknown, end)
			require.NotErrorIs(t, err, backend.ErrTxAborted, end)
			require.NotErrorIs(t, err, backend.ErrSessionLost, end)
			must(t, r.handle.Close())
		}
	})
}

// What a rollback has said, or might have, is not taken back by the answer to the next:
// a server that leaves a transaction says so once.
func TestALaterRollbackDoesNotTakeBackWhatTheFirstSays(t *testing.T) {
	busy := &backend.Error{Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
	for name, tc := range map[string]struct {
		sql     string
		fails   bool // a statement, so that Commit rolls back
		unknown bool
	}{
		"of an open transaction":      {sql: "INSERT 1", unknown: true},
		"of an aborted one":           {sql: "INSERT 1", fails: true, unknown: true},
		"of one that changed nothing": {sql: "SELECT 1", fails: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true, failOnce: map[string][]error{"Rollback": {busy}}})
			must(t, r.handle.BeginTransaction(t.Context()))
			res, err := r.handle.Execute(t.Context(), tc.sql)
			must(t, err)
			must(t, res.Close())
			first := r.handle.Rollback
			if tc.fails {
				_, err = r.handle.Update(t.Context(), "INSERT bad")
				require.Error(t, err)
				first = r.handle.Commit
			}
			err = first(t.Context())
			require.Error(t, err, name)
			require.Equal(t, tc.unknown, errors.Is(err, backend.ErrCommitUnknown), "%s: %v", name, err)
			require.Equal(t, tc.fails && !tc.unknown, errors.Is(err, backend.ErrTxAborted), "%s: %v", name, err)
			err = r.handle.Commit(t.Context())
			require.Equal(t, tc.unknown, errors.Is(err, backend.ErrCommitUnknown), "%s: %v", name, err)
			require.Equal(t, !tc.unknown, errors.Is(err, backend.ErrTxAborted), "%s: %v", name, err)
			_ = r.handle.Close()
		})
	}
}

// The rollback of a cancel waits for the statement: what it answers is to be heard.
func TestTheRollbackOfACancelIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.FailedPrecondition, "transaction aborted and rolled back")}
		for _, answers := range [][]error{nil, {left}} {
			r := newRig(t, &fakeConn{forgives: true, ignoresCancel: true, failOnce: map[string][]error{"Rollback": answers}})
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			must(t, err)
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			_, err = r.handle.Update(ctx, "UPDATE SLOW 2s")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			err = r.handle.Commit(t.Context())
			require.Equal(t, answers != nil, errors.Is(err, backend.ErrCommitUnknown), "%v", err)
			require.Equal(t, answers == nil, errors.Is(err, backend.ErrTxAborted), "%v", err)
			must(t, r.handle.Close())
			r.reused()
		}
	})
}

// A rollback behind the caller, of a transaction that the server had left, has ended it.
func TestASessionWhoseTransactionTheServerHadLeftIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.FailedPrecondition, "transaction aborted and rolled back")}
		r := newRig(t, &fakeConn{forgives: true, failOnce: map[string][]error{"Rollback": {left}}})
		ctx, stop := context.WithCancel(t.Context())
		require.Error(t, r.handle.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Update(ctx, "INSERT 1")
			must(t, err)
			stop()
			return ctx.Err()
		}))
		must(t, r.handle.BeginTransaction(t.Context()))
		must(t, r.handle.Commit(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}

// Where only our own session's answer to a rollback tells whether something is stored, an
// error of the rollback leaves that open: so do Rollback, WithTransaction and RollbackOpen.
func TestARollbackThatFailsLeavesItOpenWhatIsStored(t *testing.T) {
	refused := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.PermissionDenied, "RBAC: access denied")}
	left := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.FailedPrecondition, "aborted and rolled back")}
	unsent := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultAuth, Unsent: true, Err: status.Error(codes.Unauthenticated, "Jwt is missing")}
	failed := errors.New("the function's")
	within := func(fails error) func(ctx context.Context, s *SessionHandle) error {
		return func(ctx context.Context, s *SessionHandle) error {
			return s.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
				if _, err := s.Update(ctx, "INSERT 1"); err != nil {
					return err
				}
				if fails == nil {
					_, err := s.Query(ctx, "SELECT 3") // nobody ends it: the Commit is refused
					return err
				}
				return fails
			})
		}
	}
	for name, tc := range map[string]struct {
		do       func(ctx context.Context, s *SessionHandle) error
		rollback []error
		ends     time.Duration // the caller's patience with a rollback of a second
		and      error
	}{
		"Rollback":                     {func(ctx context.Context, s *SessionHandle) error { return begunAndRolledBack(ctx, s) }, []error{refused, refused, refused}, 0, refused.Err},
		"Rollback, left by its caller": {func(ctx context.Context, s *SessionHandle) error { return begunAndRolledBack(ctx, s) }, nil, 500 * time.Millisecond, context.DeadlineExceeded},
		"WithTransaction, fn fails":    {within(failed), []error{refused, refused, refused}, 0, failed},
		"WithTransaction, too late":    {within(failed), nil, 500 * time.Millisecond, failed},
		"WithTransaction, busy":        {within(nil), []error{left}, 0, backend.ErrBusy},
		"WithTransaction, not sent":    {within(failed), []error{unsent}, 0, failed},
	} {
		for _, forgives := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{forgives: forgives, failOnce: map[string][]error{"Rollback": tc.rollback}, fail: map[string]error{}})
				if r.conn.failOnce["Begin"] = []error{nil, refused}; tc.ends > 0 {
					r.conn.fail["slow Rollback"] = refused
				}
				ctx, stop := context.WithTimeout(t.Context(), cmp.Or(tc.ends, time.Hour))
				defer stop()
				err := tc.do(ctx, r.handle)
				require.ErrorIs(t, err, tc.and, name)
				require.Equal(t, forgives, errors.Is(err, backend.ErrCommitUnknown), "%s: %v", name, err)
				require.False(t, forgives && backend.SafeToRetry(err), "%s: %v", name, err)
				time.Sleep(time.Minute)
				_ = r.handle.Close()
			})
		}
	}
}

func begunAndRolledBack(ctx context.Context, s *SessionHandle) error {
	if err := s.BeginTransaction(ctx); err != nil {
		return err
	}
	if _, err := s.Update(ctx, "INSERT 1"); err != nil {
		return err
	}
	return s.Rollback(ctx)
}

// A page in place of the answer to a statement or savepoint says nothing of what was done, whatever
// its status: the transaction does not go on as if nothing had been.
func TestAPageInPlaceOfAnAnswerAbortsTheTransaction(t *testing.T) {
	for text, aborts := range map[string]bool{
		"no such RPC": false,
		"transport: the server has answered with HTTP status 404 and content type \"text/html\": it speaks no gRPC there": true,
	} {
		page := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, text)}
		for call, do := range map[string]func(ctx context.Context, s *SessionHandle) error{
			"tx1: INSERT 2":       func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, "INSERT 2"); return err },
			"Savepoint b":         func(ctx context.Context, s *SessionHandle) error { return s.Savepoint(ctx, "b") },
			"EndSavepoint sp-a 1": func(ctx context.Context, s *SessionHandle) error { return s.RollbackTo(ctx, "a") },
			"EndSavepoint sp-a 0": func(ctx context.Context, s *SessionHandle) error { return s.ReleaseSavepoint(ctx, "a") },
		} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{failOnce: map[string][]error{call: {page}}})
				must(t, r.handle.BeginTransaction(t.Context()))
				must(t, r.handle.Savepoint(t.Context(), "a"))
				require.ErrorIs(t, do(t.Context(), r.handle), page.Err, "%s: %q", call, r.conn.Log())
				err := r.handle.Commit(t.Context())
				require.Equal(t, aborts, errors.Is(err, backend.ErrTxAborted), "%s: %v", call, err)
				_ = r.handle.Close()
			})
		}
	}
}

// In an errgroup the cause of a context may be that another session is lost. This one's transaction is open still.
func TestTheLossOfAnotherSessionIsNotThisOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true})
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err := r.handle.Update(t.Context(), "UPDATE 1")
		must(t, err)
		ctx, end := context.WithCancelCause(t.Context())
		end(fmt.Errorf("another call: %w", backend.ErrSessionLost))
		for _, endTx := range []func(context.Context) error{r.handle.Commit, r.handle.Rollback} {
			err = endTx(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.True(t, backend.SafeToRetry(err), "nothing was sent: %v", err)
		}
		must(t, r.handle.Commit(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}
