package dsql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	leasefleet "github.com/flightpool/flightpool/lease/fleet"
)

// A silentStore is a table that does not answer while hangs says so: a request
// takes as long as its context. A write may have been made all the same.
type silentStore struct {
	*leasefleet.Memory
	silent atomic.Bool
	hangs  func(key string, write bool) bool
}

func (s *silentStore) hung(ctx context.Context, key string, write bool) error {
	if !s.silent.Load() || !s.hangs(key, write) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *silentStore) Read(ctx context.Context, keys ...string) (leasefleet.Snapshot, error) {
	if err := s.hung(ctx, keys[0], false); err != nil { // all are of one kind
		return leasefleet.Snapshot{}, err
	}
	return s.Memory.Read(ctx, keys...)
}

func (s *silentStore) Write(ctx context.Context, c leasefleet.Change) (leasefleet.Answer, error) {
	if err := s.hung(ctx, c.Key, true); err != nil {
		if rand.IntN(2) == 0 {
			_, _ = s.Memory.Write(context.WithoutCancel(ctx), c)
		}
		return leasefleet.Answer{}, err
	}
	return s.Memory.Write(ctx, c)
}

// silence is what a process of 20 connections goes through while its table does
// not answer.
type silence struct {
	hangs    func(key string, write bool) bool
	lasts    time.Duration
	start    bool          // the table is silent when the process starts
	turns    time.Duration // it answers and is silent by turns
	fallback lease.Fallback
	lossy    bool
	others   int // processes beside it
}

// newSilentCluster is a cluster over a table, whose connections are not real.
func newSilentCluster(t *testing.T, cfg Config, store leasefleet.Store) *Cluster {
	leases, err := leasefleet.New(t.Context(), store, leasesConfig(cfg))
	require.NoError(t, err)
	own, err := leasefleet.NewLimiter(t.Context(), store, leasefleet.LimiterConfig{Table: "t", Budget: cfg.Budget, Rate: cfg.OpenRate, Burst: cfg.OpenBurst, Logger: cfg.Logger})
	require.NoError(t, err)
	limiter := withFallback(own, cfg, func() int { return leases.Stats().Owners })
	c, err := newCluster(t.Context(), cfg, &budgets{leases: leases, limiter: limiter, closers: []func(context.Context) error{leases.Close, limiter.Close}},
		func(context.Context) (*physical, error) {
			p := &physical{}
			local, _ := net.Pipe()
			p.setSocket(local)
			p.owner.Store(ownedByCloser) // so that nothing is closed but its end of the pipe
			return p, nil
		})
	require.NoError(t, err)
	return c
}

func (o silence) run(t *testing.T) {
	const size, workers = 20, 6
	cfg := Config{Host: someHost, MaxSize: size, CheckInterval: -1, LeaseTable: "t", Fallback: o.fallback, Logger: slog.New(slog.DiscardHandler)}
	cfg, err := cfg.resolve(environ(nil))
	require.NoError(t, err)
	store := &silentStore{Memory: leasefleet.NewMemory(), hangs: o.hangs}
	var others []*leasefleet.Leases
	for range o.others {
		l, err := leasefleet.New(t.Context(), store, leasesConfig(cfg))
		require.NoError(t, err)
		_, err = l.Acquire(t.Context())
		require.NoError(t, err)
		others = append(others, l)
	}
	store.silent.Store(o.start)
	c := newSilentCluster(t, cfg, store)
	ready, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	assert.NoError(t, c.WaitReady(ready, size))
	cancel()
	if !o.start {
		time.Sleep(5 * time.Minute)
	}
	store.silent.Store(true)
	over := time.Now().Add(o.lasts)
	var all sync.WaitGroup
	var failed atomic.Int64
	for range workers {
		all.Go(func() {
			for time.Now().Before(over) {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				l, err := c.res.Acquire(ctx)
				cancel()
				if err != nil {
					failed.Add(1)
					time.Sleep(time.Second)
					continue
				}
				time.Sleep(rand.N(20 * time.Millisecond))
				if o.lossy && rand.IntN(500) == 0 {
					_ = l.Discard(errors.New("lost"))
				} else {
					_ = l.Release()
				}
				time.Sleep(rand.N(1600 * time.Millisecond))
			}
		})
	}
	for ; o.turns > 0 && time.Now().Before(over); time.Sleep(o.turns) {
		store.silent.Store(!store.silent.Load())
	}
	all.Wait()
	assert.Zero(t, failed.Load(), "%+v", c.Stats())
	store.silent.Store(false)
	time.Sleep(2 * time.Minute)
	s := c.Stats()
	assert.False(t, s.Leases.Degraded, "%v", s.Leases.Cause)
	assert.False(t, s.Limiter.Degraded, "%v", s.Limiter.Cause)
	assert.Equal(t, size, s.Reservoir.Idle)
	assert.Zero(t, s.Leases.Unbacked)
	assert.NoError(t, c.Close(t.Context()))
	used := -o.others // one each
	for shard := range cmp.Or(cfg.LeaseShards, 64) {
		records, err := store.Memory.Read(t.Context(), fmt.Sprintf("shard#%s#%d", cfg.Budget, shard))
		require.NoError(t, err)
		for _, r := range records.Records {
			for _, o := range r.Owners {
				used += int(min(o.Leases, 1))
			}
		}
	}
	assert.Zero(t, used, "leases are left")
	for _, l := range others {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_ = l.Close(ctx) // of what it has
		cancel()
	}
}

// A table that does not answer, from the start or in the middle, for some of its
// records or all, costs no request. With PROVE set all that can be combined is.
func TestATableThatDoesNotAnswerCostsNoRequest(t *testing.T) {
	of := func(prefixes ...string) func(string, bool) bool {
		return func(key string, _ bool) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
		}
	}
	which := map[string]func(key string, write bool) bool{
		"all":     func(string, bool) bool { return true },
		"limiter": of("rate#"),
		"leases":  of("budget#", "shard#", "member#"),
		"shards":  of("shard#"),
		"budget":  of("budget#"),
		"writes":  func(_ string, write bool) bool { return write },
		"reads":   func(_ string, write bool) bool { return !write },
		"some":    func(string, bool) bool { return rand.IntN(2) == 0 },
		"most":    func(string, bool) bool { return rand.IntN(10) > 0 },
	}
	when := map[string]silence{
		"middle":       {},
		"lossy":        {lossy: true},
		"others":       {lossy: true, others: 9},
		"start":        {start: true, fallback: lease.Share(20)},
		"each minute":  {turns: time.Minute, lossy: true},
		"each seconds": {turns: 7 * time.Second, lossy: true, others: 3},
	}
	chosen := map[string]bool{"all/lossy": true, "shards/start": true, "limiter/others": true, "writes/each minute": true}
	for name, hangs := range which {
		for at, o := range when {
			o.hangs, o.lasts = hangs, 10*time.Minute
			if os.Getenv("PROVE") != "" {
				o.lasts = 30 * time.Minute
			} else if !chosen[name+"/"+at] {
				continue
			}
			t.Run(name+"/"+at, func(t *testing.T) { synctest.Test(t, o.run) })
		}
	}
}
