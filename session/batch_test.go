package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
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
