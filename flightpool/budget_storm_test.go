package flightpool_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/testserver"
)

// A weakStore is a fleet's store that fails, is slow, loses requests and answers, for everybody
// or for one process, and may come back as it was some time ago.
type weakStore struct {
	mu     sync.Mutex
	mem    *fleet.Memory
	rng    *rand.Rand
	all    weakness
	writes []fleet.Change // those that were done
}

// A weakness is what requests meet.
type weakness struct {
	down, refuses bool          // requests hang; are refused
	lost          float64       // requests, and answers
	slow          time.Duration // up to so long each way
}

// line is a process's way to the store.
type line struct {
	*weakStore
	own weakness // guarded by mu
}

var errStoreRefuses = errors.New("the store is busy")

func (l *line) Read(ctx context.Context, keys ...string) (fleet.Snapshot, error) {
	return throughWeakness(ctx, l, func() (fleet.Snapshot, error) { return l.mem.Read(ctx, keys...) })
}

func (l *line) Write(ctx context.Context, c fleet.Change) (fleet.Answer, error) {
	return throughWeakness(ctx, l, func() (fleet.Answer, error) {
		answer, err := l.mem.Write(ctx, c)
		if answer.Done {
			l.writes = append(l.writes, c)
		}
		return answer, err
	})
}

func throughWeakness[T any](ctx context.Context, l *line, do func() (T, error)) (none T, err error) {
	l.mu.Lock()
	w := l.all
	if l.own != (weakness{}) {
		w = l.own
	}
	there, back := 2*time.Millisecond, 2*time.Millisecond
	if w.slow > 0 {
		there, back = time.Duration(l.rng.Int64N(int64(w.slow))), time.Duration(l.rng.Int64N(int64(w.slow)))
	}
	lost, lostAnswer := w.down || l.rng.Float64() < w.lost, l.rng.Float64() < w.lost
	l.mu.Unlock()
	switch {
	case lost:
		<-ctx.Done()
		return none, ctx.Err()
	case w.refuses:
		return none, errStoreRefuses
	}
	time.Sleep(there) // it arrives, whether or not somebody still waits for the answer
	l.mu.Lock()
	answer, err := do()
	l.mu.Unlock()
	if lostAnswer {
		<-ctx.Done()
		return none, ctx.Err()
	}
	time.Sleep(back)
	if ctx.Err() != nil {
		return none, ctx.Err()
	}
	return answer, err
}

// rewind has the store come back without its latest writes.
func (s *weakStore) rewind(lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = s.writes[:max(0, len(s.writes)-lost)]
	s.mem = fleet.NewMemory()
	for _, c := range s.writes {
		_, _ = s.mem.Write(context.Background(), c)
	}
}

func (s *weakStore) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Whatever becomes of the store, the server never has more connections than the limit, callers
// return with their deadlines, and all recovers with the store. A store that has lost writes
// has forgotten who has what: then only the rest holds. What is left out, since package fleet says
// so, is a process that is cut off alone and may keep its connections.
func TestPoolsOverAStoreThatFailsKeepTheLimitAndRecover(t *testing.T) {
	for seed := range uint64(stormSeeds) {
		for _, rewinds := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Logf("seed %d, rewinds %v", seed, rewinds)
					}
				}()
				storeStorm(t, seed, rewinds)
			})
		}
	}
}

const stormSeeds = 1 // 60 were looked at

