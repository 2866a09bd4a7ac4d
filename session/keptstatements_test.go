package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// named is a prepared statement that tells its handle, as those of Flight SQL do.
type named struct {
	*fakePrepared
	handle string
}

func (n named) Handle() string { return n.handle }

// keepingRig keeps up to size statements for its connection.
func keepingRig(t *testing.T, size int) *rig {
	r := newRig(t, &fakeConn{})
	r.policy.Statements = NewStatements(size)
	r.conn.prepared = func(p *fakePrepared) backend.Prepared { return named{p, strconv.Itoa(p.no)} }
	return r
}

// sent are the calls that reached the server in run, and what it left to be done behind it.
func (r *rig) sent(run func()) []string {
	synctest.Wait()
	before := len(r.conn.Log())
	run()
	synctest.Wait()
	return r.conn.Log()[before:]
}

// read runs a read of a single call with parameters to its end.
func (r *rig) read(sql string, args ...any) error {
	return drained(r.stateless().Query(r.t.Context(), sql, args...))
}

func TestAStatementIsKeptUntilAnotherWasUsedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		run := func(sql string, want ...string) {
			t.Helper()
			require.Equal(t, want, r.sent(func() { must(t, r.read(sql, 7)) }), sql)
		}
		run("SELECT 1", "Prepare", "SELECT 1")
		run("SELECT 1", "SELECT 1")
		run("SELECT 2", "Prepare", "SELECT 2")
		run("SELECT 1", "SELECT 1")
		run("SELECT 3", "Prepare", "SELECT 3", "ClosePrepared") // of SELECT 2
		run("SELECT 1", "SELECT 1")
		run("SELECT 3", "SELECT 3")
		run("SELECT 2", "Prepare", "SELECT 2", "ClosePrepared") // of SELECT 1
		run("SELECT 3", "SELECT 3")
		_, handles, _, _ := r.conn.left()
		require.Equal(t, 2, handles)
		r.policy.Statements.Forget(r.conn)
		run("SELECT 3", "Prepare", "SELECT 3")
		(*Statements)(nil).Forget(r.conn) // a pool that keeps none
	})
}

func TestAKeptStatementIsForParametersOfItsTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		must(t, r.read("SELECT 1", 7))
		require.Equal(t, []string{"ClosePrepared", "Prepare", "SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", "seven")) }))
		require.Equal(t, []string{"SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", "eight")) }))
	})
}

// TestAStatementThatTheServerHasForgottenIsPreparedAgain within the call, which nobody notices.
func TestAStatementThatTheServerHasForgottenIsPreparedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		must(t, r.read("SELECT 1", 7))
		r.conn.mu.Lock()
		clear(r.conn.handles)
		r.conn.mu.Unlock()
		require.Equal(t, []string{"Prepare", "SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }))
		require.Equal(t, []string{"SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }))
	})
}

// TestWhatIsNotKept: calls that do not end well, changes, and those that must not be repeated,
// bind no row, have headers, or are of a session.
func TestWhatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "p", Type: arrow.PrimitiveTypes.Int64}}, nil), []arrow.Array{array.MakeArrayOfNull(memory.DefaultAllocator, arrow.PrimitiveTypes.Int64, 0)}, 0)
		noColumns := array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 1)
		for name, run := range map[string]func(ctx context.Context, r *rig) error{
			"refused": func(_ context.Context, r *rig) error { return r.read("SELECT bad", 7) },
			"released": func(ctx context.Context, r *rig) error {
				res, err := r.stateless().Query(ctx, "SELECT 1000000", 7)
				if err == nil {
					res.Release()
				}
				return err
			},
			"a change": func(ctx context.Context, r *rig) error {
				_, err := r.stateless().Update(ctx, "INSERT 1", 7)
				return err
			},
			"a change with rows": func(ctx context.Context, r *rig) error {
				return drained(r.stateless().QueryWithOptions(ctx, "UPDATE t SET a = ? RETURNING 1", QueryOptions{Args: []any{7}, Route: RouteQuery}))
			},
			"the connection is lost": func(ctx context.Context, r *rig) error {
				res, err := r.stateless().Query(ctx, "SELECT 3", 7)
				must(r.t, err)
				r.conn.cut()
				err = drained(res, nil) // of which the server has sent all
				require.Empty(r.t, r.kept())
				r.conn.replaceSession() // its statements have gone with it
				return err
			},
			"once": func(ctx context.Context, r *rig) error {
				return drained(r.stateless().QueryWithOptions(ctx, "SELECT 1", QueryOptions{Args: []any{7}, Retry: RetryNever}))
			},
			"headers": func(ctx context.Context, r *rig) error {
				return drained(r.stateless().QueryWithOptions(ctx, "SELECT 1", QueryOptions{Args: []any{7}, Headers: metadata.Pairs("a", "b")}))
			},
			"no row": func(ctx context.Context, r *rig) error { return drained(r.stateless().Query(ctx, "SELECT 1", empty)) },
			"no column": func(ctx context.Context, r *rig) error {
				return drained(r.stateless().Query(ctx, "SELECT 1", noColumns))
			},
			"no parameter": func(ctx context.Context, r *rig) error { return drained(r.stateless().Query(ctx, "SELECT 1")) },
			"a session's":  func(ctx context.Context, r *rig) error { return drained(r.handle.Query(ctx, "SELECT 1", 7)) },
		} {
			r := keepingRig(t, 2)
			err := run(t.Context(), r)
			require.Equal(t, name == "refused", err != nil, "%s: %v", name, err)
			_ = r.handle.Close()
			synctest.Wait()
			_, handles, _, _ := r.conn.left()
			require.Zero(t, handles, name)
		}
	})
}

