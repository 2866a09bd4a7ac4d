package session

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestAStatementThatIsNotToBeCancelledIsNotHoweverLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.stateless().UpdateWithOptions(ctx, "UPDATE SLOW 1h", QueryOptions{NoCancel: true})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Hour - time.Second)
		r.held("the statement is still at work")
		time.Sleep(2 * time.Second)
		r.reused()
		require.Empty(t, r.chains())
	})
}

func TestTheReaderOfAResultThatIsNotToBeCancelledReturnsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{pace: time.Minute})
		ctx, stop := context.WithTimeout(t.Context(), 90*time.Second)
		defer stop()
		start := time.Now()
		res, err := r.stateless().QueryWithOptions(ctx, "SELECT 20", QueryOptions{NoCancel: true})
		must(t, err)
		require.True(t, res.Next())
		require.False(t, res.Next())
		require.Equal(t, 90*time.Second, time.Since(start))
		require.ErrorIs(t, res.Err(), context.DeadlineExceeded)
		res.Release()
		time.Sleep(20 * time.Minute)
		r.reused()
		require.Empty(t, r.chains())
	})
}

func TestACommitIsNeverCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{work: map[string]time.Duration{"Commit": time.Hour}})
		must(t, r.handle.BeginTransaction(t.Context()))
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		require.ErrorIs(t, r.handle.Commit(ctx), backend.ErrCommitUnknown)
		must(t, r.handle.Close())
		time.Sleep(2 * time.Hour)
		r.reused()
		require.Equal(t, []string{"Begin", "Commit"}, r.conn.Log())
	})
}

// Close may come at any moment of a call's life.
func TestCloseMissesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 2000 {
			r := newRig(t, &fakeConn{})
			start := time.Now()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = r.handle.Update(t.Context(), "UPDATE SLOW 1h")
			}()
			runtime.Gosched()
			_ = r.handle.Close()
			<-done
			require.Less(t, time.Since(start), time.Minute)
			time.Sleep(10 * time.Second)
			r.reused()
		}
	})
}

// brokenReader is a reader whose Next does as it says.
type brokenReader struct {
	array.RecordReader
	next func() bool
}

func (b brokenReader) Next() bool { return b.next() }

func TestWhatACallersReaderDoesLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty, err := array.NewRecordReader(fakeSchema, nil)
		must(t, err)
		block := make(chan struct{})
		defer close(block)
		for name, next := range map[string]func() bool{
			"panic":  func() bool { panic("the reader's") },
			"goexit": func() bool { runtime.Goexit(); return false },
			"block":  func() bool { <-block; return false },
		} {
			r := newRig(t, &fakeConn{})
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			var recovered any
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { recovered = recover() }()
				_, err := r.handle.Ingest(ctx, "t", brokenReader{empty, next}, backend.IngestOptions{})
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}()
			<-done
			stop()
			require.LessOrEqual(t, time.Since(start), time.Second, name)
			if name == "panic" {
				require.Equal(t, "the reader's", recovered)
			}
			_ = r.handle.Close()
			time.Sleep(time.Minute)
			r.mu.Lock()
			require.Len(t, r.returns, 1, name)
			require.Equal(t, name == "block", r.returns[0] != nil, "%s: %v", name, r.returns[0])
			r.mu.Unlock()
		}
	})
}

func TestAPanicInProgressLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		opts := QueryOptions{Progress: func(float64, bool) { panic("the caller's") }}
		require.PanicsWithValue(t, "the caller's", func() { _, _ = r.stateless().QueryWithOptions(t.Context(), "SELECT 1", opts) })
		time.Sleep(time.Minute)
		r.reused()
		r.clean()
	})
}

func TestALoopThatIsLeftByAPanicLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type row struct{ N int64 }
		for name, read := range map[string]func(*QueryResult){
			"batches": func(res *QueryResult) {
				for range res.Batches() {
					panic("the caller's")
				}
			},
			"rows": func(res *QueryResult) {
				for range rowscan.Rows[row](res) {
					panic("the caller's")
				}
			},
		} {
			r := newRig(t, &fakeConn{})
			must(t, r.handle.BeginTransaction(t.Context()))
			res, err := r.handle.Query(t.Context(), "SELECT 3")
			must(t, err)
			require.Panics(t, func() { read(res) }, name)
			must(t, r.handle.Commit(t.Context()))
			must(t, r.handle.Close())
			r.reused()
		}
	})
}

func TestAResultLetGoNearItsEndIsReadOnAndNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{pace: 10 * ms})
		for range 10 {
			start := time.Now()
			ctx, stop := context.WithCancel(t.Context())
			res, err := r.handle.Query(ctx, "SELECT 5")
			must(t, err)
			require.True(t, res.Next())
			read := time.Now()
			res.Release()
			require.Equal(t, read, time.Now(), "it is done behind the caller")
			stop() // as a deferred cancel does
			must(t, r.handle.Ping(t.Context()))
			require.Equal(t, 60*ms, time.Since(start))
		}
		require.Empty(t, r.chains())
		res, err := r.handle.Query(t.Context(), "SELECT 50")
		must(t, err)
		start := time.Now()
		res.Release()
		must(t, r.handle.Ping(t.Context()))
		require.Equal(t, drainTime+20*ms, time.Since(start), "and what the probe takes")
		require.Len(t, r.chains(), 1, "the end was not near")
	})
}

// What changes something may be stored only at its end, and who lets its rows go
// is told of no failure.
func TestAChangeWhoseRowsAreLetGoRunsToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{pace: 10 * ms})
		ctx, stop := context.WithCancel(t.Context())
		res := r.change(ctx, "SELECT 500")
		require.True(t, res.Next())
		start := time.Now()
		res.Release()
		require.Zero(t, time.Since(start), "it is done behind the caller")
		stop() // as a deferred cancel does
		must(t, r.handle.Ping(t.Context()))
		require.Greater(t, time.Since(start), 4*time.Second, "the rows are read on")
		require.Empty(t, r.chains(), "nothing is cancelled")
		must(t, r.handle.Close())
	})
}

func TestCloseTellsThatAChangeHasFailedAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{pace: 10 * ms, fail: map[string]error{"stream": sqlError("constraint violated")}})
		res := r.change(t.Context(), "SELECT 5")
		require.True(t, res.Next())
		require.ErrorContains(t, res.Close(), "constraint violated")
		require.ErrorContains(t, res.Close(), "constraint violated")
		must(t, r.handle.Ping(t.Context()))
		must(t, r.handle.Close())
	})
}

// The end of a transaction does not wait for rows that nobody wants.
func TestAChangeThatIsLetGoInATransactionDoesNotHoldItsEndUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(r *rig) error{
			"Rollback": func(r *rig) error {
				r.change(t.Context(), "SELECT 3600").Release()
				return r.handle.Rollback(t.Context())
			},
			"Close": func(r *rig) error {
				r.change(t.Context(), "SELECT 3600").Release()
				return r.handle.Close()
			},
			"a new one": func(r *rig) error {
				_ = r.handle.Rollback(t.Context())
				_ = r.handle.WithTransaction(t.Context(), func(ctx context.Context, _ *SessionHandle) error {
					r.change(ctx, "SELECT 30").Release()
					return errors.New("mine")
				})
				return errors.Join(r.handle.BeginTransaction(t.Context()), r.handle.Rollback(t.Context()))
			},
		} {
			r := newRig(t, &fakeConn{pace: time.Second})
			must(t, r.handle.BeginTransaction(t.Context()))
			start := time.Now()
			require.NoError(t, end(r), name)
			require.Less(t, time.Since(start), 5*time.Second, name)
			_ = r.handle.Close()
			time.Sleep(10 * time.Second)
			r.mu.Lock()
			require.Len(t, r.returns, 1, name)
			r.mu.Unlock()
		}
	})
}

