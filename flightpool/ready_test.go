package flightpool

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver"
)

// WaitReady ends as all who wait do when an open has failed by what trying again does not cure, also where the
// context has no deadline, and whatever other connections there are.
func TestWaitReadyEndsWhereNoOpenCanSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory, Users: map[string]string{"me": "right"}})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		locked := errors.New("the account is locked")
		for name, c := range map[string]struct {
			auth  Auth
			fault Fault
			retry OpenRetry
		}{
			"wrong password":         {auth: BasicAuth("me", "wrong"), fault: FaultAuth},
			"wrong password, always": {auth: BasicAuth("me", "wrong"), fault: FaultAuth, retry: OpenRetryAlways},
			"a source that gives up": {auth: TokenAuth(func(context.Context) (string, time.Time, error) { return "", time.Time{}, reservoir.Permanent(locked) }), fault: FaultAuth},
			"no credentials":         {fault: FaultAuth},
		} {
			p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, MinIdle: -1, Auth: c.auth, OpenRetry: c.retry})
			require.NoError(t, err)
			start := time.Now()
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			err = p.WaitReady(ctx, 2)
			stop()
			require.Error(t, err, name)
			require.Zero(t, time.Since(start), name)
			require.NotErrorIs(t, err, context.Canceled, name)
			var e *Error
			require.ErrorAs(t, err, &e, name)
			require.Equal(t, "WaitReady", e.Op, name)
			require.Equal(t, c.fault, e.Fault, name)
			require.Equal(t, name == "a source that gives up", errors.Is(err, locked), name)
			synctest.Wait()
			require.LessOrEqual(t, p.Stats().Opens, uint64(2), "nobody asks again: an account may be locked for it")
			require.NoError(t, p.Close(t.Context()))
		}
	})
}

// A server that is away may come back: WaitReady goes on until its context ends.
func TestWaitReadyGoesOnWhileTheServerIsAway(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 2, MinIdle: 1}, func(r *rig) {
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Kill()})
		time.AfterFunc(time.Minute, r.srv.Faults().Clear)
		start := time.Now()
		require.NoError(r, r.pool.WaitReady(r.Context(), 2))
		require.GreaterOrEqual(r, time.Since(start), time.Minute)
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Kill()})
		r.pool.Reset()
		err := within(r.Context(), func(ctx context.Context) error { return r.pool.WaitReady(ctx, 2) })
		require.ErrorIs(r, err, context.DeadlineExceeded)
		r.srv.Faults().Clear()
	})
}

// What an open has begun with before WaitReady was called may have been put right meanwhile.
func TestWaitReadyIsNotEndedByAnOpenThatBeganBefore(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		calls := 0
		source := func(context.Context) (string, time.Time, error) {
			if calls++; calls == 1 {
				time.Sleep(time.Second)
				return "", time.Time{}, reservoir.Permanent(errors.New("the account is locked"))
			}
			return "t", time.Time{}, nil
		}
		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, MinIdle: -1, MaxSize: 1, Auth: TokenAuth(source)})
		require.NoError(t, err)
		failed := make(chan error, 1)
		go func() { failed <- p.Ping(t.Context()) }()
		time.Sleep(500 * ms)
		require.NoError(t, p.WaitReady(t.Context(), 1))
		require.ErrorContains(t, <-failed, "locked")
		require.NoError(t, p.Close(t.Context()))
	})
}
