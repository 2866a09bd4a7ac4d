package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// request is a way of a server's to cancel, and when the statement ends behind it.
type request struct {
	out   cancel.Outcome
	ended time.Duration // 0: it does not
}

// requests has the server take them, one after the other.
func (f *fakeConn) requests(requests ...request) {
	f.steps = func(*backend.Operation) (steps []cancel.Step) {
		for i, q := range requests {
			steps = append(steps, cancel.Step{Name: string(rune('a' + i)), Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
				if q.ended > 0 {
					f.mu.Lock()
					defer f.mu.Unlock()
					f.freeAt = time.Now().Add(q.ended)
				}
				return q.out, nil
			}})
		}
		return steps
	}
}

// ofChain are the probes and rollbacks among what was sent.
func ofChain(sent []string) (calls []string) {
	for _, call := range sent {
		if slices.Contains([]string{"tx1: SELECT 1", "SELECT 1", "Rollback", "ROLLBACK"}, call) {
			calls = append(calls, call)
		}
	}
	return calls
}

// cutIn runs what outlasts its context, and until its cancel is over.
func (r *rig) cutIn(s *SessionHandle, sql string) {
	r.t.Helper()
	ctx, stop := context.WithTimeout(r.t.Context(), 20*ms)
	defer stop()
	_, err := s.Update(ctx, sql)
	require.ErrorIs(r.t, err, context.DeadlineExceeded)
	time.Sleep(time.Minute)
	synctest.Wait()
}

