package dsql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	leasefleet "github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/reservoir"
)

// A stormStory says what happens to a fleet of clusters over one table.
type stormStory struct {
	limit, members, size int
	rate                 float64
	strict               bool
	fallback             lease.Fallback
	failing              int // of 1000 requests to the table
	kills, leaves        time.Duration
	outages, cutOffs     time.Duration // mean times between
	freezes              time.Duration // of processes that stand still for minutes, and go on
	clocks               time.Duration // of the table, or a process, that is set
	rateFallback         float64
	alone                int           // how many the fallbacks of all processes may grant on top of the limit
	limits               time.Duration // the limit is set, to limit at most
	refusals             int           // of 1000 opens
	hold, lasts          time.Duration // of a loan, at most; and of the story
	lease                time.Duration
	shards               int
}

// A stormTable keeps the records of a fleet.
type stormTable struct {
	mu      sync.Mutex
	records map[string]*leasefleet.Record
	skew    time.Duration // of its clock
	outage  time.Time     // nobody reaches it until then
	sumBad  string
}

func (s *stormTable) read(keys []string) leasefleet.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]*leasefleet.Record{}
	for _, key := range keys {
		if r := s.records[key]; r != nil {
			found[key] = r
		}
	}
	return leasefleet.Snapshot{Records: found, Now: time.Now().Add(s.skew)}
}

func (s *stormTable) write(c leasefleet.Change) leasefleet.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, old := time.Now().Add(s.skew), s.records[c.Key]
	if !c.Holds(old) {
		return leasefleet.Answer{Record: old, Now: now}
	}
	fresh := c.Apply(old, now)
	s.records[c.Key] = fresh
	if strings.HasPrefix(c.Key, "shard#") && s.sumBad == "" {
		sum := int64(0)
		for _, o := range fresh.Owners {
			sum += o.Leases
		}
		if sum != fresh.Numbers["used"] {
			s.sumBad = fmt.Sprintf("%s: used %d, owners have %d", c.Key, fresh.Numbers["used"], sum)
		}
	}
	return leasefleet.Answer{Done: true, Record: fresh, Now: now}
}

// used is what the shards say is taken.
func (s *stormTable) used() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, r := range s.records {
		if strings.HasPrefix(key, "shard#") {
			n += r.Numbers["used"]
		}
	}
	return n
}

// A stormWay is one member's way to the table.
type stormWay struct {
	*stormMember
}

func (w stormWay) Read(ctx context.Context, keys ...string) (leasefleet.Snapshot, error) {
	s, err := stormTrip(ctx, w.stormMember, func() leasefleet.Snapshot { return w.storm.table.read(keys) })
	s.Now = s.Now.Add(w.clock())
	return s, err
}

func (w stormWay) Write(ctx context.Context, c leasefleet.Change) (leasefleet.Answer, error) {
	a, err := stormTrip(ctx, w.stormMember, func() leasefleet.Answer { return w.storm.table.write(c) })
	a.Now = a.Now.Add(w.clock())
	return a, err
}

var errStormRefused = errors.New("the table refuses")

func stormTrip[T any](ctx context.Context, m *stormMember, apply func() T) (none T, err error) {
	if m.isDead() {
		return none, errStormRefused
	}
	m.unfrozen()
	defer m.unfrozen()
	if m.cutOff() {
		<-ctx.Done()
		return none, ctx.Err()
	}
	kind := 7
	if !m.storm.isQuiet() && m.n(1000) < m.storm.story.failing {
		kind = m.n(6)
	}
	time.Sleep(time.Duration(m.n(int(20*time.Millisecond)) + 1))
	if m.isDead() {
		return none, errStormRefused
	}
	switch kind {
	case 0:
		return none, errStormRefused
	case 1: // lost
		<-ctx.Done()
		return none, ctx.Err()
	case 2: // done, answer lost
		apply()
		<-ctx.Done()
		return none, ctx.Err()
	case 3: // done later
		later := time.Duration(m.n(int(10 * time.Second)))
		m.storm.late.Go(func() { time.Sleep(later); apply() })
		<-ctx.Done()
		return none, ctx.Err()
	case 4: // done twice
		later := time.Duration(m.n(int(10 * time.Second)))
		m.storm.late.Go(func() { time.Sleep(later); apply() })
	case 5: // slow
		slow := time.Duration(m.n(int(1500 * time.Millisecond)))
		select {
		case <-ctx.Done():
			m.storm.late.Go(func() { time.Sleep(slow); apply() })
			return none, ctx.Err()
		case <-time.After(slow):
		}
	}
	answer := apply()
	time.Sleep(time.Duration(m.n(int(20*time.Millisecond)) + 1))
	return answer, nil
}

