package flightconn

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// Results that nobody reads take no more than their own windows: what else goes over the
// connection, and how it is closed, does not wait for their readers. Together they hold
// more here than the connection's window has.
func TestResultsThatStandStillHoldNothingElseUp(t *testing.T) {
	const results, batches, rows = 8, 12, 1 << 17 // of 1 MiB each
	batch := int64Batch(make([]int64, rows)...)
	defer batch.Release()
	f := &fake{info: infoOf(answer(int64Schema, "a"))}
	f.put = func(pb.FlightService_DoPutServer) error { return nil }
	f.action = func(_ *pb.Action, s pb.FlightService_DoActionServer) error { return s.Send(&pb.Result{}) }
	inBubble(t, f, func(b *bubble) {
		var sent, ended atomic.Int64
		f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
			defer ended.Add(1)
			w := flight.NewRecordWriter(s, ipc.WithSchema(int64Schema))
			for range batches {
				if err := w.Write(batch); err != nil {
					return err
				}
				sent.Add(1)
			}
			return w.Close()
		}
		c := b.open()
		began := time.Now()
		var streams []backend.Stream
		for range results {
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			s, err := c.Query(ctx, "q", backend.Call{})
			require.NoError(b, err)
			_, err = s.Next()
			require.NoError(b, err)
			streams = append(streams, s)
		}
		synctest.Wait()
		require.Greater(b, sent.Load()<<20, int64(connWindow), "they hold more than the connection's window")
		require.LessOrEqual(b, sent.Load(), int64(results*7), "and no more than their own, what was read, and what is in the buffers of both sides")

		_, err := c.Update(b.Context(), "u", backend.Call{})
		require.NoError(b, err)
		for _, s := range streams[:results-2] {
			s.Close()
		}
		synctest.Wait()
		require.EqualValues(b, results-2, ended.Load(), "one that is closed ends on the server")
		require.Len(b, values(b, streams[results-2]), (batches-1)*rows)
		s, err := c.Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		require.Len(b, values(b, s), batches*rows)
		var closed sync.WaitGroup
		closed.Go(func() { require.NoError(b, c.Close()) })
		closed.Wait()
		streams[results-1].Close()
		require.Zero(b, time.Since(began))
	})
}
