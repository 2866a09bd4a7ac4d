package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/rowscan"
)

// What ran, what failed and what was not sent, in a transaction and outside of one.
func TestABatchSaysHowFarItCame(t *testing.T) {
	conflict := &backend.Error{Fault: backend.FaultStatement, SQLState: "40001", Err: errors.New("conflict")}
	for name, c := range map[string]struct {
		at, sent  int  // the statement that fails, and how many were sent
		own       bool // it is its function that does
		conflicts bool // outside of a transaction
		text      string
	}{
		"the first":    {0, 1, false, true, "statement 1 of 3 of a batch (UPDATE t), 2 not sent: "},
		"the second":   {1, 2, false, false, "statement 2 of 3 of a batch (UPDATE t), 1 not sent: "},
		"the last":     {2, 3, false, false, "statement 3 of 3 of a batch (UPDATE t): "},
		"its function": {0, 1, true, false, "statement 1 of 3 of a batch (UPDATE t), 2 not sent: "},
		"none":         {3, 3, false, false, ""},
	} {
		for _, inTx := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{fail: map[string]error{}})
				if inTx {
					must(t, r.handle.BeginTransaction(t.Context()))
				}
				before := len(r.conn.Log())
				var b Batch
				for i := range 3 {
					sql := "UPDATE t SET a = " + string(rune('0'+i))
					q := b.Queue(sql)
					if i == c.at && c.own {
						q.Query(func(*QueryResult) error { return conflict })
					} else if i == c.at {
						r.conn.fail[sql] = conflict
					}
				}
				err := r.handle.SendBatch(t.Context(), &b)
				require.Len(t, r.conn.Log()[before:], c.sent, name)
				if c.at == 3 {
					require.NoError(t, err)
				} else {
					var failed *BatchError
					require.ErrorAs(t, err, &failed)
					require.Equal(t, []int{c.at, 3}, []int{failed.Index, failed.Len})
					require.ErrorContains(t, err, c.text)
					require.ErrorIs(t, err, conflict.Err)
					require.Equal(t, c.conflicts || inTx, backend.IsConflict(err), "%s %t", name, inTx)
					require.Equal(t, !c.conflicts && !inTx, failed.PartlyDone(), name)
					require.False(t, backend.SafeToRetry(err))
				}
				if !inTx {
					require.NoError(t, r.handle.SendBatch(t.Context(), &Batch{}), "the handle is free")
				}
				must(t, r.handle.Close())
				r.clean(name)
			})
		}
	}
}

// A read that is repeated does no harm where nothing has run before it.
func TestOnlyTheFirstReadOfABatchIsSafeToRepeat(t *testing.T) {
	for at, safe := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{fail: map[string]error{"SELECT 9": transportError()}})
			var b Batch
			for range at {
				b.Queue("SELECT 1")
			}
			b.Queue("SELECT 9")
			err := r.handle.SendBatch(t.Context(), &b)
			require.Error(t, err)
			require.Equal(t, safe, backend.SafeToRetry(err))
			_ = r.handle.Close()
		})
	}
}

// Rows that nobody reads are read on, those of a function only as far as it wants them,
// and none is open when the next statement comes.
func TestWhatAFunctionLeavesOfItsResultIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{"stream": errors.New("the end of all rows")}})
		var b Batch
		b.Queue("SELECT 5")
		require.ErrorContains(t, r.handle.SendBatch(t.Context(), &b), "the end of all rows")
		delete(r.conn.fail, "stream")

		var kept *QueryResult
		b = Batch{}
		b.Queue("SELECT 5").Query(func(rows *QueryResult) error {
			rows.Retain()
			kept = rows
			require.True(t, rows.Next())
			return nil
		})
		b.Queue("UPDATE t SET a = 1")
		must(t, r.handle.SendBatch(t.Context(), &b))
		require.False(t, kept.Next())

		b = Batch{}
		b.Queue("SELECT 5").Query(func(rows *QueryResult) error {
			rows.Retain()
			panic("the caller's")
		})
		require.PanicsWithValue(t, "the caller's", func() { _ = r.handle.SendBatch(t.Context(), &b) })
		_, err := r.handle.Update(t.Context(), "UPDATE t SET a = 2")
		require.NoError(t, err)
		must(t, r.handle.Close())
		r.clean()
	})
}