// On a server that runs statements in whatever is open, a ROLLBACK is sent once the session has answered what was sent behind
// the statement, if there are requests to cancel, and that is asked once. Without any the ROLLBACK is all that is sent.
func TestTheRollbackOfWhatIsCutIsSentInItsTurn(t *testing.T) {
	const change, read, wait = "UPDATE SLOW 1h", "SELECT SLOW 1h", "tx1: SELECT 1"
	for name, tc := range map[string]struct {
		requests []request
		sql      string
		hears    bool // the end of the RPC ends it
		sent     []string
		by       string
	}{
		"a read, and no request":                  {nil, read, true, []string{"Rollback"}, "rpc"},
		"a change, and no request":                {nil, change, true, []string{"Rollback"}, "probe"},
		"a read, and a request":                   {[]request{{cancel.Failed, 0}}, read, true, []string{wait, "Rollback"}, "rpc"},
		"a request that is taken":                 {[]request{{cancel.Requested, ms}}, change, false, []string{wait, "Rollback"}, "a"},
		"a request that is confirmed":             {[]request{{cancel.Confirmed, ms}}, change, false, []string{wait, "Rollback"}, "a"},
		"one that is confirmed, and answers late": {[]request{{cancel.Confirmed, 400 * ms}}, change, false, []string{wait, "Rollback"}, "a"},
		"one that is taken, and answers late":     {[]request{{cancel.Requested, 400 * ms}, {cancel.Failed, 0}}, change, false, []string{wait, wait, "Rollback"}, "probe"},
		"one that fails":                          {[]request{{cancel.Failed, ms}}, change, false, []string{wait, "Rollback"}, "probe"},
		"one that it does not have":               {[]request{{cancel.Unsupported, ms}}, change, false, []string{"Rollback"}, "probe"},
		"one that fails, and one that it lacks":   {[]request{{cancel.Failed, 0}, {cancel.Unsupported, ms}}, change, false, []string{wait, "Rollback"}, "probe"},
		"a read, and one that it does not have":   {[]request{{cancel.Unsupported, ms}}, read, false, []string{wait, wait, "Rollback"}, "probe"},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{forgives: true, ignoresCancel: !tc.hears}
			conn.requests(tc.requests...)
			r := newRig(t, conn)
			must(t, r.handle.BeginTransaction(t.Context()))
			sent := r.sent(func() { r.cutIn(r.handle, tc.sql) })
			require.Equal(t, tc.sent, ofChain(sent), "%s: %v", name, r.chains()[0])
			require.Equal(t, tc.by, r.chains()[0].ConfirmedBy, "%s: %v", name, r.chains()[0])
			require.Empty(t, ofChain(r.sent(func() { require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted) })), "%s: it was rolled back", name)
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// A session that has come to its turn is not asked for it again by the next request, whatever has become of the ROLLBACK.
func TestASessionThatHasComeToItsTurnIsNotAskedForItAgain(t *testing.T) {
	late := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
	for name, tc := range map[string]struct {
		result   bool // rows of it have come
		failOnce map[string][]error
		requests []request
		sent     []string
	}{
		"its rollback fails": {false, map[string][]error{"Rollback": {late}}, []request{{cancel.Requested, ms}, {cancel.Requested, ms}},
			[]string{"tx1: SELECT 1", "Rollback", "Rollback"}},
		"it is rolled back, and the probe fails": {true, map[string][]error{"Rollback": {sqlError("not now")}, "SELECT 1": {sqlError("nor now")}}, []request{{cancel.Confirmed, ms}, {cancel.Requested, ms}},
			[]string{"Rollback", "Rollback", "SELECT 1", "SELECT 1"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{forgives: true, ignoresCancel: !tc.result, failOnce: tc.failOnce}
			conn.requests(tc.requests...)
			r := newRig(t, conn)
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Update(t.Context(), "UPDATE 1")
			must(t, err)
			sent := r.sent(func() {
				if !tc.result {
					r.cutIn(r.handle, "UPDATE SLOW 1h")
					return
				}
				res, err := r.handle.Query(t.Context(), "SELECT 500")
				must(t, err)
				res.interrupt(errors.New("the caller's"))
				time.Sleep(time.Minute)
				synctest.Wait()
			})
			require.Equal(t, tc.sent, ofChain(sent), "%s: %v", name, r.chains()[0])
			_ = r.handle.Close()
		})
	}
}

// Outside of transactions the session is probed once behind each request, and the end of the RPC is the first of them,
// also where the server is one that leaves transactions.
func TestOutsideOfTransactionsTheSessionIsProbedOnceForEachRequest(t *testing.T) {
	for name, forgives := range map[string]bool{"it minds its transactions": false, "it does not": true} {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{forgives: forgives, ignoresCancel: true}
			conn.requests(request{cancel.Requested, 0}, request{cancel.Requested, ms})
			r := newRig(t, conn)
			must(t, r.handle.BeginTransaction(t.Context())) // there is something to prove from now on
			must(t, r.handle.Rollback(t.Context()))
			sent := r.sent(func() { r.cutIn(r.handle, "UPDATE SLOW 1h") })
			require.Equal(t, []string{"SELECT 1", "SELECT 1", "SELECT 1"}, ofChain(sent), name)
			require.Equal(t, "b", r.chains()[0].ConfirmedBy, "%s: %v", name, r.chains()[0])
			require.Equal(t, "rpc", r.chains()[0].Steps[0].Name, name)
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// What is left of a change of several would be stored behind the ROLLBACK on a server that runs statements in whatever is
// open: none is sent there while it may go on, and nothing else. A read stores nothing, and a server that minds its transactions
// refuses what is left.
func TestNoRollbackOvertakesAChangeOfSeveral(t *testing.T) {
	const changes, reads = "INSERT 1; UPDATE SLOW 1h", "SELECT 1; SELECT SLOW 1h"
	for name, tc := range map[string]struct {
		forgives, told bool
		sql            string
		sent           []string
	}{
		"changes":                         {true, false, changes, nil},
		"changes, which have ended":       {true, true, changes, []string{"tx1: SELECT 1", "Rollback"}},
		"changes, of a server that minds": {false, false, changes, []string{"Rollback"}},
		"reads":                           {true, false, reads, []string{"Rollback"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := newControlConn(&fakeConn{forgives: tc.forgives})
			if tc.told {
				conn.requests(request{cancel.Confirmed, 0})
			}
			r := newRig(t, conn.fakeConn)
			r.policy.confirmsCancels.Store(true) // else it has the budget for its answer
			h := New(conn, r.policy, r.returned)
			must(t, h.BeginTransaction(t.Context()))
			sent := r.sent(func() { r.cutIn(h, tc.sql) })
			sent = sent[slices.Index(sent, "tx1: "+tc.sql):]
			require.Equal(t, 1, conn.asked, "%s: a probe has waited beside it", name)
			require.Equal(t, tc.sent, ofChain(sent), "%s: %q", name, sent)
			if !tc.told {
				require.ErrorContains(t, r.discarded(), "may still run", name)
				require.Equal(t, !tc.forgives || tc.sql == reads, slices.ContainsFunc(sent, isControl), "%s: %q", name, sent)
			}
			must(t, h.Close())
			if tc.told {
				r.reused()
			}
		})
	}
}

func isControl(sql string) bool {
	return strings.HasPrefix(strings.TrimPrefix(sql, "tx1: "), "SELECT '")
}

// A probe that is refused has found nothing that a control could confirm.
func TestAProbeThatIsRefusedHasNoControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newControlConn(&fakeConn{failOnce: map[string][]error{"SELECT 1": {sqlError("no probe")}}})
		report := conn.cut(t, newRig(t, conn.fakeConn), "UPDATE SLOW 1h")
		require.False(t, report.Confirmed)
		require.ErrorContains(t, report.Steps[len(report.Steps)-1].Err, "no probe")
		require.Zero(t, conn.order.Waits())
		require.False(t, slices.ContainsFunc(conn.Log(), isControl), "%q", conn.Log())
	})
}

