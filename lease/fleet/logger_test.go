package fleet

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// bomb is a handler of the user's that panics.
type bomb struct {
	slog.Handler
	logged *atomic.Int32
}

func (b bomb) Enabled(context.Context, slog.Level) bool { return true }

func (b bomb) Handle(context.Context, slog.Record) error {
	b.logged.Add(1)
	panic("the user's")
}

// A Logger that panics ends neither the process nor the budgets, which log on goroutines of their own.
func TestALoggerThatPanicsEndsNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bomb{slog.DiscardHandler, &atomic.Int32{}}
		p := newProcess(newWorld(), 1, calm)
		leases, err := New(t.Context(), p, Config{Budget: "l", Limit: 10, Want: 2, Logger: slog.New(b)})
		require.NoError(t, err)
		limiter, err := NewLimiter(t.Context(), p, LimiterConfig{Budget: "b", Logger: slog.New(b)})
		require.NoError(t, err)
		release, err := leases.Acquire(t.Context())
		require.NoError(t, err)
		p.set(func(p *process) { p.outage = time.Now().Add(5 * time.Minute) })
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			_ = limiter.Wait(ctx)
			cancel()
			time.Sleep(30 * time.Second)
		}
		require.GreaterOrEqual(t, b.logged.Load(), int32(2), "the outage of either")
		time.Sleep(time.Minute)
		release()
		release, err = leases.Acquire(t.Context())
		require.NoError(t, err)
		release()
		require.NoError(t, limiter.Wait(t.Context()))
		require.NoError(t, leases.Close(t.Context()))
		require.NoError(t, limiter.Close(t.Context()))
	})
}
