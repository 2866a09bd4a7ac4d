package flightpool

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// idRecorder notes the connections that a tracer is told of.
type idRecorder struct{ seen []string }

func (r *idRecorder) note(what, op string, id uint64) {
	r.seen = append(r.seen, fmt.Sprint(what, " ", op, " ", id))
}

func (r *idRecorder) TraceQueryStart(ctx context.Context, d QueryStartData) context.Context {
	r.note("call", d.Op, d.ConnectionID)
	return ctx
}
func (*idRecorder) TraceQueryEnd(context.Context, QueryEndData) {}

func (r *idRecorder) TraceIngestStart(ctx context.Context, d IngestStartData) context.Context {
	r.note("call", d.Table, d.ConnectionID)
	return ctx
}
func (r *idRecorder) TraceIngestEnd(_ context.Context, d IngestEndData) {
	r.note("end", d.Table, d.ConnectionID)
}

func (*idRecorder) TraceAcquireStart(ctx context.Context, _ AcquireStartData) context.Context {
	return ctx
}

func (r *idRecorder) TraceAcquireEnd(_ context.Context, d AcquireEndData) {
	r.note("acquire", d.Op, d.ConnectionID)
}

func (r *idRecorder) TraceRelease(_ context.Context, d ReleaseData) {
	r.note("release", "", d.ConnectionID)
}

func TestATracerIsToldTheConnectionsOfConnections(t *testing.T) {
	var seen idRecorder
	cfg := Config{MaxSize: 1, Tracer: &seen, MaxLifetime: time.Hour, LifetimeJitter: -1, GuardWindow: -1, HealthCheck: HealthCheck{Interval: -1}}
	inBubble(t, testserver.Strict(), cfg, func(r *rig) {
		began := time.Now()
		before := r.pool.Connections()
		require.Len(r, before, 1)
		c := before[0]
		require.False(r, c.InUse || c.OnLoan)
		require.Equal(r, began, c.Opened)
		require.Equal(r, began.Add(time.Hour), c.Expires)
		took := func(want ...string) {
			r.Helper()
			require.Equal(r, want, seen.seen)
			seen.seen = nil
		}
		with := func(what string) string { return fmt.Sprint(what, " ", c.ID) }

		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		took("call Query 0", with("acquire Query"), with("release "))

		time.Sleep(time.Minute)
		s := r.session()
		now := r.pool.Connections()[0]
		require.True(r, now.InUse && now.OnLoan)
		require.Equal(r, time.Now(), now.Used)
		require.Equal(r, c.Loans+2, now.Loans)
		require.Equal(r, "1", r.value(s, "SELECT 1"))
		_, err := s.Ingest(r.Context(), "t", r.rows(2), IngestOptions{})
		require.NoError(r, err)
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		require.Error(r, r.pool.Ping(ctx), "there is one connection")
		require.NoError(r, s.Close())
		took(with("acquire AcquireSession"), with("call Query"), with("call t"), with("end t"), "call Ping 0", "acquire Ping 0", with("release "))
	})
}

func TestDurationsSince(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		before := r.pool.Stats().Times
		s := r.session()
		time.AfterFunc(3*time.Second, func() { _ = s.Close() })
		require.NoError(r, r.pool.Ping(r.Context()))
		after := r.pool.Stats().Times
		since := after.Wait.Since(&before.Wait)
		require.EqualValues(r, 2, since.Count())
		require.Equal(r, after.Wait.Quantile(1), since.Quantile(1), "three seconds")
		require.InDelta(r, 3, since.Seconds(), 1e-6)
	})
}
