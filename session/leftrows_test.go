package session

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// closeCounter is a prepared statement that counts its closing, also on a connection that is lost.
type closeCounter struct {
	*fakePrepared
	closed *int
}

func (p closeCounter) Close(ctx context.Context) error {
	*p.closed++
	return p.fakePrepared.Close(ctx)
}

// The prepared statement of a call is closed behind it where the session is free for that: behind a failure that leaves open
// what the server does, with the session, and on a lost connection never.
func TestTheStatementOfACallIsClosedOnceItsSessionIsFree(t *testing.T) {
	for name, tc := range map[string]struct {
		failure       error
		cut           bool
		behind, after int // how often it was closed behind the call, and with the session
	}{
		"it succeeds":         {nil, false, 1, 1},
		"a refusal":           {sqlError("no"), false, 1, 1},
		"a limit":             {answered(backend.FaultLimit, backend.StageExecute, codes.ResourceExhausted, "busy"), false, 0, 1},
		"it may run on":       {&backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Running: true, Err: errors.New("gone")}, false, 0, 1},
		"the connection goes": {sqlError("no"), true, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{failOnce: map[string][]error{"INSERT 1": {tc.failure}}}
			closed := 0
			conn.prepared = func(p *fakePrepared) backend.Prepared { return closeCounter{p, &closed} }
			if tc.cut {
				conn.useParams = conn.cut
			}
			r := newRig(t, conn)
			_, err := r.handle.Update(t.Context(), "INSERT 1", 7)
			require.Equal(t, tc.failure != nil, err != nil, name)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, tc.behind, closed, name)
			_ = r.handle.Close()
			require.Equal(t, tc.after, closed, name)
		})
	}
}

// resultOf is a result in a call of the mode, of a statement that does what text says, with the rows of "SELECT n".
func (r *rig) resultOf(ctx context.Context, mode callMode, text, sql string) *QueryResult {
	r.t.Helper()
	c, err := r.handle.begin(ctx, "Query", QueryOptions{}, mode)
	must(r.t, err)
	must(r.t, r.handle.checkStatement(c, sqlscan.Parse(text)))
	res, err := r.handle.openResult(c, func(ctx context.Context) (backend.Stream, error) { return r.conn.Query(ctx, sql, c.backendCall) })
	must(r.t, err)
	return res
}

// Rows that nobody reads are read on for as long as their call allows: those of a statement that is cut after the budget only
// for that, when its context has ended, and no longer than others where their reader has let them go.
func TestHowLongRowsAreReadOnIsWhatTheirCallAllows(t *testing.T) {
	const change, read = "DELETE FROM t RETURNING 1", "SELECT 1"
	for name, tc := range map[string]struct {
		mode     callMode
		text     string
		released bool // by its reader, else its context has ended
		cut      time.Duration
	}{
		"a read that is let go":                        {cancelWhenLeft, read, true, drainTime},
		"a read that is cut at once":                   {cancelWhenLeft, read, false, 0},
		"a read that is let go, and has time to end":   {cancelAfterBudget, read, true, drainTime},
		"a read that has time to end":                  {cancelAfterBudget, read, false, 5 * time.Second},
		"a change that has time to end":                {cancelAfterBudget, change, false, 5 * time.Second},
		"a change that is let go":                      {cancelWhenLeft, change, true, -1},
		"a change that is let go, and has time to end": {cancelAfterBudget, change, true, -1},
		"a read that is left to its end":               {finishWhenLeft, read, false, -1},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{pace: 10 * ms})
			cut := time.Duration(-1)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			res := r.resultOf(ctx, tc.mode, tc.text, "SELECT 1000") // 10 s
			start := time.Now()
			r.handle.mu.Lock()
			rpc := r.handle.mu.call.rpc
			r.handle.mu.Unlock()
			context.AfterFunc(rpc, func() { cut = time.Since(start) })
			if tc.released {
				res.Release()
			} else {
				stop()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if tc.cut < 0 {
				require.GreaterOrEqual(t, cut, 9*time.Second, name)
				require.Empty(t, r.chains(), name)
			} else {
				require.Equal(t, tc.cut, cut, name)
				require.Len(t, r.chains(), 1, name)
			}
			res.Release()
			r.conn.pace = 0
			_ = r.handle.Close()
		})
	}
}

