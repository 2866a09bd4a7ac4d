package flightpool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver"
)

var errAway = errors.New("the host is away")

// downUntil refuses connections until a moment.
func downUntil(srv *testserver.Server, back time.Time) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if time.Now().Before(back) {
			return nil, errAway
		}
		return srv.Dial(ctx, addr)
	}
}

func TestWhoWaitsAfterAFailedOpen(t *testing.T) {
	const outage = 5 * time.Second
	for name, test := range map[string]struct {
		policy  OpenRetry
		timeout time.Duration // of the context
		opts    QueryOptions
		served  bool
	}{
		"a deadline":           {policy: OpenRetryTimed, timeout: time.Minute, served: true},
		"a timeout":            {policy: OpenRetryTimed, opts: QueryOptions{Timeout: 20 * time.Second}, served: true},
		"no deadline":          {policy: OpenRetryTimed},
		"never":                {policy: OpenRetryNever, timeout: time.Minute},
		"always":               {policy: OpenRetryAlways, served: true},
		"always, and deadline": {policy: OpenRetryAlways, timeout: time.Minute, served: true},
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				start := time.Now()
				cfg := Config{Dialer: downUntil(srv, start.Add(outage)), MinIdle: -1, OpenRetry: test.policy, HealthCheck: HealthCheck{FailureThreshold: -1}}
				p, err := New(t.Context(), "grpc://server:1", cfg)
				require.NoError(t, err)
				ctx, stop := t.Context(), context.CancelFunc(func() {})
				if test.timeout > 0 {
					ctx, stop = context.WithTimeout(ctx, test.timeout)
				}
				defer stop()
				res, err := p.QueryWithOptions(ctx, "SELECT 1", test.opts)
				if test.served {
					require.NoError(t, err)
					res.Release()
					require.GreaterOrEqual(t, time.Since(start), outage)
					require.Less(t, time.Since(start), outage+2*time.Second, "a pause is at most 1s")
				} else {
					require.ErrorIs(t, err, errAway)
					require.Zero(t, time.Since(start))
				}
				require.NoError(t, p.Close(t.Context()))
			})
		})
	}
}

func TestTheRestartOfAServerFailsNoCallerWithADeadline(t *testing.T) {
	for name, after := range map[string]time.Duration{"default": 0, "however short": -1} {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				const restart = 4 * time.Second
				cfg := Config{Dialer: downUntil(srv, time.Now().Add(restart)), MinIdle: -1, HealthCheck: HealthCheck{UnhealthyAfter: after}}
				p, err := New(t.Context(), "grpc://server:1", cfg)
				require.NoError(t, err)
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
				defer stop()
				var w waiters
				w.come(ctx, p, 20, 100*ms)
				for _, err := range w.err {
					if after == 0 {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, ErrUnhealthy)
					}
				}
				require.NoError(t, p.Close(t.Context()))
			})
		})
	}
}

// waiters are callers with the same deadline, who come one after another.
type waiters struct {
	wg     sync.WaitGroup
	mu     sync.Mutex
	err    []error
	latest time.Duration // since start
}

func (w *waiters) come(ctx context.Context, p *FlightSQLPool, n int, apart time.Duration) {
	start := time.Now()
	for range n {
		w.wg.Go(func() {
			err := p.Ping(ctx)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.err = append(w.err, err)
			w.latest = max(w.latest, time.Since(start))
		})
		time.Sleep(apart)
	}
	w.wg.Wait()
}

