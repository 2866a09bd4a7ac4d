package session

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// stepsConn is a stateConn whose server runs steps as several statements, in a transaction of its own. It
// fails, and leaves that, aborted, in which it refuses everything until it is rolled back.
type stepsConn struct {
	*stateConn
	aborted   bool
	cutAborts bool // also cutSteps does
	sound     bool // steps leaves it as it is
	failing   string
	failure   error
	failures  int                     // how often it fails; 0: always
	order     *backend.StatementOrder // nil: serial
}

func (c *stepsConn) StatementOrder() *backend.StatementOrder { return c.order }

const (
	steps    = "ALTER TABLE t ADD b INT DEFAULT f()"
	cutSteps = steps + " -- SLOW 1h"
)

func newStepsConn() *stepsConn {
	return &stepsConn{stateConn: newStateConn(), failing: steps, failure: sqlError("f fails")}
}

func (c *stepsConn) refusal(sql string) error {
	switch {
	case sql == "ROLLBACK" && sql != c.failing:
		c.aborted = false
	case c.aborted:
		return sqlError("Current transaction is aborted (please ROLLBACK)")
	case sql == c.failing:
		c.aborted = !c.sound
		if c.failures--; c.failures == 0 {
			c.failing = ""
		}
		return c.failure
	case sql == cutSteps:
		c.aborted = c.cutAborts
	}
	return nil
}

func (c *stepsConn) Update(ctx context.Context, sql string, call backend.Call) (int64, error) {
	if err := c.refusal(sql); err != nil {
		return 0, cmp.Or(c.use(ctx, sql, 0), err)
	}
	return c.stateConn.Update(ctx, sql, call)
}

func (c *stepsConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	if err := c.refusal(sql); err != nil {
		return nil, cmp.Or(c.use(ctx, sql, 0), err)
	}
	return c.stateConn.Query(ctx, sql, call)
}

// What a session has set is put back, also where a statement has left an aborted transaction that refuses
// that, and the connection is kept.
func TestSettingsArePutBackBehindAStatementThatLeftATransaction(t *testing.T) {
	unimplemented := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "f is not implemented")}
	for name, tc := range map[string]struct {
		failure error
		end     func(s *SessionHandle) error
		kept    bool
	}{
		"Close":                  {nil, (*SessionHandle).Close, true},
		"Close, not implemented": {unimplemented, (*SessionHandle).Close, true},
		"Discard":                {nil, func(s *SessionHandle) error { _ = s.Discard(errors.New("not wanted")); return nil }, false},
		"Close, behind a statement": {nil, func(s *SessionHandle) error {
			_, err := s.Update(context.Background(), "INSERT 1")
			return errors.Join(err, s.Close())
		}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStepsConn()
			if tc.failure != nil {
				c.failure = tc.failure
			}
			r := stateRig(t, c.stateConn)
			r.handle = New(c, r.policy, r.returned)
			start := c.settings["threads"]
			_, err := r.handle.Update(t.Context(), "SET threads = 1")
			must(t, err)
			_, err = r.handle.Update(t.Context(), steps)
			require.ErrorContains(t, err, c.failure.Error())
			must(t, tc.end(r.handle))
			require.Equal(t, start, c.settings["threads"], name)
			require.False(t, c.aborted, name)
			if tc.kept {
				r.reused()
			} else {
				require.ErrorContains(t, r.discarded(), "not wanted")
			}
		})
	}
}

// A session without settings is asked once.
func TestASessionInDoubtIsProbedOnceWhereNothingIsPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStepsConn()
		r := stateRig(t, c.stateConn)
		r.handle = New(c, r.policy, r.returned)
		_, err := r.handle.Update(t.Context(), steps)
		require.Error(t, err)
		require.Equal(t, []string{"ROLLBACK", "SELECT 1"}, r.sent(func() { _ = r.handle.Close() }))
		r.reused()
	})
}

// A server that ends a change between its steps itself, for a limit of its own, may leave a sound transaction: what
// follows would be told as stored and be in it. A refusal has aborted it, if any.
func TestAChangeThatTheServerEndsBetweenItsStepsLeavesNoTransaction(t *testing.T) {
	const next = "INSERT 1"
	failed := func(code codes.Code, text string) error {
		return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultOf(code, text), Err: status.Error(code, text)}
	}
	for name, tc := range map[string]struct {
		sql     string
		failure error
		asks    []string
	}{
		"a time limit":            {steps, failed(codes.Unknown, "Query execution timed out after 3 seconds"), []string{"ROLLBACK", "SELECT 1"}},
		"a failure of the server": {steps, failed(codes.Internal, "something happened"), []string{"ROLLBACK", "SELECT 1"}},
		"a limit of its memory":   {steps, failed(codes.ResourceExhausted, "out of memory"), []string{"ROLLBACK", "SELECT 1"}},
		"a refusal":               {steps, failed(codes.InvalidArgument, "f fails"), []string{"SELECT 1"}},
		"no such call":            {steps, failed(codes.Unimplemented, "f is not implemented"), []string{"SELECT 1"}},
		"a single statement":      {"UPDATE t", failed(codes.Unknown, "Query execution timed out after 3 seconds"), nil},
	} {
		for _, closes := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c := newStepsConn()
				c.failure, c.sound, c.failing = tc.failure, true, tc.sql
				r := stateRig(t, c.stateConn)
				r.handle = New(c, r.policy, r.returned)
				_, err := r.handle.Update(t.Context(), tc.sql)
				require.Error(t, err)
				c.failing = ""
				sent := r.sent(func() {
					if closes {
						must(t, r.handle.Close())
						r.handle = New(c, r.policy, r.returned)
					}
					_, err = r.handle.Update(t.Context(), next)
					must(t, err)
				})
				require.Equal(t, append(slices.Clone(tc.asks), next), sent, name)
			})
		}
	}
}

