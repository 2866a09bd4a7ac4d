package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// What a call says of its end is what has ended it: a refusal of the server's is
// none of the context's, and the closing of the handle is named once.
func TestWhatACallSaysOfItsEnd(t *testing.T) {
	canceled := func(err error) error {
		return &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultContext, Err: err}
	}
	own := status.Error(codes.Canceled, "the server's own")
	for name, tc := range map[string]struct {
		end     error
		timeout bool // before the answer
		closed  bool // before the answer
		fault   backend.Fault
		is      error
		not     []error
	}{
		"a refusal after the deadline":             {end: sqlError("no"), timeout: true, fault: backend.FaultStatement, not: []error{context.DeadlineExceeded}},
		"a mistake after the deadline":             {end: &backend.Error{Fault: backend.FaultUsage, Err: errors.New("no")}, timeout: true, fault: backend.FaultUsage, not: []error{context.DeadlineExceeded}},
		"anything after the deadline":              {end: errors.New("?"), timeout: true, fault: backend.FaultContext, is: context.DeadlineExceeded},
		"anything":                                 {end: errors.New("?"), fault: backend.FaultUnknown, not: []error{context.DeadlineExceeded, backend.ErrHandleClosed}},
		"the server's own end":                     {end: canceled(own), fault: backend.FaultContext, not: []error{context.DeadlineExceeded, backend.ErrHandleClosed}},
		"the end of the handle":                    {end: canceled(own), closed: true, fault: backend.FaultContext, is: backend.ErrHandleClosed},
		"the end of the handle, said already":      {end: canceled(fmt.Errorf("the driver: %w", backend.ErrHandleClosed)), closed: true, fault: backend.FaultContext, is: backend.ErrHandleClosed},
		"a loss beside the end of the handle":      {end: transportError(), closed: true, fault: backend.FaultTransport, is: backend.ErrSessionLost, not: []error{backend.ErrHandleClosed}},
		"a loss after the deadline, which is both": {end: transportError(), timeout: true, fault: backend.FaultTransport, is: context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := scriptRig(t, 100*ms, 0, tc.end)
			ctx := t.Context()
			if tc.timeout {
				limited, stop := context.WithTimeout(ctx, 50*ms)
				defer stop()
				ctx = limited
			}
			if tc.closed {
				time.AfterFunc(50*ms, func() { _ = r.handle.Close() })
			}
			_, err := r.handle.Query(ctx, "SELECT SCRIPT")
			require.Equal(t, tc.fault, backend.FaultIn(err), "%s: %v", name, err)
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is, name)
			}
			for _, not := range tc.not {
				require.NotErrorIs(t, err, not, name)
			}
			require.NotContains(t, err.Error(), "%!", name)
			require.LessOrEqual(t, strings.Count(err.Error(), backend.ErrHandleClosed.Error()), 1, "%s: %v", name, err)
			time.Sleep(time.Minute)
			_ = r.handle.Close()
		})
	}
}

// A call whose caller is let go because its handle was closed says so.
func TestACallThatIsLeftBecauseItsHandleWasClosedSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &orderConn{fakeConn: &fakeConn{}, order: &backend.StatementOrder{}}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		time.AfterFunc(20*ms, func() { _ = r.handle.Close() })
		start := time.Now()
		_, err := r.handle.Update(ctx, "UPDATE SLOW 30m")
		require.Equal(t, 20*ms, time.Since(start))
		require.ErrorIs(t, err, backend.ErrHandleClosed)
		require.NotContains(t, err.Error(), "%!")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, r.returns, 1)
	})
}

