package flightpool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver"
)

// A call whose context has ended says the cause that the caller has given, once, whether
// it ended before the call, while it waited for a connection or while the server was silent.
func TestEveryCallSaysTheCauseOfItsContext(t *testing.T) {
	why := errors.New("the request was withdrawn")
	type call = func(ctx context.Context, r *rig, s *SessionHandle) error
	ofPool := map[string]call{
		"Query": func(ctx context.Context, r *rig, _ *SessionHandle) error {
			return drained(r.pool.Query(ctx, "SELECT 1"))
		},
		"QueryRow": func(ctx context.Context, r *rig, _ *SessionHandle) error {
			var n int
			return r.pool.QueryRow(ctx, "SELECT 1").Scan(&n)
		},
		"Execute": func(ctx context.Context, r *rig, _ *SessionHandle) error {
			return drained(r.pool.Execute(ctx, "SELECT 1"))
		},
		"Update": func(ctx context.Context, r *rig, _ *SessionHandle) error {
			_, err := r.pool.Update(ctx, "INSERT INTO t VALUES (1)")
			return err
		},
		"Query with parameters": func(ctx context.Context, r *rig, _ *SessionHandle) error {
			return drained(r.pool.Query(ctx, "SELECT ?", 7))
		},
		"Ingest": func(ctx context.Context, r *rig, _ *SessionHandle) error {
			_, err := r.pool.Ingest(ctx, "t", r.rows(2), IngestOptions{})
			return err
		},
		"IngestRows": func(ctx context.Context, r *rig, _ *SessionHandle) error {
			_, err := IngestRows(ctx, r.pool, "t", func(yield func(struct{ A int64 }) bool) { yield(struct{ A int64 }{1}) }, IngestOptions{})
			return err
		},
		"Ping": func(ctx context.Context, r *rig, _ *SessionHandle) error { return r.pool.Ping(ctx) },
		"Tables": func(ctx context.Context, r *rig, _ *SessionHandle) error {
			return drained(r.pool.Tables(ctx, TableFilter{}))
		},
		"BeginTx": func(ctx context.Context, r *rig, _ *SessionHandle) error {
			_, err := r.pool.BeginTx(ctx, TxOptions{})
			return err
		},
		"InTx": func(ctx context.Context, r *rig, _ *SessionHandle) error {
			return r.pool.InTx(ctx, TxOptions{}, func(context.Context, *Tx) error { return nil })
		},
	}
	ofSession := map[string]call{
		"session Query": func(ctx context.Context, _ *rig, s *SessionHandle) error { return drained(s.Query(ctx, "SELECT 1")) },
		"session Update": func(ctx context.Context, _ *rig, s *SessionHandle) error {
			_, err := s.Update(ctx, "SET a = 1")
			return err
		},
		"session Ping": func(ctx context.Context, _ *rig, s *SessionHandle) error { return s.Ping(ctx) },
		"SetOption":    func(ctx context.Context, _ *rig, s *SessionHandle) error { return s.SetOption(ctx, "a", "b") },
		"Options":      func(ctx context.Context, _ *rig, s *SessionHandle) error { _, err := s.Options(ctx); return err },
		"PrepareQuery": func(ctx context.Context, _ *rig, s *SessionHandle) error {
			_, err := s.PrepareQuery(ctx, "SELECT ?")
			return err
		},
		"BeginTransaction": func(ctx context.Context, _ *rig, s *SessionHandle) error { return s.BeginTransaction(ctx) },
		"session Metadata": func(ctx context.Context, _ *rig, s *SessionHandle) error {
			return drained(s.Metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataTables}))
		},
	}
	withdrawn := func(r *rig, after time.Duration) context.Context {
		ctx, end := context.WithCancelCause(r.Context())
		if after == 0 {
			end(why)
		} else {
			time.AfterFunc(after, func() { end(why) })
		}
		return ctx
	}
	check := func(r *rig, when string, err error) {
		r.Helper()
		require.ErrorIs(r, err, context.Canceled, "%s", when)
		require.ErrorIs(r, err, why, "%s", when)
		require.Equal(r, 1, strings.Count(err.Error(), why.Error()), "%s: %v", when, err)
		require.Equal(r, FaultContext, faultIn(err), "%s", when)
	}
	slow := func(r *rig) {
		for _, on := range []testserver.Point{testserver.OnGetFlightInfo, testserver.OnDoPut, testserver.OnPrepare, testserver.OnBegin, "SetSessionOptions", "GetSessionOptions"} {
			r.srv.Faults().Set(testserver.Fault{On: on, Times: 1, Do: testserver.Delay(time.Minute)})
		}
	}
	for name, do := range ofPool {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				check(r, "before", do(withdrawn(r, 0), r, nil))
				s := r.session()
				check(r, "waiting for a connection", do(withdrawn(r, time.Second), r, nil))
				require.NoError(r, s.Close())
				slow(r)
				check(r, "waiting for the server", do(withdrawn(r, time.Second), r, nil))
			})
		})
	}
	for name, do := range ofSession {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
				s := r.session()
				defer func() { _ = s.Close() }() // it may be lost
				check(r, "before", do(withdrawn(r, 0), r, s))
				slow(r)
				check(r, "waiting for the server", do(withdrawn(r, time.Second), r, s))
			})
		})
	}
	t.Run("WaitReady", func(t *testing.T) {
		inBubble(t, testserver.Strict(), Config{MaxSize: 2, MinIdle: 1}, func(r *rig) {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Delay(time.Minute)})
			defer r.srv.Faults().Clear()
			r.pool.Reset()
			require.ErrorIs(r, r.pool.WaitReady(withdrawn(r, 0), 1), why)
			require.ErrorIs(r, r.pool.WaitReady(withdrawn(r, time.Second), 1), why)
		})
	})
	t.Run("Close", func(t *testing.T) {
		inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
			s := r.session()
			require.ErrorIs(r, r.pool.Close(withdrawn(r, time.Second)), why)
			_ = s.Close()
		})
	})
	t.Run("New", func(t *testing.T) {
		inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Delay(time.Minute)})
			for _, after := range []time.Duration{0, time.Second} {
				_, err := New(withdrawn(r, after), "grpc://server:1", Config{Dialer: r.srv.Dial})
				require.ErrorIs(r, err, why)
			}
			r.srv.Faults().Clear()
		})
	})
}