// A storm is a fleet of clusters and the server that all of them use.
type storm struct {
	story stormStory
	table *stormTable
	late  sync.WaitGroup
	all   sync.WaitGroup

	mu      sync.Mutex
	rng     *rand.Rand
	quiet   bool
	over    bool
	members map[*stormMember]bool
	conns   map[*stormConn]bool
	most    int
	opens   []stormOpen
	broken  []string
	did     map[string]int
}

type stormMember struct {
	storm   *storm
	number  int
	cfg     Config
	cluster *Cluster
	leases  *leasefleet.Leases
	limiter lease.Limiter

	mu     sync.Mutex
	rng    *rand.Rand
	dead   bool
	cut    time.Time
	frozen time.Time     // it stands still until then
	skew   time.Duration // of the table's clock, as this process compares it with its own
	served int
	last   time.Time // when it was served last
}

// A stormOpen is one at the server.
type stormOpen struct {
	at time.Time
	by *stormMember
}

// A stormConn is a connection as the server has it.
type stormConn struct {
	net.Conn
	member *stormMember
	closed atomic.Bool
}

func (c *stormConn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if !c.member.isDead() {
		c.member.unfrozen()
		time.Sleep(time.Duration(c.member.n(int(100 * time.Millisecond))))
	}
	c.member.storm.gone(c)
	return c.Conn.Close()
}

func (s *storm) gone(c *stormConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *storm) fork() *rand.Rand {
	s.mu.Lock()
	defer s.mu.Unlock()
	return rand.New(rand.NewPCG(s.rng.Uint64(), 7))
}

func (s *storm) isQuiet() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.quiet }
func (s *storm) isOver() bool  { s.mu.Lock(); defer s.mu.Unlock(); return s.over }

func (s *storm) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.broken) < 10 {
		s.broken = append(s.broken, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

func (s *storm) count(what string) { s.mu.Lock(); defer s.mu.Unlock(); s.did[what]++ }

func (m *stormMember) n(most int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(most)
}

func (m *stormMember) isDead() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.dead }

// freeze has the process stand still: nothing that it does reaches anything.
func (m *stormMember) freeze(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen = time.Now().Add(d)
}

// unfrozen waits for as long as the process stands still.
func (m *stormMember) unfrozen() {
	for {
		m.mu.Lock()
		left := time.Until(m.frozen)
		m.mu.Unlock()
		if left <= 0 || m.isDead() {
			return
		}
		time.Sleep(min(left, time.Second))
	}
}

// excused says that the process stands still, or has just gone on: it may be too late with its
// closes.
func (m *stormMember) excused(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Before(m.frozen.Add(2 * time.Second))
}

func (m *stormMember) clock() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.skew
}

func (m *stormMember) cutOff() bool {
	if m.storm.isQuiet() {
		return false
	}
	m.storm.table.mu.Lock()
	out := time.Now().Before(m.storm.table.outage)
	m.storm.table.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	return out || time.Now().Before(m.cut)
}

