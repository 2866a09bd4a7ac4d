package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// orderConn is a connection of a server that may run the statements of a
// session side by side.
type orderConn struct {
	*fakeConn
	order      *backend.StatementOrder
	sideBySide bool
	slow       time.Duration // how long a probe beside a statement takes
	answered   int64         // round trips
}

func (c *orderConn) StatementOrder() *backend.StatementOrder { return c.order }

func (c *orderConn) QueryConcurrently(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	return c.Query(ctx, sql, call)
}

// RoundTrips are those in the log but for the probes. Each is answered at its end.
func (c *orderConn) RoundTrips() (begun, answered int64) {
	for _, call := range c.Log() {
		if !strings.HasSuffix(call, "SELECT 1") {
			begun++
		}
	}
	return begun, c.answered
}

func (c *orderConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	if c.sideBySide && sql == "SELECT 1" {
		select {
		case <-time.After(c.slow):
		case <-ctx.Done():
			return nil, &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultContext, Err: status.FromContextError(ctx.Err()).Err()}
		}
		return &fakeStream{f: c.fakeConn, ctx: ctx, left: 1}, nil
	}
	return c.fakeConn.Query(ctx, sql, call)
}

// deadline runs a statement that outlasts its context.
func (c *orderConn) deadline(t *testing.T, r *rig) cancel.Report {
	t.Helper()
	before := len(r.chains())
	ctx, stop := context.WithTimeout(t.Context(), 20*ms)
	defer stop()
	start := time.Now()
	h := NewStateless(c, r.policy, r.returned)
	_, err := h.Update(ctx, "UPDATE SLOW 1h")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, ok := status.FromError(err)
	require.True(t, ok)
	require.Equal(t, 20*ms, time.Since(start), "the caller does not wait for what is learned")
	time.Sleep(10 * time.Second)
	synctest.Wait()
	require.Len(t, r.chains(), before+1)
	return r.chains()[before]
}

func TestAProbeProvesNothingWhereStatementsRunSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &orderConn{fakeConn: &fakeConn{ignoresCancel: true}, order: &backend.StatementOrder{}, sideBySide: true}
		r := newRig(t, conn.fakeConn)
		for range 3 {
			report := conn.deadline(t, r)
			require.False(t, report.Confirmed)
			require.ErrorIs(t, report.Steps[len(report.Steps)-1].Err, errMayStillRun)
		}
		require.True(t, conn.order.IsConcurrent())
		require.Len(t, r.returns, 3)
		for _, err := range r.returns {
			require.ErrorContains(t, err, "may still run")
		}
	})
}

func TestTheServersWordCountsWhereStatementsRunSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, known := range []bool{false, true} {
			conn := &orderConn{fakeConn: &fakeConn{ignoresCancel: true}, order: &backend.StatementOrder{}, sideBySide: true}
			if known {
				conn.order.SetConcurrent()
			}
			asked := 0
			conn.steps = func(*backend.Operation) []cancel.Step {
				return []cancel.Step{{Name: "CancelFlightInfo", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
					if asked++; asked < 3 {
						return cancel.Requested, nil // it is cancelling
					}
					return cancel.Confirmed, nil
				}}}
			}
			r := newRig(t, conn.fakeConn)
			report := conn.deadline(t, r)
			require.True(t, report.Confirmed)
			require.Equal(t, "CancelFlightInfo", report.ConfirmedBy)
			require.Equal(t, 3, asked)
			r.reused()
		}
	})
}

// A server far away needs more than Grace for a probe. What it has said of the statement
// holds all the same.
func TestTheServersWordHoldsUntilTheSessionAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		word      cancel.Outcome
		slow      time.Duration
		confirmed bool
	}{
		"stopped, and far away":        {cancel.Confirmed, 400 * ms, true},
		"about to stop, and far away":  {cancel.Requested, 400 * ms, false},
		"stopped, but does not answer": {cancel.Confirmed, time.Minute, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &orderConn{fakeConn: &fakeConn{ignoresCancel: true}, order: &backend.StatementOrder{}, sideBySide: true, slow: c.slow}
			conn.order.SetConcurrent()
			conn.steps = func(*backend.Operation) []cancel.Step {
				answers := func(word cancel.Outcome) func(context.Context) (cancel.Outcome, error) {
					return func(context.Context) (cancel.Outcome, error) { return word, nil }
				}
				return []cancel.Step{
					{Name: "CancelFlightInfo", Timeout: time.Second, Do: answers(c.word)},
					{Name: "CancelQuery", Timeout: time.Second, Do: answers(cancel.Failed)}, // it knows no such statement any more
				}
			}
			r := newRig(t, conn.fakeConn)
			report := conn.deadline(t, r)
			require.Equal(t, c.confirmed, report.Confirmed, "%s: %v", name, report)
			require.Equal(t, c.confirmed, report.Safe(), name)
		})
	}
}

