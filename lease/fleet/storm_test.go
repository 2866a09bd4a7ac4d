package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightpool/flightpool/lease"
)

// epoch keeps wall clocks small, so that they can be scaled.
var epoch = 946684800 * time.Second

// fleet is a simulated fleet: processes that take and release leases at
// random over a fake table, and are killed, paused and cut off meanwhile.
type fleet struct {
	t     *testing.T
	world *world
	rng   *rand.Rand
	story story

	mu         sync.Mutex
	members    map[*member]bool
	gone       map[*member]bool // that close
	lostByDead uint64           // losses of processes that were killed later
	most       int              // connections that existed at once, without those of who stood still beyond its time
	server     int              // and with them, as the server counts
	decided    int              // Acquires that the Fallback granted or refused
	silent     int              // those of which neither a log line nor Stats told
	sumBad     string           // the first allocation item whose used is not the sum
}

// story says what happens to a fleet.
type story struct {
	limit, members, shards int
	want                   int // connections each member would like
	faults                 faults
	kills, pauses, outages time.Duration // mean time between, 0 for never
	jumps, leaves, limits  time.Duration // of clocks, of processes that close, and of the limit, which is never more than limit
	cutOffs                bool          // outages of single members too
	configure              func(*Config) // of each member; nil: as it is
	permits                time.Duration // upper bound of the wait for a permit between a lease and its connection
	strict                 bool
	fallback               lease.Fallback
	edit                   func(*Change) // breaks a rule on purpose
	halfPatience           bool          // rounds are waited for half as long as they should be
	blind                  bool          // everybody sees room in every shard
	lasts                  time.Duration
}

// member is one process.
type member struct {
	fleet  *fleet
	client *process
	leases *Leases
	log    *tally
	cancel context.CancelFunc

	clock sync.Mutex
	sets  bool          // the wall clock is set; else the machine is suspended: one clock of the two is right
	set   time.Duration // of the wall clock
	still time.Duration // for which the machine was suspended, and its monotonic clock stood still

	mu     sync.Mutex
	conns  map[*conn]bool
	killed bool
	woken  time.Time // its connections count again from then on
}

type conn struct {
	release func()
	once    sync.Once
}

