package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// listener is a Tracer that keeps what it is told.
type listener struct {
	mu   sync.Mutex
	told []string
	ends []Outcome
}

type listenerKey struct{}

func (l *listener) started(ctx context.Context, what string) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, "start "+what)
	return context.WithValue(ctx, listenerKey{}, what)
}

func (l *listener) ended(ctx context.Context, what string, with ...Outcome) {
	if ctx.Value(listenerKey{}) != what {
		what += " on another context"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told, l.ends = append(l.told, "end "+what), append(l.ends, with...)
}

func textOfQuery(d QueryStartData) string {
	return fmt.Sprintf("%s %s %d: %s", d.Op, d.Target, d.ConnectionID, d.SQL)
}

func textOfIngestion(d IngestStartData) string {
	return fmt.Sprintf("ingestion %s %d: %s", d.Target, d.ConnectionID, d.Table)
}

func textOfBatch(d BatchStartData) string {
	return fmt.Sprintf("batch %s %d: %d", d.Target, d.ConnectionID, d.Len)
}

func (l *listener) TraceQueryStart(ctx context.Context, d QueryStartData) context.Context {
	return l.started(ctx, textOfQuery(d))
}

func (l *listener) TraceQueryEnd(ctx context.Context, d QueryEndData) {
	l.ended(ctx, textOfQuery(d.QueryStartData), d.Outcome)
}

func (l *listener) TraceIngestStart(ctx context.Context, d IngestStartData) context.Context {
	return l.started(ctx, textOfIngestion(d))
}

func (l *listener) TraceIngestEnd(ctx context.Context, d IngestEndData) {
	l.ended(ctx, textOfIngestion(d.IngestStartData), d.Outcome)
}

func (l *listener) TraceBatchStart(ctx context.Context, d BatchStartData) context.Context {
	return l.started(ctx, textOfBatch(d))
}

func (l *listener) TraceBatchEnd(ctx context.Context, d BatchEndData) {
	l.ended(ctx, textOfBatch(d.BatchStartData), Outcome{Took: d.Took, Err: d.Err})
}

func (l *listener) TraceCancelStart(ctx context.Context, d CancelStartData) context.Context {
	return l.started(ctx, "cancel of "+d.Op+" "+d.Target)
}

func (l *listener) TraceCancelEnd(ctx context.Context, d CancelEndData) {
	l.ended(ctx, fmt.Sprintf("cancel of %s %s", d.Op, d.Target))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, fmt.Sprintf("cancelled %v safe %v", d.Report.Confirmed, d.Report.Safe()))
}

func (l *listener) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.told)
}

func (l *listener) outcomes() []Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ends)
}

func (l *listener) last() Outcome {
	ends := l.outcomes()
	return ends[len(ends)-1]
}

func (l *listener) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told, l.ends = nil, nil
}

// traced is a rig with a handle that the listener knows as 7.
func traced(t *testing.T, conn *fakeConn) (*rig, *listener) {
	r, l := newRig(t, conn), &listener{}
	r.policy.Tracer = l
	r.handle = NewWithID(conn, 7, r.policy, r.returned)
	return r, l
}

func readAll(res *QueryResult, err error) error {
	if err != nil {
		return err
	}
	for res.Next() {
		continue
	}
	return res.Close()
}

