package session

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// controlConn is a connection on which a probe beside a statement waits. How many round trips it has made, and how the
// control probe is answered, can be set.
type controlConn struct {
	*side
	trips   func() (begun, answered int64)
	control func(ctx context.Context, sql string) (backend.Stream, error)
}

func newControlConn(f *fakeConn) *controlConn {
	c := &controlConn{side: &side{orderConn: &orderConn{fakeConn: f, order: &backend.StatementOrder{}}}}
	c.beside = waits
	return c
}

// waits is a probe that waits for all of its time.
func waits(ctx context.Context, _ string, _ backend.Call) (backend.Stream, error) {
	<-ctx.Done()
	return nil, &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultContext, Err: ctx.Err()}
}

func (c *controlConn) RoundTrips() (begun, answered int64) {
	if c.trips == nil {
		return c.orderConn.RoundTrips()
	}
	return c.trips()
}

func (c *controlConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	if c.control != nil && strings.HasPrefix(sql, "SELECT '") {
		return c.control(ctx, sql)
	}
	return c.orderConn.Query(ctx, sql, call)
}

// cut runs a statement of a handle of its own that outlasts its context, and returns what came of its cancel.
func (c *controlConn) cut(t *testing.T, r *rig, sql string) cancel.Report {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 20*ms)
	defer stop()
	_, err := NewStateless(c, r.policy, r.returned).Update(ctx, sql)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	time.Sleep(10 * time.Second)
	synctest.Wait()
	require.Len(t, r.chains(), 1)
	return r.chains()[0]
}

// Who is answered beside a statement has learned something of it only if it was the same round trip all the time, of which
// nothing had come. A probe that waits shows as much where an answer has begun.
func TestWhatTheCallDoesMeanwhileSaysWhatAProbeBesideItShows(t *testing.T) {
	answers := func(ctx context.Context, _ string, _ backend.Call) (backend.Stream, error) {
		return &fakeStream{f: &fakeConn{}, ctx: ctx, left: 1}, nil
	}
	refused := func(context.Context, string, backend.Call) (backend.Stream, error) {
		time.Sleep(50 * ms)
		return nil, sqlError("busy")
	}
	type trips [][2]int64 // begun and answered: before the first probe, and behind each
	for name, tc := range map[string]struct {
		trips      trips
		beside     func(context.Context, string, backend.Call) (backend.Stream, error)
		sideBySide bool
		waits      int
	}{
		"the same all the time":                                 {trips{{1, 0}, {1, 0}, {1, 0}}, answers, true, 0},
		"another each time":                                     {trips{{1, 0}, {2, 1}, {3, 2}}, answers, false, 0},
		"another each time, of which none is answered":          {trips{{1, 0}, {2, 0}, {3, 0}}, answers, false, 0},
		"it is answered":                                        {trips{{1, 0}, {1, 1}, {1, 1}}, answers, false, 0},
		"it is answered, and one before it has never been":      {trips{{3, 1}, {3, 2}, {3, 2}}, answers, false, 0},
		"it was answered before":                                {trips{{1, 1}, {1, 1}, {1, 1}}, answers, false, 0},
		"a wait":                                                {trips{{1, 0}, {1, 0}}, waits, false, 1},
		"a wait beside what has begun to be answered meanwhile": {trips{{1, 0}, {1, 1}}, waits, false, 1},
		"a wait beside what has gone on":                        {trips{{1, 0}, {2, 1}}, waits, false, 0},
		"a refusal that comes late":                             {trips{{1, 0}, {1, 0}}, refused, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := newControlConn(&fakeConn{})
			conn.beside = tc.beside
			at := 0
			conn.trips = func() (int64, int64) {
				now := tc.trips[min(at, len(tc.trips)-1)]
				at++
				return now[0], now[1]
			}
			conn.cut(t, newRig(t, conn.fakeConn), "UPDATE SLOW 1h")
			require.Equal(t, tc.sideBySide, conn.order.IsConcurrent(), name)
			require.Equal(t, tc.waits, conn.order.Waits(), name)
		})
	}
}

// What another call has learned meanwhile is not asked again.
func TestWhatIsKnownWhenACallIsLeftIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newControlConn(&fakeConn{})
		time.AfterFunc(10*ms, conn.order.SetConcurrent)
		conn.cut(t, newRig(t, conn.fakeConn), "UPDATE SLOW 1h")
		require.Zero(t, conn.asked)
	})
}

