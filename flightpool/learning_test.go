package flightpool

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// cutLearning has a caller's deadline cut the question how the server treats transactions, and waits until
// nothing is left of it. The server does not begin a transaction until what it returns is cleared.
func cutLearning(r *rig) *testserver.SetFault {
	hang := r.srv.Faults().Set(testserver.Fault{On: testserver.OnBegin, Do: testserver.Hang()})
	ctx, stop := context.WithTimeout(r.Context(), time.Second)
	defer stop()
	h, err := r.pool.AcquireSession(ctx)
	require.NoError(r, err)
	_, err = h.Update(ctx, "SET colour = 'red'")
	require.Error(r, err)
	_ = h.Close()
	time.Sleep(time.Minute)
	return hang
}

// What an open asks in place of a caller who was cut begins a transaction of the pool's own. Where the
// server's answer does not say that none was begun, the connection is not lent: what others store would be in it.
func TestAnOpenThatMayHaveLeftATransactionFails(t *testing.T) {
	for name, answer := range map[string]error{
		"a failure":        status.Error(codes.Internal, "internal server error"),
		"a page":           status.Error(codes.Unimplemented, `transport: the server has answered with HTTP status 404 and content type "text/html": it speaks no gRPC there`),
		"one that is open": status.Error(codes.InvalidArgument, "cannot start a transaction within a transaction"),
	} {
		for skip := range 2 { // the first that it begins, or the second
			t.Run(fmt.Sprint(name, skip), func(t *testing.T) {
				profile := testserver.Strict()
				profile.IgnoreTxID = true
				inBubble(t, profile, Config{MaxSize: 1, MinIdle: -1}, func(r *rig) {
					hang := cutLearning(r)
					lost := r.srv.Faults().Set(testserver.Fault{On: testserver.OnBegin, After: true, Skip: skip, Times: 1, Do: func(context.Context, *testserver.FaultTarget) error { return answer }})
					hang.Clear()
					if _, err := r.pool.Update(r.Context(), "CREATE TABLE t (a BIGINT)"); err != nil { // the open has failed
						r.exec("CREATE TABLE t (a BIGINT)")
					}
					r.exec("INSERT INTO t VALUES (1)")
					require.Equal(r, 1, lost.Fired())
					require.Zero(r, r.srv.Ledger().Snapshot().Transactions)
					r.pool.EvictIdle()
					require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"))
				})
			})
		}
	}
}

// A server that does not answer that question costs one open, and not all that follow.
func TestAQuestionWithoutAnAnswerCostsOneOpen(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, MinIdle: -1}, func(r *rig) {
		hang := cutLearning(r)
		_, err := firstValue(r.Context(), r.pool, "SELECT 1")
		require.Error(r, err)
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		require.Equal(r, 2, hang.Fired())
	})
}
