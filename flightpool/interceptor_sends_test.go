package flightpool

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

	"github.com/flightpool/flightpool/testserver"
)

// changesOf are calls that change something, of which one row is to be stored.
var changesOf = map[string]func(r *rig, armed *atomic.Bool) error{
	"DoPut": func(r *rig, armed *atomic.Bool) error {
		armed.Store(true)
		_, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (1)")
		return err
	},
	"DoAction": func(r *rig, armed *atomic.Bool) error {
		s := r.session()
		defer func() { _ = s.Close() }()
		require.NoError(r, s.BeginTransaction(r.Context()))
		_, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)")
		require.NoError(r, err)
		armed.Store(true)
		return s.Commit(r.Context())
	},
}

// sendingStream tells a refusal of what it has sent.
type sendingStream struct {
	grpc.ClientStream
	atClose bool
}

func (s *sendingStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err == nil && !s.atClose {
		time.Sleep(time.Second) // the server has run it meanwhile
		return toldRefused
	}
	return err
}

func (s *sendingStream) CloseSend() error {
	err := s.ClientStream.CloseSend()
	if err == nil && s.atClose {
		time.Sleep(time.Second)
		return toldRefused
	}
	return err
}

// What an interceptor says of what it has sent is no answer of the server's either.
func TestARefusalByAnInterceptorThatSendsIsNotTheServers(t *testing.T) {
	for method, call := range changesOf {
		for _, atClose := range []bool{false, true} {
			var armed atomic.Bool
			options := []grpc.DialOption{grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, full string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				stream, err := open(ctx, desc, cc, full, opts...)
				if err != nil || !armed.Load() || !strings.HasSuffix(full, method) {
					return stream, err
				}
				return &sendingStream{stream, atClose}, nil
			})}
			inBubble(t, testserver.Strict(), Config{MaxSize: 1, DialOptions: options}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				err := call(r, &armed)
				armed.Store(false)
				stored := r.value(r.pool, "SELECT count(*) FROM t")
				if err == nil {
					require.Equal(r, "1", stored)
					return
				}
				require.NotEqual(r, FaultStatement, faultIn(err), "%v", err)
				require.False(r, SafeToRetry(err))
				if method == "DoAction" {
					require.ErrorIs(r, err, ErrCommitUnknown)
				}
			})
		}
	}
}

// hedging sends each RPC twice at once, and takes the answer of the second.
func hedging(armed *atomic.Bool) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if !armed.Load() {
				return invoke(ctx, method, req, reply, cc, opts...)
			}
			var other sync.WaitGroup
			other.Go(func() { _ = invoke(ctx, method, req, reply, cc, opts...) })
			err := invoke(ctx, method, req, reply, cc, opts...)
			other.Wait()
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if !armed.Load() {
				return open(ctx, desc, cc, method, opts...)
			}
			var streams [2]grpc.ClientStream
			var errs [2]error
			var both sync.WaitGroup
			for i := range streams {
				both.Go(func() { streams[i], errs[i] = open(ctx, desc, cc, method, opts...) })
			}
			both.Wait()
			if streams[0] == nil || streams[1] == nil {
				return streams[0], errs[0]
			}
			return &hedgedStream{streams[0], streams[1]}, nil
		}),
	}
}

type hedgedStream struct {
	grpc.ClientStream
	other grpc.ClientStream
}

func (s *hedgedStream) SendMsg(m any) error {
	_ = s.other.SendMsg(m)
	return s.ClientStream.SendMsg(m)
}

func (s *hedgedStream) CloseSend() error {
	_ = s.other.CloseSend()
	return s.ClientStream.CloseSend()
}

func TestAnInterceptorThatSendsTwiceAtOnceIsRefused(t *testing.T) {
	for range 20 {
		for method, call := range changesOf {
			var armed atomic.Bool
			inBubble(t, testserver.Strict(), Config{MaxSize: 1, DialOptions: hedging(&armed)}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				err := call(r, &armed)
				armed.Store(false)
				require.Error(r, err, method)
				if method == "DoAction" && !SafeToRetry(err) {
					require.NotErrorIs(r, err, ErrTxAborted)
				}
				stored := r.value(r.pool, "SELECT count(*) FROM t")
				require.Contains(r, []string{"0", "1"}, stored)
				if SafeToRetry(err) {
					require.Equal(r, "0", stored)
				}
			})
		}
	}
}

