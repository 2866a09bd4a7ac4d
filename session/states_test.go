package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// everyCall has all calls of a handle that may fail. q is a prepared statement
// of it.
func everyCall(q *PreparedQuery) map[string]func(ctx context.Context, s *SessionHandle) error {
	batch := int64Batch(1)
	return map[string]func(ctx context.Context, s *SessionHandle) error{
		"Query":             func(ctx context.Context, s *SessionHandle) error { _, err := s.Query(ctx, "SELECT 2"); return err },
		"Query of a change": func(ctx context.Context, s *SessionHandle) error { _, err := s.Query(ctx, "INSERT 1"); return err },
		"Execute":           func(ctx context.Context, s *SessionHandle) error { _, err := s.Execute(ctx, "SELECT 2"); return err },
		"Update":            func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, "INSERT 1"); return err },
		"QueryWithParams": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.QueryWithParams(ctx, "SELECT 2", batch)
			return err
		},
		"UpdateWithRecordBatch": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.UpdateWithRecordBatch(ctx, "INSERT 1", batch)
			return err
		},
		"Ingest": func(ctx context.Context, s *SessionHandle) error {
			rows, err := array.NewRecordReader(fakeSchema, nil)
			if err == nil {
				_, err = s.Ingest(ctx, "t", rows, backend.IngestOptions{})
			}
			return err
		},
		"QueryRow": func(ctx context.Context, s *SessionHandle) error { return s.QueryRow(ctx, "SELECT 2", 1).Scan(nil) },
		"Metadata": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Metadata(ctx, backend.MetadataRequest{})
			return err
		},
		"Ping": func(ctx context.Context, s *SessionHandle) error { return s.Ping(ctx) },
		"PrepareQuery": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.PrepareQuery(ctx, "SELECT 2")
			return err
		},
		"BeginTransaction": func(ctx context.Context, s *SessionHandle) error { return s.BeginTransaction(ctx) },
		"Commit":           func(ctx context.Context, s *SessionHandle) error { return s.Commit(ctx) },
		"Rollback":         func(ctx context.Context, s *SessionHandle) error { return s.Rollback(ctx) },
		"WithTransaction": func(ctx context.Context, s *SessionHandle) error {
			return s.WithTransaction(ctx, func(context.Context, *SessionHandle) error { return nil })
		},
		"Savepoint":            func(ctx context.Context, s *SessionHandle) error { return s.Savepoint(ctx, "a") },
		"RollbackTo":           func(ctx context.Context, s *SessionHandle) error { return s.RollbackTo(ctx, "a") },
		"ReleaseSavepoint":     func(ctx context.Context, s *SessionHandle) error { return s.ReleaseSavepoint(ctx, "a") },
		"SetOption":            func(ctx context.Context, s *SessionHandle) error { return s.SetOption(ctx, "a", "b") },
		"Options":              func(ctx context.Context, s *SessionHandle) error { _, err := s.Options(ctx); return err },
		"PreparedQuery.Query":  func(ctx context.Context, _ *SessionHandle) error { _, err := q.Query(ctx); return err },
		"PreparedQuery.Update": func(ctx context.Context, _ *SessionHandle) error { _, err := q.Update(ctx, batch); return err },
	}
}

// Whatever is called: a handle that cannot take the call says why, and nothing is
// sent.
func TestAHandleThatCannotTakeACallSaysWhy(t *testing.T) {
	for state, tc := range map[string]struct {
		bring func(t *testing.T, r *rig) context.Context
		want  error
		fault backend.Fault
		open  bool // a result holds the handle
	}{
		"closed": {want: backend.ErrHandleClosed, fault: backend.FaultUsage, bring: func(t *testing.T, r *rig) context.Context {
			must(t, r.handle.Close())
			return t.Context()
		}},
		"busy": {want: backend.ErrBusy, fault: backend.FaultUsage, open: true, bring: func(t *testing.T, r *rig) context.Context {
			_, err := r.handle.Query(t.Context(), "SELECT 5")
			must(t, err)
			return t.Context()
		}},
		"lost": {want: backend.ErrSessionLost, fault: backend.FaultSession, bring: func(t *testing.T, r *rig) context.Context {
			r.conn.cut()
			require.Error(t, r.handle.Ping(t.Context()))
			return t.Context()
		}},
		"with an ended context": {want: context.Canceled, fault: backend.FaultContext, bring: func(t *testing.T, _ *rig) context.Context {
			ctx, stop := context.WithCancel(t.Context())
			stop()
			return ctx
		}},
	} {
		for name := range everyCall(nil) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{})
				q, err := r.handle.PrepareQuery(t.Context(), "INSERT 1")
				must(t, err)
				ctx := tc.bring(t, r)
				sent := len(r.conn.Log())
				err = everyCall(q)[name](ctx, r.handle)
				require.ErrorIs(t, err, tc.want, "%s of a handle that is %s", name, state)
				require.Equal(t, tc.fault, backend.FaultIn(err), "%s of a handle that is %s: %v", name, state, err)
				require.True(t, backend.SafeToRetry(err) || tc.fault == backend.FaultUsage, "%s of a handle that is %s: %v", name, state, err)
				require.Contains(t, err.Error(), "fake:1")
				require.Len(t, r.conn.Log(), sent, "%s of a handle that is %s", name, state)
				_ = r.handle.Close()
				time.Sleep(time.Minute)
			})
		}
	}
}

// Each call gives its server's refusal, whose cause, target and name stand in it.
func TestEveryCallGivesTheServersRefusal(t *testing.T) {
	for _, fault := range []backend.Fault{backend.FaultStatement, backend.FaultUnsupported, backend.FaultLimit, backend.FaultTransport} {
		for name := range everyCall(nil) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{})
				ctx := t.Context()
				q, err := r.handle.PrepareQuery(ctx, "INSERT 1")
				must(t, err)
				switch name {
				case "Commit", "Rollback", "Savepoint":
					must(t, r.handle.BeginTransaction(ctx))
				case "RollbackTo", "ReleaseSavepoint":
					must(t, r.handle.BeginTransaction(ctx))
					must(t, r.handle.Savepoint(ctx, "a"))
				}
				cause := errors.New("the server's own words")
				refusal := &backend.Error{Fault: fault, Stage: backend.StageExecute, Err: cause}
				r.conn.failAll = refusal
				err = everyCall(q)[name](ctx, r.handle)
				require.ErrorIs(t, err, cause, name)
				require.NotSame(t, refusal, err)
				require.Empty(t, refusal.Op, "%s: a backend's error is the backend's", name)
				require.Contains(t, err.Error(), "fake:1", name)
				r.conn.failAll = nil
				_ = r.handle.Close()
				time.Sleep(time.Minute)
				r.mu.Lock()
				require.Len(t, r.returns, 1)
				r.mu.Unlock()
			})
		}
	}
}