func TestNobodyWaitsOutALongDeadlineOnADeadServer(t *testing.T) {
	refused := func(context.Context, string) (net.Conn, error) { return nil, errAway }
	for name, test := range map[string]struct {
		dial  func(context.Context, string) (net.Conn, error)
		apart time.Duration
		until time.Duration // all have failed
	}{
		"refused": {refused, ms, 6 * time.Second},               // UnhealthyAfter, and a pause of 1s at most
		"silent":  {frozen, 700 * ms, 3*5*time.Second + 100*ms}, // DialTimeout, three times
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, _ *testserver.Server) {
				p, err := New(t.Context(), "grpc://server:1", Config{Dialer: test.dial, MinIdle: -1, MaxSize: 1})
				require.NoError(t, err)
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				var w waiters
				w.come(ctx, p, 20, test.apart)
				for _, err := range w.err {
					require.ErrorIs(t, err, ErrUnhealthy)
					require.Equal(t, FaultTransport, faultIn(err))
					require.NotContains(t, err.Error(), "\n")
					require.NotContains(t, err.Error(), "reservoir")
				}
				require.LessOrEqual(t, w.latest, test.until)
				// A trial fails with its own open, and says that the server was
				// unhealthy.
				for range 5 {
					time.Sleep(longestPause)
					start := time.Now()
					err = p.Ping(ctx)
					require.ErrorIs(t, err, ErrUnhealthy)
					require.LessOrEqual(t, time.Since(start), 6*time.Second, "one open and a pause")
					var e *Error
					require.ErrorAs(t, err, &e)
					require.Equal(t, backend.StageDial, e.Stage)
				}
				require.NoError(t, p.Close(t.Context()))
			})
		})
	}
}

func TestWhileAConnectionIsInUseAnUnhealthyServerIsWaitedFor(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		var away atomic.Bool
		dial := func(ctx context.Context, addr string) (net.Conn, error) {
			if away.Load() {
				return nil, errAway
			}
			return srv.Dial(ctx, addr)
		}
		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: dial, MaxSize: 3, MinIdle: -1})
		require.NoError(t, err)
		held, err := p.AcquireSession(t.Context())
		require.NoError(t, err)
		away.Store(true)
		time.AfterFunc(20*time.Second, func() { _ = held.Close() })
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		start := time.Now()
		require.NoError(t, p.Ping(ctx))
		require.Equal(t, 20*time.Second, time.Since(start))
		require.NotNil(t, p.Stats().UnhealthyReason)
		require.NoError(t, p.Close(t.Context()))
	})
}

func TestNoRepetitionCuresTheseErrorsOfOpens(t *testing.T) {
	said := func(code codes.Code) error {
		return &Error{Fault: backend.FaultOf(code, ""), Err: status.Error(code, "no")}
	}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{said(codes.Unauthenticated), true},
		{said(codes.PermissionDenied), true},
		{said(codes.InvalidArgument), true},
		{said(codes.Unimplemented), true},
		{said(codes.Unavailable), false},
		{said(codes.ResourceExhausted), false},
		{said(codes.Internal), false},
		{said(codes.NotFound), false},
		{&Error{Fault: FaultUsage, Err: errors.New("no such option")}, true},
		{&Error{Fault: FaultAuth, Err: errors.New("a driver's own word")}, true},
		{&Error{Fault: FaultAuth, Err: &tokenError{status.Error(codes.Unauthenticated, "said of another server")}}, false},
		{&Error{Fault: FaultTransport, Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}, true},
		{&Error{Fault: FaultTransport, Err: tls.RecordHeaderError{Msg: "plain text"}}, true},
		{&Error{Fault: FaultTransport, Err: &net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")}}, true},
		{&Error{Fault: FaultTransport, Err: &net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}}, false},
		{&Error{Fault: FaultTransport, Err: &net.OpError{Op: "read", Err: errors.New("tls: expired certificate")}}, false},
		{&Error{Fault: FaultTransport, Err: errAway}, false},
		{errAway, false},
	} {
		require.Equal(t, test.want, isPermanent(test.err), "%v", test.err)
	}
}

