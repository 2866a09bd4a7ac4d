package session

import (
	"context"
	"errors"
	"strings"
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
	"github.com/flightpool/flightpool/cancel"
)

// countingContext counts who waits for its end.
type countingContext struct {
	context.Context
	waiting atomic.Int32
}

func (c *countingContext) AfterFunc(f func()) (stop func() bool) {
	c.waiting.Add(1)
	unhook := context.AfterFunc(c.Context, f)
	return func() bool {
		c.waiting.Add(-1)
		return unhook()
	}
}

// A context may live as long as its program: what is hung on it for a call goes
// with the call.
func TestNothingOfACallStaysWithItsCallersContext(t *testing.T) {
	for name, call := range everyCall(nil) {
		if name == "PreparedQuery.Query" || name == "PreparedQuery.Update" {
			continue
		}
		for _, refused := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				long, stop := context.WithCancel(t.Context())
				defer stop()
				ctx := &countingContext{Context: long}
				r := newRig(t, &fakeConn{})
				if refused {
					r.conn.failAll = sqlError("no")
				}
				r.policy.QueryTimeout = time.Hour
				_ = call(ctx, r.handle)
				_ = r.handle.Close()
				synctest.Wait()
				require.Zero(t, ctx.waiting.Load(), name)
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		long, stop := context.WithCancel(t.Context())
		defer stop()
		ctx := &countingContext{Context: long}
		r := newRig(t, &fakeConn{})
		res, err := r.handle.Query(t.Context(), "SELECT 3")
		must(t, err)
		table, err := res.ReadAll(ctx)
		must(t, err)
		table.Release()
		require.Zero(t, ctx.waiting.Load())
	})
}

// The context of ReadAll bounds the reading, beside that of the query.
func TestReadAllEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{pace: time.Second})
		res, err := r.handle.Query(t.Context(), "SELECT 600")
		must(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		start := time.Now()
		_, err = res.ReadAll(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(start))
		must(t, r.handle.Ping(t.Context()))
		must(t, r.handle.Close())
		r.reused()
		r.clean()
	})
}

// Who is cut off is told by whom: its context, or the Close of the handle.
func TestACallThatIsCutOffSaysWhatHasCutIt(t *testing.T) {
	slow := map[string]func(ctx context.Context, s *SessionHandle) error{
		"Update": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Update(ctx, "UPDATE SLOW 1h")
			return err
		},
		"Query": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Query(ctx, "SELECT SLOW 1h")
			return err
		},
		"reading": func(ctx context.Context, s *SessionHandle) error {
			res, err := s.Query(ctx, "SELECT 3600")
			if err != nil {
				return err
			}
			defer res.Release()
			for res.Next() {
			}
			return res.Err()
		},
		"batches": func(ctx context.Context, s *SessionHandle) (last error) {
			res, err := s.Query(ctx, "SELECT 3600")
			if err != nil {
				return err
			}
			for _, err := range res.Batches() {
				last = err
			}
			return last
		},
		"a result that nobody reads": func(ctx context.Context, s *SessionHandle) error {
			res, err := s.Query(ctx, "SELECT 3600")
			if err != nil {
				return err
			}
			defer res.Release()
			time.Sleep(time.Minute)
			if res.Next() {
				return errors.New("a result that has ended has a row")
			}
			return res.Err()
		},
		"Ingest": func(ctx context.Context, s *SessionHandle) error {
			empty, err := array.NewRecordReader(fakeSchema, nil)
			if err != nil {
				return err
			}
			_, err = s.Ingest(ctx, "t", brokenReader{empty, func() bool { <-ctx.Done(); time.Sleep(10 * ms); return false }}, backend.IngestOptions{})
			return err
		},
		"Update, without cancel": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.UpdateWithOptions(ctx, "UPDATE SLOW 1h", QueryOptions{NoCancel: true})
			return err
		},
		"reading, without cancel": func(ctx context.Context, s *SessionHandle) error {
			res, err := s.QueryWithOptions(ctx, "SELECT 3600", QueryOptions{NoCancel: true})
			if err != nil {
				return err
			}
			defer res.Release()
			for res.Next() {
			}
			return res.Err()
		},
	}
	for name, call := range slow {
		for _, end := range []string{"deadline", "cancel", "close"} {
			if end == "close" && (name == "Ingest" || name == "Update, without cancel") {
				continue // the reader waits for the context; the call goes on
			}
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{pace: time.Second})
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				want := context.Canceled
				switch end {
				case "deadline":
					ctx, stop = context.WithTimeout(ctx, 10*time.Second)
					defer stop()
					want = context.DeadlineExceeded
				case "cancel":
					time.AfterFunc(10*time.Second, stop)
				case "close":
					time.AfterFunc(10*time.Second, func() { _ = r.handle.Close() })
					want = backend.ErrHandleClosed
				}
				start := time.Now()
				err := call(ctx, r.handle)
				require.ErrorIs(t, err, want, "%s, %s", name, end)
				if name != "a result that nobody reads" {
					require.Equal(t, 10*time.Second, time.Since(start), "%s, %s", name, end)
				}
				var e *backend.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, []any{backend.FaultContext, "fake:1"}, []any{e.Fault, e.Target}, "%s, %s: %v", name, end, err)
				if !errors.Is(want, backend.ErrHandleClosed) {
					require.Equal(t, want, e.Ctx, "%s, %s: %v", name, end, err)
				}
				require.Equal(t, name == "Update, without cancel", strings.Contains(err.Error(), "left to finish on the server"), "%s, %s: %v", name, end, err)
				time.Sleep(3 * time.Hour)
				_ = r.handle.Close()
				synctest.Wait()
				r.reused()
				r.clean()
			})
		}
	}
}

