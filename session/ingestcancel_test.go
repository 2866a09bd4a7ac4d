package session

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// ingestingConn is GizmoSQL: its session answers beside an ingestion, which it does not count among
// its statements. A cancel it confirms for the one that it has failed to prepare before.
type ingestingConn struct {
	*orderConn
	running bool
	sent    []string // while it ran
}

func newIngestingConn() *ingestingConn {
	c := &ingestingConn{orderConn: &orderConn{fakeConn: &fakeConn{ignoresCancel: true, forgives: true}, order: &backend.StatementOrder{}, sideBySide: true}}
	c.order.SetConcurrent()
	c.steps = func(*backend.Operation) []cancel.Step {
		return []cancel.Step{{Name: "CancelFlightInfo", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) { return cancel.Confirmed, nil }}}
	}
	return c
}

// Ingest leaves an ingestion that goes on.
func (c *ingestingConn) Ingest(ctx context.Context, _ array.RecordReader, _ backend.IngestOptions, _ backend.Call) (int64, error) {
	c.running = true
	<-ctx.Done()
	return 0, &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultContext, Err: status.FromContextError(ctx.Err()).Err()}
}

func (c *ingestingConn) EndTx(ctx context.Context, tx backend.TxID, commit bool) error {
	if c.running {
		c.sent = append(c.sent, "EndTx")
	}
	return c.orderConn.EndTx(ctx, tx, commit)
}

// The next borrower's statements would run in the transaction of what goes on, and be lost with it; what is left of
// it behind a ROLLBACK would be stored.
func TestNoWordOfTheServersEndsAnIngestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, inTx := range []bool{false, true} {
			conn := newIngestingConn()
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			if inTx {
				must(t, r.handle.BeginTransaction(t.Context()))
			}
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			_, err := r.handle.Ingest(ctx, "t", tenRows(t), backend.IngestOptions{})
			stop()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.False(t, r.chains()[0].Confirmed)
			require.ErrorContains(t, r.discarded(), "may still run")
			require.Empty(t, conn.sent)
			require.False(t, r.policy.confirmsCancels.Load())
			require.ErrorIs(t, r.handle.Ping(t.Context()), backend.ErrSessionLost)
			must(t, r.handle.Close())
		}
	})
}

// spoiledConn is a server that ends an ingestion whose rows have failed, as it is made to by their error, and else when all
// of them are there.
type spoiledConn struct {
	*fakeConn
	took  int
	ended error
}

func (c *spoiledConn) Ingest(ctx context.Context, rows array.RecordReader, _ backend.IngestOptions, _ backend.Call) (int64, error) {
	for rows.Next() {
		c.took++
	}
	if c.ended = rows.Err(); c.ended != nil {
		return 0, &backend.Error{Stage: backend.StageExecute, Err: c.ended}
	}
	return int64(c.took), c.use(ctx, "ingest", time.Second)
}

// The end of a context reaches the server as rows that fail: it would take a stream that is cut for one that has ended. What
// has all rows is not cut before the budget is over.
func TestAnIngestionIsEndedWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			left  time.Duration
			whole bool
		}{"between two batches": {1500 * ms, false}, "behind the last": {3500 * ms, true}} {
			conn := &spoiledConn{fakeConn: &fakeConn{}}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			must(t, r.handle.BeginTransaction(t.Context()))
			given := 0
			rows := brokenReader{tenRows(t), func() bool { time.Sleep(time.Second); given++; return given < 3 }}
			ctx, stop := context.WithTimeout(t.Context(), tc.left)
			began := time.Now()
			_, err := r.handle.Ingest(ctx, "t", rows, backend.IngestOptions{})
			stop()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.Equal(t, tc.left, time.Since(began), name)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.Equal(t, tc.whole, conn.ended == nil, name)
			require.Equal(t, !tc.whole, errors.As(conn.ended, new(interface{ CallerLeft() })), "%s: nobody waits", name)
			require.Empty(t, r.chains(), "%s: it has ended", name)
			require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted, name)
			must(t, r.handle.Close())
			r.reused()
		}
	})
}

// pausingIngests takes its time between two batches, and counts them.
type pausingIngests struct {
	*fakeConn
	pause time.Duration
	took  int
}

func (c *pausingIngests) Ingest(_ context.Context, rows array.RecordReader, _ backend.IngestOptions, _ backend.Call) (int64, error) {
	for rows.Next() {
		c.took++
		time.Sleep(c.pause)
	}
	return 0, &backend.Error{Stage: backend.StageExecute, Err: rows.Err()}
}

// Rows whose caller has left are not read any more, nor is a batch sent that comes then: the reader may be at work on
// something else, or be released.
func TestRowsAreNotReadBehindACallerWhoHasLeft(t *testing.T) {
	for name, tc := range map[string]struct{ reads, sends time.Duration }{
		"while a batch is sent": {sends: time.Second},
		"while one is read":     {reads: 400 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &pausingIngests{fakeConn: &fakeConn{}, pause: tc.sends}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			var asked atomic.Int32
			rows := brokenReader{tenRows(t), func() bool { time.Sleep(tc.reads); asked.Add(1); return true }}
			ctx, stop := context.WithTimeout(t.Context(), 600*ms)
			defer stop()
			_, err := r.handle.Ingest(ctx, "t", rows, backend.IngestOptions{})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			synctest.Wait()
			left := asked.Load()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, 1, conn.took, name)
			if tc.reads == 0 {
				require.Equal(t, left, asked.Load(), name)
			}
			_ = r.handle.Close()
		})
	}
}
