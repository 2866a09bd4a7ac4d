package flightpool

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

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

// gRPC would dial again by it, and put another session in the place of a handle's.
func TestDialOptionsThatReplaceTheDialerAreRefused(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		dialer := grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return srv.Dial(ctx, addr) })
		_, err := New(t.Context(), "grpc://server:1", Config{DialOptions: []grpc.DialOption{dialer}, OpenRetry: OpenRetryAlways})
		require.ErrorContains(t, err, "DialOptions: they replace the pool's dialer")
		require.Equal(t, FaultUsage, faultIn(err))
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 0 }))
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

// told is a stream of which a receive is what recv makes of it.
type told struct {
	grpc.ClientStream
	recv func(next func() error) error
}

func (s told) RecvMsg(m any) error {
	return s.recv(func() error { return s.ClientStream.RecvMsg(m) })
}

// Where an interceptor leaves an RPC, nothing that is stored is told to be refused,
// nothing that is not is told to be stored, rows are all there or there is an error, and
// no transaction that was begun reaches the next borrower.
func TestAnInterceptorThatLeavesAnRPCConfirmsNothing(t *testing.T) {
	ways := map[string]func(next func() error) error{
		"panics before": func(func() error) error { panic("no") },
		"panics after":  func(next func() error) error { _ = next(); panic("no") },
		"Goexit after":  func(next func() error) error { _ = next(); runtime.Goexit(); return nil },
		"ends early":    func(func() error) error { return io.EOF },
	}
	calls := map[string]func(r *rig, s *SessionHandle) (check func(stored string)){
		"begin": func(r *rig, s *SessionHandle) func(string) {
			_ = s.BeginTransaction(r.Context())
			return func(stored string) { require.Equal(r, "1", stored) }
		},
		"commit": func(r *rig, s *SessionHandle) func(string) {
			err := s.Commit(r.Context())
			return func(stored string) {
				if err == nil {
					require.Equal(r, "2", stored)
				} else if !errors.Is(err, ErrCommitUnknown) {
					require.Equal(r, "1", stored, "%v", err)
				}
			}
		},
		"update": func(r *rig, s *SessionHandle) func(string) {
			_, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)")
			return func(stored string) {
				if err == nil || SafeToRetry(err) {
					require.Equal(r, err == nil, stored == "2", "%v", err)
				}
			}
		},
		"query": func(r *rig, s *SessionHandle) func(string) {
			v, err := firstValue(r.Context(), s, "SELECT 7")
			return func(string) { require.Equal(r, err == nil, v == "7") }
		},
	}
	for name, call := range calls {
		for way, recv := range ways {
			for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
				t.Run(name+" "+way+" "+profile.Name, func(t *testing.T) {
					var armed atomic.Bool
					tell := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
						stream, err := open(ctx, desc, cc, method, opts...)
						if armed.Load() {
							return told{stream, recv}, err
						}
						return stream, err
					})
					inBubble(t, profile, Config{MaxSize: 1, DialOptions: []grpc.DialOption{tell}}, func(r *rig) {
						r.exec("CREATE TABLE t (a BIGINT)")
						s := r.session()
						require.NoError(r, s.BeginTransaction(r.Context()))
						if name == "commit" {
							_, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)")
							require.NoError(r, err)
						} else {
							require.NoError(r, s.Rollback(r.Context()))
						}
						check := func(string) {}
						ended := make(chan struct{})
						armed.Store(true)
						go func() {
							defer close(ended)
							defer func() { _ = recover() }() // it is the interceptor's
							check = call(r, s)
						}()
						<-ended
						armed.Store(false)
						if err := s.Commit(r.Context()); name == "commit" && strings.HasPrefix(way, "panic") {
							check = func(stored string) {
								if !errors.Is(err, ErrCommitUnknown) {
									require.Equal(r, err == nil, stored == "2", "%v", err)
								}
							}
						}
						_ = s.Close()         // it may be lost
						time.Sleep(time.Hour) // so long a server keeps what is lost
						require.Zero(r, r.srv.Ledger().Snapshot().Transactions)
						r.exec("INSERT INTO t VALUES (1)")
						check(r.value(r.pool, "SELECT count(*) FROM t"))
					})
				})
			}
		}
	}
}