// retrying is a policy of gRPC's own.
const retrying = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

func TestAPolicyOfRetriesSendsNoChangeTwice(t *testing.T) {
	for method, call := range changesOf {
		var armed atomic.Bool
		inBubble(t, testserver.Strict(), Config{MaxSize: 1, DialOptions: []grpc.DialOption{grpc.WithDefaultServiceConfig(retrying)}}, func(r *rig) {
			r.exec("CREATE TABLE t (a BIGINT)")
			tx, err := r.pool.BeginTx(r.Context(), TxOptions{}) // what it learns of the server
			require.NoError(r, err)
			require.NoError(r, tx.Rollback(r.Context()))
			on := testserver.OnDoPut
			if method == "DoAction" {
				on = testserver.OnEnd
			}
			r.srv.Faults().Set(testserver.Fault{On: on, After: true, Times: 1, Do: testserver.Fail(codes.Unavailable, "a proxy's own")})
			err = call(r, &armed)
			if method == "DoPut" { // the fault is at the change
				require.Error(r, err)
				require.False(r, SafeToRetry(err))
			}
			if err != nil && method == "DoAction" {
				require.ErrorIs(r, err, ErrCommitUnknown)
			}
			require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"))
		})
	}
}

// forgetful replaces the context for those that come after it.
type forgetful struct{}

func (forgetful) TagRPC(context.Context, *stats.RPCTagInfo) context.Context {
	return context.Background()
}                                                                                   //nolint:usetesting // that is its fault
func (forgetful) HandleRPC(context.Context, stats.RPCStats)                         {}
func (forgetful) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (forgetful) HandleConn(context.Context, stats.ConnStats)                       {}

// What is sent by it would not be known as sent.
func TestAStatsHandlerThatReplacesTheContextHidesNothing(t *testing.T) {
	const insert = "INSERT INTO nowhere VALUES (1)"
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, MinIdle: -1, AcquireTimeout: time.Second, DialOptions: []grpc.DialOption{grpc.WithStatsHandler(forgetful{})}}, func(r *rig) {
		_, err := r.pool.Update(r.Context(), insert)
		require.ErrorContains(r, err, "DialOptions: an interceptor ")
		require.Empty(r, r.srv.Ledger().Executions(insert))
	})
}

// A transport that has ended is not made again: what waits for one would wait for ever.
func TestAnRPCDoesNotWaitForATransportThatHasEnded(t *testing.T) {
	for method, call := range changesOf {
		var armed atomic.Bool
		var srv *testserver.Server
		cut := func() {
			if armed.CompareAndSwap(true, false) {
				srv.Faults().KillConns()
				time.Sleep(ms)
			}
		}
		options := []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				cut()
				return invoke(ctx, method, req, reply, cc, opts...)
			}),
			grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, full string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				cut()
				return open(ctx, desc, cc, full, opts...)
			}),
		}
		inBubble(t, testserver.Strict(), Config{MaxSize: 1, DialOptions: options}, func(r *rig) {
			srv = r.srv
			r.exec("CREATE TABLE t (a BIGINT)")
			began := time.Now()
			err := call(r, &armed)
			require.Less(r, time.Since(began), time.Second)
			stored := r.value(r.pool, "SELECT count(*) FROM t")
			if method == "DoPut" { // it was not sent, and so it is made again
				require.NoError(r, err)
				require.Equal(r, "1", stored)
			} else {
				require.ErrorIs(r, err, ErrSessionLost)
				require.NotErrorIs(r, err, ErrCommitUnknown)
				require.Equal(r, "0", stored)
			}
		})
	}
}

// A password for a TLS target goes nowhere in plain text, whatever was copied into DialOptions.
func TestDialOptionsDoNotTakeAwayTLS(t *testing.T) {
	withServer(t, testserver.Options{Users: map[string]string{"u": "p"}}, func(t *testing.T, srv *testserver.Server) {
		var sent atomic.Int64
		pool, err := New(t.Context(), "grpc+tls://server:1", Config{Auth: BasicAuth("u", "p"), Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
			sent.Add(1)
			return srv.Dial(ctx, addr)
		}, DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}})
		if pool != nil {
			defer func() { _ = pool.Close(context.WithoutCancel(t.Context())) }()
		}
		require.ErrorContains(t, err, "transport level security")
		require.Equal(t, FaultUsage, faultIn(err))
		require.Zero(t, sent.Load())
	})
}