// A session of which a statement may still run is led back before it is given up, if it answers: but for what may run rows
// in it that are left. Nothing is sent to one that does not answer. A loss for want of a request to cancel is remembered.
func TestWhatIsSentToASessionThatIsGivenUp(t *testing.T) {
	const back = "SET threads = '3'"
	one, two := int64Batch(1), int64Batch(1, 2)
	defer one.Release()
	defer two.Release()
	sideBySide := &backend.StatementOrder{}
	sideBySide.SetConcurrent()
	for name, tc := range map[string]struct {
		order    *backend.StatementOrder
		deaf     bool // the session does not answer
		rows     arrow.RecordBatch
		sql      string
		requests []request
		back     bool // the setting is put back
		lost     bool
		wanting  bool // a request
	}{
		"a text of several":                {order: serialOrder(), sql: "INSERT 1; UPDATE SLOW 1h", back: true, lost: true, wanting: true},
		"several rows":                     {order: serialOrder(), sql: "UPDATE SLOW 1h", rows: two, lost: true, wanting: true},
		"one row, of which nothing shows":  {order: sideBySide, sql: "UPDATE SLOW 1h", rows: one, back: true, lost: true, wanting: true},
		"a request that fails":             {order: sideBySide, sql: "UPDATE SLOW 1h", requests: []request{{cancel.Failed, 0}}, back: true, lost: true},
		"one statement":                    {order: serialOrder(), sql: "UPDATE SLOW 1h", back: true},
		"it does not answer":               {order: serialOrder(), sql: "UPDATE SLOW 1h", deaf: true, lost: true, wanting: true},
		"a change in steps, and no answer": {order: serialOrder(), sql: cutSteps, deaf: true, lost: true, wanting: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStepsConn()
			c.order, c.forgives, c.ignoresCancel = tc.order, true, tc.deaf
			if tc.requests != nil {
				c.requests(tc.requests...)
			}
			r := stateRig(t, c.stateConn)
			r.handle = New(c, r.policy, r.returned)
			_, err := r.handle.Update(t.Context(), "SET threads = 1")
			must(t, err)
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			sent := r.sent(func() {
				if tc.rows != nil {
					_, err = r.handle.UpdateWithRecordBatch(ctx, tc.sql, tc.rows)
				} else {
					_, err = r.handle.Update(ctx, tc.sql)
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				time.Sleep(r.policy.budget() + r.policy.grace())
			})
			if tc.lost {
				require.ErrorContains(t, r.discarded(), "may still run", name)
			} else {
				r.held(name)
			}
			require.Equal(t, tc.wanting, r.policy.lostUncancelled.Load(), name)
			if tc.deaf {
				require.NotContains(t, sent, "ROLLBACK", name)
			}
			_ = r.handle.Close()
			require.Equal(t, tc.back, c.settings["threads"] == "3", "%s: %q", name, c.Log())
			require.Equal(t, tc.back, slices.Contains(c.Log(), back), "%s: %q", name, c.Log())
		})
	}
}

// A server that leaves transactions by itself may have run the steps of a change outside of the handle's, and have left that
// of its own open.
func TestAChangeThatIsCutBetweenItsStepsInATransactionThatTheServerMayHaveLeftCostsItsConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		sql   string
		costs bool
	}{"steps": {cutSteps, true}, "a statement": {"UPDATE SLOW 1h", false}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true})
			must(t, r.handle.BeginTransaction(t.Context()))
			r.cutIn(r.handle, tc.sql)
			require.True(t, r.chains()[0].Safe(), name)
			if tc.costs {
				require.ErrorContains(t, r.discarded(), "may be open", name)
			}
			_ = r.handle.Close()
			if !tc.costs {
				r.reused()
			}
		})
	}
}

// A session that refuses everything although the handle's transaction was rolled back is in one that nobody knows of: it is
// not made good for the handle, which would go on in it.
func TestASessionThatRefusesEverythingBehindARollbackIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		must(t, r.handle.BeginTransaction(t.Context()))
		r.cutIn(r.handle, "UPDATE SLOW 1h")
		r.conn.mu.Lock()
		r.conn.fail = map[string]error{"SELECT 1": sqlError("Current transaction is aborted")}
		r.conn.work = map[string]time.Duration{"Ping": time.Hour}
		r.conn.mu.Unlock()
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		require.ErrorIs(t, r.handle.Ping(ctx), context.DeadlineExceeded)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NotContains(t, r.conn.Log(), "ROLLBACK")
		require.ErrorContains(t, r.discarded(), "may still run")
		_ = r.handle.Close()
	})
}

// An ingestion that a server has confirmed to have cancelled is believed once the session has answered behind it, where that
// runs one statement at a time, and not without.
func TestTheWordOnAnIngestionIsNotAskedForAgainWhereTheSessionAnswers(t *testing.T) {
	for name, serial := range map[string]bool{"one at a time": true, "side by side": false} {
		synctest.Test(t, func(t *testing.T) {
			conn := newIngestingConn()
			conn.sideBySide = false
			conn.requests(request{cancel.Confirmed, ms}, request{cancel.Failed, 0})
			if serial {
				conn.order = nil // as a driver in this process does
			}
			conn.freeAt = time.Now().Add(time.Hour) // the session is at work on it
			r := newRig(t, conn.fakeConn)
			h := NewStateless(conn, r.policy, r.returned)
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			rows := tenRows(t)
			_, err := h.Ingest(ctx, "t", rows, backend.IngestOptions{})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			synctest.Wait()
			report := r.chains()[0]
			if serial {
				require.Equal(t, "a", report.ConfirmedBy, "%s: %v", name, report)
				return
			}
			require.False(t, report.Confirmed, name)
			require.ErrorIs(t, report.Steps[0].Err, errMayStillRun, name)
		})
	}
}