// dial opens a connection at the server.
func (m *stormMember) dial(ctx context.Context) (*physical, error) {
	s := m.storm
	if m.isDead() {
		return nil, &OpenError{Err: errGone}
	}
	m.unfrozen()
	if ctx.Err() != nil {
		return nil, &OpenError{kind: transient, Err: ctx.Err()}
	}
	s.mu.Lock()
	s.opens = append(s.opens, stormOpen{time.Now(), m})
	s.mu.Unlock()
	local, _ := net.Pipe()
	c := &stormConn{Conn: local, member: m}
	s.mu.Lock()
	s.conns[c] = true // the server may know of it from the first packet on
	n := 0
	for o := range s.conns {
		if !o.member.excused(time.Now()) {
			n++
		}
	}
	s.most = max(s.most, n)
	s.mu.Unlock()
	if n > s.story.limit+s.story.alone {
		s.fail("%d connections, limit %d; opened by %d: %+v", n, s.story.limit, m.number, m.leases.Stats())
	}
	takes := time.Duration(m.n(int(300 * time.Millisecond)))
	kind := -1
	if !s.isQuiet() && m.n(1000) < s.story.refusals {
		kind = m.n(4)
	}
	if kind == 3 {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		_ = c.Close()
		return nil, &OpenError{kind: transient, Err: ctx.Err()}
	}
	if kind >= 0 {
		_ = c.Close()
		return nil, &OpenError{kind: []failureKind{rateLimited, connLimited, transient}[kind], Err: errGone}
	}
	p := &physical{}
	p.setSocket(c)
	p.owner.Store(ownedByCloser) // so that nothing is closed but its end of the pipe
	return p, nil
}

func (s *storm) start(ctx context.Context, number int) {
	m := &stormMember{storm: s, number: number, rng: s.fork()}
	cfg := Config{
		Host: someHost, MaxSize: s.story.size, CheckInterval: -1, LeaseTable: "t", ConnLimit: s.story.limit,
		OpenRate: s.story.rate, OpenBurst: 10, RateFallback: s.story.rateFallback, Fallback: s.story.fallback, LeaseStrict: s.story.strict,
		LeaseShards: s.story.shards, Lease: s.story.lease, LeaseGrace: max(s.story.lease/3, 2*time.Second), OpenTimeout: min(5*time.Second, s.story.lease/5), Logger: slog.New(slog.DiscardHandler), AcquireTimeout: time.Minute,
	}
	switch m.n(3) {
	case 0:
		cfg.OnDemand = true
	case 1:
		cfg.MinIdle = 1
	}
	if m.n(2) == 0 {
		cfg.MaxLifetime, cfg.LifetimeJitter, cfg.GuardWindow, cfg.ReplaceAfter, cfg.IdleTTL = 4*time.Minute, time.Minute, time.Second, 2*time.Minute, 30*time.Second
	}
	cfg, err := cfg.resolve(environ(nil))
	if err != nil {
		s.fail("config: %v", err)
		return
	}
	m.cfg = cfg
	lc := leasesConfig(cfg)
	lc.RequestTimeout = min(time.Second, s.story.lease/12)
	if m.leases, err = leasefleet.New(ctx, stormWay{m}, lc); err != nil {
		s.fail("New: %v", err)
		return
	}
	own, err := leasefleet.NewLimiter(ctx, stormWay{m}, leasefleet.LimiterConfig{Table: "t", Budget: cfg.Budget, Rate: cfg.OpenRate, Burst: cfg.OpenBurst, Logger: cfg.Logger})
	if err != nil {
		s.fail("NewLimiter: %v", err)
		return
	}
	m.limiter = withFallback(own, cfg, func() int { return m.leases.Stats().Owners })
	m.cluster, err = newCluster(ctx, cfg, &budgets{leases: m.leases, limiter: m.limiter, closers: []func(context.Context) error{m.leases.Close, m.limiter.Close}}, m.dial)
	if err != nil {
		s.fail("newCluster: %v", err)
		return
	}
	s.mu.Lock()
	s.members[m] = true
	s.mu.Unlock()
	for range 1 + m.n(s.story.size+2) {
		rng := s.fork()
		s.all.Go(func() { m.work(rng) })
	}
}

