package flightpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/testserver"
)

// farAway is a server to which each RPC takes 10 ms.
func farAway() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			time.Sleep(10 * ms)
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			time.Sleep(10 * ms)
			return next(srv, s)
		}),
	}
}

// What the pool learns of a server once takes longer than these calls have: it fails one of
// them, and not all for as long as no other call comes.
func TestADeadlineTooShortToLearnAServerFailsOnce(t *testing.T) {
	calls := map[string]func(context.Context, *SessionHandle) error{
		"change": func(ctx context.Context, h *SessionHandle) error {
			_, err := h.Update(ctx, "CREATE TEMP TABLE t (n BIGINT)")
			return err
		},
		"transaction": func(ctx context.Context, h *SessionHandle) error {
			if err := h.BeginTransaction(ctx); err != nil {
				return err
			}
			return h.Rollback(ctx)
		},
	}
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.Dremio()} {
		for name, call := range calls {
			within := func(r *rig, limit time.Duration) error {
				h := r.session()
				defer func() { _ = h.Close() }()
				ctx, stop := context.WithTimeout(r.Context(), limit)
				defer stop()
				return call(ctx, h)
			}
			if name == "transaction" && profile.Name == testserver.Dremio().Name {
				continue // it has none
			}
			t.Run(profile.Name+", "+name, func(t *testing.T) {
				opts := testserver.Options{Profile: profile, GRPC: farAway()}
				enough := 5 * ms // for a pool that knows the server
				inBubbleOn(t, opts, Config{MaxSize: 1}, func(r *rig) {
					require.NoError(r, within(r, time.Minute))
					for ; within(r, enough) != nil; enough += 10 * ms {
						require.Less(r, enough, 300*ms)
					}
				})
				inBubbleOn(t, opts, Config{MaxSize: 1}, func(r *rig) {
					failed := 0
					for ; within(r, enough) != nil; failed++ {
						require.Zero(r, failed)
					}
				})
			})
		}
	}
}