// The order of statements is found out beside a call that can end by itself, and
// a call that nothing but its handle ends is cut at once.
func TestOnlyACallThatHasAnEndIsLeftToLearnTheOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		policy, call time.Duration
		learns       bool
	}{
		"no end":                   {},
		"no end, against the rule": {policy: 50 * ms, call: -1},
		"an end by the rule":       {policy: 50 * ms, learns: true},
		"an end of its own":        {call: 50 * ms, learns: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &side{orderConn: &orderConn{fakeConn: &fakeConn{}, order: &backend.StatementOrder{}}}
			conn.beside = conn.Query
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			r.policy.QueryTimeout = tc.policy
			time.AfterFunc(100*ms, func() { _ = r.handle.Close() })
			start := time.Now()
			_, err := r.handle.UpdateWithOptions(context.WithoutCancel(t.Context()), "UPDATE SLOW 1h", QueryOptions{Timeout: tc.call})
			require.Error(t, err, name)
			if tc.learns {
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
				require.Equal(t, 50*ms, time.Since(start), name)
			} else {
				require.ErrorIs(t, err, backend.ErrHandleClosed, name)
				require.Equal(t, 100*ms, time.Since(start), name)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, tc.learns, conn.asked > 0, name)
		})
	}
}

// A caller waits no longer than its context for its own Progress.
func TestACallReturnsWithItsContextWhateverItsProgressDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		hold := make(chan struct{})
		start := time.Now()
		_, err := r.handle.QueryWithOptions(ctx, "SELECT 2", QueryOptions{Progress: func(float64, bool) { <-hold }})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 20*ms, time.Since(start))
		time.Sleep(time.Minute)
		require.ErrorContains(t, r.discarded(), "does not return")
		close(hold)
		must(t, r.handle.Close())
		synctest.Wait()
		_ = r.discarded()
	})
}

// closingContext calls its function when it is asked for its deadline.
type closingContext struct {
	context.Context
	do func()
}

func (c *closingContext) Deadline() (time.Time, bool) {
	if do := c.do; do != nil {
		c.do = nil
		do()
	}
	return c.Context.Deadline()
}

// A handle that is closed while a call of it begins sends nothing of the call; a
// commit is not cut short.
func TestAHandleThatIsClosedWhileACallBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		_, err := r.handle.Update(&closingContext{t.Context(), func() { must(t, r.handle.Close()) }}, "INSERT 1")
		require.ErrorIs(t, err, backend.ErrHandleClosed)
		require.True(t, backend.SafeToRetry(err))
		require.Empty(t, r.conn.Log())
		synctest.Wait()
		r.reused()

		r = newRig(t, &fakeConn{})
		must(t, r.handle.BeginTransaction(t.Context()))
		must(t, r.handle.Commit(&closingContext{t.Context(), func() { must(t, r.handle.Close()) }}))
		require.Equal(t, []string{"Begin", "Commit"}, r.conn.Log())
		synctest.Wait()
		r.reused()
	})
}

// A refusal over a connection that is lost is the loss of the session too: the
// pool may open another one at once.
func TestARefusalOverALostConnectionGivesItBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		r.conn.useParams = r.conn.cut
		batch := int64Batch(1)
		defer batch.Release()
		_, err := r.handle.UpdateWithRecordBatch(t.Context(), "UPDATE bad SET a = ?", batch)
		require.ErrorContains(t, err, "bad statement")
		synctest.Wait()
		require.ErrorContains(t, r.discarded(), "cut")
		must(t, r.handle.Close())
	})
}

