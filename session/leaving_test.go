package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// A change that is several to a server which runs statements in whatever is open has the cancel budget for its answer, and so
// has whatever SwanLake is sent. Everything else is cut at once, and so is all on a server that confirms cancels.
func TestWhatIsLeftHasTimeForItsAnswerWhereACancelWouldEndNothing(t *testing.T) {
	const slow = "UPDATE SLOW 1s"
	rows := func(n ...int64) func(ctx context.Context, s *SessionHandle) error {
		return func(ctx context.Context, s *SessionHandle) error {
			batch := int64Batch(n...)
			defer batch.Release()
			_, err := s.UpdateWithRecordBatch(ctx, slow+" SET a = ?", batch)
			return err
		}
	}
	update := func(sql string) func(ctx context.Context, s *SessionHandle) error {
		return func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, sql); return err }
	}
	query := func(sql string) func(ctx context.Context, s *SessionHandle) error {
		return func(ctx context.Context, s *SessionHandle) error { return readAll(s.Query(ctx, sql)) }
	}
	asQuery := func(ctx context.Context, s *SessionHandle) error {
		return readAll(s.QueryWithOptions(ctx, slow+" RETURNING 1 ; "+slow+" RETURNING 2", QueryOptions{Route: RouteQuery}))
	}
	for name, tc := range map[string]struct {
		call      func(ctx context.Context, s *SessionHandle) error
		outside   bool // of a transaction
		knowsTx   bool // the server refuses unknown transactions
		confirms  bool // it confirms cancels
		runs      bool // it runs what it is to prepare
		hasBudget bool
	}{
		"two rows":                           {call: rows(1, 2), hasBudget: true},
		"two statements":                     {call: update(slow + " ; UPDATE 2"), hasBudget: true},
		"two statements, outside":            {call: update(slow + " ; UPDATE 2"), outside: true},
		"two rows, confirmed":                {call: rows(1, 2), confirms: true},
		"two rows, of a known transaction":   {call: rows(1, 2), knowsTx: true},
		"two statements, as a query":         {call: asQuery},
		"one row":                            {call: rows(1)},
		"one statement":                      {call: update(slow)},
		"a read of SwanLake's":               {call: query("SELECT SLOW 1s"), outside: true, runs: true, hasBudget: true},
		"a read of one that confirms, alike": {call: query("SELECT SLOW 1s"), outside: true, runs: true, confirms: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: !tc.knowsTx})
			r.policy.confirmsCancels.Store(tc.confirms)
			if tc.runs {
				r.policy.preparing.Store(int32(runsToPrepare))
			}
			if !tc.outside {
				must(t, r.handle.BeginTransaction(t.Context()))
			}
			ctx, stop := context.WithTimeout(t.Context(), 500*ms)
			defer stop()
			began := time.Now()
			err := tc.call(ctx, r.handle)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.Equal(t, 500*ms, time.Since(began), name)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, tc.hasBudget, len(r.chains()) == 0, "%s: cancelled %d times", name, len(r.chains()))
			_ = r.handle.Close()
		})
	}
}

// blockedIngestion has sent rows that nobody answers.
type blockedIngestion struct{ *fakeConn }

func (c blockedIngestion) Ingest(ctx context.Context, rows array.RecordReader, _ backend.IngestOptions, _ backend.Call) (int64, error) {
	for rows.Next() {
		continue
	}
	return 0, c.use(ctx, "ingest", time.Hour)
}

// What was sent last of an ingestion may just have left, however long ago it began: its reader takes any time. On a server that
// ignores the ids of transactions nothing overtakes it.
func TestAnIngestionThatIsCutMayComeToItsTurn(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			conn := blockedIngestion{&fakeConn{}}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			r.policy.ignoresTxIDs.Store(ignores)
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			_, err := r.handle.Ingest(ctx, "t", tenRows(t), backend.IngestOptions{})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cut := time.Now().Add(r.policy.budget())
			_ = r.handle.Ping(t.Context()) // waits for the end of the chain
			want := time.Duration(0)
			if ignores {
				want = r.policy.grace()
			}
			require.Equal(t, want, time.Since(cut))
			_ = r.handle.Close()
		})
	}
}