// A step runs in a goroutine of its own while there is something to learn of a call that can end by itself, and costs none
// afterwards.
func TestAStepHasAGoroutineOfItsOwnWhileTheOrderIsLearned(t *testing.T) {
	r := newRig(t, &fakeConn{})
	ends, stop := context.WithCancel(t.Context())
	defer stop()
	unknown, serial, sideBySide := &backend.StatementOrder{}, serialOrder(), &backend.StatementOrder{}
	sideBySide.SetConcurrent()
	for name, tc := range map[string]struct {
		conn backend.Conn
		ctx  context.Context
		own  bool
	}{
		"to be learned":             {&orderConn{fakeConn: r.conn, order: unknown}, ends, true},
		"to be learned, of no end":  {&orderConn{fakeConn: r.conn, order: unknown}, context.WithoutCancel(ends), false},
		"one at a time":             {&orderConn{fakeConn: r.conn, order: serial}, ends, false},
		"side by side":              {&orderConn{fakeConn: r.conn, order: sideBySide}, ends, false},
		"a connection without such": {r.conn, ends, false},
	} {
		c := New(tc.conn, r.policy, r.returned).newCall(tc.ctx, "Query", QueryOptions{}, cancelWhenLeft)
		require.Equal(t, tc.own, c.ownGoroutine, name)
		c.endRPC()
	}
}

// serialOrder is that of a server which is known to run the statements of a session one at a time.
func serialOrder() *backend.StatementOrder {
	o := &backend.StatementOrder{}
	for i := range backend.RequiredWaits {
		o.AddWait(time.Now().Add(time.Duration(i+1) * time.Hour))
	}
	return o
}

// rowOf is a batch with a row for each text.
func rowOf(texts ...string) arrow.RecordBatch {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(texts, nil)
	column := b.NewArray()
	defer column.Release()
	return array.NewRecordBatch(fakeTextSchema, []arrow.Array{column}, int64(len(texts)))
}

// A wait counts where the control probe has its own value, and nothing else, in less than half of the time; and what it
// fails with is told.
func TestAWaitCountsOnlyWhereItsControlProbeHasItsValueSoon(t *testing.T) {
	gives := func(after time.Duration, end error, batches ...func(want string) arrow.RecordBatch) func(context.Context, string) (backend.Stream, error) {
		return func(_ context.Context, sql string) (backend.Stream, error) {
			time.Sleep(after)
			_, want, _ := strings.Cut(strings.TrimSuffix(sql, "'"), "'")
			return &scriptStream{next: func(n int) (arrow.RecordBatch, error) {
				if n > len(batches) {
					return nil, end
				}
				return batches[n-1](want), nil
			}}, nil
		}
	}
	own := func(want string) arrow.RecordBatch { return rowOf(want) }
	padded := func(want string) arrow.RecordBatch { return rowOf(" " + want + "  ") }
	twice := func(want string) arrow.RecordBatch { return rowOf(want, want) }
	others := func(string) arrow.RecordBatch { return rowOf("1") }
	nothing := func(string) arrow.RecordBatch { return array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 1) }
	busy := sqlError("the control's failure")
	for name, tc := range map[string]struct {
		probe   string
		control func(context.Context, string) (backend.Stream, error)
		counts  bool
		err     string // of the step
	}{
		"its value":                          {control: gives(0, io.EOF, own), counts: true},
		"its value, of a fixed length":       {control: gives(0, io.EOF, padded), counts: true},
		"its value, within half of the time": {control: gives(100*ms, io.EOF, own), counts: true},
		"its value, later than that":         {control: gives(101*ms, io.EOF, own)},
		"its value, far later":               {control: gives(199*ms, io.EOF, own)},
		"another's value":                    {control: gives(0, io.EOF, others), err: errOthersRows.Error()},
		"its value twice":                    {control: gives(0, io.EOF, twice), err: errOthersRows.Error()},
		"a row of no column":                 {control: gives(0, io.EOF, nothing), err: errOthersRows.Error()},
		"no row":                             {control: gives(0, io.EOF), err: errOthersRows.Error()},
		"a failure":                          {control: func(context.Context, string) (backend.Stream, error) { return nil, busy }, err: busy.Error()},
		"a failure in the place of rows":     {control: gives(0, busy), err: busy.Error()},
		"a failure behind its value":         {control: gives(0, busy, own), err: busy.Error()},
		"an owner's probe of any value":      {probe: "SELECT 1 FROM t", counts: true},
		"an owner's probe without rows":      {probe: "SELECT 0", counts: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := newControlConn(&fakeConn{})
			conn.control = tc.control
			conn.trips = func() (int64, int64) { return 1, 0 }
			r := newRig(t, conn.fakeConn)
			r.policy.ProbeSQL = tc.probe
			report := conn.cut(t, r, "UPDATE SLOW 1h")
			require.Equal(t, tc.counts, conn.order.Waits() == 1, name)
			require.False(t, report.Confirmed, name)
			if tc.err == "" {
				tc.err = errMayStillRun.Error()
			}
			require.ErrorContains(t, report.Steps[len(report.Steps)-1].Err, tc.err, name)
			require.ErrorContains(t, r.discarded(), "may still run", name)
		})
	}
}