// Of rows that come to a caller who has left no more than a little is read, however fast they come.
func TestRowsThatComeTooLateAreNotAllRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &scriptConn{fakeConn: &fakeConn{}}
		stream := &scriptStream{next: func(n int) (arrow.RecordBatch, error) {
			time.Sleep(10 * ms) // whatever becomes of the context
			if n > 100 {
				return nil, io.EOF
			}
			return numbers(1 << 15), nil
		}}
		conn.script = func(context.Context, backend.Call) *scriptStream { time.Sleep(50 * ms); return stream }
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.handle.QueryWithOptions(ctx, "SELECT SCRIPT", QueryOptions{Progress: func(float64, bool) {}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1+drainBytes/(8<<15)+1, stream.asked)
		must(t, r.handle.Close())
	})
}

// namingConn names its operations, or not, and does not answer.
type namingConn struct {
	*fakeConn
	names bool
}

func (c *namingConn) wait(ctx context.Context, call backend.Call) error {
	if c.names {
		call.Op.SetName("1")
	}
	return c.use(ctx, "wait", time.Hour)
}

func (c *namingConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	if sql == "SELECT 1" {
		return c.fakeConn.Query(ctx, sql, call)
	}
	return nil, c.wait(ctx, call)
}

func (c *namingConn) Update(ctx context.Context, _ string, call backend.Call) (int64, error) {
	return 0, c.wait(ctx, call)
}

// Who leaves a call is told how far it had come: rows were being awaited where the server had named its operation, and the
// statement has rows.
func TestWhoLeavesACallIsToldHowFarItHadCome(t *testing.T) {
	query := func(ctx context.Context, s *SessionHandle) error {
		_, err := s.QueryWithOptions(ctx, "SELECT 2", QueryOptions{ownGoroutine: true})
		return err
	}
	update := func(ctx context.Context, s *SessionHandle) error {
		_, err := s.UpdateWithOptions(ctx, "INSERT 1", QueryOptions{ownGoroutine: true})
		return err
	}
	for name, tc := range map[string]struct {
		names bool
		call  func(ctx context.Context, s *SessionHandle) error
		stage backend.Stage
	}{
		"a query that has a name":   {true, query, backend.StageFetch},
		"a query that has none yet": {false, query, backend.StageExecute},
		"an update with a name":     {true, update, backend.StageExecute},
		"an update without":         {false, update, backend.StageExecute},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &namingConn{&fakeConn{}, tc.names}
			r := newRig(t, conn.fakeConn)
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			var e *backend.Error
			require.ErrorAs(t, tc.call(ctx, New(conn, r.policy, r.returned)), &e, name)
			require.Equal(t, tc.stage, e.Stage, name)
			time.Sleep(time.Minute)
			synctest.Wait()
		})
	}
}

// A read that panics ends its result for good: who releases it on the way out finds out what has ended it. Its RPC has ended
// before its stream is closed, which may wait for that.
func TestAReadThatPanicsEndsItsResult(t *testing.T) {
	for name, opts := range map[string]QueryOptions{"cut": {}, "left to its end": {NoCancel: true}} {
		synctest.Test(t, func(t *testing.T) {
			conn := &scriptConn{fakeConn: &fakeConn{}}
			var ended []bool
			conn.script = func(ctx context.Context, _ backend.Call) *scriptStream {
				return &scriptStream{
					next: func(n int) (arrow.RecordBatch, error) {
						if n > 1 {
							panic("the allocator's")
						}
						return numbers(1), nil
					},
					closed: func() { ended = append(ended, ctx.Err() != nil) },
				}
			}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			res, err := r.handle.QueryWithOptions(t.Context(), "SELECT SCRIPT", opts)
			must(t, err)
			require.PanicsWithValue(t, "the allocator's", func() {
				defer res.Release()
				for res.Next() {
				}
			}, name)
			require.ErrorIs(t, res.Err(), errCallbackExited, name)
			require.Equal(t, []bool{true}, ended, name)
			time.Sleep(time.Minute)
			synctest.Wait()
			must(t, r.handle.Close())
		})
	}
}

// Who was told that a context has ended its rows was told a failure, although they are read to their end behind it: the
// transaction is not committed as if nothing had been.
func TestATransactionWhoseRowsWereLeftIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		must(t, r.handle.BeginTransaction(t.Context()))
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		res, err := r.handle.QueryWithOptions(ctx, "SELECT 3", QueryOptions{NoCancel: true})
		must(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, res.Err(), context.DeadlineExceeded)
		require.Empty(t, r.chains())
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted)
		res.Release()
		must(t, r.handle.Close())
		r.reused()
	})
}

