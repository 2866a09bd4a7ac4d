package flightpool

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

func TestStatsTellHowLongThingsTake(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, MinIdle: -1, HealthCheck: HealthCheck{Interval: -1}}, func(r *rig) {
		type want struct {
			waits, holds, opens, firstBatches, calls int
			wait, hold, open, firstBatch, call       time.Duration
		}
		require.NoError(r, r.pool.Ping(r.Context()))
		was := r.pool.Stats().Times
		gives := func(w want) {
			r.Helper()
			time.Sleep(time.Minute) // what is behind a call is over
			synctest.Wait()
			is := r.pool.Stats().Times
			for name, d := range map[string]struct {
				was, is Durations
				n       int
				sum     time.Duration
			}{
				"Wait": {was.Wait, is.Wait, w.waits, w.wait}, "Hold": {was.Hold, is.Hold, w.holds, w.hold}, "Open": {was.Open, is.Open, w.opens, w.open},
				"FirstBatch": {was.FirstBatch, is.FirstBatch, w.firstBatches, w.firstBatch}, "Call": {was.Call, is.Call, w.calls, w.call},
			} {
				require.EqualValues(r, d.n, d.is.Count()-d.was.Count(), name)
				require.InDelta(r, d.sum.Seconds(), d.is.Seconds()-d.was.Seconds(), 1e-6, name)
			}
			was = is
		}
		slow := func(on testserver.Point, by time.Duration) {
			r.srv.Faults().Set(testserver.Fault{On: on, Times: 1, Do: testserver.Delay(by)})
		}

		slow(testserver.OnBatch, 2*time.Second)
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		gives(want{waits: 1, holds: 1, hold: 2 * time.Second, firstBatches: 1, firstBatch: 2 * time.Second, calls: 1, call: 2 * time.Second})

		s := r.session()
		time.AfterFunc(3*time.Second, func() { _ = s.Close() })
		res, err := r.pool.Query(r.Context(), "SELECT 1")
		require.NoError(r, err)
		time.Sleep(5 * time.Second)
		require.True(r, res.Next())
		require.False(r, res.Next())
		res.Release()
		gives(want{waits: 2, wait: 3 * time.Second, holds: 2, hold: 8 * time.Second, firstBatches: 1, calls: 1, call: 5 * time.Second})

		s = r.session()
		_, err = s.Update(r.Context(), "SET a = 1")
		require.NoError(r, err)
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		_, err = r.pool.Query(ctx, "SELECT 1")
		require.ErrorIs(r, err, ErrExhausted)
		require.NoError(r, s.Close())
		gives(want{waits: 1, holds: 1, hold: time.Second, calls: 1})

		r.pool.Reset()
		slow(testserver.OnSession, 4*time.Second)
		require.NoError(r, r.pool.Ping(r.Context()))
		gives(want{waits: 1, wait: 4 * time.Second, holds: 1, opens: 1, open: 4 * time.Second, calls: 1})

		slow(testserver.OnSession, time.Hour)
		r.pool.Reset()
		require.Error(r, r.pool.Ping(r.Context()))
		gives(want{})

		require.Equal(r, "6, mean 1.833333s, 50% 1.048576s, 99% 5.24288s, 100% 5.24288s", fmt.Sprint(was.Hold), "bounds of buckets")
	})
}
