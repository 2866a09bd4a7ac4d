package flightpool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
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

// withServer runs f in a bubble with a server on which no pool is yet.
func withServer(t *testing.T, opts testserver.Options, f func(t *testing.T, srv *testserver.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.Listen = testserver.InMemory
		srv, err := testserver.Start(opts)
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		f(t, srv)
	})
}

// frozen connects to nobody.
func frozen(ctx context.Context, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestASilentServerIsSaidToBeSilentAndIsUnhealthy(t *testing.T) {
	for name, fault := range map[string]*testserver.Fault{
		"accepts and is frozen": {On: testserver.OnConnect, Do: testserver.Hang()},
		"never answers":         {On: testserver.OnGetFlightInfo, Do: testserver.Hang()},
		"dials for ever":        nil,
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				cfg := Config{Dialer: frozen}
				if fault != nil {
					cfg.Dialer = srv.Dial
					srv.Faults().Set(*fault)
				}
				check := func(err error) {
					require.ErrorContains(t, err, "no answer within DialTimeout 5s")
					require.Equal(t, FaultTransport, faultIn(err))
					require.NotErrorIs(t, err, context.DeadlineExceeded, "nobody's deadline has passed")
					require.NotContains(t, err.Error(), "\n")
				}
				_, err := New(t.Context(), "grpc://server:1", cfg)
				check(err)
				cfg.MinIdle = -1
				p, err := New(t.Context(), "grpc://server:1", cfg)
				require.NoError(t, err)
				for range 3 {
					check(p.Ping(t.Context()))
				}
				start := time.Now()
				err = p.Ping(t.Context())
				require.ErrorIs(t, err, ErrUnhealthy)
				require.Zero(t, time.Since(start), "the threshold is reached")
				check(p.Stats().UnhealthyReason)
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				time.Sleep(time.Second)
				err = p.Ping(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded, "the caller's own is reported")
				srv.Faults().Clear()
				require.NoError(t, p.Close(t.Context()))
			})
		})
	}
}

func TestAServerThatMakesNoSessionIsNotReady(t *testing.T) {
	// Each RPC, or each session, fails as SwanLake's do when its catalogue is away.
	for _, on := range []testserver.Point{testserver.OnGetFlightInfo, testserver.OnSession} {
		t.Run(string(on), func(t *testing.T) {
			withServer(t, testserver.Options{Profile: testserver.SwanLake()}, func(t *testing.T, srv *testserver.Server) {
				fault := srv.Faults().Set(testserver.Fault{On: on, Do: testserver.Fail(codes.Internal, "Failed to attach")})
				_, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial})
				require.ErrorContains(t, err, "the server gives no session that works")
				require.ErrorContains(t, err, "Failed to attach")
				require.Equal(t, FaultTransport, faultIn(err))
				require.Equal(t, codes.Internal, status.Code(err))
				p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, MinIdle: -1, HealthCheck: HealthCheck{UnhealthyAfter: -1}})
				require.NoError(t, err)
				for range 3 {
					require.ErrorContains(t, p.Ping(t.Context()), "Failed to attach")
				}
				require.ErrorIs(t, p.Ping(t.Context()), ErrUnhealthy)
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				require.ErrorContains(t, p.WaitReady(ctx, 1), "Failed to attach")
				fault.Clear()
				time.Sleep(longestPause)
				require.NoError(t, p.Ping(t.Context()))
				fault = srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Do: testserver.Fail(codes.Internal, "Failed to attach")})
				require.ErrorContains(t, p.Ping(t.Context()), "Failed to attach", "a connection that was proven once may not be any more")
				time.Sleep(31 * time.Second)
				require.Zero(t, p.Stats().Idle, "the health check finds it")
				fault.Clear()
				require.NoError(t, p.Close(t.Context()))
			})
		})
	}
}

