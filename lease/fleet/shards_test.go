package fleet

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// A silentStore does not answer for some records until a time.
type silentStore struct {
	Store
	silent func(key string, write bool) bool
	until  *atomic.Int64
}

func (s *silentStore) hang(ctx context.Context, key string, write bool) error {
	if !time.Now().Before(time.Unix(0, s.until.Load())) || !s.silent(key, write) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *silentStore) Read(ctx context.Context, keys ...string) (Snapshot, error) {
	for _, key := range keys {
		if err := s.hang(ctx, key, false); err != nil {
			return Snapshot{}, err
		}
	}
	return s.Store.Read(ctx, keys...)
}

func (s *silentStore) Write(ctx context.Context, c Change) (Answer, error) {
	if err := s.hang(ctx, c.Key, true); err != nil {
		return Answer{}, err
	}
	return s.Store.Write(ctx, c)
}

func ofShards(key string, _ bool) bool { return strings.HasPrefix(key, "shard#") }

// Where nothing can be taken, the Fallback decides, although the budget's record
// is renewed.
func TestTheFallbackDecidesWhileNoShardAnswers(t *testing.T) {
	for _, grants := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			var until atomic.Int64
			until.Store(time.Now().Add(10 * time.Minute).UnixNano())
			store := &silentStore{NewMemory(), ofShards, &until}
			l, err := New(t.Context(), store, Config{Budget: "b", Limit: 10, Fallback: lease.Share(grants)})
			require.NoError(t, err)
			for range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				var releases []func()
				for {
					release, err := l.Acquire(ctx)
					if err != nil {
						require.ErrorIs(t, err, lease.ErrUnavailable)
						break
					}
					releases = append(releases, release)
				}
				require.NoError(t, ctx.Err(), "at once")
				cancel()
				require.Len(t, releases, grants)
				require.True(t, l.Stats().Degraded)
				for _, release := range releases {
					release()
				}
				time.Sleep(15 * time.Second)
			}
			time.Sleep(5 * time.Second) // the shards answer
			require.False(t, l.Stats().Degraded)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for range 10 {
				release, err := l.Acquire(ctx)
				require.NoError(t, err)
				defer release()
			}
			require.Zero(t, l.Stats().Unbacked)
			l.stopGoroutines()
		})
	}
}

// Shards that take no writes for a while, all or one, while the budget's record
// does, make nobody dead: nobody can check in then. Nor does anybody take more
// than its share when they do again.
func TestShardsThatDoNotAnswerMakeNobodyDead(t *testing.T) {
	lengths, seeds, wide := []time.Duration{2 * time.Minute}, uint64(1), os.Getenv("STORMS") != ""
	if wide {
		lengths, seeds = []time.Duration{time.Minute, 3 * time.Minute, 10 * time.Minute}, storms(t)
	}
	configs := []Config{{Shards: 1}, {Shards: 4}, {Shards: 4, Fallback: lease.Share(10)}}
	for i, silent := range []func(key string, write bool) bool{
		ofShards,
		func(key string, write bool) bool { return write && ofShards(key, write) },
		func(key string, _ bool) bool { return key == shardKey("b", 0) },
	} {
		for j, cfg := range configs {
			if !wide && i != j {
				continue
			}
			for _, lasts := range lengths {
				for seed := range seeds {
					cfg.Budget, cfg.Limit, cfg.Logger = "b", 80, silence
					synctest.Test(t, func(t *testing.T) {
						w := newWorld()
						ctx, cancel := context.WithCancel(t.Context())
						var running sync.WaitGroup
						var until atomic.Int64
						var pools []*pool
						for i := range uint64(8) {
							l, err := New(ctx, &silentStore{newProcess(w, i+10*seed, calm), silent, &until}, cfg)
							require.NoError(t, err)
							want := 6 + 3*int(i) // more than there are
							pools = append(pools, newPool(ctx, l, i, want, want, &running))
							l.OnRevoke(func(lease.Revocation) { t.Error("revoked") })
						}
						time.Sleep(time.Minute + upTo(seeded(seed), 23*time.Second))
						assert.Equal(t, 80, connections(pools))
						until.Store(time.Now().Add(lasts).UnixNano())
						most := 0
						for end := time.Now().Add(lasts + time.Minute); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
							most = max(most, connections(pools))
						}
						assert.Equal(t, 80, most, "%d %+v", i, cfg)
						cancel()
						running.Wait()
						for _, p := range pools {
							assert.Zero(t, p.leases.Stats().Losses)
							p.leases.stopGoroutines()
						}
					})
				}
			}
		}
	}
}

// One shard that does not answer keeps nobody from the others: who joins takes leases
// there, and those of the dead come back.
func TestOneShardThatDoesNotAnswerHoldsUpNothingElse(t *testing.T) {
	for seed := range 2 * storms(t) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			var until atomic.Int64
			const silent = 2
			var ls []*Leases
			start := func() *process {
				p := newProcess(w, seed*10+uint64(len(ls)), calm)
				store := &silentStore{p, func(key string, _ bool) bool { return key == shardKey("b", silent) }, &until}
				l, err := New(t.Context(), store, Config{Budget: "b", Limit: 80, Shards: 4, Logger: silence})
				require.NoError(t, err)
				take(t, l, 5)
				ls = append(ls, l)
				return p
			}
			var dead *process
			for dead == nil || len(ls) < 5 {
				if p := start(); dead == nil && ls[len(ls)-1].state.home != silent {
					dead, ls[0], ls[len(ls)-1] = p, ls[len(ls)-1], ls[0]
				}
			}
			time.Sleep(time.Minute)
			until.Store(time.Now().Add(10 * time.Minute).UnixNano())
			kill(ls[0], dead)
			time.Sleep(80 * time.Second)
			assert.Zero(t, w.heldBy(ls[:1]), "seed %d", seed)
			start()
			for _, l := range ls {
				l.stopGoroutines()
			}
		})
	}
}

// Who is suspected has its time to answer, however the clock of whoever looks is set.
func TestAClockThatIsSetShortensNoSuspicion(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, 10 * time.Second, time.Hour} {
		l := &Leases{cfg: Config{RequestTimeout: time.Second}}
		l.state.terms = terms{limit: 10, shards: 1, lease: time.Minute, grace: 20 * time.Second}
		l.state.readAt = instant{mono: time.Minute, wall: time.Hour}
		l.work.suspects = map[int]*suspicion{0: {at: l.state.readAt}}
		now := l.state.readAt.add(time.Second)
		now.wall += ahead
		assert.Equal(t, l.answerTime()-time.Second, l.reapIn(now), "%v", ahead)
	}
}

// singly is a store that answers no read of several keys.
type singly struct{ Store }

func (s singly) Read(ctx context.Context, keys ...string) (Snapshot, error) {
	if len(keys) > 1 {
		return Snapshot{}, errThrottled
	}
	return s.Store.Read(ctx, keys...)
}

// Shards that answer one by one have all answered, though a read of all failed. Where
// one does not, the others are returned, with its error.
func TestShardsThatAnswerSinglyHaveAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var until atomic.Int64
		store := &silentStore{NewMemory(), func(key string, _ bool) bool { return key == shardKey("b", 1) }, &until}
		l, err := New(t.Context(), singly{store}, Config{Budget: "b", Limit: 10, Shards: 3})
		require.NoError(t, err)
		l.stopGoroutines()
		records, err := l.readShards(t.Context(), allShards(3))
		require.NoError(t, err)
		require.Len(t, records, 3)
		until.Store(time.Now().Add(time.Hour).UnixNano())
		records, err = l.readShards(t.Context(), allShards(3))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, records, 2)
	})
}