func TestATracerSeesEveryCallOnceWithItsOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		conn *fakeConn
		call func(ctx context.Context, s *SessionHandle) error
		told []string
		end  Outcome
		err  string // of the call; its tracer is told the same
	}{
		"rows": {
			call: func(ctx context.Context, s *SessionHandle) error { return readAll(s.Query(ctx, "SELECT 3")) },
			told: []string{"start Query fake:1 7: SELECT 3", "end Query fake:1 7: SELECT 3"},
			end:  Outcome{Took: 4 * time.Second, FirstBatch: time.Second, Batches: 3, Rows: 3, Bytes: 36, RowsAffected: -1},
		},
		"rows that are not all read": {
			call: func(ctx context.Context, s *SessionHandle) error {
				res, err := s.Query(ctx, "SELECT 3")
				if err == nil {
					res.Next()
					res.Next()
					res.Release()
				}
				return err
			},
			told: []string{"start Query fake:1 7: SELECT 3", "end Query fake:1 7: SELECT 3", "start cancel of Query fake:1", "end cancel of Query fake:1", "cancelled true safe true"},
			end:  Outcome{Took: 2100 * time.Millisecond, FirstBatch: time.Second, Batches: 2, Rows: 2, Bytes: 24, RowsAffected: -1},
		},
		"a change": {
			conn: &fakeConn{work: map[string]time.Duration{"INSERT 1": 2 * time.Second}},
			call: func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, "INSERT 1"); return err },
			told: []string{"start Update fake:1 7: INSERT 1", "end Update fake:1 7: INSERT 1"},
			end:  Outcome{Took: 2 * time.Second, RowsAffected: 1},
		},
		"a change that fails": {
			call: func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, "BAD 1"); return err },
			told: []string{"start Update fake:1 7: BAD 1", "end Update fake:1 7: BAD 1"},
			end:  Outcome{RowsAffected: -1},
			err:  "Parser Error: bad statement",
		},
		"a result that fails": {
			conn: &fakeConn{fail: map[string]error{"stream": transportError()}},
			call: func(ctx context.Context, s *SessionHandle) error { return readAll(s.Query(ctx, "SELECT 3")) },
			told: []string{"start Query fake:1 7: SELECT 3", "end Query fake:1 7: SELECT 3"},
			end:  Outcome{Took: 3 * time.Second, FirstBatch: time.Second, Batches: 2, Rows: 2, Bytes: 24, RowsAffected: -1},
			err:  "connection reset",
		},
		"an ingestion": {
			conn: &fakeConn{work: map[string]time.Duration{" ingest t": time.Second}},
			call: func(ctx context.Context, s *SessionHandle) error {
				_, err := s.Ingest(ctx, "t", tenRows(t), backend.IngestOptions{})
				return err
			},
			told: []string{"start ingestion fake:1 7: t", "end ingestion fake:1 7: t"},
			end:  Outcome{Took: time.Second, RowsAffected: 10},
		},
		"a transaction": {
			call: func(ctx context.Context, s *SessionHandle) error {
				return errors.Join(s.BeginTransaction(ctx), s.Commit(ctx))
			},
			told: []string{"start BeginTransaction fake:1 7: ", "end BeginTransaction fake:1 7: ", "start Commit fake:1 7: ", "end Commit fake:1 7: "},
			end:  Outcome{RowsAffected: -1},
		},
		"refused by the session": {
			call: func(ctx context.Context, s *SessionHandle) error { return s.Commit(ctx) },
			told: []string{"start Commit fake:1 7: ", "end Commit fake:1 7: "},
			end:  Outcome{RowsAffected: -1},
			err:  ErrNoTx.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.conn == nil {
					c.conn = &fakeConn{}
				}
				c.conn.pace = time.Second
				r, l := traced(t, c.conn)
				err := c.call(t.Context(), r.handle)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.ElementsMatch(t, c.told, l.heard()) // a cancel may begin before the end was told
				got := l.last()
				if c.err == "" {
					require.NoError(t, err)
					require.NoError(t, got.Err)
				} else {
					require.ErrorContains(t, err, c.err)
					require.Equal(t, err, got.Err)
				}
				got.Err = nil
				require.Equal(t, c.end, got)
			})
		})
	}
}

func tenRows(t *testing.T) array.RecordReader {
	t.Helper()
	b := array.NewInt64Builder(new(fakeConn).allocator())
	defer b.Release()
	for range 10 {
		b.Append(1)
	}
	column := b.NewArray()
	defer column.Release()
	batch := array.NewRecordBatch(fakeSchema, []arrow.Array{column}, 10)
	defer batch.Release()
	rows, err := array.NewRecordReader(fakeSchema, []arrow.RecordBatch{batch})
	require.NoError(t, err)
	t.Cleanup(rows.Release)
	return rows
}

func TestATracerIsToldOfACancelAndOfItsCallerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := traced(t, &fakeConn{ignoresCancel: true})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := r.handle.Query(ctx, "SELECT SLOW 2s")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.Equal(t, Outcome{Took: l.outcomes()[0].Took, RowsAffected: -1, Err: err}, l.outcomes()[0], "it waits for nothing behind the caller")
		require.Less(t, l.outcomes()[0].Took, 2*time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		call, chain := "Query fake:1 7: SELECT SLOW 2s", "cancel of Query fake:1"
		require.ElementsMatch(t, []string{"start " + call, "end " + call, "start " + chain, "end " + chain, "cancelled true safe true"}, l.heard())
	})
}

