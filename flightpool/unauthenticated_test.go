package flightpool

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// revoker has the server forget the token that it has seen last, at an RPC: as it comes, or
// when the server has handled it.
type revoker struct {
	mu     sync.Mutex
	revoke func() // nil: not armed
	at, n  int
	after  bool
	rpc    string // at which it was
}

func (e *revoker) hit(method string) (behind func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.revoke == nil {
		return func() {}
	}
	if e.n++; e.n != e.at+1 {
		return func() {}
	}
	if e.rpc = method; e.after {
		return e.revoke
	}
	e.revoke()
	return func() {}
}

func (e *revoker) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			defer e.hit(info.FullMethod)()
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			defer e.hit(info.FullMethod)()
			return handle(srv, stream)
		}),
	}
}

// tokenUse is what is done with a pool while its token is revoked. It returns how many rows it
// was to store, and what it was told of them.
type tokenUse func(ctx context.Context, p *FlightSQLPool, table string) (rows int, tx bool, err error)

const onlyInsert = "INSERT INTO %s VALUES (%d)"

var tokenUses = map[string]tokenUse{
	"update": func(ctx context.Context, p *FlightSQLPool, table string) (int, bool, error) {
		_, err := p.Update(ctx, fmt.Sprintf(onlyInsert, table, 1))
		return 1, false, err
	},
	"arguments": func(ctx context.Context, p *FlightSQLPool, table string) (int, bool, error) {
		_, err := p.Update(ctx, "INSERT INTO "+table+" VALUES (?)", 1)
		return 1, false, err
	},
	"ingest": func(ctx context.Context, p *FlightSQLPool, _ string) (int, bool, error) {
		rows := ints("k", 1)
		defer rows.Release()
		reader, _ := array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{rows})
		defer reader.Release()
		_, err := p.Ingest(ctx, "t", reader, IngestOptions{Catalog: "memory", Schema: "main"})
		return 1, false, err
	},
	"read": func(ctx context.Context, p *FlightSQLPool, _ string) (int, bool, error) {
		n, res := 0, error(nil)
		r, err := p.Query(ctx, "SELECT * FROM generate(30, 10)")
		if err == nil {
			for r.Next() {
				n += int(r.RecordBatch().NumRows())
			}
			res = r.Err()
			r.Release()
			if res == nil && n != 30 {
				panic(n)
			}
		}
		return 0, false, errors.Join(err, res)
	},
	"transaction": func(ctx context.Context, p *FlightSQLPool, table string) (int, bool, error) {
		tx, err := p.BeginTx(ctx, TxOptions{})
		if err != nil {
			return 2, true, err
		}
		for row := range 2 {
			if _, err = tx.Update(ctx, fmt.Sprintf(onlyInsert, table, row+1)); err != nil {
				_ = tx.Rollback(ctx)
				return 2, true, err
			}
		}
		return 2, true, tx.Commit(ctx)
	},
	"rollback": func(ctx context.Context, p *FlightSQLPool, table string) (int, bool, error) {
		tx, err := p.BeginTx(ctx, TxOptions{})
		if err == nil {
			_, _ = tx.Update(ctx, fmt.Sprintf(onlyInsert, table, 1))
			_ = tx.Rollback(ctx)
		}
		return 1, true, errors.New("rolled back")
	},
	"session": func(ctx context.Context, p *FlightSQLPool, table string) (int, bool, error) {
		s, err := p.AcquireSession(ctx)
		if err != nil {
			return 1, false, err
		}
		defer func() { _ = s.Close() }()
		if err := s.SetOption(ctx, "colour", "red"); err != nil {
			return 1, false, err
		}
		q, err := s.PrepareQuery(ctx, fmt.Sprintf(onlyInsert, table, 1))
		if err != nil {
			return 1, false, err
		}
		_, err = q.Update(ctx)
		_ = q.Close(ctx)
		return 1, false, err
	},
	"cancel": func(ctx context.Context, p *FlightSQLPool, _ string) (int, bool, error) {
		ctx, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		return 0, false, drained(p.Query(ctx, "SELECT sleep('10s')"))
	},
}