// work borrows and gives back until the member has ended.
func (m *stormMember) work(rng *rand.Rand) {
	s := m.storm
	for !m.isDead() && !s.isOver() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.Int64N(int64(20*time.Second))))
		l, err := m.cluster.res.Acquire(ctx)
		cancel()
		m.unfrozen()
		if errors.Is(err, reservoir.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second))))
			continue
		}
		m.mu.Lock()
		m.served++
		m.last = time.Now()
		m.mu.Unlock()
		hold := time.Duration(rng.Int64N(int64(s.story.hold)))
		if rng.IntN(20) == 0 && !s.isQuiet() {
			hold *= 5
		}
		for until := time.Now().Add(hold); time.Now().Before(until) && !m.isDead(); {
			time.Sleep(min(time.Second, time.Until(until)))
		}
		if rng.IntN(30) == 0 {
			_ = l.Discard(errGone)
		} else {
			_ = l.Release()
		}
		time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
	}
}

// wasServed is how often, and when last.
func (m *stormMember) wasServed() (int, time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.served, m.last
}

// kill is kill -9: the kernel closes the sockets.
func (m *stormMember) kill() {
	s := m.storm
	m.mu.Lock()
	m.dead = true
	m.mu.Unlock()
	s.mu.Lock()
	delete(s.members, m)
	maps.DeleteFunc(s.conns, func(c *stormConn, _ bool) bool { return c.member == m })
	s.mu.Unlock()
	s.all.Go(func() { // of this process nothing reaches anything
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = m.cluster.Close(ctx)
	})
}

func (m *stormMember) leave(patience time.Duration) {
	s := m.storm
	s.mu.Lock()
	delete(s.members, m)
	s.mu.Unlock()
	s.all.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err := m.cluster.Close(ctx)
		if st := m.leases.Stats(); st.InUse > 0 && !errors.Is(err, lease.ErrInUse) {
			s.fail("closed with %d leases in use: %v", st.InUse, err)
		}
	})
}

func (s *storm) pick() *stormMember {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.SortedFunc(maps.Keys(s.members), func(a, b *stormMember) int { return a.number - b.number })
	if len(all) == 0 {
		return nil
	}
	return all[s.rng.IntN(len(all))]
}

func (s *storm) befall(ctx context.Context) {
	next := s.story.members
	var mu sync.Mutex
	every := func(what string, mean time.Duration, do func(rng *rand.Rand)) {
		if mean == 0 {
			return
		}
		rng := s.fork()
		s.all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Duration(rng.ExpFloat64() * float64(mean))):
				}
				s.count(what)
				do(rng)
			}
		})
	}
	join := func() {
		mu.Lock()
		next++
		n := next
		mu.Unlock()
		s.start(context.Background(), n)
	}
	every("kill", s.story.kills, func(*rand.Rand) {
		if m := s.pick(); m != nil {
			m.kill()
			join()
		}
	})
	every("leave", s.story.leaves, func(rng *rand.Rand) {
		if m := s.pick(); m != nil {
			m.leave(time.Duration(rng.Int64N(int64(20 * time.Second))))
			join()
		}
	})
	every("outage", s.story.outages, func(rng *rand.Rand) {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		s.table.outage = time.Now().Add(time.Duration(rng.Int64N(int64(150 * time.Second))))
	})
	every("cut", s.story.cutOffs, func(rng *rand.Rand) {
		if m := s.pick(); m != nil {
			m.mu.Lock()
			m.cut = time.Now().Add(time.Duration(rng.Int64N(int64(150 * time.Second))))
			m.mu.Unlock()
		}
	})
	every("freeze", s.story.freezes, func(rng *rand.Rand) {
		if m := s.pick(); m != nil {
			m.freeze(time.Duration(rng.Int64N(int64(4 * time.Minute))))
		}
	})
	every("own clock", s.story.clocks, func(rng *rand.Rand) {
		if m := s.pick(); m != nil {
			m.mu.Lock()
			m.skew = time.Duration(rng.Int64N(int64(4*time.Hour))) - 2*time.Hour
			m.mu.Unlock()
		}
	})
	every("clock", s.story.clocks, func(rng *rand.Rand) {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		s.table.skew += time.Duration(rng.Int64N(int64(4*time.Hour))) - 2*time.Hour
	})
	every("limit", s.story.limits, func(rng *rand.Rand) {
		_ = leasefleet.SetLimit(ctx, tableStore{s.table}, someBudget(s), s.story.shards+rng.IntN(max(s.story.limit-s.story.shards, 0)+1))
	})
}