func TestWhatNoRepetitionCuresFailsAtOnce(t *testing.T) {
	for _, policy := range []OpenRetry{OpenRetryTimed, OpenRetryAlways} {
		for _, code := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied} {
			t.Run(fmt.Sprintf("%d, %v", policy, code), func(t *testing.T) {
				withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
					srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Do: testserver.Fail(code, "go away")})
					cfg := Config{Dialer: srv.Dial, OpenRetry: policy}
					ctx, stop := context.WithTimeout(t.Context(), time.Minute)
					defer stop()
					start := time.Now()
					_, err := New(ctx, "grpc://server:1", cfg)
					require.ErrorContains(t, err, "go away")
					require.Equal(t, FaultAuth, faultIn(err))
					cfg.MinIdle = -1
					p, err := New(ctx, "grpc://server:1", cfg)
					require.NoError(t, err)
					require.ErrorContains(t, p.Ping(ctx), "go away")
					require.Zero(t, time.Since(start))
					require.NoError(t, p.Close(t.Context()))
				})
			})
		}
	}
}

func TestATokenSourceThatFailsIsAskedAgain(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		asked := 0
		var answer func() error
		source := func(context.Context) (string, time.Time, error) {
			asked++
			return "token", time.Time{}, answer()
		}
		answer = func() error {
			if asked < 20 {
				return errAway
			}
			return nil
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		p, err := New(ctx, "grpc://server:1", Config{Dialer: srv.Dial, MinIdle: -1, Auth: TokenAuth(source)})
		require.NoError(t, err)
		require.NoError(t, p.Ping(ctx))
		require.Equal(t, 20, asked, "the server is well all the time")
		require.NoError(t, p.Close(t.Context()))

		answer = func() error { return reservoir.Permanent(errAway) }
		p, err = New(ctx, "grpc://server:1", Config{Dialer: srv.Dial, MinIdle: -1, Auth: TokenAuth(source)})
		require.NoError(t, err)
		start := time.Now()
		require.ErrorIs(t, p.Ping(ctx), errAway)
		require.Zero(t, time.Since(start))
		require.NoError(t, p.Close(t.Context()))
	})
}

func TestNewFailsWithTheFirstFailedOpenUnlessToldOtherwise(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		for _, policy := range []OpenRetry{OpenRetryTimed, OpenRetryNever} {
			start := time.Now()
			_, err := New(ctx, "grpc://server:1", Config{Dialer: downUntil(srv, start.Add(time.Minute)), OpenRetry: policy})
			require.ErrorContains(t, err, "New server:1: dial: the host is away")
			require.ErrorIs(t, err, errAway)
			require.Zero(t, time.Since(start))
		}
		start := time.Now()
		cfg := Config{Dialer: downUntil(srv, start.Add(time.Minute)), OpenRetry: OpenRetryAlways}
		p, err := New(ctx, "grpc://server:1", cfg)
		require.NoError(t, err, "longer than AcquireTimeout, and on an unhealthy server")
		require.Less(t, time.Since(start), time.Minute+2*time.Second)
		require.NoError(t, p.Close(t.Context()))

		start = time.Now()
		cfg.Dialer = downUntil(srv, start.Add(time.Hour))
		_, err = New(ctx, "grpc://server:1", cfg)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errAway)
		require.ErrorContains(t, err, "the host is away")
		require.Less(t, time.Since(start), 10*time.Minute)
		cfg.OnExhausted = FailFast
		_, err = New(t.Context(), "grpc://server:1", cfg)
		require.ErrorIs(t, err, errAway)
	})
}

// Connections that fail their checks make a server unhealthy as well: who waits
// for an open of that server is told.
func TestWaitersAreToldOfAServerThatChecksFindUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func(ctx context.Context) (backend.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		p, err := NewWith(t.Context(), open, Config{MinIdle: -1, MaxSize: 1, HealthCheck: HealthCheck{UnhealthyAfter: -1}})
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var w waiters
		go func() {
			for range 3 {
				time.Sleep(ms)
				p.health.failed(down(), 0)
			}
		}()
		w.come(ctx, p, 3, 0)
		require.Equal(t, 3*ms, w.latest)
		for _, err := range w.err {
			require.ErrorIs(t, err, ErrUnhealthy)
			require.ErrorContains(t, err, "connection refused")
		}
		require.NoError(t, p.Close(t.Context()))
	})
}