// Wherever the server stops to know a connection's token: what the call says of its change is
// so, nothing runs twice, and the next call has a new token.
func TestATokenMayBeRevokedAtAnyRPC(t *testing.T) {
	inParts := testserver.Strict()
	inParts.Name, inParts.Endpoints, inParts.Run, inParts.RenewHandles = "in parts", 3, testserver.RunInInfo, true
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake(), inParts} {
		for name, use := range tokenUses {
			for _, after := range []bool{false, true} {
				for at, more := 0, true; more; at++ {
					if !sampled(fmt.Sprint(profile.Name, name, after, at), 8) {
						continue
					}
					e := &revoker{at: at, after: after}
					opts := testserver.Options{Profile: profile, GRPC: e.options()}
					for i := range 100 {
						opts.Tokens = append(opts.Tokens, "token-"+strconv.Itoa(i))
					}
					given := -1
					cfg := Config{MaxSize: 2, Auth: TokenAuth(func(context.Context) (string, time.Time, error) {
						given++
						return "token-" + strconv.Itoa(given), time.Time{}, nil
					})}
					inBubbleOn(t, opts, cfg, func(r *rig) {
						say := fmt.Sprintf("%s on %s, revoked at RPC %d, after it: %v", name, profile.Name, at, after)
						r.exec("CREATE TABLE memory.t (k BIGINT)")
						e.mu.Lock()
						e.revoke = func() { r.srv.Faults().ExpireToken("token-" + strconv.Itoa(given)) }
						e.mu.Unlock()
						rows, tx, err := use(r.Context(), r.pool, "memory.t")
						e.mu.Lock()
						e.revoke = nil
						more = e.n > at
						say += " (" + e.rpc + ")"
						e.mu.Unlock()
						time.Sleep(10 * time.Second) // what goes on behind it
						stored, lookErr := firstValue(r.Context(), r.pool, "SELECT count(*) FROM memory.t")
						require.NoError(r, lookErr, say)
						say += fmt.Sprintf(": told %v", err)
						switch {
						case err == nil:
							require.Equal(r, strconv.Itoa(rows), stored, say)
						case tx && !errors.Is(err, ErrCommitUnknown), SafeToRetry(err):
							require.Equal(r, "0", stored, say)
						default:
							require.Contains(r, []string{"0", strconv.Itoa(rows)}, stored, say)
						}
						for row := range rows {
							require.LessOrEqual(r, r.executions(fmt.Sprintf(onlyInsert, "memory.t", row+1)), 1, say)
						}
						require.Zero(r, r.pool.Stats().OnLoan, say)
						r.srv.Faults().EvictSessions() // what cannot be rolled back without a token is left there
					})
				}
			}
		}
	}
}

// A token that several connections have is refused on each of them: what the first caller is
// told need not be told to the next.
func TestATokenThatWasRefusedIsLookedAtOnOtherConnections(t *testing.T) {
	given := 0
	cfg := Config{MaxSize: 4, MinIdle: 4, Auth: TokenAuth(func(context.Context) (string, time.Time, error) {
		given++
		return "token-" + strconv.Itoa(given), time.Time{}, nil
	})}
	inBubbleOn(t, testserver.Options{Profile: testserver.Strict(), Tokens: []string{"token-1", "token-2"}}, cfg, func(r *rig) {
		require.NoError(r, r.pool.WaitReady(r.Context(), 4))
		require.Equal(r, 1, given)
		r.srv.Faults().ExpireToken("token-1")
		for i := range 5 {
			s := r.session()
			_, err := firstValue(r.Context(), s, "SELECT 1")
			require.Equal(r, i > 0, err == nil, "call %d: %v", i, err)
			_ = s.Close()
		}
		require.Equal(r, 2, given)
	})
}

// A server that refuses a statement so, and not the token, has it refused once.
func TestARefusalOfOneStatementCostsOneConnection(t *testing.T) {
	cfg := Config{MaxSize: 4, MinIdle: 4, Auth: TokenAuth(func(context.Context) (string, time.Time, error) { return "token", time.Time{}, nil })}
	inBubbleOn(t, testserver.Options{Profile: testserver.Strict(), Tokens: []string{"token"}}, cfg, func(r *rig) {
		require.NoError(r, r.pool.WaitReady(r.Context(), 4))
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, Times: 1, Do: testserver.Fail(codes.Unauthenticated, "not this statement")})
		s := r.session()
		_, err := s.Update(r.Context(), "SET colour = 'red'")
		require.Error(r, err)
		_ = s.Close()
		for range 8 {
			s := r.session()
			defer func() { _ = s.Close() }()
			if r.pool.Stats().OnLoan == 4 {
				break
			}
		}
		require.EqualValues(r, 5, r.pool.Stats().Opens)
	})
}