// A batch ends with its context, also between its statements.
func TestABatchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithCancel(t.Context())
		var b Batch
		b.Queue("UPDATE t SET a = 1").Query(func(*QueryResult) error { stop(); return nil })
		b.Queue("UPDATE t SET a = 2")
		err := r.handle.SendBatch(ctx, &b)
		var failed *BatchError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, 1, failed.Index)
		require.ErrorIs(t, err, context.Canceled)
		var e *backend.Error
		require.True(t, errors.As(err, &e) && e.Unsent)
		require.Len(t, r.conn.Log(), 1)
		must(t, r.handle.Close())
		r.clean()
	})
}

func TestAQueuedStatementScansItsFirstRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{value: 40})
		var n int
		var b Batch
		b.Queue("SELECT 3").Scan(&n)
		must(t, r.handle.SendBatch(t.Context(), &b))
		require.Equal(t, 42, n)
		b.Queue("SELECT 0").Scan(&n)
		require.ErrorIs(t, r.handle.SendBatch(t.Context(), &b), rowscan.ErrNoRows)
		must(t, r.handle.Close())
		r.clean()
	})
}

// The arguments are those of Queue, whatever becomes of the caller's slice.
func TestTheArgumentsOfAQueuedStatementAreItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		var b Batch
		args := []any{int64(7)}
		b.Queue("UPDATE t SET a = ?", args...)
		args[0] = int64(8)
		must(t, r.handle.SendBatch(t.Context(), &b))
		require.Len(t, r.conn.executedWith(), 1)
		require.Contains(t, r.conn.executedWith()[0], "7")
		must(t, r.handle.Close())
	})
}

// A failure of the result is told beside that of its function, once.
func TestABatchTellsOfTheResultAndOfItsFunction(t *testing.T) {
	own := errors.New("the function's own")
	for name, c := range map[string]struct {
		read func(*QueryResult) error
		want error
	}{
		"both": {func(rows *QueryResult) error { return errors.Join(own, drained(rows, nil)) }, own},
		"the function's, of a result that fails behind it": {func(rows *QueryResult) error { _ = drained(rows, nil); return own }, own},
		"none":         {func(rows *QueryResult) error { _ = drained(rows, nil); return nil }, nil},
		"the result's": {func(rows *QueryResult) error { return drained(rows, nil) }, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{fail: map[string]error{"stream": sqlError("the end of all rows")}})
			var b Batch
			b.Queue("SELECT 5").Query(c.read)
			err := r.handle.SendBatch(t.Context(), &b)
			require.Equal(t, 1, strings.Count(err.Error(), "the end of all rows"), "%s: %v", name, err)
			require.Equal(t, c.want != nil, errors.Is(err, own), "%s: %v", name, err)
			must(t, r.handle.Close())
		})
	}
}

