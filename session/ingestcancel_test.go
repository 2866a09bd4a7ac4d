package session

import (
	"context"
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