// Servers whose SQL has no SELECT without FROM are none the worse for it.
func TestAServerThatRefusesTheProbeButDescribesItselfIsReady(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		for _, code := range []codes.Code{codes.Internal, codes.Unknown, codes.InvalidArgument} {
			srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT 1", Do: testserver.Fail(code, "no FROM")})
			p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial})
			require.NoError(t, err, "%v", code)
			require.NoError(t, p.Ping(t.Context()))
			require.NoError(t, p.Close(t.Context()))
			srv.Faults().Clear()
		}
	})
}

func TestClosedIsSaidAlsoOfAnUnhealthyPool(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Kill()})
		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, MinIdle: -1})
		require.NoError(t, err)
		for p.Stats().UnhealthyReason == nil {
			require.Error(t, p.Ping(t.Context()))
		}
		require.NoError(t, p.Close(t.Context()))
		for range 20 {
			_, err = p.Query(t.Context(), "SELECT 1")
			require.ErrorIs(t, err, ErrClosed)
			require.NotErrorIs(t, err, ErrUnhealthy)
			require.False(t, SafeToRetry(err))
			_, err = p.AcquireSession(t.Context())
			require.ErrorIs(t, err, ErrClosed)
			time.Sleep(firstPause / 3)
		}
		for _, err := range []error{p.Ping(t.Context()), p.WaitReady(t.Context(), 1), p.Resize(3), p.Close(t.Context())} {
			require.ErrorIs(t, err, ErrClosed)
		}
	})
}

func TestAFailedRepetitionIsNotSafeToRetryWhenTheFirstAttemptWasSent(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, MaxSize: 1, AcquireTimeout: time.Second})
		require.NoError(t, err)
		_, err = p.Update(t.Context(), "CREATE TABLE t (a BIGINT)")
		require.NoError(t, err)
		const insert = "INSERT INTO t VALUES (1)"
		srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, After: true, SQL: insert, Times: 1, Do: testserver.Kill()})
		srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Kill()})
		_, err = p.UpdateWithOptions(t.Context(), insert, QueryOptions{Retry: RetryAlways})
		require.ErrorContains(t, err, "the first attempt")
		require.Len(t, srv.Ledger().Executions(insert), 1)
		require.False(t, SafeToRetry(err), "it ran: %v", err)
		require.NotContains(t, err.Error(), "\n")
		srv.Faults().Clear()
		require.NoError(t, p.Close(t.Context()))
	})
}

func TestAPingIsRepeatedOnAConnectionThatDiesUnderIt(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Times: 1, Do: testserver.Kill()})
		require.NoError(r, r.pool.Ping(r.Context()))
		require.EqualValues(r, 1, r.pool.Stats().Retries)
	})
}

func TestExhaustionTellsWhyAndIsNotTheCallersDeadline(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, AcquireTimeout: time.Second}, func(r *rig) {
		held := r.session()
		defer func() { require.NoError(r, held.Close()) }()
		err := r.pool.Ping(r.Context())
		require.ErrorIs(r, err, ErrExhausted)
		require.NotErrorIs(r, err, context.DeadlineExceeded)
		require.Equal(r, FaultLimit, faultIn(err))
		require.ErrorContains(r, err, "AcquireTimeout is over; is a result or session not released? set LeakAfter")
		var full *reservoir.ExhaustedError
		require.ErrorAs(r, err, &full)
		ctx, stop := context.WithTimeout(r.Context(), 10*ms)
		defer stop()
		err = r.pool.Ping(ctx)
		require.ErrorIs(r, err, context.DeadlineExceeded)
		require.Equal(r, FaultContext, faultIn(err))
	})
}