type tableStore struct{ *stormTable }

func (s tableStore) Read(_ context.Context, keys ...string) (leasefleet.Snapshot, error) {
	return s.read(keys), nil
}

func (s tableStore) Write(_ context.Context, c leasefleet.Change) (leasefleet.Answer, error) {
	return s.write(c), nil
}

func someBudget(s *storm) string {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for key := range s.table.records {
		if name, ok := strings.CutPrefix(key, leasefleet.BudgetPrefix); ok {
			return name
		}
	}
	return ""
}

// run tells the story.
func (story stormStory) run(t *testing.T, seed uint64) *storm {
	s := &storm{
		story: story, table: &stormTable{records: map[string]*leasefleet.Record{}}, rng: rand.New(rand.NewPCG(seed, 1)),
		members: map[*stormMember]bool{}, conns: map[*stormConn]bool{}, did: map[string]int{},
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		for n := range story.members {
			s.start(ctx, n)
		}
		s.befall(ctx)
		time.Sleep(story.lasts)
		cancel()
		s.mu.Lock()
		s.quiet = true
		s.mu.Unlock()
		if name := someBudget(s); story.limits > 0 && name != "" {
			_ = leasefleet.SetLimit(t.Context(), tableStore{s.table}, name, story.limit)
		}
		time.Sleep(4 * time.Minute)
		if story.freezes > 0 {
			time.Sleep(4 * time.Minute) // who stands still goes on
		}
		s.calm()
		s.mu.Lock()
		s.over = true
		left := slices.SortedFunc(maps.Keys(s.members), func(a, b *stormMember) int { return a.number - b.number })
		s.mu.Unlock()
		time.Sleep(8 * time.Minute) // every loan has ended
		s.idle(left)
		for _, m := range left {
			m.leave(time.Minute)
		}
		s.all.Wait()
		s.late.Wait()
		s.mu.Lock()
		if len(s.conns) > 0 {
			s.broken = append(s.broken, fmt.Sprint(len(s.conns), " connections are left"))
		}
		s.mu.Unlock()
		if n := s.table.used(); n > 0 {
			s.fail("%d leases are left in the table", n)
		}
	})
	s.checkRate()
	if s.table.sumBad != "" {
		s.broken = append(s.broken, s.table.sumBad)
	}
	return s
}

// calm checks what must hold some time after all faults.
func (s *storm) calm() {
	began := time.Now()
	before := map[*stormMember]int{}
	s.mu.Lock()
	for m := range s.members {
		before[m], _ = m.wasServed()
	}
	s.mu.Unlock()
	time.Sleep(2 * time.Minute)
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.members))
	s.mu.Unlock()
	for _, m := range all {
		if served, last := m.wasServed(); served == before[m] {
			s.fail("member %d was not served in two minutes since %v, last at %v: %+v, reservoir %+v", m.number, began, last, m.leases.Stats(), m.cluster.res.Stats())
		}
		if st := m.leases.Stats(); st.Degraded {
			s.fail("member %d is still degraded: %+v", m.number, st)
		}
		if st := m.limiter.Stats(); st.Degraded {
			s.fail("member %d's limiter is still degraded: %+v", m.number, st)
		}
	}
}

// idle checks that what the table has is what the members have.
func (s *storm) idle(all []*stormMember) {
	held, inUse := 0, 0
	for _, m := range all {
		st, r := m.leases.Stats(), m.cluster.res.Stats()
		held += st.InUse + st.Spare
		inUse += st.InUse
		if r.InUse > 0 {
			s.fail("member %d has %d loans", m.number, r.InUse)
		}
		if st.Unbacked > 0 {
			s.fail("member %d: unbacked %+v", m.number, st)
		}
		if st.InUse != r.Idle+r.Opening+r.Closing && r.Opening == 0 {
			s.fail("member %d: leases %+v, reservoir %+v", m.number, st, r)
		}
	}
	if used := s.table.used(); int(used) != held {
		s.fail("the table has %d, the members have %d", used, held)
	}
	s.mu.Lock()
	conns := len(s.conns)
	s.mu.Unlock()
	if conns > inUse {
		s.fail("the server has %d connections, the members have leases for %d", conns, inUse)
	}
}

