package flightpool

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver"
)

// telling are interceptors that tell a refusal of the streams of a method that the server has
// ended well, before they have heard of that or after.
func telling(armed *atomic.Bool, method string, early bool) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, full string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, desc, cc, full, opts...)
			if err != nil || !armed.Load() || !strings.HasSuffix(full, method) {
				return stream, err
			}
			return &tellingStream{stream, early}, nil
		}),
	}
}

var toldRefused = status.Error(codes.InvalidArgument, "refused, says an interceptor")

type tellingStream struct {
	grpc.ClientStream
	early bool
}

func (s *tellingStream) RecvMsg(m any) error {
	for !s.early && s.ClientStream.RecvMsg(m) == nil {
		continue
	}
	return toldRefused
}

// What an interceptor says of an RPC is not what the server has said of it: a change that was
// told as refused was stored, and so was a transaction whose COMMIT was.
func TestAStatusOfAnInterceptorsIsNotTheServers(t *testing.T) {
	const insert = "INSERT INTO t VALUES (1)"
	for _, early := range []bool{false, true} {
		for method, call := range map[string]func(r *rig, armed *atomic.Bool) error{
			"DoPut": func(r *rig, armed *atomic.Bool) error {
				armed.Store(true)
				_, err := r.pool.Update(r.Context(), insert)
				return err
			},
			"DoAction": func(r *rig, armed *atomic.Bool) error {
				s := r.session()
				defer func() { _ = s.Close() }()
				require.NoError(r, s.BeginTransaction(r.Context()))
				_, err := s.Update(r.Context(), insert)
				require.NoError(r, err)
				armed.Store(true)
				err = s.Commit(r.Context())
				require.ErrorIs(r, err, ErrCommitUnknown)
				return err
			},
		} {
			var armed atomic.Bool
			inBubble(t, testserver.Strict(), Config{MaxSize: 1, DialOptions: telling(&armed, method, early)}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				err := call(r, &armed)
				armed.Store(false)
				require.ErrorContains(r, err, "says an interceptor")
				require.NotEqual(r, FaultStatement, faultIn(err))
				require.False(r, SafeToRetry(err))
				if !early { // else the RPC is cut, and nobody knows
					require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"))
				}
			})
		}
	}
}