// wrappingConn is a connection of a driver with errors of its own.
type wrappingConn struct{ *fakeConn }

type driverError struct{ error }

func (e driverError) Unwrap() error { return e.error }

func (wrappingConn) WrapContextError(err error) error { return driverError{err} }

func TestACallThatItsCallerLeavesFailsAsItsDriverWould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := wrappingConn{&fakeConn{}}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := r.handle.UpdateWithOptions(ctx, "UPDATE SLOW 1h", QueryOptions{NoCancel: true})
		require.ErrorAs(t, err, new(driverError))
		require.Equal(t, codes.Canceled, status.Code(err))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Hour)
		must(t, r.handle.Close())
	})
}

// What the server named is being read, not executed.
func TestTheStageOfACallThatIsLeftTellsHowFarItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for sql, want := range map[string]backend.Stage{"SELECT 2": backend.StageFetch, "UPDATE SLOW 1h": backend.StageExecute} {
			r := newRig(t, &fakeConn{pace: time.Hour})
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			_, err := r.handle.QueryWithOptions(ctx, sql, QueryOptions{NoCancel: true})
			var e *backend.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, want, e.Stage, sql)
			time.Sleep(24 * time.Hour)
			must(t, r.handle.Close())
			r.clean()
		}
	})
}

// A result that comes when its caller has left is ended, and what it holds is let
// go.
func TestAResultThatComesLateIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, sql := range map[string]string{"with rows": "SELECT 3 SLOW 1m", "without rows": "SELECT 0 SLOW 1m", "that fails": "SELECT bad SLOW 1m"} {
			for _, params := range []arrow.RecordBatch{nil, int64Batch(1)} {
				r := newRig(t, &fakeConn{})
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				_, err := r.stateless().QueryWithOptions(ctx, sql, QueryOptions{NoCancel: true, Params: params})
				stop()
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
				time.Sleep(10 * time.Minute)
				r.reused()
				r.clean(name)
			}
		}
	})
}

// A statement that was being prepared when its caller left is closed.
func TestAPreparedStatementThatComesLateIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{work: map[string]time.Duration{"Prepare": 2 * time.Second}})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := r.handle.PrepareQuery(ctx, "SELECT 2")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		must(t, r.handle.Ping(t.Context()))
		r.clean()
		must(t, r.handle.Close())
		r.reused()
	})
}

// The report of a cancel says of each step what it came to.
func TestTheReportOfACancelSaysWhatEachStepCameTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{ignoresCancel: true}
		words := errors.New("the server's words")
		conn.steps = func(*backend.Operation) []cancel.Step {
			return []cancel.Step{
				{Name: "unsupported", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) { return cancel.Unsupported, words }},
				{Name: "failed", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) { return cancel.Failed, words }},
				{Name: "unanswered", Timeout: time.Second, Do: func(ctx context.Context) (cancel.Outcome, error) {
					<-ctx.Done()
					return cancel.Failed, words
				}},
			}
		}
		r := newRig(t, conn)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := r.handle.Update(ctx, "UPDATE SLOW 1h")
		require.Error(t, err)
		time.Sleep(time.Minute)
		report := r.chains()[0]
		require.False(t, report.Confirmed)
		outcomes := map[string]cancel.Outcome{}
		for _, step := range report.Steps {
			outcomes[step.Name] = step.Outcome
			require.Error(t, step.Err, step.Name)
		}
		require.Equal(t, map[string]cancel.Outcome{
			"rpc": cancel.Requested, "unsupported": cancel.Unsupported, "failed": cancel.Failed, "unanswered": cancel.Unanswered, "probe": cancel.Requested,
		}, outcomes)
		_ = r.handle.Close()
		_ = r.discarded()
	})
}

// A transport that ends during the cancel ends the chain.
func TestALostTransportIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{ignoresCancel: true}
		r := newRig(t, conn)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		time.AfterFunc(1100*ms, conn.cut)
		_, err := r.handle.Update(ctx, "UPDATE SLOW 1h")
		require.Error(t, err)
		time.Sleep(time.Minute)
		require.ErrorIs(t, r.handle.Ping(t.Context()), backend.ErrSessionLost)
		_ = r.discarded()
	})
}

// A session that its borrower gives up says why its connection is closed, also where no reason was given; and what cannot be taken back.
func TestASessionThatIsGivenUpSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := errors.New("mine")
		for why, want := range map[error]error{mine: mine, nil: errNoReason} {
			r := newRig(t, &fakeConn{})
			must(t, r.handle.Discard(why))
			require.ErrorIs(t, r.discarded(), want)
		}
		conn := &panickyConn{fakeConn: &fakeConn{}}
		r := newRig(t, conn.fakeConn)
		r.handle.conn = conn
		must(t, r.handle.BeginTransaction(t.Context()))
		conn.end = true
		require.ErrorContains(t, r.handle.Discard(mine), "an interceptor's")
		require.ErrorContains(t, r.discarded(), "an interceptor's")
	})
}