// In an errgroup the cause of a context is what another call has failed with. That says
// nothing of this one: neither that it is safe to repeat, nor that its COMMIT was refused.
func TestTheFailureOfAnotherCallIsNotThisOnes(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		inBubble(t, profile, Config{MaxSize: 3}, func(r *rig) {
			r.exec("CREATE TABLE t (a BIGINT)")
			for what, cause := range foreignFailures(r) {
				if cause == nil {
					continue
				}
				withdrawn := func() context.Context {
					ctx, end := context.WithCancelCause(r.Context())
					time.AfterFunc(time.Second, func() { end(cause) })
					return ctx
				}
				tx := r.begin()
				_, err := tx.Update(r.Context(), "INSERT INTO t VALUES (1)")
				require.NoError(r, err)
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, Do: testserver.Delay(time.Minute)})
				err = tx.Commit(withdrawn())
				require.ErrorIs(r, err, ErrCommitUnknown, "%s: %s", profile.Name, what)
				require.ErrorIs(r, err, cause)
				require.False(r, SafeToRetry(err) || IsConflict(err), "%s: %s: %v", profile.Name, what, err)
				time.Sleep(2 * time.Minute)

				for _, on := range []testserver.Point{testserver.OnDoPut, testserver.OnGetFlightInfo} {
					r.srv.Faults().Set(testserver.Fault{On: on, SQL: "INSERT", Times: 1, Do: testserver.Delay(time.Minute)})
				}
				_, err = r.pool.Update(withdrawn(), "INSERT INTO t VALUES (2)")
				require.ErrorIs(r, err, cause, "%s: %s", profile.Name, what)
				require.False(r, SafeToRetry(err) || IsConflict(err), "%s: %s: %v", profile.Name, what, err)
				r.srv.Faults().Clear()
				time.Sleep(2 * time.Minute)

				runs := 0
				err = r.pool.InTx(withdrawn(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
					runs++
					<-ctx.Done()
					_, err := tx.Update(ctx, "INSERT INTO t VALUES (3)")
					return err
				})
				require.ErrorIs(r, err, cause, "%s: %s", profile.Name, what)
				require.Equal(r, 1, runs, "%s: %s", profile.Name, what)
				time.Sleep(2 * time.Minute)
			}
		})
	}
}