// A server without transactions ignores no ids of them: what is cut there is stopped at once.
func TestAServerWithoutTransactionsIgnoresNoneOfTheirIDs(t *testing.T) {
	for name, begin := range map[string]error{
		"none":       &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "no transactions")},
		"not now":    &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.PermissionDenied, "no")},
		"has begun ": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true, failOnce: map[string][]error{"Begin": {begin}}})
			require.Equal(t, begin != nil, r.handle.BeginTransaction(t.Context()) != nil, name)
			if begin == nil {
				must(t, r.handle.Rollback(t.Context()))
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
			defer stop()
			_, err := r.handle.Update(ctx, "UPDATE SLOW 1m")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cut := time.Now()
			must(t, r.handle.Ping(t.Context()))
			require.Equal(t, begin == nil, time.Since(cut) > 0, "%s: the statement has time to come to its turn", name)
			must(t, r.handle.Close())
		})
	}
}

// Nobody is told of the end of a call that was refused before anything of it was sent, nor that the server has answered one
// that failed.
func TestTheOwnerIsToldOfWhatWasSentAndAnswered(t *testing.T) {
	for name, tc := range map[string]struct {
		call            func(ctx context.Context, s *SessionHandle) error
		ended, answered int
	}{
		"answered":                {func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, "INSERT 1"); return err }, 1, 1},
		"refused by the server":   {func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, "INSERT bad"); return err }, 1, 0},
		"refused by the session":  {func(ctx context.Context, s *SessionHandle) error { return s.Commit(ctx) }, 0, 0},
		"refused for its text":    {func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, "BEGIN"); return err }, 0, 0},
		"a result that is broken": {func(ctx context.Context, s *SessionHandle) error { return readAll(s.Query(ctx, "SELECT bad")) }, 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{work: map[string]time.Duration{"INSERT 1": time.Second}})
			ended, answered := []time.Duration{}, 0
			r.policy.Observe.Ended = func(took time.Duration) { ended = append(ended, took) }
			r.policy.Observe.Answered = func() { answered++ }
			err := tc.call(t.Context(), r.handle)
			require.Equal(t, tc.answered == 0, err != nil, "%s: %v", name, err)
			require.Len(t, ended, tc.ended, name)
			for _, took := range ended {
				require.LessOrEqual(t, took, time.Second, name)
			}
			require.Equal(t, tc.answered, answered, name)
			must(t, r.handle.Close())
		})
	}
}

// Rows that are read on behind their reader keep nobody: who closes the handle ends the read of another goroutine at once.
func TestTheClosingOfTheHandleEndsAReadThatIsNotCancelled(t *testing.T) {
	for _, noCancel := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{pace: time.Minute, deaf: true})
			res, err := r.handle.QueryWithOptions(t.Context(), "SELECT 3", QueryOptions{NoCancel: noCancel})
			must(t, err)
			require.True(t, res.Next()) // it was fetched by the query
			time.AfterFunc(time.Second, func() { _ = r.handle.Close() })
			began := time.Now()
			require.False(t, res.Next())
			require.Equal(t, time.Second, time.Since(began))
			require.ErrorIs(t, res.Err(), backend.ErrHandleClosed)
			res.Release()
			time.Sleep(time.Hour)
		})
	}
}

// A handle of a single call has given its connection back with the end of that: another call of it sends nothing.
func TestAHandleOfASingleCallTakesNoOther(t *testing.T) {
	for name, fails := range map[string]bool{"INSERT 1": false, "INSERT bad": true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			s := r.stateless()
			_, err := s.Update(t.Context(), name)
			require.Equal(t, fails, err != nil)
			r.reused()
			sent := len(r.conn.Log())
			_, err = s.Update(t.Context(), "INSERT 2")
			require.ErrorIs(t, err, backend.ErrHandleClosed)
			require.Len(t, r.conn.Log(), sent)
			r.reused()
			must(t, s.Close())
			require.False(t, errors.Is(err, backend.ErrBusy))
		})
	}
}
