package flightpool

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/testserver"
)

// TestNewOpensMinIdleAndNoMore: its own wait is not for another connection.
func TestNewOpensMinIdleAndNoMore(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				endpoint, err := flightconn.NewEndpoint(flightconn.Config{Address: "server:1", Dialer: srv.Dial})
				require.NoError(t, err)
				open := func(ctx context.Context) (backend.Conn, error) {
					time.Sleep(time.Second)
					return endpoint.Open(ctx)
				}
				start := time.Now()
				p, err := NewWith(t.Context(), open, Config{MinIdle: n, MaxSize: n + 1})
				require.NoError(t, err)
				require.NoError(t, p.WaitReady(t.Context(), n))
				require.Equal(t, time.Second, time.Since(start), "at the same time")
				time.Sleep(10 * time.Second)
				require.EqualValues(t, n, p.Stats().Opens)
				require.Equal(t, n, p.Stats().Idle)
				loan, err := p.AcquireSession(t.Context())
				require.NoError(t, err)
				time.Sleep(10 * time.Second)
				require.Equal(t, n, p.Stats().Idle, "and that many are kept")
				require.NoError(t, loan.Close())
				require.NoError(t, p.Close(t.Context()))
				require.NoError(t, endpoint.Close())
			})
		})
	}
}

// TestACallThatLeavesBeforeTheTrialLeavesItToTheNext.
func TestACallThatLeavesBeforeTheTrialLeavesItToTheNext(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, leave := range map[string]func(*testing.T, *FlightSQLPool){
		"its context had ended": func(t *testing.T, p *FlightSQLPool) {
			require.ErrorIs(t, p.Ping(ended), context.Canceled)
		},
		"its context panics": func(t *testing.T, p *FlightSQLPool) {
			require.Panics(t, func() { _, _ = p.conns.Acquire(panics{t.Context()}) })
			require.Panics(t, func() { _, _ = p.waitForConn(panics{t.Context()}) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refuse := func(context.Context) (backend.Conn, error) { return nil, syscall.ECONNREFUSED }
				p, err := NewWith(t.Context(), refuse, Config{MinIdle: -1, HealthCheck: HealthCheck{UnhealthyAfter: -1}})
				require.NoError(t, err)
				for p.Stats().UnhealthyReason == nil {
					require.Error(t, p.Ping(t.Context()))
				}
				time.Sleep(2 * time.Second)
				failures := p.Stats().OpenFailures
				for range 3 {
					leave(t, p)
				}
				require.Equal(t, failures, p.Stats().OpenFailures)
				require.Error(t, p.Ping(t.Context()))
				require.Equal(t, failures+1, p.Stats().OpenFailures, "it is the trial")
				require.ErrorIs(t, p.Ping(t.Context()), ErrUnhealthy)
				require.Equal(t, failures+1, p.Stats().OpenFailures, "one at a time")
				require.NoError(t, p.Close(t.Context()))
			})
		})
	}
}

// panics is a context with a method that panics.
type panics struct{ context.Context }

func (panics) Err() error { panic("Err") }
