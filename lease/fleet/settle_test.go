package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// After any storm that ends, the store is as it says: the dead are gone within Lease and
// Grace, who lives has what its entry says, everybody gets what there is room for, or its
// share, and Close leaves nothing.
func TestAFleetSettlesAfterAnyStorm(t *testing.T) {
	for seed := range 6 * storms(t) {
		rng := seeded(seed)
		s := everything()
		s.limit, s.members, s.shards = 6+rng.IntN(40), 2+rng.IntN(5), 1+rng.IntN(4)
		s.strict = rng.IntN(2) == 0
		s.kills, s.pauses, s.outages, s.cutOffs = upTo(rng, 4*time.Minute), upTo(rng, 4*time.Minute), upTo(rng, 8*time.Minute), rng.IntN(2) == 0
		s.jumps, s.leaves, s.limits = upTo(rng, 2*time.Minute), upTo(rng, 4*time.Minute), upTo(rng, 4*time.Minute)
		if !s.strict {
			s.fallback = []lease.Fallback{lease.Pessimistic(), lease.Share(1 + rng.IntN(4)), lease.Optimistic()}[rng.IntN(3)]
		}
		terms, each := Config{
			Lease: time.Minute, Grace: 20 * time.Second, OpenTimeout: 5 * time.Second, RequestTimeout: time.Second,
		}, seeded(seed+1000)
		if rng.IntN(2) == 0 {
			terms.Lease = (3*time.Second + upTo(rng, 2*time.Minute)).Truncate(time.Second)
			terms.OpenTimeout, terms.RequestTimeout = terms.Lease/(4+time.Duration(rng.IntN(6))), terms.Lease/(12+time.Duration(rng.IntN(20)))
			terms.Grace = (terms.OpenTimeout + upTo(rng, 30*time.Second)).Truncate(time.Second) + time.Second
		}
		s.configure = func(c *Config) {
			c.Lease, c.Grace, c.OpenTimeout, c.RequestTimeout = terms.Lease, terms.Grace, terms.OpenTimeout, terms.RequestTimeout
			if each.IntN(2) == 0 {
				c.Want, c.Batch = each.IntN(s.limit), each.IntN(5)
			}
		}
		s.settle(t, seed, rng, terms)
	}
}

func (s story) settle(t *testing.T, seed uint64, rng *rand.Rand, terms Config) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, world: newWorld(), rng: rng, story: s, members: map[*member]bool{}, gone: map[*member]bool{}}
		f.world.onWrite = f.checkSum
		life, end := context.WithCancel(t.Context())
		defer end()
		for range s.members {
			f.start(life)
		}
		f.storm(life, rng)
		members := f.calmDown()
		defer func() {
			for _, m := range f.all() {
				m.leases.stopGoroutines()
			}
			end()
			time.Sleep(10 * time.Minute)
		}()
		what := stateText(func() string { return f.describe(seed) })
		time.Sleep(terms.Lease + terms.Grace)
		require.Empty(t, f.sumBad, "seed %d", seed)
		f.entriesAreThoseOf(t, members, what)
		for end := time.Now().Add(time.Minute); f.world.used() > int64(s.limit) && time.Now().Before(end); {
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, f.world.used(), int64(s.limit), what)
		f.everybodyGetsItsShare(t, members, rng, 2*max(terms.Lease, time.Minute), what)
		for _, m := range members {
			m.closeAll()
			require.NoError(t, m.leases.Close(t.Context()), "seed %d", seed)
		}
		require.Zero(t, f.world.used(), what)
		f.entriesAreThoseOf(t, nil, what)
	})
}

// storm lets everything happen for a while.
func (f *fleet) storm(life context.Context, rng *rand.Rand) {
	s := f.story
	ctx, cancel := context.WithTimeout(life, time.Duration(5+rng.IntN(10))*time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		pause(ctx, upTo(rng, 20*time.Second), nil)
		for what, mean := range []time.Duration{s.kills, s.pauses, s.jumps, s.leaves, s.limits, s.outages, 3 * time.Minute} {
			if mean == 0 || rng.Float64() > 10/mean.Seconds() {
				continue
			}
			switch what {
			case 0:
				f.pick().kill()
				f.start(life)
			case 1:
				f.pick().freeze(upTo(rng, 200*time.Second))
			case 2:
				f.pick().jump(rng)
			case 3:
				f.pick().leave(upTo(rng, 30*time.Second))
				f.start(life)
			case 4:
				_ = SetLimit(life, f.world.mem, "b", s.shards+rng.IntN(s.limit))
			case 5:
				f.silence(time.Now().Add(upTo(rng, 150*time.Second)))
			case 6:
				_, _ = Free(life, f.world.mem, "b", f.pick().leases.id)
			}
		}
	}
}