// A Release beside a read, which another goroutine must not make, ends it all the same, for good: who reads on is told.
func TestAReleaseBesideAReadEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{pace: time.Hour})
		l := &listener{}
		r.policy.Tracer = l
		ctx := &staleContext{Context: t.Context()}
		r.conn.pace = 0
		res, err := r.handle.Query(ctx, "SELECT 3")
		must(t, err)
		require.True(t, res.Next())
		r.conn.pace = time.Hour
		start := time.Now()
		read := make(chan any)
		go func() {
			defer func() { read <- recover() }()
			for res.Next() {
			}
		}()
		synctest.Wait()
		ctx.over.Store(true) // it must not be asked any more
		res.Release()
		require.Equal(t, "the caller's", <-read)
		require.Zero(t, time.Since(start), "the read goes on")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, l.outcomes()[0].Err, errCallbackExited, "what has ended the call is told")
		_ = r.handle.Close()
	})
	synctest.Test(t, func(t *testing.T) {
		r, stream := scriptRig(t, 0, 10, io.EOF)
		res, err := r.handle.Query(t.Context(), "SELECT SCRIPT")
		must(t, err)
		require.True(t, res.Next())
		hold := make(chan struct{})
		stream.next = func(int) (arrow.RecordBatch, error) { <-hold; return nil, errors.New("too late") } // whatever becomes of the context
		go res.Next()
		synctest.Wait()
		res.Release()
		require.NoError(t, res.Err())
		require.False(t, res.Next())
		require.ErrorIs(t, res.Err(), backend.ErrHandleClosed, "it was not read to its end")
		close(hold)
		time.Sleep(time.Minute)
		synctest.Wait()
		must(t, r.handle.Close())
	})
}

// What a result has failed with is what it says, however often it is closed or read afterwards, and a change that was closed
// well says so again.
func TestWhatAResultSaysOfItsEndIsTheSameEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := sqlError("the rows fail")
		r, _ := scriptRig(t, 0, 1, failed)
		res, err := r.handle.Query(t.Context(), "SELECT SCRIPT")
		must(t, err)
		for res.Next() {
		}
		require.ErrorContains(t, res.Close(), "the rows fail")
		require.False(t, res.Next())
		require.ErrorContains(t, res.Err(), "the rows fail")
		require.ErrorContains(t, res.Close(), "the rows fail")
		must(t, r.handle.Close())
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		res := r.change(t.Context(), "SELECT 3")
		must(t, res.Close())
		must(t, res.Close())
		require.NoError(t, res.Err())
		must(t, r.handle.Close())
	})
}

// A tracer is told how many rows a statement with a result has changed, where the server tells at its end.
func TestATracerIsToldOfTheRowsThatAResultHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stream := scriptRig(t, 0, 2, io.EOF)
		stream.affected = 7
		l := &listener{}
		r.policy.Tracer = l
		res, err := r.handle.Query(t.Context(), "SELECT SCRIPT")
		must(t, err)
		must(t, drained(res, nil))
		require.EqualValues(t, 7, l.last().RowsAffected)
		must(t, r.handle.Close())
	})
}

// commandStream is the answer to what the server takes for a command.
type commandStream struct {
	erringStream
	fields  int
	counted bool
}

func (s *commandStream) Schema() *arrow.Schema {
	return arrow.NewSchema(fakeSchema.Fields()[:s.fields], nil)
}

func (s *commandStream) RowsAffected() (int64, bool) { return 0, s.counted }

// A read is told to have lost its rows where the server counts it as a command that has none, and nowhere else.
func TestAReadHasLostItsRowsWhereItIsCountedAsACommand(t *testing.T) {
	for name, tc := range map[string]struct {
		stream commandStream
		text   string
		lost   bool
	}{
		"a command":                     {commandStream{erringStream{err: io.EOF}, 0, true}, "SELECT 1", true},
		"one that is not counted":       {commandStream{erringStream{err: io.EOF}, 0, false}, "SELECT 1", false},
		"rows, of which there are none": {commandStream{erringStream{err: io.EOF}, 1, true}, "SELECT 1", false},
		"a failure":                     {commandStream{erringStream{err: sqlError("busy")}, 0, true}, "SELECT 1", false},
		"a change":                      {commandStream{erringStream{err: io.EOF}, 0, true}, "DELETE FROM t", false},
	} {
		r := newRig(t, &fakeConn{})
		c := r.handle.newCall(t.Context(), "Query", QueryOptions{}, cancelWhenLeft)
		c.script = sqlscan.Parse(tc.text)
		_, err := c.firstBatch(&tc.stream)
		if tc.lost {
			require.ErrorIs(t, err, errRowsDropped, name)
			require.Equal(t, backend.FaultUnsupported, backend.FaultIn(err), name)
		} else {
			require.Equal(t, tc.stream.err, err, name)
		}
		c.endRPC()
	}
}