func TestALeftCallEndsForItsTracerOnce(t *testing.T) {
	for name, opts := range map[string]QueryOptions{
		"left to its end": {NoCancel: true},
		"cancelled":       {Progress: func(float64, bool) {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, l := traced(t, &fakeConn{})
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				_, err := r.handle.UpdateWithOptions(ctx, "INSERT SLOW 9s", opts)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, err, l.outcomes()[0].Err)
				require.Equal(t, int64(-1), l.outcomes()[0].RowsAffected)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Len(t, l.outcomes(), 1)
			})
		})
	}
}

// The RPCs of a call, and of its cancel, run with the values of its tracer.
func TestRPCsHaveTheValuesOfTheTracer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []any
		conn := &fakeConn{ignoresCancel: true}
		conn.steps = func(*backend.Operation) []cancel.Step {
			return []cancel.Step{{Name: "ask", Do: func(ctx context.Context) (cancel.Outcome, error) {
				seen = append(seen, ctx.Value(listenerKey{}))
				return cancel.Confirmed, nil
			}}}
		}
		r, _ := traced(t, conn)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := r.handle.Query(ctx, "SELECT SLOW 2s")
		require.Error(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []any{"cancel of Query fake:1"}, seen)
	})
}

func TestTheTraceOfAPoolsCallIsItsOwnToEndWithoutAResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for sql, ended := range map[string]bool{"SELECT 2": true, "SELECT bad": false} {
			r, l := traced(t, &fakeConn{})
			ctx, trace := StartTrace(t.Context(), l, "Query", "pool:1", sql)
			began := trace.Now()
			require.Equal(t, time.Now(), began)
			time.Sleep(2 * time.Second)
			trace.Waited(began)
			trace.Retried()
			err := readAll(NewTraced(r.conn, r.policy, PoolCall{Trace: trace}, r.returned).Query(ctx, sql))
			require.Equal(t, !ended, err != nil)
			require.Equal(t, ended, len(l.outcomes()) == 1)
			trace.End(err)
			require.Equal(t, []string{"start Query pool:1 0: " + sql, "end Query pool:1 0: " + sql}, l.heard(), "the session tells of no call of its own")
			require.Equal(t, []any{2 * time.Second, 1, err}, []any{l.outcomes()[0].Wait, l.outcomes()[0].Retries, l.outcomes()[0].Err})
		}
	})
}

// A pool tells of the end of its call when it has told its caller, and may make the call again: what becomes behind the caller
// of the one that was left does not end it, nor do its rows count.
func TestTheTraceOfAPoolsCallDoesNotEndBehindItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := traced(t, &fakeConn{})
		ctx, trace := StartTrace(t.Context(), l, "Update", "pool:1", "INSERT SLOW 9s")
		ctx, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_, err := NewTraced(r.conn, r.policy, PoolCall{Trace: trace}, r.returned).UpdateWithOptions(ctx, "INSERT SLOW 9s", QueryOptions{NoCancel: true})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute) // the statement has ended well
		r.reused()
		require.Empty(t, l.outcomes())
		trace.End(err)
		require.Equal(t, []Outcome{{Took: time.Minute + time.Second, RowsAffected: -1, Err: err}}, l.outcomes())
	})
}

// Nor does a handle that is over before the call begins.
func TestTheTraceOfAPoolsCallDoesNotEndWithItsHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := traced(t, &fakeConn{})
		ctx, trace := StartTrace(t.Context(), l, "Query", "pool:1", "SELECT 1")
		s := NewTraced(r.conn, r.policy, PoolCall{Trace: trace}, r.returned)
		must(t, s.Close())
		_, err := s.Query(ctx, "SELECT 1")
		require.ErrorIs(t, err, backend.ErrHandleClosed)
		require.Empty(t, l.outcomes())
		trace.End(nil)
		require.NoError(t, l.last().Err)
	})
}