func storeStorm(t *testing.T, seed uint64, rewinds bool) {
	rng := rand.New(rand.NewPCG(seed, 21))
	srv := must(testserver.Start(testserver.Options{Listen: testserver.InMemory}))
	store := &weakStore{mem: fleet.NewMemory(), rng: rand.New(rand.NewPCG(seed, 22))}
	limit, strict := 3+rng.IntN(6), rng.IntN(2) == 0
	var lines []*line
	var pools []*flightpool.FlightSQLPool
	var budgets []*fleet.Leases
	for range 2 + rng.IntN(min(3, limit-1)) {
		l := &line{weakStore: store}
		leases, err := fleet.New(t.Context(), l, fleet.Config{Budget: "warehouse", Limit: limit, Strict: strict, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		pool, err := flightpool.New(t.Context(), "grpc://server:1", flightpool.Config{
			MinIdle: []int{-1, rng.IntN(limit + 2)}[rng.IntN(2)], MaxSize: limit + 1, AcquireTimeout: 40 * time.Second, IdleTTL: time.Duration(1+rng.IntN(300)) * time.Second,
			OpenRetry: []flightpool.OpenRetry{flightpool.OpenRetryAlways, flightpool.OpenRetryNever}[rng.IntN(2)], MaxLifetime: 3 * time.Minute,
			Leases: leases, Dialer: srv.Dial,
		})
		require.NoError(t, err)
		lines, pools, budgets = append(lines, l), append(pools, pool), append(budgets, leases)
	}

	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for _, pool := range pools {
		for range 1 + rng.IntN(limit) {
			own := rand.New(rand.NewPCG(rng.Uint64(), 1))
			work.Go(func() {
				for ctx.Err() == nil {
					callInStorm(ctx, t, pool, own)
				}
			})
		}
	}
	work.Go(func() { // looks
		for ctx.Err() == nil {
			time.Sleep(500 * time.Millisecond)
			if n := srv.Ledger().Snapshot().Conns; n > limit && !rewinds {
				t.Errorf("%d connections of %d, strict %v", n, limit, strict)
			}
		}
	})
	for range 8 {
		weather(store, lines, rng, strict)
		time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Minute))))
		if rewinds && rng.IntN(3) == 0 {
			store.rewind(rng.IntN(60))
		}
	}
	store.set(func() {
		store.all = weakness{}
		for _, l := range lines {
			l.own = weakness{}
		}
	})
	time.Sleep(5 * time.Minute)
	stop()
	work.Wait()
	assert.LessOrEqual(t, srv.Ledger().Snapshot().Conns, limit)
	for _, pool := range pools { // one after the other, while the others keep what is idle
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		_, err := flightpool.CollectRows[bool](pool.Query(soon, "SELECT sleep('1s')"))
		assert.NoError(t, err)
		cancel()
	}
	for i, pool := range pools {
		require.NoError(t, pool.Close(t.Context()))
		require.NoError(t, budgets[i].Close(t.Context()))
	}
	assert.Zero(t, srv.Ledger().Snapshot().Conns)
	state, err := fleet.Inspect(t.Context(), &line{weakStore: store}, "warehouse")
	require.NoError(t, err)
	assert.Zero(t, state.Used, "%+v", state)
	require.NoError(t, srv.Close())
}

// weather changes what requests meet. One process alone is cut off only where it then gives up
// its connections.
func weather(store *weakStore, lines []*line, rng *rand.Rand, strict bool) {
	w := []weakness{{}, {down: true}, {refuses: true}, {lost: .3}, {slow: 1500 * time.Millisecond}, {lost: .1, slow: 800 * time.Millisecond}}[rng.IntN(6)]
	store.set(func() {
		for _, l := range lines {
			l.own = weakness{}
		}
		if strict && rng.IntN(2) == 0 {
			lines[rng.IntN(len(lines))].own = w
		} else {
			store.all = w
		}
	})
}

func callInStorm(ctx context.Context, t *testing.T, pool *flightpool.FlightSQLPool, rng *rand.Rand) {
	time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Second))))
	patience := time.Duration(1+rng.Int64N(30)) * time.Second
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	_, err := flightpool.CollectRows[bool](pool.QueryWithOptions(soon, fmt.Sprintf("SELECT sleep('%ds')", rng.IntN(8)), flightpool.QueryOptions{NoCancel: true})) // channels for cancels have no lease
	if took := time.Since(began); took > patience+50*time.Millisecond {
		t.Errorf("a call took %v of %v: %v", took, patience, err)
	}
}
