package session

import (
	"context"
	"errors"
	"strings"
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

func TestAResultHoldsItsConnectionUntilItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(*QueryResult){
			"read to the end": func(r *QueryResult) {
				for r.Next() {
				}
				require.NoError(t, r.Err())
			},
			"released early":  func(r *QueryResult) { require.True(t, r.Next()); r.Release() },
			"released unread": func(r *QueryResult) { r.Release() },
			"closed twice":    func(r *QueryResult) { require.NoError(t, r.Close()); require.NoError(t, r.Close()); r.Release() },
			"loop left early": func(r *QueryResult) { r.Batches()(func(b arrow.RecordBatch, err error) bool { return false }) },
			"all read to a table": func(r *QueryResult) {
				tbl, err := r.ReadAll(t.Context())
				must(t, err)
				require.EqualValues(t, 3, tbl.NumRows())
				tbl.Release()
			},
			"retained and released": func(r *QueryResult) {
				r.Retain()
				r.Release()
				require.True(t, r.Next())
				r.Release()
			},
		} {
			r := newRig(t, &fakeConn{})
			res, err := r.stateless().Query(t.Context(), "SELECT 3")
			must(t, err)
			r.held(name)
			end(res)
			time.Sleep(time.Second)
			r.reused()
			r.clean(name)
		}
	})
}

func TestAnEmptyResultKeepsItsSchemaAndReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		res, err := r.stateless().Query(t.Context(), "SELECT 0")
		must(t, err)
		r.reused()
		require.True(t, res.Schema().Equal(fakeSchema))
		require.False(t, res.Next())
		require.NoError(t, res.Err())
		res.Release()
	})
}

func TestOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		res, err := r.handle.Query(t.Context(), "SELECT 3")
		must(t, err)
		_, err = r.handle.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrBusy)
		require.ErrorIs(t, r.handle.BeginTransaction(t.Context()), backend.ErrBusy)
		for res.Next() {
		}
		_, err = r.handle.Update(t.Context(), "INSERT 1")
		must(t, err)
		res.Release()
	})
}

func TestChangesGoByUpdateWhateverTheCallIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		for _, call := range []func(context.Context, string, ...any) (*QueryResult, error){r.handle.Query, r.handle.Execute} {
			res, err := call(t.Context(), "INSERT 1")
			must(t, err)
			n, ok := res.RowsAffected()
			require.True(t, ok)
			require.EqualValues(t, 1, n)
			require.False(t, res.Next())
			require.Zero(t, res.Schema().NumFields())
			res.Release()
		}
		r.clean()
		require.Equal(t, []string{"INSERT 1", "INSERT 1"}, r.conn.Log())
	})
}

func TestSQLErrorsKeepTheConnectionAndNameTheirCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		_, err := r.stateless().Query(t.Context(), "SELECT bad")
		var e *backend.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, []any{"Query", "fake:1", backend.FaultStatement, backend.StageExecute}, []any{e.Op, e.Target, e.Fault, e.Stage})
		require.Equal(t, codes.Internal, status.Code(e.Err))
		st, ok := status.FromError(err)
		require.True(t, ok)
		require.Equal(t, codes.Internal, st.Code())
		r.reused()
	})
}

func TestATransportErrorLosesTheSessionAndDiscards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{"INSERT 1": transportError()}})
		_, err := r.handle.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.False(t, backend.SafeToRetry(err), "the insert may have happened")
		require.ErrorIs(t, r.discarded(), backend.ErrSessionLost)
		_, err = r.handle.Query(t.Context(), "SELECT 1")
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.Equal(t, []string{"INSERT 1"}, r.conn.Log())
		must(t, r.handle.Close())
	})
}

func TestAConnectionThatDiesBeforeItsCallComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, call := range []func(*SessionHandle) error{
			func(s *SessionHandle) error { _, err := s.Query(t.Context(), "SELECT 1"); return err },
			func(s *SessionHandle) error { _, err := s.Update(t.Context(), "INSERT 1"); return err },
			func(s *SessionHandle) error { return s.Ping(t.Context()) },
		} {
			r := newRig(t, &fakeConn{})
			s := r.stateless()
			r.conn.cut()
			err := call(s)
			require.ErrorIs(t, err, backend.ErrSessionLost)
			require.True(t, backend.SafeToRetry(err), "nothing was sent")
			require.ErrorIs(t, r.discarded(), backend.ErrSessionLost)
		}
	})
}

func TestAReadIsSafeToRetryUntilItsFirstBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{"stream": transportError()}})
		_, err := r.stateless().Query(t.Context(), "SELECT 1")
		require.True(t, backend.SafeToRetry(err), "no batch came")
		r = newRig(t, &fakeConn{fail: map[string]error{"stream": transportError()}})
		res, err := r.stateless().Query(t.Context(), "SELECT 2")
		must(t, err)
		require.True(t, res.Next())
		require.False(t, res.Next())
		require.Error(t, res.Err())
		require.False(t, backend.SafeToRetry(res.Err()), "a batch was delivered")
		res.Release()
	})
}