// The control probe runs where the session is: in the transaction of a call that leaves it open, and in none where that
// was rolled back.
func TestTheControlProbeRunsInTheTransactionThatGoesOn(t *testing.T) {
	update := func(s *SessionHandle, ctx context.Context) error {
		_, err := s.Update(ctx, "UPDATE SLOW 1h")
		return err
	}
	for name, tc := range map[string]struct {
		before, call func(s *SessionHandle, ctx context.Context) error
		in           string
		goesOn       bool
	}{
		"it goes on":            {nil, (*SessionHandle).Ping, "tx1: ", true},
		"it is rolled back":     {nil, update, "", false},
		"it was rolled back":    {update, (*SessionHandle).Ping, "", false},
		"it was aborted before": {func(s *SessionHandle, ctx context.Context) error { _, err := s.Update(ctx, "INSERT bad"); return err }, (*SessionHandle).Ping, "", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := newControlConn(&fakeConn{work: map[string]time.Duration{"Ping": time.Hour}})
			said := cancel.Confirmed
			conn.steps = func(*backend.Operation) []cancel.Step {
				return []cancel.Step{{Name: "CancelFlightInfo", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) { return said, nil }}}
			}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			call := func(f func(s *SessionHandle, ctx context.Context) error) {
				ctx, stop := context.WithTimeout(t.Context(), 20*ms)
				defer stop()
				require.Error(t, f(r.handle, ctx), name)
				time.Sleep(time.Minute)
				synctest.Wait()
			}
			must(t, r.handle.BeginTransaction(t.Context()))
			if tc.before != nil {
				call(tc.before)
			}
			for range backend.RequiredWaits - 1 {
				conn.order.AddWait(time.Now())
				time.Sleep(ms)
			}
			said = cancel.Unsupported
			sent := r.sent(func() { call(tc.call) })
			require.True(t, conn.order.IsSerial(), "%s: %q", name, sent)
			var control []string
			for _, sql := range sent {
				if strings.Contains(sql, "SELECT '") {
					in, _, _ := strings.Cut(sql, "SELECT '")
					control = append(control, in)
				}
			}
			require.Equal(t, []string{tc.in}, control, "%s: %q", name, sent)
			require.Equal(t, tc.goesOn, r.handle.Commit(t.Context()) == nil, name)
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// What is cut on a server that runs a session's statements one at a time has ended when a probe is answered, if it is one
// statement there: others may come between those of a text.
func TestAProbeProvesTheEndOfWhatIsOneStatement(t *testing.T) {
	update := func(sql string) func(s *SessionHandle, ctx context.Context) error {
		return func(s *SessionHandle, ctx context.Context) error {
			_, err := s.Update(ctx, sql)
			return err
		}
	}
	for name, tc := range map[string]struct {
		work   string // what takes for ever
		call   func(s *SessionHandle, ctx context.Context) error
		proven bool
	}{
		"a statement":                         {"", update("UPDATE SLOW 1h"), true},
		"several":                             {"", update("INSERT 1; UPDATE SLOW 1h"), false},
		"several, of which nothing was sent":  {"Prepare", update("INSERT 1; CREATE TABLE n AS PIVOT t ON a"), true},
		"a ping":                              {"Ping", (*SessionHandle).Ping, true},
		"what asks for the session's options": {"Options", func(s *SessionHandle, ctx context.Context) error { _, err := s.Options(ctx); return err }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &orderConn{fakeConn: &fakeConn{forgives: true, work: map[string]time.Duration{tc.work: time.Hour}}, order: serialOrder()}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			require.ErrorIs(t, tc.call(r.handle, ctx), context.DeadlineExceeded, name)
			time.Sleep(time.Minute)
			synctest.Wait()
			clear(conn.work)
			require.Equal(t, tc.proven, r.chains()[0].Confirmed, "%s: %v", name, r.chains()[0])
			_ = r.handle.Close()
			if tc.proven {
				r.reused()
			} else {
				require.ErrorContains(t, r.discarded(), "may still run", name)
			}
		})
	}
}