// What a reader was told is what its tracer is told, also where the rest of the rows comes well behind it.
func TestAResultThatItsReaderHasLeftEndsForItsTracerAsForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := traced(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		res, err := r.handle.QueryWithOptions(ctx, "SELECT 3", QueryOptions{NoCancel: true})
		must(t, err)
		require.True(t, res.Next())
		time.Sleep(time.Minute)
		require.False(t, res.Next())
		require.ErrorIs(t, res.Err(), context.DeadlineExceeded)
		require.Len(t, l.outcomes(), 1)
		require.Equal(t, res.Err(), l.last().Err)
		res.Release()
		must(t, r.handle.Close())
		r.reused()
	})
}

// lateLeaver is a context that ends the goroutine of a caller who leaves a call, when it is asked how it has ended.
type lateLeaver struct{ context.Context }

func (c lateLeaver) Err() error {
	if c.Context.Err() != nil && strings.Contains(string(debug.Stack()), "callerLeftError") {
		runtime.Goexit()
	}
	return c.Context.Err()
}

func TestALeftCallEndsForItsTracerWhereTheCallersContextEndsTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := traced(t, &fakeConn{work: map[string]time.Duration{"Begin": time.Hour}})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		go func() { _ = r.handle.BeginTransaction(lateLeaver{ctx}) }()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, l.outcomes(), 1)
		require.ErrorIs(t, l.outcomes()[0].Err, errCallbackExited)
		time.Sleep(2 * time.Hour)
		_ = r.handle.Close()
	})
}

func TestATraceIsNothingWithoutATracer(t *testing.T) {
	ctx, trace := StartTrace(t.Context(), nil, "Query", "pool:1", "SELECT 1")
	require.Equal(t, t.Context(), ctx)
	require.Nil(t, trace)
	require.Zero(t, trace.Now())
	trace.Waited(time.Now())
	trace.Retried()
	trace.answered()
	trace.affected(1, true)
	trace.delivered(nil)
	trace.End(nil)
}

// What finds the session over is no call where it is quiet, as the calls are that a pool or
// driver makes by itself.
func TestQuietCallsOfAnEndedSessionAreNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(*rig){
			"open":   func(*rig) {},
			"closed": func(r *rig) { require.NoError(t, r.handle.Close()) },
			"lost":   func(r *rig) { _, _ = r.handle.Update(t.Context(), "LOSE") },
			"being closed, behind a call": func(r *rig) {
				go func() { _, _ = r.handle.UpdateWithOptions(t.Context(), "INSERT SLOW 1s", QueryOptions{NoCancel: true}) }()
				synctest.Wait()
				require.NoError(t, r.handle.Close())
			},
			"being cleaned": func(r *rig) {
				must(t, r.handle.BeginTransaction(t.Context()))
				go func() { _ = r.handle.Close() }()
				synctest.Wait()
			},
		} {
			r, l := traced(t, &fakeConn{fail: map[string]error{"LOSE": transportError()}, work: map[string]time.Duration{"Rollback": time.Second}})
			end(r)
			l.forget()
			_, err := r.handle.begin(t.Context(), "Rollback", QueryOptions{quiet: true}, finishWithinBudget)
			require.Equal(t, name == "open", err == nil)
			require.Equal(t, name == "open", len(l.heard()) > 0, "%s: %s", name, l.heard())
			_, err = r.handle.begin(t.Context(), "Rollback", QueryOptions{backgroundRollback: true}, finishWithinBudget)
			require.Error(t, err, "%s: it is busy, or over", name)
			require.LessOrEqual(t, len(l.heard()), 1)
			time.Sleep(time.Minute)
		}
	})
}

// That there was nothing to roll back is no failure of a call that is made to be sure, as the deferred one of a transaction.
func TestAQuietCallWithNothingToDoHasNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := traced(t, &fakeConn{fail: map[string]error{}})
		must(t, r.handle.RollbackOpen(t.Context()))
		require.NoError(t, l.last().Err)
		require.ErrorIs(t, r.handle.Rollback(t.Context()), ErrNoTx)
		require.ErrorIs(t, l.last().Err, ErrNoTx, "who asks for a rollback is told")
		no := sqlError("not now")
		must(t, r.handle.BeginTransaction(t.Context()))
		r.conn.failOnce = map[string][]error{"Rollback": {no, no, no}}
		err := r.handle.RollbackOpen(t.Context())
		require.Error(t, err)
		require.Equal(t, err, l.last().Err, "nor is what failed")
		_ = r.handle.Close()
	})
}

