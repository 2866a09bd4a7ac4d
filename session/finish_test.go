package session

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// panickyConn panics in what it is told to, as an interceptor of the owner's may.
type panickyConn struct {
	*fakeConn
	begin, end bool
}

func (c *panickyConn) Begin(ctx context.Context) (backend.TxID, error) {
	id, err := c.fakeConn.Begin(ctx)
	if c.begin {
		panic("an interceptor's")
	}
	return id, err
}

func (c *panickyConn) EndTx(ctx context.Context, tx backend.TxID, commit bool) error {
	if c.end {
		panic("an interceptor's")
	}
	return c.fakeConn.EndTx(ctx, tx, commit)
}

// TestAPanicOfAnInterceptorInATransactionsBeginningOrEndCostsTheSession: a transaction of which
// nobody has the id may be open, or its COMMIT under way.
func TestAPanicOfAnInterceptorInATransactionsBeginningOrEndCostsTheSession(t *testing.T) {
	for name, tc := range map[string]struct {
		begin, unknown bool
		call           func(h *SessionHandle, ctx context.Context) error
	}{
		"Begin":    {true, false, (*SessionHandle).BeginTransaction},
		"Commit":   {false, true, (*SessionHandle).Commit},
		"Rollback": {false, false, (*SessionHandle).Rollback},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &panickyConn{fakeConn: &fakeConn{}, begin: tc.begin}
			r := newRig(t, conn.fakeConn)
			r.handle.conn = conn
			if !tc.begin {
				must(t, r.handle.BeginTransaction(t.Context()))
			}
			conn.end = true
			require.PanicsWithValue(t, "an interceptor's", func() { _ = tc.call(r.handle, t.Context()) }, name)
			conn.end = false
			synctest.Wait()
			err := r.handle.Ping(t.Context())
			require.ErrorIs(t, err, backend.ErrSessionLost, name)
			require.ErrorIs(t, err, errCallbackExited, name)
			require.Equal(t, tc.unknown, errors.Is(err, backend.ErrCommitUnknown), "%s: %v", name, err)
			_ = r.handle.Close()
			require.Error(t, r.discarded(), name)
		})
	}
}

// staleContext is a context that must not be asked any more once it is over, as those that a
// framework uses again for its next request.
type staleContext struct {
	context.Context
	over  atomic.Bool
	asked atomic.Int32 // when it was over
}

func (c *staleContext) Err() error {
	if c.over.Load() {
		c.asked.Add(1)
		panic("the caller's")
	}
	return c.Context.Err()
}

func (c *staleContext) Done() <-chan struct{} {
	if c.over.Load() {
		panic("the caller's")
	}
	return c.Context.Done()
}

// updatingConn is a connection that says what comes of an update.
type updatingConn struct {
	*fakeConn
	update func() error
}

func (c *updatingConn) Update(context.Context, string, backend.Call) (int64, error) {
	return 0, c.update()
}

// TestACallersContextThatPanicsAtTheEndLeavesNothingRunning: nobody knows how far the server is.
func TestACallersContextThatPanicsAtTheEndLeavesNothingRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		l := &listener{}
		r.policy.Tracer = l
		must(t, r.handle.BeginTransaction(t.Context()))
		ctx := &staleContext{Context: t.Context()}
		r.handle.conn = &updatingConn{r.conn, func() error {
			ctx.over.Store(true)
			return &backend.Error{Fault: backend.FaultLimit, Stage: backend.StageExecute, Err: status.Error(codes.ResourceExhausted, "")}
		}}
		require.PanicsWithValue(t, "the caller's", func() { _, _ = r.handle.Update(ctx, "INSERT 1") })
		time.Sleep(time.Minute)
		require.Len(t, r.chains(), 1)
		l.mu.Lock()
		require.ErrorIs(t, l.ends[1].Err, errCallbackExited)
		l.mu.Unlock()
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted)
		must(t, r.handle.Close())
	})
}