func drained(res *QueryResult, err error) error {
	if err != nil {
		return err
	}
	defer res.Release()
	for res.Next() {
	}
	return res.Err()
}

// TestAHandleThatIsGivenAgainEndsTheConnection: the server has replaced the session, in which
// what is kept means something else. One without a handle is not kept.
func TestAHandleThatIsGivenAgainEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		r.conn.prepared = func(p *fakePrepared) backend.Prepared { return named{p, "1"} }
		must(t, r.read("SELECT 1", 7))
		must(t, r.read("SELECT 2", 7))
		synctest.Wait()
		require.ErrorIs(t, slices.MaxFunc(r.returns, func(a, b error) int {
			if a == nil {
				return -1
			}
			return 1
		}), errHandleAgain)

		for _, nameless := range []func(p *fakePrepared) backend.Prepared{
			func(p *fakePrepared) backend.Prepared { return named{p, ""} },
			func(p *fakePrepared) backend.Prepared { return p },
		} {
			r := keepingRig(t, 2)
			r.conn.prepared = nameless
			must(t, r.read("SELECT 1", 7))
			require.Equal(t, []string{"Prepare", "SELECT 1", "ClosePrepared"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }))
		}
	})
}

// TestASessionThatChangesSomethingCloses what is kept, which may mean something else by it.
func TestASessionThatChangesSomethingClosesWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		must(t, r.read("SELECT 1", 7))
		must(t, r.read("SELECT 2", 7))
		_, err := r.handle.Update(t.Context(), "SET threads = 1")
		must(t, err)
		must(t, r.handle.Close())
		synctest.Wait()
		_, handles, _, _ := r.conn.left()
		require.Zero(t, handles)
		require.Equal(t, []string{"Prepare", "SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }))
	})
}

// TestTheOwnersFirstResetCloses what is kept: a session begins otherwise behind it than it was opened,
// and as it does behind all that follow.
func TestTheOwnersFirstResetClosesWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		r.policy.OnReturn = ResetSQL("USE lake")
		must(t, r.read("SELECT 1", 7))
		require.Equal(t, []string{"SELECT 1"}, r.kept())
		must(t, r.handle.Close())
		require.Empty(t, r.kept())
		must(t, r.read("SELECT 1", 7))
		must(t, New(r.conn, r.policy, r.returned).Close())
		require.Equal(t, []string{"SELECT 1"}, r.kept())
		r.policy.Statements.Forget(r.conn)
		must(t, r.read("SELECT 1", 7))
		must(t, New(r.conn, r.policy, r.returned).Close())
		require.Empty(t, r.kept(), "another connection")
	})
}

