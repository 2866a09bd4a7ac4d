package flightpool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/session"
	"github.com/flightpool/flightpool/testserver"
)

// endCase is a handle in some state, one call of it, what goes wrong in that,
// and how the caller ends it.
type endCase struct {
	r      *rig
	s      *SessionHandle
	closed bool // the pool was closed
	back   time.Time
	inTx   int // rows of the open transaction
	told   int // rows that the caller was told are stored
	maybe  int // rows of which it was told that nobody knows
}

// endStates lead a handle to a state.
var endStates = map[string]func(c *endCase) error{
	"fresh": func(*endCase) error { return nil },
	"setting": func(c *endCase) error {
		_, err := c.s.Update(c.r.Context(), "SET search_path = 'mine'")
		return err
	},
	"temporary table": func(c *endCase) error {
		_, err := c.s.Update(c.r.Context(), "CREATE TEMP TABLE mine (a BIGINT)")
		return err
	},
	"prepared": func(c *endCase) error {
		_, err := c.s.PrepareQuery(c.r.Context(), "SELECT 1")
		return err
	},
	"transaction": func(c *endCase) error {
		err := c.s.BeginTransaction(c.r.Context())
		if err == nil {
			_, err = c.s.Update(c.r.Context(), "INSERT INTO t VALUES (1)")
			c.inTx = 1
		}
		return err
	},
	"savepoint": func(c *endCase) error {
		err := c.s.BeginTransaction(c.r.Context())
		if err == nil {
			err = c.s.Savepoint(c.r.Context(), "p")
		}
		return err
	},
}

// endFaults strike the call: first what they do where.
var endFaults = map[string][]testserver.Fault{
	"none":           nil,
	"dies":           {{On: testserver.OnStatement, Times: 1, Do: testserver.Kill()}},
	"dies after":     {{On: testserver.OnStatement, Times: 1, After: true, Do: testserver.Kill()}},
	"dies in rows":   {{On: testserver.OnBatch, Skip: 2, Times: 1, Do: testserver.Kill()}},
	"refuses":        {{On: testserver.OnStatement, Times: 1, Do: testserver.Fail(codes.Internal, "refused")}},
	"has no room":    {{On: testserver.OnStatement, Times: 1, Do: testserver.Fail(codes.ResourceExhausted, "no room")}},
	"is silent":      {{On: testserver.OnStatement, Times: 1, Do: testserver.Freeze()}},
	"silent in rows": {{On: testserver.OnBatch, Skip: 2, Times: 1, Do: testserver.Freeze()}},
	"is slow":        {{On: testserver.OnStatement, Times: 1, Do: testserver.Delay(time.Second)}},
	"cancels late": {
		{On: testserver.OnStatement, Times: 1, Do: testserver.Delay(2 * time.Second)},
		{On: testserver.OnCancel, Do: testserver.Delay(time.Second)},
	},
	"evicts": {{On: testserver.OnStatement, Times: 1, Do: testserver.Evict()}},
}

// endWays are how a caller ends a call of a query; each returns the error that
// it was told. They return within ctx and 50 ms.
var endWays = map[string]func(ctx context.Context, c *endCase, sql string) error{
	"end": func(ctx context.Context, c *endCase, sql string) error { return readAll(c.s.Query(ctx, sql)) },
	"early": func(ctx context.Context, c *endCase, sql string) error {
		res, err := c.s.Query(ctx, sql)
		if err != nil {
			return err
		}
		res.Next()
		return res.Close()
	},
	"deadline": func(ctx context.Context, c *endCase, sql string) error {
		ctx, stop := context.WithTimeout(ctx, 100*ms)
		defer stop()
		return readAll(c.s.Query(ctx, sql))
	},
	"left to its end": func(ctx context.Context, c *endCase, sql string) error {
		ctx, stop := context.WithTimeout(ctx, 100*ms)
		defer stop()
		return readAll(c.s.QueryWithOptions(ctx, sql, QueryOptions{NoCancel: true}))
	},
	"panic": func(ctx context.Context, c *endCase, sql string) (err error) {
		defer func() {
			if recover() != nil {
				err = errEnded
			}
		}()
		return readAll(c.s.QueryWithOptions(ctx, sql, QueryOptions{Progress: func(float64, bool) { panic("the caller's") }}))
	},
	"goexit": func(ctx context.Context, c *endCase, sql string) (err error) {
		done := make(chan struct{})
		err = errEnded
		go func() {
			defer close(done)
			err = readAll(c.s.QueryWithOptions(ctx, sql, QueryOptions{Progress: func(float64, bool) { runtime.Goexit() }}))
		}()
		<-done
		return err
	},
	"close": func(ctx context.Context, c *endCase, sql string) error {
		return c.beside(func() { _ = c.s.Close() }, func() error { return readAll(c.s.Query(ctx, sql)) })
	},
	"pool close": func(ctx context.Context, c *endCase, sql string) error {
		c.closed = true
		return c.beside(func() {
			bounded, stop := context.WithTimeout(c.r.Context(), 300*ms)
			defer stop()
			_ = c.r.pool.Close(bounded)
		}, func() error { return readAll(c.s.Query(ctx, sql)) })
	},
}