// TestAContextIsNotTrustedBehindItsCaller: a panic there would end the process.
func TestAContextIsNotTrustedBehindItsCaller(t *testing.T) {
	limit := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "")}
	for name, call := range map[string]func(ctx *staleContext, r *rig) error{
		"a statement of its own": func(ctx *staleContext, r *rig) error {
			r.conn.work = map[string]time.Duration{"ClosePrepared": time.Second}
			r.conn.fail = map[string]error{"INSERT 1": limit}
			_, err := r.handle.Update(ctx, "INSERT 1", 7)
			return err
		},
		"left to finish": func(ctx *staleContext, r *rig) error {
			r.conn.fail = map[string]error{"INSERT SLOW 1m": limit}
			_, err := r.handle.UpdateWithOptions(ctx, "INSERT SLOW 1m", QueryOptions{NoCancel: true})
			return err
		},
		"cancelled": func(ctx *staleContext, r *rig) error {
			_, err := r.handle.Update(ctx, "INSERT SLOW 1m")
			return err
		},
		"rows that are left to finish": func(ctx *staleContext, r *rig) error {
			r.conn.pace = 6 * time.Second
			r.conn.fail = map[string]error{"stream": limit}
			return drained(r.handle.QueryWithOptions(ctx, "SELECT 3", QueryOptions{NoCancel: true}))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			bounded, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			ctx := &staleContext{Context: bounded}
			require.Error(t, call(ctx, r), name)
			ctx.over.Store(true)
			r.conn.mu.Lock()
			clear(r.conn.work)
			r.conn.mu.Unlock()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			r.conn.pace, r.conn.fail = 0, nil
			must(t, r.handle.Close())
			r.clean(name)
			r.reused()
		})
	}
}

func TestWhatMayRunStillIsCancelledWhateverTheServerSays(t *testing.T) {
	for fault, discarded := range map[backend.Fault]bool{backend.FaultStatement: false, backend.FaultAuth: true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{failOnce: map[string][]error{"INSERT 1": {&backend.Error{Stage: backend.StageExecute, Fault: fault, Running: true, Err: errors.New("gone")}}}})
			_, err := r.stateless().Update(t.Context(), "INSERT 1")
			require.ErrorContains(t, err, "gone")
			time.Sleep(time.Minute)
			require.Len(t, r.chains(), 1)
			require.Len(t, r.returns, 1)
			require.Equal(t, discarded, r.returns[0] != nil, "%v", r.returns[0])
		})
	}
}

// TestAServerThatRefusesEverythingIsNotAskedAgain: outside of a transaction of ours that is the
// word of one that has a transaction of its own, or is broken.
func TestAServerThatRefusesEverythingIsNotAskedAgain(t *testing.T) {
	refusal := func(fault backend.Fault, text string) error {
		return &backend.Error{Stage: backend.StageExecute, Fault: fault, Err: status.Error(codes.InvalidArgument, text)}
	}
	for name, tc := range map[string]struct {
		err       error
		inTx      bool
		discarded bool
	}{
		"a transaction of its own": {refusal(backend.FaultStatement, "Current transaction is aborted (please ROLLBACK)"), false, true},
		"broken":                   {refusal(backend.FaultStatement, "database has been invalidated"), false, true},
		"of ours":                  {refusal(backend.FaultStatement, "Current transaction is aborted (please ROLLBACK)"), true, false},
		"something else":           {refusal(backend.FaultStatement, "no such table"), false, false},
		"of what it does not have": {refusal(backend.FaultUnsupported, "database has been invalidated"), false, false},
		"nobody knows whose":       {refusal(backend.FaultUnknown, "database has been invalidated"), false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{failOnce: map[string][]error{"INSERT 1": {tc.err}, "tx1: INSERT 1": {tc.err}}})
			if tc.inTx {
				must(t, r.handle.BeginTransaction(t.Context()))
			}
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			require.Error(t, err, name)
			if tc.inTx {
				must(t, r.handle.Rollback(t.Context()))
			}
			_ = r.handle.Close()
			if tc.discarded {
				require.Error(t, r.discarded(), name)
			} else {
				r.reused()
			}
		})
	}
}

