package flightpool

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// receives hands what it has received to f.
type receives struct {
	grpc.ClientStream
	f func(error) error
}

func (s receives) RecvMsg(m any) error { return s.f(s.ClientStream.RecvMsg(m)) }

// An interceptor that writes a journal fails with what another pool says of a call of its own: that nothing of it was sent.
func TestWhatAnInterceptorHasOfAnotherPoolIsNotSaidOfTheCall(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		for _, fault := range []Fault{FaultTransport, FaultSession, FaultAuth, FaultStatement, FaultUsage, FaultContext} {
			unsent := &Error{Op: "Update", Stage: backend.StageDial, Fault: fault, Target: "journal:1", Unsent: true, Read: true, Err: errors.New("connection refused")}
			var armed atomic.Value
			armed.Store("none")
			journal := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				stream, err := open(ctx, desc, cc, method, opts...)
				if err != nil || !strings.HasSuffix(method, armed.Load().(string)) {
					return stream, err
				}
				return receives{stream, func(err error) error {
					if err == nil {
						return unsent
					}
					return err
				}}, nil
			})
			inBubble(t, profile, Config{MaxSize: 2, DialOptions: []grpc.DialOption{journal}}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				armed.Store("/DoPut")
				_, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (1)")
				armed.Store("none")
				require.Error(r, err)
				require.False(r, SafeToRetry(err) || IsConflict(err), "%s: %v: %v", profile.Name, fault, err)
				require.LessOrEqual(r, r.executions("INSERT INTO t VALUES (1)"), 1, "%s: %v", profile.Name, fault)

				tx := r.begin()
				_, err = tx.Update(r.Context(), "INSERT INTO t VALUES (2)")
				require.NoError(r, err)
				armed.Store("/DoAction")
				err = tx.Commit(r.Context())
				armed.Store("none")
				if err != nil {
					require.ErrorIs(r, err, ErrCommitUnknown, "%s: %v", profile.Name, fault)
					require.False(r, SafeToRetry(err) || IsConflict(err), "%s: %v: %v", profile.Name, fault, err)
				}
				time.Sleep(time.Minute)
			})
		}
	}
}