// A context that ends the goroutine of its caller when it is asked for its error
// leaves the handle free.
func TestAContextThatPanicsAtTheEndOfACallLeavesTheHandleFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := &panickyContext{Context: t.Context()}
		conn := &scriptConn{fakeConn: &fakeConn{}}
		conn.script = func(context.Context, backend.Call) *scriptStream {
			return &scriptStream{next: func(int) (arrow.RecordBatch, error) {
				ctx.err = true
				return nil, errors.New("?")
			}}
		}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		require.PanicsWithValue(t, "the caller's", func() { _, _ = r.handle.Query(ctx, "SELECT SCRIPT") })
		must(t, r.handle.Ping(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}

// A context that must not be asked any more, when a result is let go that it was for, leaves nothing behind: neither the result
// nor its handle hangs.
func TestAResultIsLetGoWhateverItsContextDoes(t *testing.T) {
	for name, read := range map[string]bool{"before its first row": false, "between two rows": true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{pace: ms})
			ctx := &staleContext{Context: t.Context()}
			res, err := r.handle.Query(ctx, "SELECT 3")
			must(t, err)
			require.Equal(t, read, read && res.Next(), name)
			ctx.over.Store(true)
			res.Release()
			require.False(t, res.Next(), name)
			require.ErrorIs(t, res.Err(), backend.ErrHandleClosed, name)
			must(t, r.handle.Ping(t.Context()))
			require.Zero(t, ctx.asked.Load(), name)
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// Who closes a handle, as its pool does, is not the caller of the query whose rows are open: no panic of its context goes on there.
func TestAHandleIsClosedWhateverTheContextOfItsResultDoes(t *testing.T) {
	for name, opts := range map[string]QueryOptions{"cut": {}, "left to its end": {NoCancel: true}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{pace: ms})
			ctx := &staleContext{Context: t.Context()}
			res, err := r.handle.QueryWithOptions(ctx, "SELECT 3", opts)
			must(t, err)
			require.True(t, res.Next(), name)
			ctx.over.Store(true)
			must(t, r.handle.Close())
			time.Sleep(time.Minute)
			synctest.Wait()
			require.False(t, res.Next(), name)
			require.ErrorIs(t, res.Err(), backend.ErrHandleClosed, name)
			require.ErrorIs(t, res.Close(), backend.ErrHandleClosed, name)
			r.reused()
			r.clean(name)
		})
	}
}

// The RPC of a result that nobody reads is ended before its stream is closed,
// which may wait for it.
func TestTheRPCOfAnUnreadResultIsEndedBeforeItsStreamIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &scriptConn{fakeConn: &fakeConn{}}
		ended := []bool{}
		conn.script = func(ctx context.Context, _ backend.Call) *scriptStream {
			return &scriptStream{
				next:   func(int) (arrow.RecordBatch, error) { return numbers(1), nil },
				closed: func() { ended = append(ended, ctx.Err() != nil) },
			}
		}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		ctx, stop := context.WithCancel(t.Context())
		res, err := r.handle.Query(ctx, "SELECT SCRIPT")
		must(t, err)
		stop()
		synctest.Wait()
		require.Equal(t, []bool{true}, ended)
		res.Release()
		must(t, r.handle.Close())
	})
}

// What came of a call that has failed, or whose caller has left, is let go.
func TestABatchThatNobodyGetsIsReleased(t *testing.T) {
	t.Run("of another session", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			conn := &scriptConn{fakeConn: &fakeConn{mem: mem}}
			closed := 0
			conn.script = func(ctx context.Context, _ backend.Call) *scriptStream {
				s := &fakeStream{f: conn.fakeConn, ctx: ctx, left: 1}
				return &scriptStream{closed: func() { closed++; s.drop() }, next: func(int) (arrow.RecordBatch, error) {
					batch, err := s.Next()
					batch.Retain() // the script's own
					conn.mu.Lock()
					defer conn.mu.Unlock()
					conn.lost = fmt.Errorf("cookie: %w", backend.ErrSessionReplaced)
					return batch, err
				}}
			}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Query(t.Context(), "SELECT SCRIPT")
			require.ErrorIs(t, err, backend.ErrSessionReplaced)
			require.Equal(t, 1, closed)
			_ = r.handle.Close()
		})
	})
	t.Run("too late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			r := newRig(t, &fakeConn{mem: mem})
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			_, err := r.handle.QueryWithOptions(ctx, "SELECT SLOW 100ms", QueryOptions{NoCancel: true})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			must(t, r.handle.Ping(t.Context()))
			must(t, r.handle.Close())
			r.reused()
			r.clean()
		})
	})
}