// An interceptor that has returned sends nothing of which its caller was told that it was
// not sent.
func TestAnInterceptorThatBeginsLateSendsNothing(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Second} {
		var late atomic.Bool
		invoke := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if !late.Load() {
				return invoke(ctx, method, req, reply, cc, opts...)
			}
			go func() {
				time.Sleep(pause)
				_ = invoke(context.WithoutCancel(ctx), method, req, reply, cc, opts...)
			}()
			return status.Error(codes.Unavailable, "not now")
		})
		inBubble(t, testserver.SwanLake(), Config{MaxSize: 1, DialOptions: []grpc.DialOption{invoke}}, func(r *rig) {
			late.Store(true)
			_, err := r.pool.QueryWithOptions(r.Context(), "SELECT 2", QueryOptions{Retry: RetryNever})
			late.Store(false)
			var e *Error
			require.ErrorAs(r, err, &e)
			time.Sleep(10 * time.Second)
			if e.Unsent {
				require.Zero(r, r.executions("SELECT 2"))
			}
			require.Equal(r, "3", r.value(r.pool, "SELECT 3"))
		})
	}
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

// The server's trailers are there before its rows were read, and may tell a failure.
func TestAnInterceptorThatEndsAnRPCBehindTheServerConfirmsNothing(t *testing.T) {
	for name, recv := range map[string]func(next func() error) error{
		"unread":    func(func() error) error { time.Sleep(time.Second); return io.EOF },
		"swallowed": func(next func() error) error { _ = next(); return io.EOF },
	} {
		t.Run(name, func(t *testing.T) {
			var skip atomic.Int32
			skip.Store(1 << 30)
			tell := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				stream, err := open(ctx, desc, cc, method, opts...)
				return told{stream, func(next func() error) error {
					if skip.Add(-1) >= 0 {
						return next()
					}
					return recv(next)
				}}, err
			})
			inBubble(t, testserver.Strict(), Config{MaxSize: 1, DialOptions: []grpc.DialOption{tell}}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				tx := r.begin()
				_, err := tx.Update(r.Context(), "INSERT INTO t VALUES (1)")
				require.NoError(r, err)
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, Do: testserver.Fail(codes.FailedPrecondition, "no")})
				skip.Store(0)
				err = tx.Commit(r.Context())
				skip.Store(1 << 30)
				require.Error(r, err)
				_ = tx.Rollback(r.Context())
				time.Sleep(time.Minute)

				s := r.session()
				skip.Store(0)
				_, err = s.Update(r.Context(), "INSERT INTO nosuch VALUES (1)")
				skip.Store(1 << 30)
				require.Error(r, err)
				_ = s.Close()

				s = r.session()
				res, err := s.Query(r.Context(), "SELECT * FROM generate(3, 1)")
				require.NoError(r, err)
				skip.Store(0)
				n := 0
				for res.Next() {
					n++
				}
				skip.Store(1 << 30)
				require.True(r, res.Err() != nil || n == 3, "%d rows and no error", n)
				_ = s.Close()
				time.Sleep(time.Minute)
				require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
			})
		})
	}
}

// Before the first change of a session the pool learns the server's transactions with one
// of its own. One that an interceptor leaves open reaches no borrower.
func TestAnInterceptorThatPanicsWhileTheServerIsLearned(t *testing.T) {
	calls := map[string]func(*rig){
		"prepare": func(r *rig) {
			s := r.session()
			defer func() { _ = s.Close() }() // it may be lost
			_, _ = s.PrepareQuery(r.Context(), "SELECT 1")
		},
		"returning": func(r *rig) { _ = drained(r.pool.Query(r.Context(), "INSERT INTO t VALUES (2) RETURNING a")) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			var skip atomic.Int32
			skip.Store(1 << 30)
			tell := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				if strings.HasSuffix(method, "/DoAction") && skip.Add(-1) == -1 {
					panic("no")
				}
				return open(ctx, desc, cc, method, opts...)
			})
			inBubble(t, testserver.SwanLake(), Config{MaxSize: 1, DialOptions: []grpc.DialOption{tell}}, func(r *rig) {
				for range 4 { // what a probe shows is known then
					r.cancelled(r.pool, "SELECT sleep('1s')", 300*ms)
					time.Sleep(time.Minute)
				}
				r.exec("CREATE TABLE t (a BIGINT)")
				skip.Store(1) // after the transaction has begun
				alone(func() { call(r) })
				skip.Store(1 << 30)
				time.Sleep(time.Minute)
				r.exec("INSERT INTO t VALUES (1)")
				r.pool.Reset()
				require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"), "what was told to be stored is seen by others")
				time.Sleep(time.Hour)
				require.Zero(r, r.srv.Ledger().Snapshot().Transactions)
			})
		})
	}
}