// Statements that were seen side by side once are not taken to wait for each
// other, however often one has waited.
func TestSideBySideOnceIsSideBySideForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &orderConn{fakeConn: &fakeConn{ignoresCancel: true}, order: &backend.StatementOrder{}, sideBySide: true}
		for range backend.RequiredWaits {
			conn.order.AddWait(time.Now().Add(time.Hour))
		}
		conn.order.SetConcurrent()
		r := newRig(t, conn.fakeConn)
		require.False(t, conn.deadline(t, r).Confirmed)
		_ = r.discarded()
	})
}

// A call of several round trips leaves its session free between two of them, which
// other statements then use.
func TestProbesBetweenTheRoundTripsOfACallTeachNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := map[string]time.Duration{"Prepare": 30 * ms, "SELECT current_setting('a')": 30 * ms, "SET a = 1": 30 * ms, "SELECT 1": ms}
		conn := &orderConn{fakeConn: &fakeConn{forgives: true, work: work}, order: &backend.StatementOrder{}}
		r := newRig(t, conn.fakeConn)
		ctx, stop := context.WithTimeout(t.Context(), 10*ms)
		defer stop()
		h := New(conn, r.policy, r.returned)
		_, err := h.Update(ctx, "SET a = 1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(10 * time.Second)
		_ = h.Close()
		require.False(t, conn.order.Known())
	})
}

func TestAnAnswerBesideOneThatHasBegunTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &orderConn{fakeConn: &fakeConn{ignoresCancel: true}, order: &backend.StatementOrder{}, sideBySide: true, answered: 1}
		conn.deadline(t, newRig(t, conn.fakeConn))
		require.False(t, conn.order.Known())
		conn.answered = 0
		// One in which code of the caller's may be at work teaches nothing either.
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		r := newRig(t, conn.fakeConn)
		_, err := NewStateless(conn, r.policy, r.returned).QueryWithOptions(ctx, "SELECT SLOW 1h", QueryOptions{Progress: func(float64, bool) {}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(10 * time.Second)
		require.False(t, conn.order.Known())
		conn.deadline(t, newRig(t, conn.fakeConn))
		require.True(t, conn.order.IsConcurrent())
	})
}

// TestAnAnswerBesideParametersTeachesNothing: the session is free while they are on
// their way to the server.
func TestAnAnswerBesideParametersTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &orderConn{fakeConn: &fakeConn{}, order: &backend.StatementOrder{}, sideBySide: true}
		r := newRig(t, c.fakeConn)
		batch := int64Batch(1)
		defer batch.Release()
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		h := NewStateless(c, r.policy, r.returned)
		_, err := h.UpdateWithRecordBatch(ctx, "UPDATE SLOW 1h", batch)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(10 * time.Second)
		require.False(t, c.order.Known())
	})
}

func TestThatStatementsRunOneAtATimeIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &orderConn{fakeConn: &fakeConn{}, order: &backend.StatementOrder{}}
		r := newRig(t, conn.fakeConn)
		for i := range backend.RequiredWaits + 1 {
			report := conn.deadline(t, r)
			require.Equal(t, i >= backend.RequiredWaits, report.ConfirmedBy == "rpc", "what is known comes first")
			require.Equal(t, i+1 >= backend.RequiredWaits, report.Confirmed, "a wait alone shows nothing")
			require.Equal(t, i+1 >= backend.RequiredWaits, conn.order.IsSerial())
		}
		for i, err := range r.returns {
			require.Equal(t, i+1 < backend.RequiredWaits, err != nil, "a connection whose statement may still run is not used again")
		}
		probes, controls := 0, 0
		for _, sql := range conn.Log() {
			if sql == "SELECT 1" {
				probes++
			} else if strings.HasPrefix(sql, "SELECT '") {
				controls++
			}
		}
		require.Equal(t, 2*backend.RequiredWaits+1, probes, "what is known is not asked again")
		require.Equal(t, backend.RequiredWaits, controls)
	})
}