// What has run of the statement that failed, or before it in a transaction that a function has
// ended, stays.
func TestABatchIsPartlyDoneWhereSomethingStays(t *testing.T) {
	for name, c := range map[string]struct {
		inTx  bool
		queue func(b *Batch, s *SessionHandle)
		want  bool
	}{
		"a refused statement": {queue: func(b *Batch, _ *SessionHandle) { b.Queue("BAD") }},
		"a script":            {queue: func(b *Batch, _ *SessionHandle) { b.Queue("INSERT INTO t VALUES (1); INSERT INTO bad VALUES (1)") }, want: true},
		"a read":              {queue: func(b *Batch, _ *SessionHandle) { b.Queue("SELECT 1 FROM bad") }},
		"in a transaction":    {inTx: true, queue: func(b *Batch, _ *SessionHandle) { b.Queue("INSERT 1"); b.Queue("BAD") }},
		"in one that a function ends": {inTx: true, want: true, queue: func(b *Batch, s *SessionHandle) {
			b.Queue("INSERT 1").Query(func(*QueryResult) error { return s.Commit(context.Background()) })
			b.Queue("BAD")
		}},
		"in one that a function begins": {want: true, queue: func(b *Batch, s *SessionHandle) {
			b.Queue("INSERT 1").Query(func(*QueryResult) error { return s.BeginTransaction(context.Background()) })
			b.Queue("BAD")
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			if c.inTx {
				must(t, r.handle.BeginTransaction(t.Context()))
			}
			var b Batch
			c.queue(&b, r.handle)
			var failed *BatchError
			require.ErrorAs(t, r.handle.SendBatch(t.Context(), &b), &failed)
			require.Equal(t, c.want, failed.PartlyDone(), name)
			_ = r.handle.Close()
		})
	}
}

// An error that is no backend's says of no statement that some of it was stored.
func TestABatchIsNotPartlyDoneForAnErrorOfNoBackend(t *testing.T) {
	require.False(t, (&BatchError{Len: 1, Err: errors.New("no"), alone: true}).PartlyDone())
	require.True(t, (&BatchError{Len: 1, Err: errors.New("no"), alone: true, answered: true}).PartlyDone())
	require.True(t, (&BatchError{Len: 1, Err: &backend.Error{Partial: true, Err: errors.New("no")}, alone: true}).PartlyDone())
}

// What a function has queued is let go, and its error is told as it is.
func TestABatchKeepsNothingOfItsFunctionsButTheirError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		var b Batch
		own := errors.Join(errors.New("one line"), errors.New("and another"))
		b.Queue("SELECT 1").Query(func(*QueryResult) error {
			b.Queue("SELECT 2").Query(func(*QueryResult) error { return own })
			return nil
		})
		var failed *BatchError
		require.ErrorAs(t, r.handle.SendBatch(t.Context(), &b), &failed)
		require.Equal(t, []int{1, 2}, []int{failed.Index, failed.Len})
		require.True(t, failed.Err == own, "%v", failed.Err) //nolint:errorlint // itself
		require.Equal(t, 1, b.Len())
		require.Nil(t, b.queued[:2][1])
		must(t, r.handle.Close())
	})
}

func TestABatchWhoseFunctionEndsTheGoroutineEndsForItsTracer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := traced(t, &fakeConn{})
		var b Batch
		b.Queue("SELECT 5").Query(func(*QueryResult) error { runtime.Goexit(); return nil })
		go func() { _ = r.handle.SendBatch(t.Context(), &b) }()
		time.Sleep(time.Minute) // the rest of the result is read behind it
		synctest.Wait()
		require.Contains(t, l.heard(), "end batch fake:1 7: 1")
		require.True(t, slices.ContainsFunc(l.outcomes(), func(o Outcome) bool { return o.RowsAffected == 0 && errors.Is(o.Err, errCallbackExited) }), "%v", l.outcomes())
		must(t, r.handle.Close())
		r.clean()
	})
}

// Handles, results and batches print neither texts nor values, under any verb.
func TestWhatIsPrintedHasNoTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		var b Batch
		q := b.Queue("UPDATE secret SET a = ?", "secret")
		res, err := r.handle.Query(t.Context(), "SELECT 1 -- secret")
		must(t, err)
		must(t, drained(res, nil))
		stmt, err := r.handle.PrepareQuery(t.Context(), "SELECT 1 -- secret")
		must(t, err)
		for _, v := range []any{b, &b, *q, q, res, r.handle, stmt} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
				text := fmt.Sprintf(verb, v)
				require.Contains(t, text, "flightpool", verb)
				require.NotContains(t, text, "secret", verb)
			}
		}
		must(t, r.handle.Close())
	})
}