// TestNothingIsKeptThatWasPreparedUnderASetting of another session's: servers plan a statement by
// settings of the whole server, and the plan stays as it is when they are put back.
func TestNothingIsKeptThatWasPreparedUnderASettingOfAnother(t *testing.T) {
	for name, shared := range map[string]bool{"of the pool": false, "of another pool of the owner's": true} {
		synctest.Test(t, func(t *testing.T) {
			r := keepingRig(t, 4)
			other := r.policy
			if shared {
				r.policy.Target, r.policy.OwnerContext = "lake:1", ShareSettings(r.policy.OwnerContext)
				other = &Policy{Target: r.policy.Target, OwnerContext: r.policy.OwnerContext}
			}
			setting := func() *SessionHandle {
				s := New(newStateConn(), other, r.returned)
				_, err := s.Update(t.Context(), "SET threads = 1")
				must(t, err)
				return s
			}
			must(t, r.read("SELECT 1", 7))
			s := setting()
			must(t, r.read("SELECT 1", 7))
			must(t, r.read("SELECT 2", 7))
			require.Equal(t, []string{"SELECT 1"}, r.kept(), name)
			must(t, s.Close())
			must(t, r.read("SELECT 2", 7))
			require.Equal(t, []string{"SELECT 1", "SELECT 2"}, r.kept(), name)
			res, err := r.stateless().Query(t.Context(), "SELECT 3", 7)
			must(t, err)
			must(t, setting().Close()) // it may have been prepared in the middle of that
			must(t, drained(res, nil))
			require.Equal(t, []string{"SELECT 1", "SELECT 2"}, r.kept(), name)
			s = setting()
			res, err = r.stateless().Query(t.Context(), "SELECT 3", 7)
			must(t, err)
			must(t, s.Close()) // it was prepared before the end of that
			must(t, drained(res, nil))
			require.Equal(t, []string{"SELECT 1", "SELECT 2"}, r.kept(), name)
			_, handles, _, _ := r.conn.left()
			require.Equal(t, 2, handles, name)
			must(t, r.handle.Close())
		})
	}
}

// TestNothingIsKeptBesideASettingThatTheOwnerPutsBack, or nobody does: the plan is by it all the same.
func TestNothingIsKeptBesideASettingThatTheOwnerPutsBack(t *testing.T) {
	for _, reset := range []SessionReset{ResetSQL("RESET threads"), ResetDiscard} {
		synctest.Test(t, func(t *testing.T) {
			r := keepingRig(t, 4)
			r.policy.OnReturn = reset
			s := New(newStateConn(), r.policy, r.returned)
			_, err := s.Update(t.Context(), "SET threads = 1")
			must(t, err)
			must(t, r.read("SELECT 1", 7))
			require.Empty(t, r.kept(), reset)
			_ = s.Close()
			must(t, r.read("SELECT 1", 7))
			require.Equal(t, []string{"SELECT 1"}, r.kept(), reset)
		})
	}
}