// lentReader is a reader that notes whether it is read when nobody holds it.
type lentReader struct {
	array.RecordReader
	refs    atomic.Int32
	misused atomic.Bool
	used    atomic.Int32
}

func (r *lentReader) Schema() *arrow.Schema { return nil }
func (r *lentReader) Err() error            { return nil }
func (r *lentReader) Retain()               { r.refs.Add(1) }
func (r *lentReader) Release()              { r.refs.Add(-1) }
func (r *lentReader) Next() bool {
	time.Sleep(100 * ms)
	r.used.Add(1)
	if r.refs.Load() <= 0 {
		r.misused.Store(true)
	}
	return false
}

// Rows of an Ingest that its caller has left are held until nothing reads them.
func TestTheRowsOfAnIngestAreHeldWhileTheyAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		rows := &lentReader{}
		rows.refs.Store(1)
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.handle.Ingest(ctx, "t", rows, backend.IngestOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		rows.Release()
		time.Sleep(time.Minute)
		require.False(t, rows.misused.Load())
		require.EqualValues(t, 1, rows.used.Load())
		require.Zero(t, rows.refs.Load())
		_ = r.handle.Close()
	})
}

// A way of the server's that is about to stop the statement is asked again until
// its time is over, and what it did counts as a request.
func TestAWayThatNeverConfirmsIsAskedForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &orderConn{fakeConn: &fakeConn{ignoresCancel: true}, order: &backend.StatementOrder{}, sideBySide: true}
		conn.order.SetConcurrent()
		asked := 0
		conn.steps = func(*backend.Operation) []cancel.Step {
			return []cancel.Step{{Name: "CancelFlightInfo", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
				asked++
				return cancel.Requested, nil
			}}}
		}
		r := newRig(t, conn.fakeConn)
		report := conn.deadline(t, r)
		synctest.Wait()
		require.False(t, report.Confirmed)
		require.InDelta(t, float64(time.Second/cancelRetryPause), asked, 1)
		require.Equal(t, cancel.Requested, report.Steps[0].Outcome)
		require.NoError(t, report.Steps[0].Err)
		require.ErrorContains(t, r.discarded(), "may still run")
	})
}

// What a server says of itself without a reason is told as it is.
func TestAFailureWithoutAReasonIsToldToo(t *testing.T) {
	conn := &fakeConn{fail: map[string]error{"SELECT 1": &backend.Error{Fault: backend.FaultUnknown}, "Metadata": &backend.Error{Fault: backend.FaultStatement}}}
	err := CheckSession(t.Context(), conn, "SELECT 1")
	require.ErrorContains(t, err, "no session that works")
	require.NotContains(t, err.Error(), "%!")
}

// A reader's query has one row, whose columns have one value each.
func TestWhatAReaderReadsIsOneRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n, ok := range map[int]bool{0: false, 1: true, 2: false} {
			conn := &scriptConn{fakeConn: &fakeConn{}}
			conn.script = func(context.Context, backend.Call) *scriptStream {
				return &scriptStream{next: func(i int) (arrow.RecordBatch, error) {
					if i > 1 {
						return nil, io.EOF
					}
					return numbers(n), nil
				}}
			}
			r := newRig(t, conn.fakeConn)
			s := New(conn, r.policy, r.returned)
			row, err := s.runStateQuery(t.Context(), stateQuery{key: "k", subject: "what", sql: "SELECT SCRIPT"}, backend.Call{})
			require.Equal(t, ok, err == nil, "%d rows: %v", n, err)
			require.Equal(t, ok, len(row) == 1)
			require.Equal(t, ok, r.policy.answeredQueries.has("k"))
		}
	})
}