// A server short of CPU keeps a probe waiting too; its own word comes first.
func TestAWaitIsBelievedOnlyWhereTheServerCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &orderConn{fakeConn: &fakeConn{}, order: &backend.StatementOrder{}}
		asked := 0
		conn.steps = func(*backend.Operation) []cancel.Step {
			return []cancel.Step{{Name: "CancelFlightInfo", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
				asked++
				return cancel.Confirmed, nil
			}}}
		}
		r := newRig(t, conn.fakeConn)
		require.Equal(t, "CancelFlightInfo", conn.deadline(t, r).ConfirmedBy)
		require.Equal(t, 1, asked)
		require.Zero(t, conn.order.Waits())
	})
}

// A query slips in between the two RPCs of another.
func TestOneAnswerBesideAStatementTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &orderConn{fakeConn: &fakeConn{}, order: &backend.StatementOrder{}}
		r := newRig(t, conn.fakeConn)
		slipped := &slippery{orderConn: conn}
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := NewStateless(slipped, r.policy, r.returned).Update(ctx, "UPDATE SLOW 1h")
		require.Error(t, err)
		time.Sleep(10 * time.Second)
		require.False(t, conn.order.IsConcurrent())
		require.Zero(t, conn.order.Waits())
		_ = r.discarded()
	})
}

// A server that is slow for a while, which is when statements are cut short, keeps
// probes waiting one after the other though its sessions run statements side by
// side. None of them shows anything.
func TestASlowServerTeachesNothing(t *testing.T) {
	for _, slow := range []time.Duration{110 * ms, 190 * ms, 205 * ms, 400 * ms, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			conn := &orderConn{fakeConn: &fakeConn{ignoresCancel: true}, order: &backend.StatementOrder{}, sideBySide: true, slow: slow}
			r := newRig(t, conn.fakeConn)
			for range 2 * backend.RequiredWaits {
				require.False(t, conn.deadline(t, r).Confirmed)
				require.False(t, conn.order.IsSerial(), slow)
			}
			for _, err := range r.returns {
				require.ErrorContains(t, err, "may still run", slow)
			}
			conn.slow = 90 * ms // it teaches what holds once it is faster
			require.False(t, conn.deadline(t, r).Confirmed)
			require.True(t, conn.order.IsConcurrent())
		})
	}
}

// Many statements that wait at once, as when a server is short of CPU, are one
// sign that statements wait for each other.
func TestWaitsThatOverlapCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o backend.StatementOrder
		began := time.Now()
		time.Sleep(100 * ms)
		for range 20 {
			o.AddWait(began)
		}
		require.Equal(t, 1, o.Waits())
		for range backend.RequiredWaits - 1 {
			require.False(t, o.IsSerial())
			time.Sleep(ms)
			o.AddWait(time.Now())
		}
		require.True(t, o.IsSerial())
	})
}

type slippery struct {
	*orderConn
	once bool
}

func (c *slippery) QueryConcurrently(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	if !c.once {
		c.once = true
		return &fakeStream{f: c.fakeConn, ctx: ctx, left: 1}, nil
	}
	return c.fakeConn.Query(ctx, sql, call)
}

// Where nothing would show that a cancel has worked, a result that was let go
// is read to its end if that comes within the budget.
func TestAResultLetGoIsReadOnWhereACancelCannotBeConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &orderConn{fakeConn: &fakeConn{pace: 100 * ms}, order: &backend.StatementOrder{}}
		conn.order.SetConcurrent()
		r := newRig(t, conn.fakeConn)
		res, err := NewStateless(conn, r.policy, r.returned).Query(t.Context(), "SELECT 40")
		must(t, err)
		res.Release()
		time.Sleep(5 * time.Second)
		r.reused()
		require.Empty(t, r.chains())
	})
}

// Only a wait that ends with the call shows that the session has waited for it,
// and a probe that fails says why itself.
func TestAProbeThatFailsTeachesNothingAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sideBySide := range []bool{false, true} {
			conn := &orderConn{fakeConn: &fakeConn{failOnce: map[string][]error{}, ignoresCancel: !sideBySide}, order: &backend.StatementOrder{}}
			if sideBySide {
				conn.order.SetConcurrent()
			}
			if sideBySide {
				conn.failOnce["SELECT 1"] = []error{sqlError("no probe")}
			}
			r := newRig(t, conn.fakeConn)
			report := conn.deadline(t, r)
			require.False(t, report.Confirmed)
			require.Zero(t, conn.order.Waits())
			last := report.Steps[len(report.Steps)-1].Err
			require.NotErrorIs(t, last, errMayStillRun)
			if sideBySide {
				require.ErrorContains(t, last, "no probe")
			}
			_ = r.discarded()
		}
	})
}

