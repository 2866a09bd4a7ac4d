package adbcpool

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// TestNoUpdateRunsWithoutOnConnectWhereverTheDriverDialsAgain cuts the driver's transport before
// each of its RPCs.
func TestNoUpdateRunsWithoutOnConnectWhereverTheDriverDialsAgain(t *testing.T) {
	const set = "SET colour = 'red'"
	for sql, update := range map[string]func(ctx context.Context, p *flightpool.FlightSQLPool, sql string) error{
		"INSERT INTO memory.t VALUES (1)": func(ctx context.Context, p *flightpool.FlightSQLPool, sql string) error {
			_, err := p.Update(ctx, sql)
			return err
		},
		"INSERT INTO memory.t VALUES (?)": func(ctx context.Context, p *flightpool.FlightSQLPool, sql string) error {
			_, err := p.Update(ctx, sql, 1)
			return err
		},
		"INSERT INTO memory.t VALUES ($1)": func(ctx context.Context, p *flightpool.FlightSQLPool, sql string) error {
			s, err := p.AcquireSession(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = s.Close() }()
			q, err := s.PrepareQuery(ctx, sql)
			if err != nil {
				return err
			}
			_, err = q.Update(ctx, 1)
			return err
		},
	} {
		stored := 0
		for at, cut := 0, true; cut; at++ {
			inBubble(t, testserver.SwanLake(), func(r rig) {
				var armed atomic.Bool
				var rpcs atomic.Int64 // of the update
				before := func() {
					if armed.Load() && rpcs.Add(1) == int64(at)+1 {
						r.server.Faults().KillConns()
						synctest.Wait()
					}
				}
				db, err := driverAt("127.0.0.1:1", grpc.WithContextDialer(r.server.Dial),
					grpc.WithChainUnaryInterceptor(func(ctx context.Context, m string, a, b any, cc *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
						before()
						return next(ctx, m, a, b, cc, o...)
					}),
					grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, m string, next grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
						before()
						return next(ctx, d, cc, m, o...)
					}))
				require.NoError(r, err)
				defer func() { require.NoError(r, db.Close()) }()
				p, err := New(r.Context(), db, flightpool.Config{MaxSize: 1, OnConnect: func(ctx context.Context, s *flightpool.SessionHandle) error {
					_, err := s.Update(ctx, set)
					return err
				}})
				require.NoError(r, err)
				defer func() { require.NoError(r, p.Close(context.WithoutCancel(r.Context()))) }()
				r.update(p, "CREATE TABLE memory.t (a BIGINT)")
				armed.Store(true)
				err = update(r.Context(), p, sql)
				armed.Store(false)
				cut = rpcs.Load() > int64(at)
				prepared := map[int]bool{}
				for _, st := range r.server.Ledger().Statements() {
					prepared[st.Session] = prepared[st.Session] || st.SQL == set
					require.True(r, prepared[st.Session] || st.SQL != sql || st.State != testserver.Done, "%s, cut before %d: %v", sql, at, err)
				}
				if err == nil {
					require.Equal(r, 1, r.executions(sql))
					stored++
				}
			})
		}
		require.Positive(t, stored, sql)
	}
}

func TestAnUpdateThatCannotBePreparedRunsBehindTheProofOfItsSession(t *testing.T) {
	const insert = "INSERT INTO t VALUES (1)"
	inBubble(t, testserver.Strict(), func(r rig) {
		for i, code := range []codes.Code{codes.InvalidArgument, codes.Unimplemented} {
			r.server.Faults().Set(testserver.Fault{On: testserver.OnPrepare, SQL: insert, Skip: i, Times: 1, Do: testserver.Fail(code, "not this one")})
		}
		p := r.pool("new", func(cfg *flightpool.Config) {
			cfg.MaxSize = 1
			cfg.OnConnect = func(ctx context.Context, s *flightpool.SessionHandle) error {
				_, err := s.Update(ctx, "SET colour = 'red'")
				return err
			}
		})
		r.update(p, "CREATE TABLE t (a BIGINT)")
		r.update(p, insert)
		r.update(p, insert)
		require.Equal(r, 2, r.executions(insert))
		var n int64
		require.NoError(r, p.QueryRow(r.Context(), "SELECT count(*) FROM t").Scan(&n))
		require.EqualValues(r, 2, n)
		require.EqualValues(r, 1, p.Stats().Opens)
		_, err := p.Update(r.Context(), "INSERT INTO nowhere VALUES (1)")
		require.Equal(r, flightpool.FaultStatement, faultIn(r, err))
		require.EqualValues(r, 1, p.Stats().Opens)
		synctest.Wait()
		require.Equal(r, 2, r.server.Ledger().Snapshot().Prepared, "OnConnect's proof, and what recognises its session, alone")
	})
}

func faultIn(r rig, err error) flightpool.Fault {
	var e *flightpool.Error
	require.ErrorAs(r, err, &e)
	return e.Fault
}