func (f *fleet) silence(until time.Time) {
	if f.story.cutOffs {
		f.pick().client.set(func(p *process) { p.outage = until })
		return
	}
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	f.world.outage = until
}

// calmDown ends all that goes wrong, and closes all connections. It kills one of three.
func (f *fleet) calmDown() []*member {
	f.world.mu.Lock()
	f.world.outage = time.Time{}
	f.world.mu.Unlock()
	_ = SetLimit(context.Background(), f.world.mem, "b", f.story.limit)
	time.Sleep(200 * time.Second) // who stands still goes on
	members := f.all()
	slices.SortFunc(members, func(a, b *member) int { return strings.Compare(a.leases.id, b.leases.id) })
	for i := range len(members) / 3 {
		members[i].kill()
	}
	members = members[len(members)/3:]
	for _, m := range members {
		m.client.set(func(p *process) { p.outage, p.faults = time.Time{}, calm })
		m.mu.Lock()
		m.woken = time.Time{}
		m.mu.Unlock()
		m.cancel()
	}
	time.Sleep(time.Second)
	for _, m := range members {
		m.closeAll()
	}
	return members
}

func (m *member) closeAll() {
	for c := m.any(); c != nil; c = m.any() {
		m.close(c)
	}
}

// stateText is written when a test has failed.
type stateText func() string

func (s stateText) String() string { return s() }

func (f *fleet) describe(seed uint64) string {
	all, err := Inspect(context.Background(), f.world.mem, "b")
	text := strings.Builder{}
	fmt.Fprintf(&text, "seed %d: %+v %v", seed, all, err)
	for _, m := range f.all() {
		fmt.Fprintf(&text, "\n%s %+v", m.leases.id, m.leases.Stats())
	}
	return text.String()
}

// entriesAreThoseOf holds the store against what processes believe.
func (f *fleet) entriesAreThoseOf(t *testing.T, members []*member, what fmt.Stringer) {
	t.Helper()
	synctest.Wait()
	held := map[string]int{}
	for _, m := range members {
		m.leases.mu.Lock()
		held[m.leases.id] = m.leases.state.held()
		m.leases.mu.Unlock()
	}
	all, err := Inspect(t.Context(), f.world.mem, "b")
	require.NoError(t, err)
	for _, m := range all.Members {
		n, lives := held[m.ID]
		require.True(t, lives, "%s is dead\n%s", m.ID, what)
		require.Equal(t, n, m.Leases, "%s\n%s", m.ID, what)
		delete(held, m.ID)
	}
	for id, n := range held {
		require.Zero(t, n, "%s is not in the store\n%s", id, what)
	}
}

// everybodyGetsItsShare has everybody want some connections, and keep them.
func (f *fleet) everybodyGetsItsShare(t *testing.T, members []*member, rng *rand.Rand, within time.Duration, what fmt.Stringer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*within)
	defer cancel()
	sum, wants := 0, make([]int, len(members))
	for i, m := range members {
		wants[i] = rng.IntN(2*f.story.limit/len(members) + 1)
		sum += wants[i]
		for range wants[i] {
			go func() {
				if release, err := m.leases.Acquire(ctx); err == nil {
					m.mu.Lock()
					m.conns[&conn{release: release}] = true
					m.mu.Unlock()
				}
			}()
		}
	}
	begin := time.Now()
	enough := func() bool {
		has := 0
		for _, m := range members {
			has += m.count()
		}
		return has >= min(sum, f.story.limit)
	}
	for !enough() {
		require.Less(t, time.Since(begin), within, "wanted %v\n%s", wants, what)
		time.Sleep(time.Second)
	}
	has := 0
	for _, m := range members {
		has += m.count()
	}
	require.LessOrEqual(t, has, f.story.limit)
	cancel()
	time.Sleep(time.Second)
}