// queueConn is a session that keeps its results in one queue, as Arrow's adapter for PostgreSQL does: planning a query
// puts two there, an empty one for the schema and the rows, and planning and fetching take the first each, whosever it
// is. A query that was cut behind its plan leaves one there.
type queueConn struct {
	*orderConn
	results []string // the statements whose rows are there; empty for one without rows
}

func (c *queueConn) QueryConcurrently(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	return c.Query(ctx, sql, call)
}

func (c *queueConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	stream, err := c.fakeConn.Query(ctx, sql, call)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results = append(c.results, "", sql)[1:]
	if err != nil {
		return nil, err
	}
	s, first := stream.(*fakeStream), c.results[0]
	c.results = c.results[1:]
	_, text, _ := strings.Cut(first, "'")
	s.left, s.text = min(len(first), 1), strings.TrimSuffix(text, "'")
	return s, nil
}

// Where a statement has the rows of one before it, that which answers a probe is not free.
func TestTheRowsOfAnotherStatementTeachNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &queueConn{orderConn: &orderConn{fakeConn: &fakeConn{ignoresCancel: true}, order: &backend.StatementOrder{}}}
		r := newRig(t, conn.fakeConn)
		for i := range backend.RequiredWaits + 1 {
			conn.results = nil // those of another connection
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			_, err := NewStateless(conn, r.policy, r.returned).Update(ctx, "UPDATE SLOW 300ms")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			stop()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.Len(t, r.returns, i+1)
			if r.returns[i] != nil {
				continue
			}
			res, err := NewStateless(conn, r.policy, func(error) {}).Query(t.Context(), "SELECT 'mine'")
			must(t, err)
			require.True(t, res.Next(), "its row is lost")
			require.Equal(t, "mine", res.RecordBatch().Column(0).ValueStr(0), "it has the rows of another")
			res.Release()
		}
		require.Zero(t, conn.order.Waits())
	})
}

// A number elsewhere in the owner's probe is part of what it asks for.
func TestOnlyTheValueOfAProbeIsReplaced(t *testing.T) {
	for _, sql := range []string{"SELECT 1", "VALUES 1"} {
		got, want := (&Policy{ProbeSQL: sql}).controlSQL()
		require.NotEmpty(t, want)
		require.Equal(t, sql[:len(sql)-1]+"'"+want+"'", got)
	}
	for _, sql := range []string{"SELECT name FROM t WHERE id = 1", "SELECT x FROM t LIMIT 1", "SELECT 1;", "SELECT 1 FROM dual", "VALUES(1)"} {
		got, want := (&Policy{ProbeSQL: sql}).controlSQL()
		require.Equal(t, sql, got)
		require.Empty(t, want)
	}
}

// A server that has taken a request to cancel, and goes on with the statement, is asked in another way, although the answer to the
// ROLLBACK has all the time that there is.
func TestARequestThatWasTakenAndDoesNotHelpIsFollowedByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{ignoresCancel: true, forgives: true}
		conn.steps = func(*backend.Operation) []cancel.Step {
			return []cancel.Step{
				{Name: "CancelFlightInfo", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) { return cancel.Requested, nil }},
				{Name: "Stop", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
					conn.mu.Lock()
					defer conn.mu.Unlock()
					conn.freeAt = time.Now()
					return cancel.Requested, nil
				}},
			}
		}
		r := newRig(t, conn)
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err := r.handle.Update(t.Context(), "UPDATE 1")
		must(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err = r.handle.Update(ctx, "UPDATE SLOW 1h")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		must(t, r.handle.Rollback(t.Context()))
		steps := r.chains()[0].Steps
		require.Equal(t, backend.FaultContext, backend.FaultIn(steps[0].Err), "it says why it has not helped: %v", steps[0].Err)
		require.Equal(t, r.policy.grace(), steps[0].Elapsed)
		must(t, r.handle.Close())
		r.reused()
	})
}