// What a server answers too late from another session is let go, with its stream.
func TestALateResultOfAnotherSessionIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &scriptConn{fakeConn: &fakeConn{}}
		closed := 0
		conn.script = func(context.Context, backend.Call) *scriptStream {
			return &scriptStream{closed: func() { closed++ }, next: func(int) (arrow.RecordBatch, error) {
				time.Sleep(time.Second)
				conn.mu.Lock()
				defer conn.mu.Unlock()
				conn.lost = backend.ErrSessionReplaced
				return numbers(1), nil
			}}
		}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		must(t, r.handle.BeginTransaction(t.Context()))
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.handle.QueryWithOptions(ctx, "SELECT SCRIPT", QueryOptions{NoCancel: true})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, closed)
		require.ErrorIs(t, r.discarded(), backend.ErrSessionReplaced)
		_ = r.handle.Close()
	})
}

// typedStream gives rows whose columns have the types of a schema of their own.
type typedStream struct {
	*scriptStream
	schema *arrow.Schema
}

func (s typedStream) Schema() *arrow.Schema { return s.schema }

// Arrow compares some types by reflection, and panics where a table is made of two that are equal, once somebody has read a
// time of one of them.
func TestATableIsOfTheTypesThatItsRowsHave(t *testing.T) {
	schema := func() *arrow.Schema {
		times := arrow.LargeListOf(&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"})
		return arrow.NewSchema([]arrow.Field{{Name: "at", Type: times, Nullable: true}}, nil)
	}
	rows, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema(), strings.NewReader(`[{"at":["2026-01-02T03:04:05Z"]}]`))
	must(t, err)
	_, err = rows.Schema().Field(0).Type.(*arrow.LargeListType).Elem().(*arrow.TimestampType).GetZone() // as who reads a time does
	must(t, err)
	r := newRig(t, &fakeConn{})
	c, err := r.handle.begin(t.Context(), "Query", QueryOptions{}, cancelWhenLeft)
	must(t, err)
	must(t, r.handle.checkStatement(c, sqlscan.Parse("SELECT 1")))
	stream := typedStream{&scriptStream{next: func(n int) (arrow.RecordBatch, error) {
		if n > 1 {
			return nil, io.EOF
		}
		return rows, nil
	}}, schema()}
	res, err := r.handle.openResult(c, func(context.Context) (backend.Stream, error) { return stream, nil })
	must(t, err)
	table, err := res.ReadAll(t.Context())
	must(t, err)
	require.EqualValues(t, 1, table.NumRows())
	table.Release()
	must(t, r.handle.Close())
}

// What only reads has rows: firstBatch relies on it.
func TestWhatOnlyReadsHasRows(t *testing.T) {
	for _, text := range []string{
		"SELECT 1", "VALUES (1)", "TABLE t", "FROM t", "PIVOT t ON a", "PIVOT_WIDER t ON a", "PIVOT_LONGER t ON a", "UNPIVOT t ON a", "SUMMARIZE t", "SHOW TABLES", "DESCRIBE t", "DESC t",
		"EXPLAIN SELECT 1", "EXISTS t", "LIST FILES", "HELP", "WITH a AS (SELECT 1) SELECT * FROM a", "(SELECT 1)", "CALL duckdb_settings()", "PRAGMA database_list", "SELECT 1; SELECT 2",
	} {
		script := sqlscan.Parse(text)
		require.True(t, script.ReadOnly(), text)
		require.Equal(t, sqlscan.RowsSome, script.Rows(), text)
	}
	for _, text := range []string{"SELECT 1 INTO t", "PRAGMA memory_limit = 1", "FORCE CHECKPOINT", "CALL p()"} {
		require.False(t, sqlscan.Parse(text).ReadOnly(), text)
	}
}
