package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// A server that answers need not have a session that works.
func TestASessionIsProvenByItsAnswersOrByTheWordsOfItsRefusal(t *testing.T) {
	refusal := func(fault backend.Fault, code codes.Code, text string) error {
		return &backend.Error{Fault: fault, Stage: backend.StageExecute, Err: status.Error(code, text)}
	}
	internal := refusal(backend.FaultStatement, codes.Internal, "the query's words")
	for name, tc := range map[string]struct {
		fail map[string]error
		want []string // the error has these, none: it is proven
		asks bool     // for SqlInfo
	}{
		"it answers":                      {},
		"it judges the statement":         {fail: map[string]error{"SELECT 1": refusal(backend.FaultStatement, codes.InvalidArgument, "no such syntax")}},
		"it has no such query":            {fail: map[string]error{"SELECT 1": refusal(backend.FaultUnsupported, codes.Unimplemented, "no queries")}},
		"it fails and describes itself":   {fail: map[string]error{"SELECT 1": internal}, asks: true},
		"its rows fail, not itself":       {fail: map[string]error{"stream": internal}, want: []string{"the query's words"}, asks: true},
		"it fails everything":             {fail: map[string]error{"SELECT 1": internal, "Metadata": refusal(backend.FaultStatement, codes.Internal, "SqlInfo's words")}, asks: true, want: []string{"the probe fails with", "the query's words", "SqlInfo's words", "no session that works"}},
		"it fails in a way of its own":    {fail: map[string]error{"SELECT 1": errors.New("the driver's words"), "Metadata": errors.New("SqlInfo's words")}, asks: true, want: []string{"the driver's words", "SqlInfo's words"}},
		"it does not know the credential": {fail: map[string]error{"SELECT 1": refusal(backend.FaultAuth, codes.Unauthenticated, "who?")}, want: []string{"who?"}},
		"it is at its limit":              {fail: map[string]error{"SELECT 1": refusal(backend.FaultLimit, codes.ResourceExhausted, "full")}, want: []string{"full"}},
		"it has forgotten the session":    {fail: map[string]error{"SELECT 1": refusal(backend.FaultSession, codes.NotFound, "no such session")}, want: []string{"no such session"}},
		"it is gone":                      {fail: map[string]error{"SELECT 1": transportError()}, want: []string{"connection reset"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{fail: tc.fail}
			err := CheckSession(t.Context(), conn, "SELECT 1")
			if tc.want == nil {
				require.NoError(t, err, name)
			}
			for _, text := range tc.want {
				require.ErrorContains(t, err, text, name)
			}
			require.Equal(t, tc.asks, len(conn.Log()) == 2, "%s: %q", name, conn.Log())
			if len(tc.want) > 0 {
				require.False(t, backend.FaultIn(err).KeepsConn(), "%s: the connection is not lent", name)
			}
			_, _, streams, _ := conn.left()
			require.Zero(t, streams, name)
		})
	}
}

// side is an orderConn whose answers beside a statement are made by beside.
type side struct {
	*orderConn
	beside func(ctx context.Context, sql string, call backend.Call) (backend.Stream, error)
	asked  int
}

func (c *side) QueryConcurrently(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	c.asked++
	return c.beside(ctx, sql, call)
}

// Whether statements run side by side is learned from answers and from waits
// alone, and asked no more once it is known.
func TestTheOrderOfStatementsIsLearnedFromAnswersAndWaitsAlone(t *testing.T) {
	answer := func(f *fakeConn, ctx context.Context) backend.Stream { return &fakeStream{f: f, ctx: ctx, left: 1} }
	for name, tc := range map[string]struct {
		beside     func(f *fakeConn) func(ctx context.Context, sql string, call backend.Call) (backend.Stream, error)
		known      bool
		asked      int
		sideBySide bool
		waited     int
	}{
		"two answers": {asked: 2, sideBySide: true, beside: func(f *fakeConn) func(context.Context, string, backend.Call) (backend.Stream, error) {
			return func(ctx context.Context, _ string, _ backend.Call) (backend.Stream, error) {
				return answer(f, ctx), nil
			}
		}},
		"a refusal": {asked: 1, beside: func(*fakeConn) func(context.Context, string, backend.Call) (backend.Stream, error) {
			return func(context.Context, string, backend.Call) (backend.Stream, error) { return nil, sqlError("busy") }
		}},
		"an answer that fails in its rows": {asked: 1, beside: func(f *fakeConn) func(context.Context, string, backend.Call) (backend.Stream, error) {
			return func(context.Context, string, backend.Call) (backend.Stream, error) {
				return &erringStream{err: sqlError("busy")}, nil
			}
		}},
		"a wait": {asked: 1, waited: 1, beside: func(*fakeConn) func(context.Context, string, backend.Call) (backend.Stream, error) {
			return func(ctx context.Context, _ string, _ backend.Call) (backend.Stream, error) {
				<-ctx.Done()
				return nil, &backend.Error{Fault: backend.FaultContext, Err: ctx.Err()}
			}
		}},
		"two answers before the server hears of the deadline": {asked: 2, sideBySide: true, beside: func(f *fakeConn) func(context.Context, string, backend.Call) (backend.Stream, error) {
			return func(ctx context.Context, _ string, _ backend.Call) (backend.Stream, error) {
				select {
				case <-time.After(95 * ms):
					return answer(f, ctx), nil
				case <-ctx.Done():
					return nil, &backend.Error{Fault: backend.FaultContext, Err: ctx.Err()}
				}
			}
		}},
		"known already": {known: true, sideBySide: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &side{orderConn: &orderConn{fakeConn: &fakeConn{}, order: &backend.StatementOrder{}}}
			if tc.known {
				conn.order.SetConcurrent()
			}
			if tc.beside != nil {
				conn.beside = tc.beside(conn.fakeConn)
			}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			start := time.Now()
			var opts QueryOptions
			if tc.known { // one that is watched can be left all the same
				opts.Progress = func(float64, bool) {}
			}
			_, err := r.handle.QueryWithOptions(ctx, "SELECT SLOW 1h", opts)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(start))
			time.Sleep(time.Minute)
			_ = r.handle.Close()
			synctest.Wait()
			require.Equal(t, tc.asked, conn.asked, name)
			require.Equal(t, tc.sideBySide, conn.order.IsConcurrent(), name)
			require.Equal(t, tc.waited, conn.order.Waits(), name)
		})
	}
}

// A statement that ends while it is asked beside it teaches nothing.
func TestAStatementThatEndsMeanwhileTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &side{orderConn: &orderConn{fakeConn: &fakeConn{ignoresCancel: true}, order: &backend.StatementOrder{}}}
		conn.beside = func(ctx context.Context, _ string, _ backend.Call) (backend.Stream, error) {
			time.Sleep(100 * ms)
			return &fakeStream{f: conn.fakeConn, ctx: ctx, left: 1}, nil
		}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := r.handle.Update(ctx, "UPDATE SLOW 1050ms")
		require.Error(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.False(t, conn.order.IsConcurrent())
		require.Equal(t, 1, conn.asked)
		_ = r.handle.Close()
	})
}
