package dynamolease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightpool/flightpool/lease"
)

// fleet is a simulated fleet: processes that take and release leases at
// random over a fake table, and are killed, paused and cut off meanwhile.
type fleet struct {
	t     *testing.T
	db    *fakeDB
	rng   *rand.Rand
	story story

	mu      sync.Mutex
	members map[*member]bool
	losses  int    // processes alive that were taken for dead
	most    int    // connections that existed at once
	decided int    // Acquires that the Fallback granted or refused
	silent  int    // those of which neither a log line nor Stats told
	sumBad  string // the first allocation item whose used is not the sum
}

// story says what happens to a fleet.
type story struct {
	limit, members, shards int
	want                   int // connections each member would like
	faults                 faults
	kills, pauses, outages time.Duration // mean time between, 0 for never
	cutOffs                bool          // outages of single members too
	strict                 bool
	fallback               lease.Fallback
	oldish                 bool
	grace                  time.Duration
	knobs                  knobs
	lasts                  time.Duration
}

// member is one process.
type member struct {
	fleet  *fleet
	client *fakeClient
	leases *Leases
	log    *tally
	cancel context.CancelFunc

	mu     sync.Mutex
	conns  map[*conn]bool
	killed bool
	woken  time.Time // its connections count again from then on
}

type conn struct {
	release func()
	once    sync.Once
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 4711)) }

// run tells the story and returns how many connections there were at most.
func (s story) run(t *testing.T, seed uint64) *fleet {
	t.Helper()
	f := &fleet{t: t, db: newFakeDB(), rng: seeded(seed), story: s, members: map[*member]bool{}}
	f.db.oldish = s.oldish
	f.db.onPut = func(key string, it item) {
		f.checkSum(key, it)
		f.mourn(key, it)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		for range s.members {
			f.start(ctx)
		}
		f.befall(ctx)
		cancel()
		for _, m := range f.all() {
			m.leases.halt()
		}
		time.Sleep(10 * time.Minute) // for duplicates under way and processes that stand still
	})
	return f
}

// befall lets things happen until the story ends.
func (f *fleet) befall(ctx context.Context) {
	every := func(mean time.Duration, do func()) {
		if mean == 0 {
			return
		}
		rng := f.fork()
		go func() {
			for pause(ctx, time.Duration(rng.ExpFloat64()*float64(mean)), nil) {
				do()
			}
		}()
	}
	every(f.story.kills, func() {
		f.pick().kill()
		f.start(ctx)
	})
	every(f.story.pauses, func() { f.pick().freeze(upTo(f.fork(), 200*time.Second)) })
	every(f.story.outages, func() {
		until := time.Now().Add(upTo(f.fork(), 150*time.Second))
		if f.story.cutOffs {
			f.pick().client.set(func(c *fakeClient) { c.outage = until })
			return
		}
		f.db.mu.Lock()
		defer f.db.mu.Unlock()
		if until.After(f.db.outage) {
			f.db.outage = until
		}
	})
	pause(ctx, f.story.lasts, nil)
}

func (f *fleet) start(ctx context.Context) {
	rng, own := f.fork(), f.fork()
	s := f.story
	knobs := s.knobs
	knobs.clockRate = 1 + (rng.Float64()-0.5)*0.008
	m := &member{fleet: f, client: newFakeClient(f.db, rng, s.faults), conns: map[*conn]bool{}, log: &tally{}}
	ctx, m.cancel = context.WithCancel(ctx)
	var err error
	m.leases, err = newLeases(ctx, m.client, Config{
		Table: "t", Budget: "b", Limit: s.limit, Shards: max(s.shards, 1), Batch: 3,
		Strict: s.strict, Fallback: s.fallback, Grace: s.grace,
		Logger: slog.New(m.log), knobs: knobs,
	})
	if err != nil {
		if ctx.Err() == nil {
			f.t.Errorf("start: %v", err)
		}
		return
	}
	m.leases.OnRevoke(m.revoked)
	f.mu.Lock()
	f.members[m] = true
	f.mu.Unlock()
	go m.work(ctx, own)
}

// fork is a new source of chance, for one goroutine.
func (f *fleet) fork() *rand.Rand {
	f.mu.Lock()
	defer f.mu.Unlock()
	return seeded(f.rng.Uint64())
}

func (f *fleet) all() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*member, 0, len(f.members))
	for m := range f.members {
		all = append(all, m)
	}
	return all
}

func (f *fleet) pick() *member {
	all := f.all()
	return all[f.fork().IntN(len(all))]
}

// tally counts the log lines about the Fallback.
type tally struct{ lines atomic.Uint64 }

func (l *tally) Enabled(context.Context, slog.Level) bool { return true }
func (l *tally) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *tally) WithGroup(string) slog.Handler            { return l }

