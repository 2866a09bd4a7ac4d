package fleet

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// Close is bounded by its context, whatever a function does that was
// registered.
func TestCloseEndsWithItsContextThoughAHolderIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l, _ := join(t, w, 1, Config{Limit: 2})
		hold := make(chan struct{})
		l.OnRevoke(func(lease.Revocation) { <-hold })
		l.revoke(time.Second, errLapsed)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- l.Close(ctx) }()
		var err error
		ended := true
		select {
		case err = <-done:
		case <-time.After(time.Minute):
			ended = false
		}
		close(hold)
		if !ended {
			<-done
		}
		require.True(t, ended, "Close went on for a minute")
		require.NoError(t, err)
		require.Zero(t, w.used())
	})
}

// A hangingStore does not heed contexts, or panics, once it is told to.
type hangingStore struct {
	*Memory
	fault atomic.Pointer[func()]
}

func (s *hangingStore) Read(ctx context.Context, keys ...string) (Snapshot, error) {
	if f := s.fault.Load(); f != nil {
		(*f)()
	}
	return s.Memory.Read(ctx, keys...)
}

func (s *hangingStore) Write(ctx context.Context, c Change) (Answer, error) {
	if f := s.fault.Load(); f != nil {
		(*f)()
	}
	return s.Memory.Write(ctx, c)
}

// What a store does in a request is a failure of that request alone.
func TestAStoreThatHangsOrPanicsHoldsNobodyUp(t *testing.T) {
	for name, fault := range map[string]func(hang chan struct{}){
		"hangs": func(hang chan struct{}) { <-hang }, "panics": func(chan struct{}) { panic("the store's") },
		"ends its goroutine": func(chan struct{}) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, hang := &hangingStore{Memory: NewMemory()}, make(chan struct{})
				defer close(hang)
				cfg := Config{Budget: "b", Limit: 2, Logger: slog.New(slog.DiscardHandler)}
				l, err := New(t.Context(), store, cfg)
				require.NoError(t, err)
				limiter, err := NewLimiter(t.Context(), store, LimiterConfig{Budget: "b", Logger: cfg.Logger})
				require.NoError(t, err)
				release, err := l.Acquire(t.Context())
				require.NoError(t, err)
				release()
				f := func() { fault(hang) }
				store.fault.Store(&f)
				waiting := make(chan error)
				go func() { waiting <- limiter.Wait(t.Context()) }()
				require.ErrorIs(t, <-waiting, lease.ErrUnavailable)
				began := time.Now()
				other, err := New(t.Context(), store, cfg)
				require.NoError(t, err, "as of one that does not answer")
				require.Less(t, time.Since(began), 5*time.Second)
				time.Sleep(5 * time.Minute)
				require.True(t, l.Stats().Degraded)
				began = time.Now()
				require.NoError(t, other.Close(t.Context()))
				require.NoError(t, l.Close(t.Context()))
				require.NoError(t, limiter.Close(t.Context()))
				require.Less(t, time.Since(began), 10*time.Second)
			})
		})
	}
}