// TestWhatWasKeptBeforeAChangeOfObjectsIsPreparedAgain: servers may tell of its rows what was true then. Nothing
// is kept beside such a change, which others see when its transaction ends.
func TestWhatWasKeptBeforeAChangeOfObjectsIsPreparedAgain(t *testing.T) {
	for _, reset := range []SessionReset{ResetAuto, ResetSQL("SELECT 7"), ResetDiscard} {
		for _, text := range []string{"ALTER TABLE t ALTER a TYPE BIGINT", "CREATE OR REPLACE VIEW v AS SELECT 2", "DROP TABLE t", "SELECT 1; ALTER TABLE t ADD b INT", "DETACH o", "ATTACH OR REPLACE 'x.db' AS o"} {
			synctest.Test(t, func(t *testing.T) {
				r := keepingRig(t, 4)
				r.policy.OnReturn = reset
				s := New(newStateConn(), r.policy, r.returned)
				must(t, r.read("SELECT 1", 7))
				must(t, r.read("SELECT 2", 7))
				_, err := s.Update(t.Context(), text)
				must(t, err)
				require.Equal(t, []string{"ClosePrepared", "Prepare", "SELECT 1", "ClosePrepared"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }), text)
				require.Equal(t, []string{"SELECT 2"}, r.kept(), text)
				_ = s.Close()
				synctest.Wait()
				require.Equal(t, []string{"Prepare", "SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }), text)
				require.Equal(t, []string{"ClosePrepared", "Prepare", "SELECT 2"}, r.sent(func() { must(t, r.read("SELECT 2", 7)) }), text)
				require.Equal(t, []string{"SELECT 1", "SELECT 2"}, r.kept(), text)
				require.Equal(t, []string{"SELECT 2"}, r.sent(func() { must(t, r.read("SELECT 2", 7)) }), text)
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 4)
		must(t, r.read("SELECT 1", 7))
		s := New(newStateConn(), r.policy, r.returned)
		_, err := s.Update(t.Context(), "CREATE TEMP TABLE t (a INT)")
		must(t, err)
		require.Equal(t, []string{"SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }), "it is the session's own")
		_ = s.Close()
	})
}

// TestNoStatementIsKeptForTimes: they are sent as what the server has told of the parameter, which is a date
// as long as the column is one.
func TestNoStatementIsKeptForTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 4)
		at := time.Now()
		for _, arg := range []any{at, &at, time.Hour, []time.Time{at}, []time.Time{}, sql.NullTime{Time: at, Valid: true}} {
			must(t, r.read("SELECT 1", 7, arg))
			require.Empty(t, r.kept(), "%T", arg)
		}
		must(t, r.read("SELECT 1", "7", []int{7}, nil, true, []byte("7"), 7.5))
		require.Equal(t, []string{"SELECT 1"}, r.kept())
		must(t, r.read("SELECT 1", at))
		require.Equal(t, []string{"SELECT 1"}, r.kept(), "it is another's still")
	})
}

// kept are the texts whose statements are kept for the rig's connection.
func (r *rig) kept() []string {
	r.t.Helper()
	synctest.Wait()
	of := r.policy.Statements.of(r.conn)
	require.Len(r.t, of.byHandle, len(of.byText))
	return slices.Sorted(maps.Keys(of.byText))
}

func TestOfManyStatementsThoseUsedLastAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 8)
		for i := range 20 {
			must(t, r.read(fmt.Sprintf("SELECT %d", 100+i), 7))
			must(t, r.read("SELECT 1", 7))
		}
		require.Equal(t, []string{"SELECT 1", "SELECT 113", "SELECT 114", "SELECT 115", "SELECT 116", "SELECT 117", "SELECT 118", "SELECT 119"}, r.kept())
		_, handles, _, _ := r.conn.left()
		require.Equal(t, 8, handles)
	})
}

// TestHeadersThatOnlyFollowACallAreNone: with others the server may take a text for another.
func TestHeadersThatOnlyFollowACallAreNone(t *testing.T) {
	require.False(t, sendsHeaders(t.Context()))
	for name, sends := range map[string]bool{
		"traceparent": false, "X-Request-Id": false, "x-b3-traceid": false, "x-datadog-trace-id": false,
		"x-tenant": true, "database": true, "b3-database": true, "my-x-b3-": true,
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), name, "1")
		require.Equal(t, sends, sendsHeaders(ctx), name)
		synctest.Test(t, func(t *testing.T) {
			r := keepingRig(t, 2)
			must(t, drained(r.stateless().Query(metadata.AppendToOutgoingContext(t.Context(), name, "1"), "SELECT 1", int64Batch(1))))
			require.Equal(t, sends, len(r.kept()) == 0, name)
		})
	}
}