// A server may answer with any columns. What reads them counts on those of the query.
func TestWhatAReaderReadsHasItsColumns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, r := range []stateQuery{{key: "k", sql: "SELECT SCRIPT"}, {key: "k", sql: "SELECT SCRIPT", columns: 2}} {
			for n := range 4 {
				conn := &scriptConn{fakeConn: &fakeConn{}}
				one := numbers(1)
				batch := array.NewRecordBatch(arrow.NewSchema(slices.Repeat(one.Schema().Fields(), n), nil), slices.Repeat(one.Columns(), n), 1)
				conn.script = func(context.Context, backend.Call) *scriptStream {
					return &scriptStream{next: func(i int) (arrow.RecordBatch, error) {
						if i > 1 {
							return nil, io.EOF
						}
						return batch, nil
					}}
				}
				rig := newRig(t, conn.fakeConn)
				row, err := New(conn, rig.policy, rig.returned).runStateQuery(t.Context(), r, backend.Call{})
				require.Equal(t, n >= max(1, r.columns), err == nil, "%d columns: %v", n, err)
				require.Len(t, row, map[bool]int{true: n}[err == nil])
				require.Equal(t, err == nil, rig.policy.answeredQueries.has("k"))
			}
		}
	})
}

func TestWhatIsKeptAboutAServerIsBounded(t *testing.T) {
	var set textSet
	for i := range maxTexts + 10 {
		set.add(fmt.Sprint(i))
	}
	require.Len(t, set.set, maxTexts)
	require.True(t, set.has(fmt.Sprint(maxTexts-1)))
	require.False(t, set.has(fmt.Sprint(maxTexts)))
}

// To prepare a statement runs nothing, and a prepared one runs in no aborted
// transaction.
func TestAPreparedStatementLeavesNothingUntilItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		_, err := r.handle.PrepareQueryWithOptions(t.Context(), "SELECT 1", QueryOptions{Route: RouteUpdate + 1})
		require.Equal(t, backend.FaultUsage, backend.FaultIn(err), "%v", err)
		_, err = r.handle.PrepareQuery(t.Context(), "SET threads = 1")
		must(t, err)
		q, err := r.handle.PrepareQuery(t.Context(), "SELECT 2")
		must(t, err)
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err = r.handle.Update(t.Context(), "INSERT bad")
		require.Error(t, err)
		sent := len(c.Log())
		_, err = q.Query(t.Context())
		require.ErrorIs(t, err, backend.ErrTxAborted)
		_, err = q.Update(t.Context())
		require.ErrorIs(t, err, backend.ErrTxAborted)
		require.Len(t, c.Log(), sent)
		must(t, r.handle.Rollback(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}

// reusedContext is a context that belongs to another request once it is over.
type reusedContext struct {
	context.Context
	over atomic.Bool
	err  func() error // by then
}

func (c *reusedContext) Err() error {
	if c.over.Load() {
		return c.err()
	}
	return c.Context.Err()
}

// The end of a context is heard on a goroutine of ours, when it may be another request's already: what it says
// by then neither ends the process nor makes a success of rows that are cut.
func TestAContextThatEndsWhenItIsAnothersCutsItsRowsAllTheSame(t *testing.T) {
	for name, says := range map[string]func(answer chan error) error{
		"nothing":  func(chan error) error { return nil },
		"a panic":  func(chan error) error { panic("another's") },
		"no more":  func(chan error) error { runtime.Goexit(); return nil },
		"too late": func(answer chan error) error { return <-answer },
	} {
		for _, inTx := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{pace: time.Hour})
				if inTx {
					must(t, r.handle.BeginTransaction(t.Context()))
				}
				request, end := context.WithCancel(t.Context())
				answer := make(chan error)
				defer close(answer)
				ctx := &reusedContext{Context: request, err: func() error { return says(answer) }}
				res, err := r.handle.Query(ctx, "SELECT 3")
				must(t, err)
				ctx.over.Store(true)
				end()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.False(t, res.Next(), name)
				require.ErrorIs(t, res.Err(), context.Canceled, name)
				require.Len(t, r.chains(), 1, name)
				if inTx {
					require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted, name)
				}
				res.Release()
				must(t, r.handle.Close())
				r.clean(name)
			})
		}
	}
}