// What OnConnect has run and passed over fails no open, and leaves no setting of the server's that it has not set.
func TestWhatFailsBetweenItsStepsInOnConnectIsTakenBack(t *testing.T) {
	const policy = "current_transaction_invalidation_policy"
	for name, inTx := range map[string]bool{"in a transaction": true, "outside": false} {
		for _, fails := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c := newStepsConn()
				r := stateRig(t, c.stateConn)
				r.policy.Kept = &Kept{}
				s, err := NewKeeping(t.Context(), c, r.policy, func() {})
				must(t, err)
				_, err = s.Update(t.Context(), "SET threads = 1")
				must(t, err)
				if inTx {
					must(t, s.BeginTransaction(t.Context()))
					c.settings[policy], c.defaults[policy] = "all", "standard"
				}
				_, err = s.Update(t.Context(), steps)
				require.Error(t, err)
				if inTx {
					must(t, s.Rollback(t.Context()))
					c.aborted = false
				}
				if fails {
					_ = s.Discard(errors.New("OnConnect fails"))
				} else {
					must(t, s.CloseKeeping(t.Context()))
				}
				require.False(t, c.aborted, name)
				require.Equal(t, "1", c.settings["threads"], "what it has set stays")
				if inTx {
					require.Equal(t, "standard", c.settings[policy], "fails: %t", fails)
				}
			})
		}
	}
}

// Whatever a change that is cut between its steps leaves, a setting of the server's is put back: behind an aborted
// transaction, which is ended, and in a session that is given up although it answers.
func TestAChangeThatIsCutBetweenItsStepsLeavesNoSetting(t *testing.T) {
	for name, tc := range map[string]struct {
		aborts, sideBySide bool
		lost               string
		rollbacks          int
	}{
		"a sound transaction":             {false, false, "may be open", 1},
		"an aborted one":                  {true, false, "", 1},
		"a sound one, and side by side":   {false, true, "may still run", 1},
		"an aborted one and side by side": {true, true, "may still run", 2}, // what a chain found that is not safe is not relied on
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStepsConn()
			c.cutAborts = tc.aborts
			if tc.sideBySide {
				c.order = &backend.StatementOrder{} // it may
			}
			r := stateRig(t, c.stateConn)
			r.handle = New(c, r.policy, r.returned)
			start := c.settings["threads"]
			_, err := r.handle.Update(t.Context(), "SET threads = 1")
			must(t, err)
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			_, err = r.handle.Update(ctx, cutSteps)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			if tc.lost != "" {
				require.ErrorContains(t, r.discarded(), tc.lost, name)
			} else {
				_, err = r.handle.Update(t.Context(), "INSERT 1")
				must(t, err)
			}
			_ = r.handle.Close()
			if tc.lost == "" {
				r.reused()
			}
			require.Equal(t, start, c.settings["threads"], name)
			require.Equal(t, tc.rollbacks, strings.Count(strings.Join(c.Log(), "\n")+"\n", "ROLLBACK\n"), name)
		})
	}
}

// What is answered to that ROLLBACK by no word on the transaction leaves it open: nothing is stored behind it.
func TestAStrayTransactionWhoseRollbackFailsTakesNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStepsConn()
		c.sound, c.failing = true, steps
		r := stateRig(t, c.stateConn)
		r.handle = New(c, r.policy, r.returned)
		_, err := r.handle.Update(t.Context(), steps)
		require.Error(t, err)
		c.failing = "ROLLBACK"
		c.failure = &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
		_, err = r.handle.Update(t.Context(), "INSERT 1")
		require.ErrorContains(t, err, "busy")
		require.NotContains(t, c.Log(), "INSERT 1")
		c.failing = ""
		_, err = r.handle.Update(t.Context(), "INSERT 2")
		must(t, err)
		log := c.Log()
		require.Contains(t, log[:slices.Index(log, "INSERT 2")], "ROLLBACK")
		must(t, r.handle.Close())
		r.reused()
	})
}