// TestAStatementWhoseUseDoesNotEndWellIsClosed, also one that was kept before.
func TestAStatementWhoseUseDoesNotEndWellIsClosed(t *testing.T) {
	for name, use := range map[string]func(ctx context.Context, r *rig) error{
		"the server fails in the middle": func(_ context.Context, r *rig) error {
			r.conn.fail = map[string]error{"stream": sqlError("out of range")}
			defer func() { synctest.Wait(); r.conn.fail = nil }()
			return r.read("SELECT 3", 7)
		},
		"the caller leaves": func(ctx context.Context, r *rig) error {
			r.conn.pace = time.Second
			defer func() { time.Sleep(time.Minute); synctest.Wait(); r.conn.pace = 0 }()
			ctx, stop := context.WithTimeout(ctx, 1500*ms)
			defer stop()
			return drained(r.stateless().Query(ctx, "SELECT 3", 7))
		},
		"the text is a change": func(_ context.Context, r *rig) error {
			_ = drained(r.stateless().QueryWithOptions(r.t.Context(), "INSERT INTO t SELECT 3", QueryOptions{Args: []any{7}, Route: RouteQuery}))
			return errors.New("kept nothing")
		},
		"the server refuses it twice": func(_ context.Context, r *rig) error {
			r.conn.fail = map[string]error{"SELECT 3": sqlError("no such table")}
			defer func() { synctest.Wait(); r.conn.fail = nil }()
			return r.read("SELECT 3", 7)
		},
	} {
		for _, before := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := keepingRig(t, 4)
				must(t, r.read("SELECT 1", 7))
				if before && name != "the text is a change" {
					must(t, r.read("SELECT 3", 7))
				}
				require.Error(t, use(t.Context(), r), name)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.NotContains(t, r.kept(), "SELECT 3", name)
				_, handles, _, _ := r.conn.left()
				require.Len(t, r.kept(), handles, "%s, kept before: %t, %q", name, before, r.conn.Log())
				r.mu.Lock()
				defer r.mu.Unlock()
				for _, err := range r.returns {
					require.NoError(t, err, name)
				}
			})
		}
	}
}

func TestAFailureOfTheConnectionIsNoReasonToPrepareAgain(t *testing.T) {
	running := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Running: true, Err: status.Error(codes.Canceled, "")}
	for name, failure := range map[string]error{"lost": transportError(), "running": running} {
		synctest.Test(t, func(t *testing.T) {
			r := keepingRig(t, 2)
			must(t, r.read("SELECT 1", 7))
			r.conn.fail = map[string]error{"SELECT 1": failure}
			var err error
			require.NotContains(t, r.sent(func() { err = r.read("SELECT 1", 7) }), "Prepare", name)
			require.Equal(t, backend.FaultIn(failure), backend.FaultIn(err), "%s: %v", name, err)
		})
	}
}

// TestWhatIsKeptGoesWithAHandleThatNobodyKnows: a server that has replaced the session may have
// given that of a kept statement.
func TestWhatIsKeptGoesWithAHandleThatNobodyKnows(t *testing.T) {
	prepare := func(fault backend.Fault, code codes.Code, text string) *backend.Error {
		return &backend.Error{Stage: backend.StagePrepare, Fault: fault, Err: status.Error(code, text)}
	}
	unsent := prepare(backend.FaultStatement, codes.Internal, "")
	unsent.Unsent = true
	for name, tc := range map[string]struct {
		failed string // what fails
		err    error
		other  bool // by parameters of other types than before
		kept   bool
	}{
		"an answer that says nothing":       {"Prepare", prepare(backend.FaultStatement, codes.Internal, ""), false, false},
		"a refusal":                         {"Prepare", prepare(backend.FaultStatement, codes.Internal, "Parser Error: syntax"), false, true},
		"not sent":                          {"Prepare", unsent, false, true},
		"the execution":                     {"SELECT 1", sqlError(""), false, true},
		"a refusal after one was forgotten": {"Prepare", prepare(backend.FaultStatement, codes.Internal, "Parser Error: syntax"), true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := keepingRig(t, 4)
			must(t, r.read("SELECT 2", 7))
			if tc.other {
				must(t, r.read("SELECT 1", "seven"))
			}
			r.conn.fail = map[string]error{tc.failed: tc.err}
			require.Error(t, r.read("SELECT 1", 7), name)
			synctest.Wait()
			r.conn.fail = nil
			require.Equal(t, tc.kept, slices.Contains(r.kept(), "SELECT 2"), "%s: %q", name, r.conn.Log())
			_, handles, _, _ := r.conn.left()
			require.Len(t, r.kept(), handles, name)
		})
	}
}

