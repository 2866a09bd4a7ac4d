package fleet

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// A shareFleet is a fleet with a Fallback that is a Share, and a store whose records
// fall silent one after another.
type shareFleet struct {
	t      *testing.T
	ctx    context.Context
	world  *world
	rng    *rand.Rand
	cfg    Config
	share  int
	most   int // processes that there may be
	all    sync.WaitGroup
	silent atomic.Pointer[silentRecords]

	mu          sync.Mutex
	members     []*shareMember
	started     uint64
	connections int // at once, at most
	revocations int
}

// silentRecords are which records do not answer, from when on each, and until when.
type silentRecords struct {
	from       map[string]time.Time
	until      time.Time
	writesOnly bool
}

func (s *silentRecords) of(key string, write bool) bool {
	if s == nil || s.writesOnly && !write {
		return false
	}
	now := time.Now()
	from, silent := s.from[key]
	return silent && now.After(from) && now.Before(s.until)
}

// shareMember is one process, which may stand still, and whose wall clock may be set.
type shareMember struct {
	*process
	fleet  *shareFleet
	leases *Leases
	cancel context.CancelFunc
	still  atomic.Int64 // it stands still until then
	set    atomic.Int64 // the wall clock is ahead by so much
	want   atomic.Int64

	mu     sync.Mutex
	closed bool
	conns  []func()
}

func (m *shareMember) standStill() bool {
	left := time.Until(time.Unix(0, m.still.Load()))
	time.Sleep(max(left, 0))
	return left > 0
}

func (m *shareMember) hang(ctx context.Context, write bool, keys ...string) error {
	for _, key := range keys {
		if m.fleet.silent.Load().of(key, write) {
			<-ctx.Done()
			return ctx.Err()
		}
	}
	return nil
}

func (m *shareMember) Read(ctx context.Context, keys ...string) (Snapshot, error) {
	m.standStill()
	defer m.standStill()
	if err := m.hang(ctx, false, keys...); err != nil {
		return Snapshot{}, err
	}
	return m.process.Read(ctx, keys...)
}

func (m *shareMember) Write(ctx context.Context, c Change) (Answer, error) {
	m.standStill()
	defer m.standStill()
	if err := m.hang(ctx, true, c.Key); err != nil {
		return Answer{}, err
	}
	return m.process.Write(ctx, c)
}

func (f *shareFleet) start(want int) {
	f.started++
	m := &shareMember{fleet: f, process: newProcess(f.world, f.rng.Uint64(), calm)}
	m.want.Store(int64(want))
	ctx, cancel := context.WithCancel(f.ctx)
	real := processClock()
	l, err := open(ctx, m, f.cfg, func() instant {
		now := real()
		return instant{now.mono, now.wall + time.Duration(m.set.Load())}
	})
	require.NoError(f.t, err)
	m.leases, m.cancel = l, cancel
	l.OnRevoke(func(lease.Revocation) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.revocations++
	})
	f.mu.Lock()
	f.members = append(f.members, m)
	f.mu.Unlock()
	rng := seeded(f.rng.Uint64())
	f.all.Go(func() { m.run(ctx, rng) })
}

// run keeps as many connections as are wanted.
func (m *shareMember) run(ctx context.Context, rng *rand.Rand) {
	asking := make(chan struct{}, 64)
	for pause(ctx, 20*time.Millisecond+upTo(rng, 300*time.Millisecond), nil) {
		m.standStill()
		m.mu.Lock()
		missing := int(m.want.Load()) - len(m.conns)
		if missing < 0 {
			release := m.conns[0]
			m.conns = m.conns[1:]
			m.mu.Unlock()
			release()
			continue
		}
		m.mu.Unlock()
		for n := len(asking); n < min(missing, cap(asking)); n++ {
			asking <- struct{}{}
			m.fleet.all.Go(func() {
				m.connect(ctx)
				<-asking
			})
		}
	}
}

func (m *shareMember) connect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	release, err := m.leases.Acquire(ctx)
	if err != nil {
		return
	}
	stood := m.standStill()
	m.mu.Lock()
	if unusable := m.closed || stood && m.leases.Valid() != nil; unusable {
		m.mu.Unlock()
		release()
		return
	}
	m.conns = append(m.conns, release)
	m.mu.Unlock()
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.fleet.connections = max(m.fleet.connections, m.fleet.count())
}

// count is how many connections the server has. mu is held.
func (f *shareFleet) count() (n int) {
	for _, m := range f.members {
		m.mu.Lock()
		n += len(m.conns)
		m.mu.Unlock()
	}
	return n
}