// TestAfterAFailureTheSessionIsLookedAtWhereItMayHaveLeftSomething, and nowhere else.
func TestAfterAFailureTheSessionIsLookedAtWhereItMayHaveLeftSomething(t *testing.T) {
	refused := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.InvalidArgument, "no")}
	unsent := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Unsent: true, Err: errors.New("too large")}
	denied := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "no")}
	two := int64Batch(1, 2)
	for name, tc := range map[string]struct {
		sql  string
		rows arrow.RecordBatch
		err  error
		want []string
	}{
		"a script, which may have begun a transaction": {"INSERT 1; INSERT 2", nil, refused, []string{"SELECT 1"}},
		"one statement":                   {"INSERT 1", nil, refused, nil},
		"one with two rows":               {"UPDATE t SET a = ?", two, refused, nil},
		"a setting that was not sent":     {"SET threads = 1", nil, unsent, []string{"ClosePrepared"}},
		"a script of a server without it": {"INSERT 1; INSERT 2", nil, denied, nil},
		"a read":                          {"SELECT 1 FROM t", nil, refused, nil},
		"a script of reads, which may have left nothing": {"SELECT 2; SELECT 3", nil, refused, []string{"SELECT 1"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{failOnce: map[string][]error{tc.sql: {tc.err}}})
			var err error
			if tc.rows != nil {
				_, err = r.handle.UpdateWithRecordBatch(t.Context(), tc.sql, tc.rows)
			} else {
				_, err = r.handle.Update(t.Context(), tc.sql)
			}
			require.Error(t, err, name)
			synctest.Wait()
			after := r.sent(func() { _ = r.handle.Close() })
			require.Equal(t, tc.want, append([]string(nil), after...), name)
			r.reused()
		})
	}
}

func TestAClosedPoolWaitsAGraceForCodeOfTheCallers(t *testing.T) {
	for name, leaves := range map[string]bool{"stuck": false, "left": true} {
		synctest.Test(t, func(t *testing.T) {
			empty, err := array.NewRecordReader(fakeSchema, nil)
			must(t, err)
			block := make(chan struct{})
			owner, closePool := context.WithCancel(t.Context())
			r := newRig(t, &fakeConn{})
			r.policy.OwnerContext = owner
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			time.AfterFunc(time.Second, closePool)
			if leaves {
				time.AfterFunc(time.Second+r.policy.grace()/2, leave)
			}
			start := time.Now()
			_, err = r.handle.Ingest(ctx, "t", brokenReader{empty, func() bool { <-block; return false }}, backend.IngestOptions{})
			if leaves {
				require.ErrorIs(t, err, context.Canceled, name)
				require.Equal(t, time.Second+r.policy.grace()/2, time.Since(start), name)
			} else {
				require.ErrorIs(t, err, errCallbackStuck, name)
				require.Equal(t, time.Second+r.policy.grace(), time.Since(start), name)
			}
			close(block)
			_ = r.handle.Close()
			time.Sleep(time.Minute)
			synctest.Wait()
		})
	}
}

// Nor does it wait longer for what its caller has left before.
func TestAClosedPoolWaitsAGraceForRowsThatWereLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty, err := array.NewRecordReader(fakeSchema, nil)
		must(t, err)
		block := make(chan struct{})
		owner, closePool := context.WithCancel(t.Context())
		r := newRig(t, &fakeConn{})
		r.policy.OwnerContext = owner
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_, err = r.handle.Ingest(ctx, "t", brokenReader{empty, func() bool { <-block; return false }}, backend.IngestOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		must(t, r.handle.Close())
		closePool()
		time.Sleep(r.policy.grace() + ms)
		synctest.Wait()
		require.ErrorIs(t, r.discarded(), errCallbackStuck)
		close(block)
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

func TestATraceDoesNotWaitForWhatIsDoneBehindTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{work: map[string]time.Duration{"ClosePrepared": time.Second}})
		l := &listener{}
		r.policy.Tracer = l
		_, err := r.handle.Update(t.Context(), "INSERT 1", 7)
		must(t, err)
		l.mu.Lock()
		require.Len(t, l.ends, 1)
		l.mu.Unlock()
		must(t, r.handle.Close())
		l.mu.Lock()
		defer l.mu.Unlock()
		require.Len(t, l.ends, 1)
	})
}
