package flightpool

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/testserver"
)

// eachRPC are DialOptions whose interceptors see the context of each RPC first.
func eachRPC(see func(context.Context) context.Context) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(see(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(see(ctx), desc, cc, method, opts...)
		}),
	}
}

// withNothingOf is a context that has of ctx only what goes to the server.
func withNothingOf(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewOutgoingContext(context.Background(), md)
}

func TestAnInterceptorThatReplacesTheContextIsRefused(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		_, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, DialOptions: eachRPC(withNothingOf), OpenRetry: OpenRetryAlways})
		require.ErrorContains(t, err, "DialOptions: an interceptor ")
		require.Equal(t, FaultUsage, faultIn(err))
		require.Zero(t, srv.Ledger().Snapshot().Sessions)
	})
}

// What was sent with a context of another make would count as unsent: the INSERT would
// be repeated, and the failure of the COMMIT told as certain.
func TestNothingIsSentWithAContextOfAnothersMake(t *testing.T) {
	for _, call := range []string{"Update", "Commit", "Query"} {
		t.Run(call, func(t *testing.T) {
			var replaces atomic.Bool
			see := func(ctx context.Context) context.Context {
				if replaces.Load() {
					return withNothingOf(ctx)
				}
				return ctx
			}
			inBubble(t, testserver.Strict(), Config{MaxSize: 2, DialOptions: eachRPC(see)}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				tx, err := r.pool.BeginTx(r.Context(), TxOptions{})
				require.NoError(r, err)
				_, err = tx.Update(r.Context(), "INSERT INTO t VALUES (1)")
				require.NoError(r, err)
				for _, point := range []testserver.Point{testserver.OnDoPut, testserver.OnEnd, testserver.OnGetFlightInfo} {
					r.srv.Faults().Set(testserver.Fault{On: point, After: true, Do: testserver.Kill()})
				}
				replaces.Store(true)
				switch call {
				case "Update":
					_, err = r.pool.Update(r.Context(), "INSERT INTO t VALUES (2)")
				case "Commit":
					err = tx.Commit(r.Context())
				case "Query":
					_, err = firstValue(r.Context(), r.pool, "SELECT 2")
				}
				require.ErrorContains(r, err, "DialOptions: an interceptor ")
				replaces.Store(false)
				r.srv.Faults().Clear()
				_ = tx.Rollback(r.Context())
				require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
				require.Zero(r, r.executions("INSERT INTO t VALUES (2)")+r.executions("SELECT 2"))
			})
		})
	}
}

func TestAnInterceptorMayMakeAContextOfTheOneItIsGiven(t *testing.T) {
	type key struct{}
	see := func(ctx context.Context) context.Context {
		return context.WithValue(metadata.AppendToOutgoingContext(context.WithoutCancel(ctx), "x-trace", "1"), key{}, 1)
	}
	inBubble(t, testserver.Strict(), Config{DialOptions: eachRPC(see)}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		r.cancelled(r.pool, "SELECT sleep(10s)", time.Second)
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
	})
}

// A bubble ends only when no goroutine of a transport is left.
func TestABadInterceptorLeavesNoTransport(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			for first := range 12 {
				synctest.Test(t, func(t *testing.T) {
					srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
					require.NoError(t, err)
					defer func() { require.NoError(t, srv.Close()) }()
					var rpcs atomic.Int32
					see := func(ctx context.Context) context.Context {
						if int(rpcs.Add(1)) > first {
							bad()
						}
						return ctx
					}
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						defer func() { _ = recover() }() // it is the caller's own
						pool, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, DialOptions: eachRPC(see), MaxSize: 1})
						if err != nil {
							return
						}
						defer func() { _ = pool.Close(t.Context()) }()
						_, _ = firstValue(t.Context(), pool, "SELECT 1")
					}()
					<-ended
					require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 0 }))
				})
			}
		})
	}
}