func TestTheCauseOfACallersContextIsKept(t *testing.T) {
	why := errors.New("the request was withdrawn")
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		held := r.session()
		ctx, end := context.WithCancelCause(r.Context())
		time.AfterFunc(time.Second, func() { end(why) })
		_, err := r.pool.Query(ctx, "SELECT 1")
		require.ErrorIs(r, err, context.Canceled)
		require.ErrorIs(r, err, why)
		require.Equal(r, 1, strings.Count(err.Error(), why.Error()), "%v", err)
		require.NoError(r, held.Close())
		for _, sql := range []string{"SELECT sleep('1h')", "SELECT * FROM endless('1s')"} {
			ctx, end := context.WithCancelCause(r.Context())
			time.AfterFunc(time.Second, func() { end(why) })
			_, err := firstValue(ctx, r.pool, sql)
			require.ErrorIs(r, err, context.Canceled, sql)
			require.ErrorIs(r, err, why, sql)
			require.Equal(r, 1, strings.Count(err.Error(), why.Error()), "%v", err)
		}
	})
}

func TestNewWaitsAsLongAsItsContextAllows(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		slow := func(ctx context.Context, addr string) (net.Conn, error) {
			select {
			case <-time.After(4 * time.Second):
				return srv.Dial(ctx, addr)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: slow, AcquireTimeout: time.Second})
		require.NoError(t, err, "AcquireTimeout bounds calls")
		require.NoError(t, p.Close(t.Context()))
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		start := time.Now()
		_, err = New(ctx, "grpc://server:1", Config{Dialer: slow})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), 5*time.Second)
	})
}

// A time of an attempt's own, as that of a resolver, of one address of several or of the client of a token endpoint, ends no
// caller's context.
func TestATimeOfAnOpensOwnIsNotTheCallersDeadline(t *testing.T) {
	late := fmt.Errorf("i/o timeout: %w", context.DeadlineExceeded) // which packages net and net/http answer to, too
	for name, cfg := range map[string]Config{
		"a dial": {Dialer: func(context.Context, string) (net.Conn, error) {
			time.Sleep(time.Second)
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: late}
		}},
		"a token": {Auth: TokenAuth(func(context.Context) (string, time.Time, error) {
			time.Sleep(time.Second)
			return "", time.Time{}, late
		})},
		"OnConnect": {OnConnect: func(context.Context, *SessionHandle) error {
			time.Sleep(time.Second)
			return late
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				if cfg.Dialer == nil {
					cfg.Dialer = srv.Dial
				}
				cfg.MinIdle, cfg.AcquireTimeout, cfg.HealthCheck.FailureThreshold = -1, 3500*time.Millisecond, -1
				p, err := New(t.Context(), "grpc://server:1", cfg)
				require.NoError(t, err)
				err = p.Ping(t.Context())
				require.ErrorContains(t, err, "i/o timeout")
				require.NotErrorIs(t, err, context.DeadlineExceeded, "nobody's deadline has passed")

				ctx, stop := context.WithTimeout(t.Context(), time.Minute) // waits over opens that fail
				defer stop()
				err = p.Ping(ctx)
				require.ErrorIs(t, err, ErrExhausted)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "AcquireTimeout was over")

				short, stopShort := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer stopShort()
				require.ErrorIs(t, p.Ping(short), context.DeadlineExceeded, "the caller's own is reported")
				require.NoError(t, p.Close(t.Context()))
			})
		})
	}
}

// A server whose opens end by a time of their own is away, and nobody's context has ended.
func TestATimeOfAnOpensOwnIsNoAnswerOfTheServer(t *testing.T) {
	for _, own := range []error{context.DeadlineExceeded, context.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			open := func(context.Context) (backend.Conn, error) {
				time.Sleep(time.Second)
				return nil, fmt.Errorf("connect: %w", own)
			}
			p, err := NewWith(t.Context(), open, Config{MinIdle: -1, HealthCheck: HealthCheck{UnhealthyAfter: -1}})
			require.NoError(t, err)
			for range 3 {
				err := p.Ping(t.Context())
				require.Equal(t, FaultTransport, faultIn(err))
				require.NotErrorIs(t, err, own, "nobody's context has ended")
			}
			require.ErrorIs(t, p.Ping(t.Context()), ErrUnhealthy)
			require.NoError(t, p.Close(t.Context()))
		})
	}
}