// foreignFailures are errors of calls that have failed in several ways.
func foreignFailures(r *rig) map[string]error {
	failures := map[string]error{
		"a conflict": &Error{Op: "Update", Stage: backend.StageExecute, Fault: FaultStatement, SQLState: "40001", Err: errors.New("could not serialize access")},
		"unsent":     &Error{Op: "Update", Stage: backend.StageAcquire, Fault: FaultLimit, Unsent: true, Err: errors.New("no room")},
		"a read":     &Error{Op: "Query", Stage: backend.StageFetch, Fault: FaultTransport, Read: true, Err: errors.New("lost")},
	}
	tx := r.begin()
	r.srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, Do: testserver.Fail(codes.FailedPrecondition, "constraint violated")})
	failures["a refused commit"] = tx.Commit(r.Context())
	r.srv.Faults().Clear()
	_, failures["a statement"] = r.pool.Update(r.Context(), "INSERT INTO nowhere VALUES (1)")
	return failures
}

// In an errgroup the cause of a context is what another call has failed with. It says nothing of this one.
func TestTheCauseOfAContextIsNoFailureOfTheCall(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		s := r.session()
		for _, why := range []error{
			ErrClosed, &UnhealthyError{Reason: errors.New("another server's")}, &reservoir.ExhaustedError{MaxSize: 77, Cause: errors.New("another pool's")},
			&Error{Op: "Update", Stage: backend.StageExecute, Fault: FaultStatement, SQLState: "23505", Err: errors.New("duplicate key")},
			fmt.Errorf("another call: %w", context.DeadlineExceeded),
		} {
			ctx, end := context.WithCancelCause(r.Context())
			time.AfterFunc(time.Second, func() { end(why) })
			_, err := r.pool.Update(ctx, "SET a = 1")
			require.ErrorIs(r, err, why)
			require.ErrorContains(r, err, "context canceled")
			var e *Error
			require.ErrorAs(r, err, &e)
			require.Equal(r, FaultContext, e.Fault, "%v", err)
			require.Equal(r, backend.StageAcquire, e.Stage, "%v", err)
			require.Empty(r, e.SQLState, "%v", err)
			require.True(r, SafeToRetry(err), "%v", err)
		}
		require.NoError(r, s.Close())
	})
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		tx, err := r.pool.BeginTx(r.Context(), TxOptions{})
		require.NoError(r, err)
		ctx, end := context.WithCancelCause(r.Context())
		end(fmt.Errorf("another transaction: %w", ErrBusy))
		require.ErrorIs(r, tx.Commit(ctx), context.Canceled)
		time.Sleep(10 * time.Second) // no check of the connection is under way then
		require.Zero(r, r.pool.Stats().InUse, "Commit has given the connection back")
	})
}

// What prepares connections may have another pool, which is exhausted. That is no wait of this one's.
func TestNewDoesNotWaitForAnotherPool(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		calls, why := 0, errors.New("another pool's")
		_, err := New(r.Context(), "grpc://server:1", Config{Dialer: r.srv.Dial, OnConnect: func(context.Context, *SessionHandle) error {
			if calls++; calls > 1 {
				return errors.New("once more")
			}
			return fmt.Errorf("settings: %w", &reservoir.ExhaustedError{MaxSize: 77, Cause: why})
		}})
		require.ErrorIs(r, err, why)
		require.Equal(r, 1, calls)
	})
}