// One refusal of that ROLLBACK may be a failure of the server's own, behind which later changes would be told as stored,
// and those of the next borrowers. A server that refuses it again has no such transaction, or the session is given up.
func TestAStrayTransactionWhoseRollbackIsRefusedOnceIsRolledBack(t *testing.T) {
	for name, tc := range map[string]struct {
		code  codes.Code
		text  string
		times int
		lost  bool
	}{
		"a failure":                {codes.Internal, "something happened", 1, false},
		"a refusal":                {codes.FailedPrecondition, "not now", 1, false},
		"there is none":            {codes.Internal, "cannot rollback - no transaction is active", 0, false},
		"a server that has none":   {codes.Unknown, "ROLLBACK is not supported", 0, false},
		"a failure, again":         {codes.Internal, "something happened", 0, true},
		"a failure, again, closed": {codes.Internal, "something happened", 0, true},
		"a page, again":            {codes.Unimplemented, `transport: the server has answered with HTTP status 404 and content type "text/html"`, 0, true},
		"a proxy's, again":         {codes.PermissionDenied, `transport: the server has answered with HTTP status 403 and content type "text/html"`, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStepsConn()
			c.sound, c.failure = true, &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.Unknown, "timed out")}
			r := stateRig(t, c.stateConn)
			r.handle = New(c, r.policy, r.returned)
			_, err := r.handle.Update(t.Context(), steps)
			require.Error(t, err)
			c.failing, c.failures = "ROLLBACK", tc.times
			c.failure = &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultOf(tc.code, tc.text), Err: status.Error(tc.code, tc.text)}
			if strings.HasSuffix(name, "closed") {
				require.Equal(t, []string{"ROLLBACK", "ROLLBACK"}, r.sent(func() { require.Error(t, r.handle.Close()) }), name)
				require.ErrorIs(t, r.discarded(), backend.ErrSessionLost, name)
				return
			}
			sent := r.sent(func() { _, err = r.handle.Update(t.Context(), "INSERT 1") })
			if tc.lost {
				require.ErrorIs(t, err, backend.ErrSessionLost, name)
				require.True(t, backend.SafeToRetry(err), name)
				require.NotContains(t, sent, "INSERT 1", name)
				_ = r.handle.Close()
				return
			}
			must(t, err)
			require.Equal(t, []string{"ROLLBACK", "ROLLBACK", "SELECT 1", "INSERT 1"}, sent, name)
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// A connection that is closed after use leaves no such transaction either, where the server's session outlives it.
func TestAStrayTransactionIsRolledBackBeforeItsConnectionIsClosedAfterUse(t *testing.T) {
	for _, single := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newStepsConn()
			c.sound, c.failure = true, &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.Unknown, "timed out")}
			r := stateRig(t, c.stateConn)
			r.policy.OnReturn = ResetDiscard
			if r.handle = New(c, r.policy, r.returned); single {
				r.handle = NewStateless(c, r.policy, r.returned)
			}
			_, err := r.handle.Update(t.Context(), steps)
			require.Error(t, err)
			_ = r.handle.Close()
			require.Contains(t, c.Log(), "ROLLBACK")
			require.ErrorContains(t, r.discarded(), "as configured")
		})
	}
}

// There are servers that run all but the last step of a text while they prepare it, such as SwanLake: the transaction of
// those is open then, and nobody has begun it. One whose parameters do not fit is not run once it is prepared.
func TestWhatIsPreparedAndNotRunLeavesNoTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		_, err := r.handle.Update(t.Context(), steps, sql.Named("b", 1)) // of which the server tells no name
		require.Equal(t, backend.FaultUsage, backend.FaultIn(err), "%v", err)
		require.Contains(t, r.sent(func() { must(t, r.handle.Close()) }), "ROLLBACK")
		r.reused()
	})
}

// In a transaction of the handle's the steps of a change are part of it.
func TestAChangeThatTheServerEndsInATransactionIsTheTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStepsConn()
		c.sound = true
		r := stateRig(t, c.stateConn)
		r.handle = New(c, r.policy, r.returned)
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err := r.handle.Update(t.Context(), steps)
		require.Error(t, err)
		must(t, r.handle.Rollback(t.Context()))
		require.NotContains(t, r.sent(func() {
			_, err = r.handle.Update(t.Context(), "INSERT 1")
			must(t, err)
		}), "ROLLBACK")
		must(t, r.handle.Close())
		r.reused()
	})
}

// A session of which a single statement may still run is given up without a ROLLBACK: there is no transaction of its own.
func TestAStatementThatMayStillRunIsSentNoRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStepsConn()
		c.order = &backend.StatementOrder{}
		r := stateRig(t, c.stateConn)
		r.handle = New(c, r.policy, r.returned)
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.handle.Update(ctx, "UPDATE t SLOW 1h")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.ErrorContains(t, r.discarded(), "may still run")
		require.NotContains(t, c.Log(), "ROLLBACK")
		_ = r.handle.Close()
	})
}

// Of what was not sent yet nothing is cut.
func TestAChangeThatIsCutBeforeItIsSentCostsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		c.work = map[string]time.Duration{"Prepare": time.Hour} // of the proof
		r := stateRig(t, c)
		const sql = "CREATE TABLE n AS PIVOT t ON a"
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.handle.Update(ctx, sql)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.False(t, slices.Contains(r.conn.Log(), sql))
		c.work = nil
		_ = r.handle.Close()
		r.reused()
	})
}