func TestADoubtfulConnectionProvesItselfBeforeReuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "memory")}
		r := newRig(t, &fakeConn{fail: map[string]error{"SELECT 1 big": limit}})
		_, err := r.stateless().Query(t.Context(), "SELECT 1 big")
		require.Equal(t, backend.FaultLimit, backend.FaultIn(err))
		r.reused()
		require.Equal(t, []string{"SELECT 1 big", "SELECT 1"}, r.conn.Log())
		r = newRig(t, &fakeConn{fail: map[string]error{"SELECT 1 big": limit, "SELECT 1": limit}})
		_, err = r.stateless().Query(t.Context(), "SELECT 1 big")
		require.Error(t, err)
		_ = r.discarded()
	})
}

func TestPreparedStatementsEndWithTheirHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		a, err := r.handle.PrepareQuery(t.Context(), "SELECT 1")
		must(t, err)
		b, err := r.handle.PrepareQuery(t.Context(), "INSERT 1")
		must(t, err)
		must(t, a.Close(t.Context()))
		must(t, a.Close(t.Context()))
		_, err = a.Query(t.Context())
		require.ErrorIs(t, err, backend.ErrHandleClosed)
		_, handles, _, _ := r.conn.left()
		require.Equal(t, 1, handles)
		must(t, r.handle.Close())
		r.clean()
		_, err = b.Update(t.Context())
		require.ErrorIs(t, err, backend.ErrHandleClosed)
		must(t, b.Close(t.Context()))
		r.reused()
	})
}

func TestStatelessParametersLeaveNoPreparedStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		params, _, err := array.RecordFromJSON(nil, fakeSchema, strings.NewReader(`[{"n":1},{"n":2}]`))
		must(t, err)
		for _, sql := range []string{"SELECT 2", "SELECT 0", "SELECT bad", "INSERT 1", "INSERT bad"} {
			r := newRig(t, &fakeConn{})
			res, err := r.stateless().QueryWithParams(t.Context(), sql, params)
			if err == nil {
				res.Release() // early, where there are rows
			}
			time.Sleep(time.Second)
			r.clean(sql)
			r.reused()
		}
		r := newRig(t, &fakeConn{})
		n, err := r.stateless().UpdateWithRecordBatch(t.Context(), "INSERT 1", params)
		must(t, err)
		require.EqualValues(t, 2, n.RowsAffected)
	})
}

func TestAGoneServerSessionIsNotBorrowedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		auth := &backend.Error{Stage: backend.StageAuth, Fault: backend.FaultAuth, Err: status.Error(codes.Unauthenticated, "token expired")}
		r := newRig(t, &fakeConn{fail: map[string]error{"SELECT 1": auth}})
		_, err := r.stateless().Query(t.Context(), "SELECT 1")
		require.Equal(t, backend.FaultAuth, backend.FaultIn(err))
		_ = r.discarded()
	})
}

func TestIngestRunsInTheTransactionAndChecksItsArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		rec, _, err := array.RecordFromJSON(nil, fakeSchema, strings.NewReader(`[{"n":1},{"n":2}]`))
		must(t, err)
		rows, err := array.NewRecordReader(fakeSchema, []arrow.RecordBatch{rec})
		must(t, err)
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err = r.handle.Ingest(t.Context(), "", nil, backend.IngestOptions{})
		require.ErrorContains(t, err, "table name")
		require.ErrorContains(t, err, "record reader")
		n, err := r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{})
		must(t, err)
		require.EqualValues(t, 2, n)
		must(t, r.handle.Commit(t.Context()))
		require.Contains(t, r.conn.Log(), "tx1 ingest t")
	})
}

func TestErrorTextNamesCallTargetStageAndState(t *testing.T) {
	e := &backend.Error{Op: "Query", Target: "db:1", Stage: backend.StageExecute, SQLState: "42601", Err: errors.New("syntax error"), Ctx: context.DeadlineExceeded}
	require.Equal(t, "Query db:1: execute [42601]: context deadline exceeded: syntax error", e.Error())
	require.ErrorIs(t, e, context.DeadlineExceeded)
	require.False(t, backend.SafeToRetry(nil))
	require.False(t, backend.SafeToRetry(errors.New("x")))
	require.Equal(t, backend.FaultContext, backend.FaultIn(context.Canceled))
	for f := backend.FaultUnknown; f <= backend.FaultSession; f++ {
		require.NotEmpty(t, f.String())
	}
}

func TestFaultOfSeparatesStatementsFromTransports(t *testing.T) {
	require.Equal(t, backend.FaultStatement, backend.FaultOf(codes.Internal, "duckdb error: Parser Error"))
	for code, want := range map[codes.Code]backend.Fault{
		codes.Internal: backend.FaultTransport, codes.ResourceExhausted: backend.FaultTransport, codes.PermissionDenied: backend.FaultTransport, codes.Canceled: backend.FaultContext,
	} {
		require.Equal(t, want, backend.FaultOf(code, "stream terminated by RST_STREAM with error code: X"), code.String())
	}
	require.Equal(t, backend.FaultTransport, backend.FaultOf(codes.Unavailable, ""))
	require.Equal(t, backend.FaultLimit, backend.FaultOf(codes.ResourceExhausted, ""))
	require.Equal(t, backend.FaultUnsupported, backend.FaultOf(codes.Unimplemented, ""))
	require.Equal(t, backend.FaultUnsupported, backend.FaultOf(codes.InvalidArgument, "do_action: The defined request is invalid"))
	require.Equal(t, backend.FaultStatement, backend.FaultOf(codes.InvalidArgument, "no such column"))
}