func (l *tally) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "renewed") {
		l.lines.Add(1)
	}
	return nil
}

// work takes and closes connections, around a number that it would like.
func (m *member) work(ctx context.Context, rng *rand.Rand) {
	for pause(ctx, upTo(rng, 6*time.Second), nil) {
		if m.client.unpaused(ctx) != nil {
			return
		}
		if m.count() > rng.IntN(m.fleet.story.want+1) {
			m.close(m.any())
			continue
		}
		go m.open(ctx, upTo(rng, 4*time.Second), upTo(rng, 20*time.Second))
	}
}

func (m *member) open(ctx context.Context, dial, patience time.Duration) {
	acquire, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	before, lines := m.leases.Stats(), m.log.lines.Load()
	release, err := m.leases.Acquire(acquire)
	if after := m.leases.Stats(); errors.Is(err, lease.ErrUnavailable) || after.Fallbacks > before.Fallbacks {
		m.fleet.mu.Lock()
		m.fleet.decided++
		if !before.Degraded && !after.Degraded && m.log.lines.Load() == lines {
			m.fleet.silent++
		}
		m.fleet.mu.Unlock()
	}
	if err != nil {
		return
	}
	if left := m.pausedFor(); left > 0 { // a process that stands still looks again before it dials
		_ = m.client.unpaused(ctx)
		if m.leases.Valid() != nil {
			release()
			return
		}
	}
	c := &conn{release: release}
	m.mu.Lock()
	if m.killed {
		m.mu.Unlock()
		return
	}
	m.conns[c] = true // the server may know it from the first packet on
	m.mu.Unlock()
	m.fleet.measure()
	pause(ctx, dial, nil)
}

func (m *member) pausedFor() (left time.Duration) {
	m.client.set(func(c *fakeClient) { left = time.Until(c.paused) })
	return left
}

func (m *member) any() *conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		return c
	}
	return nil
}

func (m *member) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.conns)
}

func (m *member) close(c *conn) {
	if c == nil {
		return
	}
	m.mu.Lock()
	delete(m.conns, c)
	m.mu.Unlock()
	c.once.Do(c.release)
}

// revoked closes everything by the deadline, or at once after a pause.
func (m *member) revoked(r lease.Revocation) {
	if left := time.Until(r.Deadline); left > 0 && m.pausedFor() <= 0 {
		time.Sleep(left / 2)
	}
	if left := m.pausedFor(); left > 0 {
		time.Sleep(left)
	}
	for c := m.any(); c != nil; c = m.any() {
		m.close(c)
	}
}

// kill is kill -9: the kernel closes the sockets, nothing more is sent.
func (m *member) kill() {
	m.mu.Lock()
	m.killed = true
	clear(m.conns)
	m.mu.Unlock()
	m.client.set(func(c *fakeClient) { c.dead = true })
	m.cancel()
	m.leases.stop()
	go m.leases.halt()
	m.fleet.mu.Lock()
	delete(m.fleet.members, m)
	m.fleet.mu.Unlock()
}

// freeze stops a process. Its connections do not count while it stands still,
// and for the moment that it needs to look at its clock afterwards.
func (m *member) freeze(d time.Duration) {
	until := time.Now().Add(d)
	m.client.set(func(c *fakeClient) {
		if c.paused.After(until) {
			until = c.paused
		}
		c.paused = until
	})
	m.mu.Lock()
	m.woken = until.Add(2 * time.Second)
	m.mu.Unlock()
}

func (f *fleet) measure() {
	now := time.Now()
	sum := 0
	for _, m := range f.all() {
		m.mu.Lock()
		if !m.woken.After(now) {
			sum += len(m.conns)
		}
		m.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.most = max(f.most, sum)
}

// mourn counts tombstones of the living.
func (f *fleet) mourn(key string, it item) {
	if !strings.HasPrefix(key, "sess#") || !decodeHeartbeat(it).dead {
		return
	}
	for _, m := range f.all() {
		m.leases.mu.Lock()
		session := m.leases.book.session
		m.leases.mu.Unlock()
		if key == sessionKey("b", session) {
			f.mu.Lock()
			f.losses++
			f.mu.Unlock()
		}
	}
}

// checkSum holds every write against the invariant of allocation items.
func (f *fleet) checkSum(key string, it item) {
	if !strings.HasPrefix(key, "alloc#") || f.sumBad != "" {
		return
	}
	a := decodeAlloc(it)
	sum := int64(0)
	for _, e := range a.owners {
		sum += e.n
		if e.n < 0 {
			f.sumBad = fmt.Sprintf("%s: an owner has %d", key, e.n)
		}
	}
	if sum != a.used {
		f.sumBad = fmt.Sprintf("%s: used is %d, the owners have %d", key, a.used, sum)
	}
}