var errEnded = errors.New("the callback has ended its goroutine")

// beside runs other while call is under way.
func (c *endCase) beside(other func(), call func() error) error {
	var both sync.WaitGroup
	both.Go(func() {
		time.Sleep(100 * ms)
		other()
	})
	defer both.Wait()
	defer func() { c.back = time.Now() }()
	return call()
}

// TestEveryEndOfACallInEveryState looks, after each, whether the caller came back
// in time, the connection is whole or gone, the data is what was said, and
// nothing is left on the server. Without PROVE it takes every eighth case of the
// strict server, and every twelfth of the others.
func TestEveryEndOfACallInEveryState(t *testing.T) {
	every := map[string]uint32{testserver.Strict().Name: 8, testserver.SwanLake().Name: 12, testserver.GizmoSQL().Name: 12, testserver.Dremio().Name: 12}
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.GizmoSQL(), testserver.Dremio()} {
		for state := range endStates {
			for fault := range endFaults {
				for way := range endWays {
					name := fmt.Sprintf("%s/%s/%s/%s", profile.Name, state, fault, way)
					if !sampled(name, every[profile.Name]) {
						continue
					}
					t.Run(name, func(t *testing.T) {
						cfg := Config{MaxSize: 2, MinIdle: -1, MaxLifetime: -1, HealthCheck: HealthCheck{Interval: -1}}
						opts := testserver.Options{Profile: profile}
						if profile.SessionKey == testserver.ByBearer {
							cfg.Auth, opts.Users = BasicAuth("u", "p"), map[string]string{"u": "p"}
						}
						inBubbleOn(t, opts, cfg, func(r *rig) {
							endOne(r, state, fault, way)
							r.srv.Faults().EvictSessions() // some servers keep those of connections that have died
						})
					})
				}
			}
		}
	}
}

func endOne(r *rig, state, fault, way string) {
	const sql = "SELECT * FROM generate(5000, 100)"
	r.exec("CREATE TABLE t (a BIGINT)")
	c := &endCase{r: r, s: r.session()}
	if err := endStates[state](c); err != nil {
		require.Equal(r, backend.FaultUnsupported, backend.FaultIn(err), "%v", err)
		require.NoError(r, c.s.Close())
		return
	}
	for _, f := range endFaults[fault] {
		if f.On != testserver.OnCancel {
			f.SQL = sql
		}
		r.srv.Faults().Set(f)
	}
	start := time.Now()
	ctx, stop := context.WithTimeout(r.Context(), 5*time.Second)
	defer stop()
	err := endWays[way](ctx, c, sql)
	if c.back.IsZero() {
		c.back = time.Now()
	}
	require.LessOrEqual(r, c.back.Sub(start), 5*time.Second+50*ms, "the caller comes back with its context: %v", err)
	if way == "deadline" || way == "left to its end" {
		require.LessOrEqual(r, c.back.Sub(start), 150*ms, "%v", err)
	}
	if fault == "none" && (way == "end" || way == "early") {
		require.NoError(r, err)
	}
	c.afterwards(fault)
	r.srv.Faults().Clear()
	r.srv.Faults().ThawConns()
	if c.closed {
		return
	}
	stored, err := strconv.Atoi(r.value(r.pool, "SELECT count(*) FROM t"))
	require.NoError(r, err)
	require.LessOrEqual(r, c.told, stored, "what was said to be stored is")
	require.GreaterOrEqual(r, c.told+c.maybe, stored, "nothing else is")
	for range 2 { // both connections
		s := r.session()
		defer func() { require.NoError(r, s.Close()) }()
		require.NotEqual(r, "mine", r.value(s, "SHOW search_path"), "a setting of another's")
		_, err := s.Update(r.Context(), "INSERT INTO mine VALUES (1)")
		require.Error(r, err, "a table of another's")
	}
}

// afterwards goes on with the handle: it works, or says why not.
func (c *endCase) afterwards(fault string) {
	ctx, stop := context.WithTimeout(c.r.Context(), 20*time.Second)
	defer stop()
	_, err := c.s.Update(ctx, "INSERT INTO t VALUES (2)")
	if err == nil {
		c.inTx++
	} else {
		ok := errors.Is(err, backend.ErrSessionLost) || errors.Is(err, backend.ErrTxAborted) || errors.Is(err, backend.ErrHandleClosed) || ctx.Err() != nil || fault == "evicts" && backend.FaultIn(err) == FaultStatement
		require.True(c.r, ok, "the handle works or says why not: %v", err)
		if ctx.Err() != nil {
			c.maybe++
		}
	}
	switch err := c.s.Commit(ctx); {
	case errors.Is(err, session.ErrNoTx): // each statement is for itself
		c.told += c.inTx
	case err == nil:
		c.told += c.inTx
	case errors.Is(err, backend.ErrCommitUnknown):
		c.maybe += c.inTx
	case errors.Is(err, backend.ErrHandleClosed), errors.Is(err, backend.ErrSessionLost), errors.Is(err, backend.ErrTxAborted), ctx.Err() != nil:
	default:
		require.NoError(c.r, err)
	}
	_ = c.s.Close()
}