// end ends a process: by a kill, or by a Close for which it takes its time.
func (f *shareFleet) end(killed bool) {
	f.mu.Lock()
	i := f.rng.IntN(len(f.members))
	m := f.members[i]
	f.members = append(f.members[:i:i], f.members[i+1:]...)
	f.mu.Unlock()
	m.mu.Lock()
	m.closed = true
	conns := m.conns
	m.conns = nil
	m.mu.Unlock()
	m.cancel()
	if killed {
		m.process.set(func(p *process) { p.dead = true })
		f.all.Go(m.leases.stopGoroutines)
		return
	}
	for _, release := range conns {
		release()
	}
	f.all.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = m.leases.Close(ctx)
	})
}

// befall lets things happen to the processes until a time. From greedy on they want
// all that there is.
func (f *shareFleet) befall(until, greedy time.Time, over time.Time) {
	for time.Now().Before(until) {
		time.Sleep(500*time.Millisecond + upTo(f.rng, 4*time.Second))
		m := f.members[f.rng.IntN(len(f.members))]
		want := f.rng.IntN(f.share + 1)
		if time.Now().After(greedy) {
			want = f.cfg.Limit
		}
		m.want.Store(int64(want))
		switch n := f.rng.IntN(7); {
		case n < 2 && len(f.members) > 1:
			f.end(n == 0)
		case n < 5 && len(f.members) < f.most:
			f.start(want)
		case n == 5: // not while others wait for it to tell what it has
			m.still.Store(time.Now().Add(min(upTo(f.rng, 2*time.Minute), time.Until(over)-2*time.Second)).UnixNano())
		case n == 6:
			m.set.Add(int64(upTo(f.rng, time.Minute) - 20*time.Second))
		}
	}
}

// outage makes records fall silent one after another, all shards among them.
func (f *shareFleet) outage() {
	begin, spread := time.Now(), upTo(f.rng, 80*time.Second)
	s := &silentRecords{from: map[string]time.Time{}, writesOnly: f.rng.IntN(3) == 0}
	last := begin
	for _, key := range append([]string{budgetKey("b")}, shardKeys(f.cfg.Shards)...) {
		if from := begin.Add(upTo(f.rng, spread)); key != budgetKey("b") || f.rng.IntN(2) == 0 {
			s.from[key] = from
			last = time.Unix(0, max(last.UnixNano(), from.UnixNano()))
		}
	}
	s.until = last.Add(45*time.Second + upTo(f.rng, 2*time.Minute))
	f.silent.Store(s)
	greedy := s.until.Add(-upTo(f.rng, 20*time.Second))
	if greedy.Sub(last) < 40*time.Second {
		greedy = s.until // else who is not out yet could take more than its share
	}
	f.befall(s.until.Add(8*time.Second), greedy, s.until)
}

func shardKeys(n int) (keys []string) {
	for i := range n {
		keys = append(keys, shardKey("b", i))
	}
	return keys
}

// While all shares together are the limit, and nobody has more than its share before,
// the server has no more connections than the limit, in an outage and after it: the
// store may answer reads and no writes, or fall silent record by record, while
// processes come and go, stand still, and have their clocks set. Nobody's connections
// are revoked. Afterwards all of the limit is used.
func TestSharesHoldTheLimitWhateverFallsSilent(t *testing.T) {
	for seed := range 2 * storms(t) {
		synctest.Test(t, func(t *testing.T) {
			rng := seeded(seed)
			ctx, cancel := context.WithCancel(t.Context())
			f := &shareFleet{t: t, ctx: ctx, world: newWorld(), rng: rng, share: 4 + rng.IntN(8), most: 3 + rng.IntN(4)}
			limit := f.share * f.most
			f.cfg = Config{
				Budget: "b", Limit: limit, Want: rng.IntN(limit), Shards: 1 + rng.IntN(4), Batch: 1,
				Lease: time.Minute, Grace: 20 * time.Second, OpenTimeout: 5 * time.Second, RequestTimeout: time.Second,
				Settle: time.Second + upTo(rng, time.Minute), Fallback: lease.Share(f.share), Logger: silence,
			}
			for range f.most - rng.IntN(2) {
				f.start(rng.IntN(f.share + 1))
			}
			for range 2 {
				time.Sleep(70*time.Second + upTo(rng, 40*time.Second))
				f.outage()
				for _, m := range f.members {
					m.want.Store(int64(limit))
				}
				time.Sleep(2 * time.Minute)
				f.mu.Lock()
				assert.LessOrEqual(t, f.connections, limit, "seed %d", seed)
				assert.Equal(t, limit, f.count(), "seed %d", seed)
				assert.Zero(t, f.revocations, "seed %d", seed)
				f.mu.Unlock()
				for _, m := range f.members {
					assert.Zero(t, m.leases.Stats().Unbacked, "seed %d", seed)
					m.want.Store(int64(rng.IntN(f.share + 1)))
				}
			}
			cancel()
			for _, m := range f.members {
				m.leases.stopGoroutines()
			}
			f.all.Wait()
		})
	}
}
