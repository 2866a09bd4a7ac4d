package flightpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver"
)

// repeating are interceptors that send an RPC again which has failed by UNAVAILABLE, as those of
// go-grpc-middleware do.
func repeating() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			for range 2 {
				if status.Code(err) == codes.Unavailable {
					err = invoke(ctx, method, req, reply, cc, opts...)
				}
			}
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, desc, cc, method, opts...)
			return &repeatedStream{ClientStream: stream, again: func() (grpc.ClientStream, error) { return open(ctx, desc, cc, method, opts...) }}, err
		}),
	}
}

type repeatedStream struct {
	grpc.ClientStream
	again    func() (grpc.ClientStream, error)
	sent     []any
	closed   bool
	received bool
}

func (s *repeatedStream) SendMsg(m any) error {
	s.sent = append(s.sent, m)
	return s.ClientStream.SendMsg(m)
}

func (s *repeatedStream) CloseSend() error {
	s.closed = true
	return s.ClientStream.CloseSend()
}

func (s *repeatedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	for range 2 {
		if s.received || status.Code(err) != codes.Unavailable {
			break
		}
		next, openErr := s.again()
		if openErr != nil {
			return openErr
		}
		s.ClientStream = next
		for _, sent := range s.sent {
			_ = next.SendMsg(sent)
		}
		if s.closed {
			_ = next.CloseSend()
		}
		err = next.RecvMsg(m)
	}
	s.received = true
	return err
}

// What an interceptor sends again is not sent: a change would be stored twice, and the refusal
// of a second COMMIT would tell that nothing is stored.
func TestAnInterceptorThatRepeatsAnRPCIsRefused(t *testing.T) {
	const insert = "INSERT INTO t VALUES (1)"
	for name, c := range map[string]struct {
		on   testserver.Point
		call func(r *rig) error
		want string // that is stored
	}{
		"Update": {testserver.OnDoPut, func(r *rig) error { _, err := r.pool.Update(r.Context(), insert); return err }, "1"},
		"Commit": {testserver.OnEnd, func(r *rig) error {
			s := r.session()
			defer func() { _ = s.Close() }()
			require.NoError(r, s.BeginTransaction(r.Context()))
			_, err := s.Update(r.Context(), insert)
			require.NoError(r, err)
			if err = s.Commit(r.Context()); err != nil {
				require.ErrorIs(r, err, ErrCommitUnknown)
			}
			return err
		}, "1"},
		"Query": {testserver.OnGetFlightInfo, func(r *rig) error { return drained(r.pool.Query(r.Context(), "SELECT 2")) }, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.Strict(), Config{MaxSize: 1, DialOptions: repeating()}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				tx, err := r.pool.BeginTx(r.Context(), TxOptions{}) // what it learns of the server
				require.NoError(r, err)
				require.NoError(r, tx.Rollback(r.Context()))
				r.srv.Faults().Set(testserver.Fault{On: c.on, After: true, Times: 1, Do: testserver.Fail(codes.Unavailable, "a proxy's own")})
				err = c.call(r)
				require.Equal(r, name == "Query", err == nil, "%v", err)
				if err != nil { // the pool repeats a read
					require.ErrorContains(r, err, "DialOptions: an interceptor ")
				}
				require.False(r, SafeToRetry(err))
				require.Equal(r, c.want, r.value(r.pool, "SELECT count(*) FROM t"))
				require.EqualValues(r, 2, r.pool.Stats().Opens)
			})
		})
	}
}

// Its client is closed, which all connections of the pool share.
func TestARequestToCancelThatAnInterceptorRepeatsCostsNoLaterOne(t *testing.T) {
	profile := testserver.Strict()
	profile.SideBySide, profile.IgnoreRPCCancel = true, true
	inBubble(t, profile, Config{MaxSize: 1, DialOptions: repeating()}, func(r *rig) {
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnCancel, After: true, Times: 1, Do: testserver.Fail(codes.Unavailable, "a proxy's own")})
		for range 3 {
			r.cancelled(r.pool, "SELECT sleep('1h')", time.Second)
			require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		}
		require.EqualValues(r, 2, r.pool.Stats().Opens, "the first cancel is not confirmed: %+v", r.srv.Ledger().Cancels())
	})
}