func TestATracerSeesABatchAroundItsStatements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := traced(t, &fakeConn{work: map[string]time.Duration{"INSERT 1": time.Second}})
		b := &Batch{}
		b.Queue("INSERT 1")
		b.Queue("BAD 2")
		err := r.handle.SendBatch(t.Context(), b)
		require.Error(t, err)
		require.Equal(t, []string{"start batch fake:1 7: 2", "start SendBatch fake:1 7: INSERT 1", "end SendBatch fake:1 7: INSERT 1",
			"start SendBatch fake:1 7: BAD 2", "end SendBatch fake:1 7: BAD 2", "end batch fake:1 7: 2"}, l.heard())
		require.Equal(t, Outcome{Took: time.Second, Err: err}, l.outcomes()[2])
	})
}

// leaver is a context whose end is asked for by a goroutine that ends there.
type leaver struct{ context.Context }

func (leaver) Done() <-chan struct{} { runtime.Goexit(); return nil }

func TestACallEndsForItsTracerWhereTheCallersContextEndsTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := traced(t, &fakeConn{})
		go func() { _, _ = r.handle.Update(leaver{t.Context()}, "INSERT 1") }()
		synctest.Wait()
		require.Len(t, l.outcomes(), 1)
		require.ErrorIs(t, l.outcomes()[0].Err, errCallbackExited)
	})
}

func TestAQueryPrintsWithoutValues(t *testing.T) {
	d := QueryStartData{Op: "Query", Target: "fake:1", SQL: "SELECT 'secret' FROM t"}
	const want = "Query fake:1 SELECT t"
	require.Equal(t, want, d.String())
	for _, verb := range []string{"%v", "%+v", "%s", "%q", "%#v", "%x"} {
		require.NotContains(t, fmt.Sprintf(verb, d), "secret", verb)
	}
	require.Equal(t, want, fmt.Sprint(d))
	require.Equal(t, slog.StringValue(want), d.LogValue())
	text, err := json.Marshal(d)
	require.NoError(t, err)
	require.JSONEq(t, `"`+want+`"`, string(text))
}

// borrowedContext is that of a request, whose values must not be asked for when the request is over.
type borrowedContext struct {
	context.Context
	over  atomic.Bool
	asked atomic.Int64 // for a borrowedKey by then
	end   func()       // of who asks by then
}

type borrowedKey struct{}

func (c *borrowedContext) Value(key any) any {
	if c.over.Load() {
		if key == (borrowedKey{}) {
			c.asked.Add(1)
		}
		c.end()
	}
	return c.Context.Value(key)
}

// The cancel of rows that were left runs behind its caller, and a tracer of anything has its own sent with the caller's values.
func TestACancelIsSentWhateverItsCallersContextHasOfValues(t *testing.T) {
	for name, end := range map[string]func(answer chan struct{}){
		"a panic": func(chan struct{}) { panic("the request is over") },
		"no more": func(chan struct{}) { runtime.Goexit() },
		"nothing": func(answer chan struct{}) { <-answer },
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Bool
			conn := &fakeConn{pace: time.Hour}
			conn.steps = func(*backend.Operation) []cancel.Step {
				return []cancel.Step{{Name: "ask", Do: func(ctx context.Context) (cancel.Outcome, error) {
					for range 3 {
						_ = ctx.Value(borrowedKey{}) // as gRPC asks for metadata
					}
					asked.Store(true)
					return cancel.Confirmed, nil
				}}}
			}
			r, l := traced(t, conn)
			var running atomic.Int64 // for which the pool's Close waits
			r.policy.Go = func(f func()) {
				running.Add(1)
				go func() { defer running.Add(-1); f() }()
			}
			answer := make(chan struct{})
			defer close(answer)
			ctx := &borrowedContext{Context: t.Context(), end: func() { end(answer) }}
			res, err := r.handle.Query(ctx, "SELECT 3")
			must(t, err)
			ctx.over.Store(true)
			res.Release()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.True(t, asked.Load(), "%s: %v", name, r.chains())
			require.Contains(t, l.heard(), "end cancel of Query fake:1", name)
			require.EqualValues(t, 1, ctx.asked.Load(), "%s, and not again", name)
			require.Zero(t, running.Load(), name)
			must(t, r.handle.Close())
			r.clean(name)
		})
	}
}