// run tells the story and returns how many connections there were at most.
func (s story) run(t *testing.T, seed uint64) *fleet {
	t.Helper()
	f := &fleet{t: t, world: newWorld(), rng: seeded(seed), story: s, members: map[*member]bool{}, gone: map[*member]bool{}}
	f.world.limited = true
	f.world.onWrite = func(key string, r *Record) {
		f.checkSum(key, r)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		for range s.members {
			f.start(ctx)
		}
		f.befall(ctx)
		cancel()
		for _, m := range f.all() {
			m.leases.stopGoroutines()
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
	every(f.story.jumps, func() { f.pick().jump(f.fork()) })
	every(f.story.leaves, func() {
		f.pick().leave(upTo(f.fork(), 30*time.Second))
		f.start(ctx)
	})
	every(f.story.limits, func() {
		s := f.fork()
		_ = SetLimit(ctx, f.world.mem, "b", max(f.story.shards, 1)+s.IntN(f.story.limit-max(f.story.shards, 1)+1))
	})
	every(f.story.outages, func() {
		until := time.Now().Add(upTo(f.fork(), 150*time.Second))
		if f.story.cutOffs {
			f.pick().client.set(func(p *process) { p.outage = until })
			return
		}
		f.world.mu.Lock()
		defer f.world.mu.Unlock()
		if until.After(f.world.outage) {
			f.world.outage = until
		}
	})
	pause(ctx, f.story.lasts, nil)
}

func (f *fleet) start(ctx context.Context) {
	rng, own := f.fork(), f.fork()
	s := f.story
	m := &member{fleet: f, client: newProcess(f.world, rng.Uint64(), s.faults), conns: map[*conn]bool{}, log: &tally{}}
	m.client.edit = s.edit
	ctx, m.cancel = context.WithCancel(ctx)
	rate := 1 + (rng.Float64()-0.5)*0.008
	real := processClock()
	clock := func() instant {
		now := real()
		m.clock.Lock()
		defer m.clock.Unlock()
		return instant{time.Duration(float64(now.mono)*rate) - m.still, time.Duration(float64(now.wall-epoch)*rate) + m.set}
	}
	m.sets = rng.IntN(2) == 0
	cfg := Config{
		Budget: "b", Limit: s.limit, Shards: max(s.shards, 1), Batch: 3,
		Strict: s.strict, Fallback: s.fallback, Logger: slog.New(m.log),
	}
	if s.configure != nil {
		s.configure(&cfg)
	}
	var err error
	m.leases, err = open(ctx, m.client, cfg, clock)
	m.client.set(func(p *process) { p.impatient, p.blind = s.halfPatience, s.blind })
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
		permit := time.Duration(0)
		if rng.IntN(4) == 0 {
			permit = upTo(rng, m.fleet.story.permits)
		}
		go m.open(ctx, permit, upTo(rng, 4*time.Second), upTo(rng, 20*time.Second))
	}
}

func (m *member) open(ctx context.Context, permit, dial, patience time.Duration) {
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
	pause(ctx, permit, nil)
	_ = m.client.unpaused(ctx)
	// Who has waited, or stood still, looks again before it dials.
	if m.leases.Valid() != nil || m.isKilled() {
		release()
		return
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

func (m *member) isKilled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.killed
}

func (m *member) pausedFor() (left time.Duration) {
	m.client.set(func(p *process) { left = time.Until(p.paused) })
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
	m.client.set(func(p *process) { p.dead = true })
	m.cancel()
	m.leases.stop()
	go m.leases.stopGoroutines()
	m.fleet.mu.Lock()
	m.fleet.lostByDead += m.leases.Stats().Losses
	delete(m.fleet.members, m)
	m.fleet.mu.Unlock()
}

// jump sets the wall clock, or suspends the machine for a while.
func (m *member) jump(rng *rand.Rand) {
	d := upTo(rng, 2*time.Hour) - time.Hour
	if m.sets {
		m.clock.Lock()
		defer m.clock.Unlock()
		m.set += d
		return
	}
	d = upTo(rng, 200*time.Second)
	m.freeze(d)
	m.clock.Lock()
	defer m.clock.Unlock()
	m.still += d // a little early
}

// leave closes a process, and its connections by then.
func (m *member) leave(within time.Duration) {
	m.fleet.mu.Lock()
	delete(m.fleet.members, m)
	m.fleet.lostByDead += m.leases.Stats().Losses
	m.fleet.gone[m] = true
	m.fleet.mu.Unlock()
	m.cancel()
	go func() {
		time.Sleep(within)
		m.mu.Lock()
		m.killed = true
		m.mu.Unlock()
		for c := m.any(); c != nil; c = m.any() {
			m.close(c)
		}
		m.fleet.mu.Lock()
		delete(m.fleet.gone, m)
		m.fleet.mu.Unlock()
	}()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = m.leases.Close(ctx)
	}()
}

// freeze stops a process. The server counts its connections all the while.
func (m *member) freeze(d time.Duration) {
	until := time.Now().Add(d)
	m.client.set(func(p *process) {
		if p.paused.After(until) {
			until = p.paused
		}
		p.paused = until
	})
	m.mu.Lock()
	m.woken = until.Add(2 * time.Second)
	m.mu.Unlock()
}

// beyond reports whether a process stands still that should have closed its
// connections by now, and cannot: the one way in which the server may have more
// than the limit in the strict mode. A moment to look at its clock is part of
// it.
func (m *member) beyond(now time.Time) bool {
	if !m.woken.After(now) {
		return false
	}
	clock := m.leases.clock()
	m.leases.mu.Lock()
	defer m.leases.mu.Unlock()
	return !clock.before(m.leases.state.validUntil.add(m.leases.state.terms.grace))
}

// measure counts the connections of all processes: of those that stand still or
// are cut off too.
func (f *fleet) measure() {
	now := time.Now()
	sum, server := 0, 0
	f.mu.Lock()
	gone := slices.Collect(maps.Keys(f.gone))
	f.mu.Unlock()
	for _, m := range append(f.all(), gone...) {
		m.mu.Lock()
		server += len(m.conns)
		if !m.beyond(now) {
			sum += len(m.conns)
		}
		m.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.most, f.server = max(f.most, sum), max(f.server, server)
}

// checkSum holds every write against the invariant of shards.
func (f *fleet) checkSum(key string, r *Record) {
	if !strings.HasPrefix(key, "shard#") || f.sumBad != "" {
		return
	}
	sum := int64(0)
	for _, o := range r.Owners {
		sum += o.Leases
		if o.Leases < 0 {
			f.sumBad = fmt.Sprintf("%s: an owner has %d", key, o.Leases)
		}
	}
	if used := r.Numbers["used"]; sum != used {
		f.sumBad = fmt.Sprintf("%s: used is %d, the owners have %d", key, used, sum)
	}
}

// losses is how often a process that lives was taken for dead.
func (f *fleet) losses() (n uint64) {
	for _, m := range f.all() {
		n += m.leases.Stats().Losses
	}
	return n + f.lostByDead
}
