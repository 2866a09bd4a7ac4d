package flightpool

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/session"
	"github.com/flightpool/flightpool/testserver"
)

// A callback that panics, or ends its goroutine, during an open.
var badCallbacks = map[string]func(){
	"panic":  func() { panic("no") },
	"Goexit": runtime.Goexit,
}

func TestABadHealthHookLosesNoConnection(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				back := time.Now().Add(time.Minute)
				p, err := New(t.Context(), "grpc://server:1", Config{
					Dialer: downUntil(srv, back), MinIdle: -1, HealthCheck: HealthCheck{FailureThreshold: 1, UnhealthyAfter: -1, RecoveryThreshold: 1},
					Hooks: Hooks{Health: func(reason error) {
						if reason == nil {
							bad()
						}
					}},
				})
				require.NoError(t, err)
				require.Error(t, p.Ping(t.Context()))
				time.Sleep(2 * time.Minute)
				if err = p.Ping(t.Context()); name == "panic" {
					require.NoError(t, err, "it is the hook's failure alone")
					require.EqualValues(t, 1, p.Stats().HookFailures)
					require.ErrorContains(t, p.Stats().LastHookError, "no")
				}
				require.NoError(t, p.Ping(t.Context()))
				require.NoError(t, p.Close(t.Context()))
				require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 0 }))
			})
		})
	}
}

// A badLayer's Wrap does not return.
type badLayer struct{ bad func() }

func (l badLayer) Wrap(context.Context, session.Conn) (session.Conn, error) {
	l.bad()
	return nil, errors.New("unreachable")
}

func (badLayer) Close() error { return nil }

func TestABadLayerLosesNoConnection(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				_, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Layer: badLayer{bad}})
				require.ErrorContains(t, err, "callback")
				require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 0 }))
			})
		})
	}
}

// A badConn does not answer its proof.
type badConn struct {
	session.Conn
	bad    func()
	closed *atomic.Int64
}

func (c badConn) Query(context.Context, string, session.Call) (session.Stream, error) {
	c.bad()
	return nil, errors.New("unreachable")
}

func (c badConn) Close() error { c.closed.Add(1); return nil }

func TestABadProofLosesNoConnection(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opened, closed atomic.Int64
				open := func(context.Context) (session.Conn, error) {
					opened.Add(1)
					return badConn{bad: bad, closed: &closed}, nil
				}
				_, err := NewWith(t.Context(), open, Config{})
				require.Error(t, err)
				require.Equal(t, opened.Load(), closed.Load())
			})
		})
	}
}

func TestPanickingHooksFailNoCall(t *testing.T) {
	cfg := Config{MaxSize: 2, OnReturn: session.ResetSQL("SELECT 2"), Hooks: Hooks{
		Cancelled:    func(string, cancel.Report) { panic("no") },
		Retried:      func(string, error) { panic("no") },
		SessionReset: func(time.Duration, error) { panic("no") },
		RolledBack:   func() { panic("no") },
	}}
	inBubble(t, testserver.Strict(), cfg, func(r *rig) {
		synctest.Wait() // for what New has begun
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Times: 1, Do: testserver.Kill()})
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"), "repeated")
		for range 5 { // more than there are connections
			s := r.session()
			require.NoError(r, s.BeginTransaction(r.Context()))
			require.NoError(r, s.Close())
		}
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		_, err := firstValue(ctx, r.pool, "SELECT sleep('60s')")
		require.ErrorIs(r, err, context.DeadlineExceeded)
		r.value(r.pool, "SELECT 1")
		synctest.Wait()
		s := r.pool.Stats()
		require.EqualValues(r, s.Retries+s.Resets+s.RolledBack+s.CancelsConfirmed+s.CancelsUnconfirmed, s.HookFailures)
		require.NotZero(r, s.Retries)
		require.NotZero(r, s.RolledBack)
	})
}

func TestNewDoesNotOutlastItsContext(t *testing.T) {
	const deaf = 10 * time.Minute // how long an open goes on that does not heed its context
	for name, New := range map[string]func(context.Context) error{
		"open": func(ctx context.Context) error {
			_, err := NewWith(ctx, func(context.Context) (session.Conn, error) { time.Sleep(deaf); return nil, errAway }, Config{})
			return err
		},
		"Dialer": func(ctx context.Context) error {
			_, err := New(ctx, "grpc://server:1", Config{DialTimeout: time.Hour, Dialer: func(context.Context, string) (net.Conn, error) { time.Sleep(deaf); return nil, errAway }})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				start := time.Now()
				require.ErrorIs(t, New(ctx), context.DeadlineExceeded)
				require.LessOrEqual(t, time.Since(start), time.Second+leaving)
				time.Sleep(2 * deaf) // and nothing is left of it then
			})
		})
	}
}

// A connection may come back between the look for an idle one and that at health.
func TestAnUnhealthyServerWithAnIdleConnectionIsUsed(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, HealthCheck: HealthCheck{UnhealthyAfter: -1}}, func(r *rig) {
		for range 3 {
			r.pool.health.failed(down(), 0)
			time.Sleep(time.Nanosecond)
		}
		require.NotNil(r, r.pool.Stats().UnhealthyReason)
		require.Equal(r, 1, r.pool.Stats().Idle)
		_, err := r.pool.healthy()
		require.NoError(r, err)
		loan, ok := r.pool.conns.TryAcquire()
		require.True(r, ok)
		_, err = r.pool.healthy()
		require.NoError(r, err, "in use")
		require.NoError(r, loan.Release())
	})
}