// TestAPreparingThatIsCutLeavesNothingKept: it may have been carried out.
func TestAPreparingThatIsCutLeavesNothingKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 4)
		must(t, r.read("SELECT 2", 7))
		r.conn.work = map[string]time.Duration{"Prepare": time.Second}
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		require.ErrorIs(t, drained(r.stateless().Query(ctx, "SELECT 1", 7)), context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.Empty(t, r.kept())
		_, handles, _, _ := r.conn.left()
		require.Zero(t, handles)
	})
}

func TestAKeptStatementThatCannotBeClosedCostsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 4)
		must(t, r.read("SELECT 2", 7))
		must(t, r.read("SELECT 1", 7))
		r.conn.fail = map[string]error{"ClosePrepared": transportError()}
		_, err := r.handle.Update(t.Context(), "SET threads = 1")
		must(t, err)
		_ = r.handle.Close()
		synctest.Wait()
		require.ErrorContains(t, r.returns[len(r.returns)-1], "connection reset")

		r = keepingRig(t, 4)
		must(t, r.read("SELECT 1", 7))
		r.conn.fail = map[string]error{"ClosePrepared": transportError()}
		require.ErrorContains(t, r.read("SELECT 1", "seven"), "connection reset", "nothing is prepared on a connection that fails")
		require.Equal(t, 1, strings.Count(fmt.Sprint(r.conn.Log()), "Prepare "), "%q", r.conn.Log())
	})
}

// TestWhatIsKeptIsClosedUpToAFailureOfTheConnection: one that the server has forgotten is closed.
func TestWhatIsKeptIsClosedUpToAFailureOfTheConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		closed int
		reused bool
	}{
		"closed":    {nil, 3, true},
		"forgotten": {sqlError("unknown prepared statement"), 3, true},
		"lost":      {transportError(), 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := keepingRig(t, 4)
			for _, sql := range []string{"SELECT 1", "SELECT 2", "SELECT 3"} {
				must(t, r.read(sql, 7))
			}
			r.handle.dropKept()
			r.conn.fail = map[string]error{"ClosePrepared": tc.err}
			log := r.sent(func() { _ = r.handle.Close() })
			require.Equal(t, tc.closed, strings.Count(strings.Join(log, " "), "ClosePrepared"), "%s: %q", name, log)
			require.Empty(t, r.kept(), name)
			require.Equal(t, tc.reused, r.returns[len(r.returns)-1] == nil, name)
		})
	}
}

// TestAReadIsNotRefusedForAChangeOfObjectsBesideItsPreparing: it is executed, and not kept.
func TestAReadIsNotRefusedForAChangeOfObjectsBesideItsPreparing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 4)
		other, plain := New(newStateConn(), r.policy, r.returned), r.conn.prepared
		r.conn.prepared = func(p *fakePrepared) backend.Prepared {
			_, err := other.Update(t.Context(), "ALTER TABLE t ADD b INT")
			must(t, err)
			return plain(p)
		}
		require.Equal(t, []string{"Prepare", "SELECT 1", "ClosePrepared"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }))
		must(t, other.Close())
	})
}

// TestWhatIsKeptStaysBehindASessionThatMayHaveLeftATableAlone: no text means something else by that, as none does by
// the look for it.
func TestWhatIsKeptStaysBehindASessionThatMayHaveLeftATableAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 4)
		must(t, r.read("SELECT 1", 7))
		r.conn.fail = map[string]error{" ingest t": sqlError("no")}
		rows, err := array.NewRecordReader(fakeSchema, []arrow.RecordBatch{int64Batch(1)})
		must(t, err)
		_, err = r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{Mode: backend.IngestAppend})
		require.Error(t, err)
		_ = r.handle.Close()
		require.Equal(t, []string{"SELECT 1"}, r.kept())
	})
}