// checkRate holds all opens against the rate.
func (s *storm) checkRate() {
	own := s.story.rateFallback // of each process
	if own == 0 {
		own = s.story.rate // at most: a part that depends on how many it knows of
	}
	for i := range s.opens {
		members := map[*stormMember]bool{}
		for j := i; j < len(s.opens); j++ {
			members[s.opens[j].by] = true
			d := s.opens[j].at.Sub(s.opens[i].at)
			most := s.story.rate*d.Seconds() + 10
			if own > 0 { // beside the fleet's rate, which may be granted at the end of an outage
				most += float64(len(members)) * (own*d.Seconds() + max(1, own))
			}
			if float64(j-i+1) > most+1e-6 {
				s.broken = append(s.broken, fmt.Sprintf("%d opens in %v", j-i+1, d))
				return
			}
			if d > time.Minute {
				break
			}
		}
	}
}

// stormSeeds are the first seed and how many there are: few by default, STORMS=first+n
// for others.
func stormSeeds(t *testing.T) (first, n uint64) {
	first, n = 0, 3
	if text := os.Getenv("STORMS"); strings.Contains(text, "+") {
		_, err := fmt.Sscanf(text, "%d+%d", &first, &n)
		require.NoError(t, err, "STORMS")
	}
	return first, n
}

// randomStory is a story by a seed. Without strict nobody is cut off alone, so that
// nobody alive is taken for dead.
func randomStory(seed uint64) (s stormStory) {
	rng := rand.New(rand.NewPCG(seed, 99))
	or := func(d time.Duration) time.Duration {
		if rng.IntN(2) == 0 {
			return 0
		}
		return time.Duration(1+rng.IntN(4)) * d / 2
	}
	s = stormStory{
		members: 2 + rng.IntN(4), size: 1 + rng.IntN(10), rate: []float64{0.5, 2, 10, 50}[rng.IntN(4)],
		refusals: []int{0, 50, 500}[rng.IntN(3)], hold: []time.Duration{10 * time.Millisecond, 3 * time.Second, 20 * time.Second}[rng.IntN(3)],
		kills: or(90 * time.Second), leaves: or(90 * time.Second), clocks: or(time.Minute), limits: or(time.Minute), lasts: 10 * time.Minute,
		lease: []time.Duration{6 * time.Second, 20 * time.Second, time.Minute}[rng.IntN(3)], shards: 1 + rng.IntN(3),
	}
	s.limit = max(s.members+rng.IntN(3*s.members), s.shards)
	s.rateFallback = -1
	switch rng.IntN(4) {
	case 0, 1:
		s.strict, s.outages, s.cutOffs, s.failing = true, or(4*time.Minute), or(2*time.Minute), []int{0, 100, 400}[rng.IntN(3)]
	case 2:
		s.outages = 2 * time.Minute
	case 3:
		s.outages, s.limits = 2*time.Minute, 0
		share := 1 + rng.IntN(2)
		s.fallback, s.limit, s.alone = lease.Share(share), 4*s.members, share*s.members
	}
	if s.strict {
		s.freezes = or(time.Minute)
	}
	if s.rateFallback = []float64{-1, -1, 0, .5, 5}[rng.IntN(5)]; s.rateFallback < 0 {
		s.alone = 0 // nothing is opened while the table cannot be reached
	}
	return s
}

// Clusters that come, go and are killed, over a table that fails: there are never more
// connections than the limit, nor more opens than the rate; once nothing fails any more
// everybody is served, and nothing is left of those that have ended.
func TestAFleetOfClustersOverATableThatFails(t *testing.T) {
	first, n := stormSeeds(t)
	for seed := first; seed < first+n; seed++ {
		story := randomStory(seed)
		s := story.run(t, seed)
		t.Logf("seed %d: %d connections of %d, %d opens, %v: %+v", seed, s.most, story.limit, len(s.opens), s.did, story)
		if len(s.broken) > 0 {
			t.Errorf("seed %d: BROKEN %s", seed, strings.Join(s.broken, "\n"))
		}
	}
}
