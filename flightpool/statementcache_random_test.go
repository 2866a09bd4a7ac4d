package flightpool

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// keptReads are reads with a parameter, and how many rows they have for 1 and for 2.
var keptReads = []struct {
	sql  string
	rows [2]int
}{
	{"SELECT * FROM memory.t1 WHERE a = ?", [2]int{1, 0}},
	{"SELECT * FROM memory.t2 WHERE a = ?", [2]int{0, 1}},
	{"SELECT * FROM memory.t3 WHERE a = ?", [2]int{2, 1}},
	{"SELECT * FROM memory.t4 WHERE a = ?", [2]int{0, 0}},
}

// keeper makes random calls of a pool that keeps statements.
type keeper struct {
	*rig
	seed         uint64
	mu           sync.Mutex
	well, failed int
}

func (k *keeper) read(ctx context.Context, q querier, r *rand.Rand) {
	one, arg := keptReads[r.IntN(len(keptReads))], 1+r.IntN(2)
	res, err := q.Query(ctx, one.sql, arg)
	n := 0
	if err == nil {
		for res.Next() {
			n += int(res.RecordBatch().NumRows())
		}
		err = res.Err()
		res.Release()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.failed++
		return
	}
	k.well++
	if n != one.rows[arg-1] {
		k.Errorf("seed %d, %s: %q with %d has %d rows", k.seed, k.srv.Profile().Name, one.sql, arg, n)
	}
}

// step is a call, or something that happens to the server.
func (k *keeper) step(r *rand.Rand) {
	ctx := k.Context()
	switch n := r.IntN(40); {
	case n < 28:
		if r.IntN(6) == 0 {
			short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(3))*ms)
			defer cancel()
			ctx = short
		}
		k.read(ctx, k.pool, r)
	case n < 31:
		s, err := k.pool.AcquireSession(ctx)
		if err != nil {
			return
		}
		defer func() { _ = s.Close() }()
		k.read(ctx, s, r)
		if p, err := s.PrepareQuery(ctx, keptReads[r.IntN(len(keptReads))].sql); err == nil && r.IntN(2) == 0 {
			_ = drained(p.Query(ctx, 1))
		}
	case n < 33:
		k.srv.Faults().EvictSessions()
	case n == 33:
		k.srv.Faults().KillConns()
	case n == 34:
		points := []testserver.Point{testserver.OnPrepare, testserver.OnDoPut, testserver.OnGetFlightInfo, testserver.OnDoGet, "ClosePreparedStatement"}
		effects := []testserver.Effect{
			testserver.Kill(), testserver.Fail(codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found)"), testserver.Fail(codes.Internal, "?"),
			testserver.Fail(codes.Unavailable, "later"), testserver.Fail(codes.InvalidArgument, "no such statement"), testserver.Fail(codes.NotFound, "not found"),
		}
		e := r.IntN(len(effects)) // the last two name a reason: they come before anything is done
		k.srv.Faults().Set(testserver.Fault{On: points[r.IntN(len(points))], After: e < 4 && r.IntN(2) == 0, Times: 1, Do: effects[e]})
	case n == 35:
		time.Sleep(time.Duration(r.IntN(3)) * time.Hour)
	case n == 36:
		k.pool.EvictIdle()
	default:
		time.Sleep(time.Duration(r.IntN(20)) * time.Second)
	}
}

// Whatever becomes of the sessions of a server, no read has the rows of another statement.
func TestNoReadHasTheRowsOfAnotherKeptStatement(t *testing.T) {
	limit := time.Second
	if s := os.Getenv("PROVE"); s != "" {
		var err error
		limit, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	well, failed := 0, 0
	for began := time.Now(); time.Since(began) < limit && !t.Failed(); {
		seed := rand.Uint64()
		if s := os.Getenv("PROVE_SEED"); s != "" {
			seed, _ = strconv.ParseUint(s, 10, 64)
		}
		r := rand.New(rand.NewPCG(seed, 0))
		profiles := []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.Dremio(), testserver.GizmoSQL()}
		profile := profiles[r.IntN(len(profiles))]
		cfg := Config{MaxSize: 1 + r.IntN(2), StatementCache: 1 + r.IntN(4)}
		if profile.SessionKey == testserver.ByBearer {
			cfg.Auth = BasicAuth("u", "p")
		}
		inBubble(t, profile, cfg, func(rig *rig) {
			for i, values := range []string{"(1)", "(2)", "(1), (1), (2)", "(3)"} {
				rig.exec(fmt.Sprintf("CREATE TABLE memory.t%d (a BIGINT)", i+1))
				rig.exec(fmt.Sprintf("INSERT INTO memory.t%d VALUES %s", i+1, values))
			}
			k := &keeper{rig: rig, seed: seed}
			var all sync.WaitGroup
			for w := range 1 + r.IntN(2) {
				r := rand.New(rand.NewPCG(seed, uint64(w+1)))
				all.Go(func() {
					for range 60 {
						k.step(r)
					}
				})
			}
			all.Wait()
			rig.srv.Faults().Clear()
			time.Sleep(time.Minute)
			synctest.Wait()
			well, failed = well+k.well, failed+k.failed
		})
	}
	t.Logf("%d reads went well, %d failed", well, failed)
}