func TestTheDeadlineOfAChangeWhoseRowsAreLetGoStillCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{pace: 10 * ms})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		res := r.change(ctx, "SELECT 500")
		start := time.Now()
		res.Release()
		must(t, r.handle.Ping(t.Context()))
		require.InDelta(t, time.Second+r.handle.policy.grace(), time.Since(start), float64(100*ms))
		require.Len(t, r.chains(), 1)
		must(t, r.handle.Close())
	})
}

func TestAResultLetGoInATransactionDoesNotEndIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			sql  string
			fail map[string]error
			want error
		}{
			"near its end":               {sql: "SELECT 5"},
			"far from its end":           {sql: "SELECT 500"},
			"the server says no":         {sql: "SELECT 500", fail: map[string]error{"tx1: SELECT 1": sqlError("current transaction is aborted")}, want: backend.ErrTxAborted},
			"a change far from its end":  {sql: "SELECT 500; DELETE FROM t RETURNING 1", want: backend.ErrTxAborted},
			"its end fails":              {sql: "SELECT 5", fail: map[string]error{"stream": sqlError("division by zero")}, want: backend.ErrTxAborted},
			"a change that is at an end": {sql: "INSERT INTO t VALUES (1)"},
		} {
			r := newRig(t, &fakeConn{pace: 10 * ms, fail: tc.fail})
			must(t, r.handle.BeginTransaction(t.Context()))
			var res *QueryResult
			var err error
			if name == "a change far from its end" {
				res = r.change(t.Context(), "SELECT 500")
			} else {
				res, err = r.handle.Query(t.Context(), tc.sql)
			}
			must(t, err)
			res.Next()
			res.Release()
			_, err = r.handle.Update(t.Context(), "INSERT 2")
			if tc.want == nil {
				require.NoError(t, err, name)
				require.NoError(t, r.handle.Commit(t.Context()), name)
			} else {
				require.ErrorIs(t, err, tc.want, name)
				require.Greater(t, len(err.Error()), len("Update fake:1: argument: transaction aborted: "), "it says why")
				require.ErrorIs(t, r.handle.Commit(t.Context()), tc.want, name)
			}
			must(t, r.handle.Close())
			time.Sleep(time.Minute)
			r.reused()
			r.clean()
		}
	})
}

func TestAnAbortedTransactionSaysWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err := r.handle.Update(t.Context(), "INSERT bad")
		require.Error(t, err)
		_, err = r.handle.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrTxAborted)
		require.ErrorContains(t, err, "bad statement")
		require.Equal(t, backend.FaultUsage, backend.FaultIn(err))
		require.ErrorContains(t, r.handle.Commit(t.Context()), "bad statement")
	})
}

func TestTheStatementOfParametersIsClosedBehindTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		params, _, err := array.RecordFromJSON(nil, fakeSchema, strings.NewReader(`[{"n":1}]`))
		must(t, err)
		r := newRig(t, &fakeConn{work: map[string]time.Duration{"ClosePrepared": time.Second}})
		start := time.Now()
		res, err := r.handle.QueryWithParams(t.Context(), "SELECT 1", params)
		must(t, err)
		for res.Next() {
		}
		must(t, res.Err())
		res.Release()
		require.Zero(t, time.Since(start))
		time.Sleep(5 * time.Second) // the two sessions share a connection here, which does one thing at a time
		start = time.Now()
		_, err = r.stateless().UpdateWithRecordBatch(t.Context(), "INSERT 1", params)
		must(t, err)
		require.Zero(t, time.Since(start))
		time.Sleep(5 * time.Second)
		r.reused() // the stateless one
		must(t, r.handle.Close())
		r.clean()
	})
}

func TestParametersLiveAsLongAsTheirCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		params, _, err := array.RecordFromJSON(nil, fakeSchema, strings.NewReader(`[{"n":1}]`))
		must(t, err)
		r := newRig(t, &fakeConn{})
		var used atomic.Bool
		r.conn.useParams = func() { used.Store(params.Column(0).(*array.Int64).Value(0) == 1) } // else it panics, which is caught
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err = r.handle.UpdateWithOptions(ctx, "UPDATE SLOW 1s", QueryOptions{NoCancel: true, Params: params})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		params.Release()
		time.Sleep(time.Minute)
		require.True(t, used.Load())
		must(t, r.handle.Close())
	})
}

func TestAStatementLeftByItsCallerAbortsTheTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		must(t, r.handle.BeginTransaction(t.Context()))
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.handle.UpdateWithOptions(ctx, "UPDATE SLOW 1s", QueryOptions{NoCancel: true})
		require.Error(t, err, "the caller was told that it failed")
		_, err = r.handle.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrTxAborted)
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted)
	})
}

// INTERNAL without a word of a refusal may be the answer to what was done.
func TestAFailureThatMayHaveDoneItIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for sql, undo := range map[string]string{
			"CREATE TEMP TABLE a (i INT)":    "DROP TABLE IF EXISTS temp.main.a",
			"CREATE TEMP VIEW v AS SELECT 1": "DROP VIEW IF EXISTS temp.main.v",
		} {
			for text, taken := range map[string]bool{"oops": true, "": true, "Parser Error: no": false, "Catalog Error: connection reset": true} {
				r := newRig(t, &fakeConn{fail: map[string]error{sql: sqlError(text)}})
				_, err := r.stateless().Update(t.Context(), sql)
				require.Error(t, err)
				require.Equal(t, taken, slices.Contains(r.conn.Log(), undo), "%s: %q: %q", sql, text, r.conn.Log())
			}
		}
	})
}

func TestAStatementThatTheServerRefusedLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sql := range []string{"BADVERB 1", "CREATE TEMP TABLE bad (i INT)", "SET bad = 1"} {
			r := newRig(t, &fakeConn{})
			_, err := r.stateless().Update(t.Context(), sql)
			require.Error(t, err)
			r.reused()
			log := r.conn.Log()
			require.Equal(t, sql, log[len(log)-1], "nothing is taken back, nothing is doubted")
		}
		for _, sql := range []string{"CALL bad()", "SET a = 1; BAD"} {
			r := newRig(t, &fakeConn{fail: map[string]error{sql: sqlError("no")}})
			_, err := r.stateless().Update(t.Context(), sql)
			require.Error(t, err)
			r.mu.Lock()
			returned := r.returns[0]
			r.mu.Unlock()
			require.True(t, returned != nil || len(r.conn.Log()) > 1, "%s may have done something before it failed", sql)
		}
	})
}

func TestADiscardedConnectionIsRolledBackFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		must(t, r.handle.BeginTransaction(t.Context()))
		must(t, r.handle.Discard(errors.New("its owner's")))
		require.ErrorContains(t, r.discarded(), "its owner's")
		r.clean()
	})
}

func TestAStatelessIngestIsNoPlainRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		r.policy.OnReturn = ResetDiscard
		empty, err := array.NewRecordReader(fakeSchema, nil)
		must(t, err)
		_, err = r.stateless().Ingest(t.Context(), "t", empty, backend.IngestOptions{})
		must(t, err)
		_ = r.discarded()
	})
}

func TestARollbackThatTheServerCannotDoIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{"Rollback": sqlError("cannot write the log now")}})
		must(t, r.handle.BeginTransaction(t.Context()))
		require.ErrorContains(t, r.handle.Rollback(t.Context()), "cannot write the log")
		_ = r.handle.Close()
		_ = r.discarded()
	})
}

func TestAfterARefusedCommitTheHandleGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		refused := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.Internal, "conflict")}
		once := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.FailedPrecondition, "transaction aborted and rolled back")}
		for name, fails := range map[string]map[string][]error{
			"it is rolled back":              {"Commit": {refused}},
			"the server has rolled it back":  {"Commit": {refused}, "Rollback": {once}},
			"and says so each time":          {"Commit": {refused}, "Rollback": {once, once}},
			"and has no status of its own":   {"Commit": {refused}, "Rollback": {refused, refused}},
			"after a statement that failed":  {"tx1: INSERT 1": {refused}},
			"which the server has ended too": {"tx1: INSERT 1": {refused}, "Rollback": {once}},
		} {
			for _, then := range []string{"begin", "rollback", "close", "with"} {
				r := newRig(t, &fakeConn{failOnce: maps.Clone(fails)})
				must(t, r.handle.BeginTransaction(ctx))
				_, _ = r.handle.Update(ctx, "INSERT 1")
				require.ErrorIs(t, r.handle.Commit(ctx), backend.ErrTxAborted, name)
				switch then {
				case "begin":
					require.NoError(t, r.handle.BeginTransaction(ctx), name)
					require.NoError(t, r.handle.Commit(ctx), name)
				case "rollback":
					require.NoError(t, r.handle.Rollback(ctx), name)
					require.ErrorIs(t, r.handle.Rollback(ctx), ErrNoTx, name)
				case "with":
					require.NoError(t, r.handle.WithTransaction(ctx, func(context.Context, *SessionHandle) error { return nil }), name)
				}
				_ = r.handle.Close()
				if name == "and has no status of its own" {
					_ = r.discarded()
				} else {
					r.reused()
				}
			}
		}
	})
}

func TestACommitIsRefusedOnlyWhereTheAnswerSaysSo(t *testing.T) {
	for text, refused := range map[string]bool{
		"duckdb error: TransactionContext Error: Failed to commit: PRIMARY KEY or UNIQUE constraint violated": true,
		"cannot commit - no transaction is active":                                                            true,
		"Conflict on update!": true,
		"ERROR: could not serialize access due to concurrent update (SQLSTATE 40001)": true,
		"database is locked": true,
		"":                   false,
		"panic in handler":   false,
		"the commit's event could not be published":            false,
		"cannot write the access log: no space left on device": false,
	} {
		for _, code := range []codes.Code{codes.Internal, codes.Unknown, codes.InvalidArgument, codes.Aborted} {
			synctest.Test(t, func(t *testing.T) {
				answer := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(code, text)}
				r := newRig(t, &fakeConn{fail: map[string]error{"Commit": answer}})
				must(t, r.handle.BeginTransaction(t.Context()))
				_, err := r.handle.Update(t.Context(), "INSERT 1")
				must(t, err)
				err = r.handle.Commit(t.Context())
				if refused || code == codes.InvalidArgument || code == codes.Aborted {
					require.ErrorIs(t, err, backend.ErrTxAborted, "%s %q", code, text)
					require.NotErrorIs(t, err, backend.ErrCommitUnknown)
					_ = r.handle.Close()
					return
				}
				require.ErrorIs(t, err, backend.ErrCommitUnknown, "%s %q", code, text)
				require.NotErrorIs(t, err, backend.ErrTxAborted)
				require.False(t, backend.SafeToRetry(err))
				_ = r.handle.Close()
				_ = r.discarded()
			})
		}
	}
}

func TestACommitThatTheServerHadLeftBeforeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.FailedPrecondition, "transaction aborted and rolled back; start a new transaction")}
		r := newRig(t, &fakeConn{forgives: true, fail: map[string]error{"Commit": gone}})
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err := r.handle.Update(t.Context(), "INSERT 1")
		must(t, err)
		err = r.handle.Commit(t.Context())
		require.ErrorIs(t, err, backend.ErrCommitUnknown, "what came after the server left the transaction is stored")
		require.NotErrorIs(t, err, backend.ErrTxAborted)
		must(t, r.handle.BeginTransaction(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}
