package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// world is a simulated table: a Memory with the bill and the limits of
// DynamoDB. Package dynamolease shows that its Store means the same.
type world struct {
	mem *Memory

	mu      sync.Mutex
	onWrite func(key string, r *Record) // sees every write, in order
	outage  time.Time                   // nobody reaches the table until then
	limited bool                        // each record and the table have DynamoDB's limits
	buckets map[string]*bucket
	wru     map[string]float64 // write units by kind of record, refused ones included
	rru     float64
	largest int

	throttledReads, throttledWrites int
}

// The limits of one partition, and of a new table billed per request.
const (
	partitionWrites, partitionReads = 1000, 3000
	tableWrites, tableReads         = 4000, 12000
)

func newWorld() *world {
	return &world{mem: NewMemory(), buckets: map[string]*bucket{}, wru: map[string]float64{}}
}

type bucket struct {
	tokens float64
	at     time.Time
}

// take spends n of a budget that refills by rate per second, to rate. Like
// DynamoDB it lets one request overdraw.
func (w *world) take(name string, n, rate float64) bool {
	b := w.buckets[name]
	now := time.Now()
	if b == nil {
		b = &bucket{tokens: rate, at: now}
		w.buckets[name] = b
	}
	b.tokens = min(rate, b.tokens+rate*now.Sub(b.at).Seconds())
	b.at = now
	if b.tokens <= 0 {
		return false
	}
	b.tokens -= n
	return true
}

// sizeOf is DynamoDB's rule for the size of an item, near enough.
func sizeOf(key string, r *Record) int {
	if r == nil {
		return 0
	}
	size := len("pk") + len(key) + 4
	for name, n := range r.Numbers {
		size += len(name) + numberSize(n)
	}
	for name, text := range r.Texts {
		size += len(name) + len(text)
	}
	for id, o := range r.Owners {
		size += 1 + len(id) + 3 + 6 + numberSize(o.Leases) + numberSize(o.Seq) + numberSize(o.Round)
		if o.Want != 0 {
			size += 2 + numberSize(o.Want)
		}
		if o.Kept != 0 {
			size += 2 + numberSize(o.Kept)
		}
	}
	return size
}

func numberSize(n int64) int {
	digits := 1
	for n >= 10 {
		n /= 10
		digits++
	}
	return (digits+1)/2 + 1
}

func units(size, each int) float64 { return float64(max(1, (size+each-1)/each)) }

var errThrottled = errors.New("throttled")

func (w *world) read(keys []string) (Snapshot, error) {
	snapshot, err := w.mem.Read(context.Background(), keys...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		cost := units(sizeOf(key, snapshot.Records[key]), 4096)
		if w.limited && !(w.take("r"+key, cost, partitionReads) && w.take("r", cost, tableReads)) {
			w.throttledReads++
			return Snapshot{}, errThrottled
		}
		w.rru += cost
	}
	return snapshot, err
}

func (w *world) write(c Change) (Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kind, _, _ := strings.Cut(c.Key, "#")
	before, _ := w.mem.Read(context.Background(), c.Key)
	cost := units(sizeOf(c.Key, before.Records[c.Key]), 1024)
	if w.limited && !(w.take("w"+c.Key, cost, partitionWrites) && w.take("w", cost, tableWrites)) {
		w.throttledWrites++
		return Answer{}, errThrottled
	}
	answer, err := w.mem.Write(context.Background(), c)
	size := sizeOf(c.Key, answer.Record)
	w.largest = max(w.largest, size)
	w.wru[kind] += max(cost, units(size, 1024))
	if answer.Done && w.onWrite != nil {
		w.onWrite(c.Key, answer.Record)
	}
	return answer, err
}

func (w *world) bill() (wru, rru float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for kind, n := range w.wru {
		if kind != "rate" {
			wru += n
		}
	}
	return wru, w.rru
}

// used is the sum over all shards.
func (w *world) used() int64 {
	w.mem.mu.Lock()
	defer w.mem.mu.Unlock()
	sum := int64(0)
	for key, r := range w.mem.records {
		if strings.HasPrefix(key, "shard#") {
			sum += r.Numbers["used"]
		}
	}
	return sum
}

// heldBy is what some processes have in all shards.
func (w *world) heldBy(ls []*Leases) int64 {
	w.mem.mu.Lock()
	defer w.mem.mu.Unlock()
	sum := int64(0)
	for key, r := range w.mem.records {
		for _, l := range ls {
			if o, there := r.Owners[l.id]; there && strings.HasPrefix(key, "shard#") {
				sum += o.Leases
			}
		}
	}
	return sum
}

// faults are what a process's requests meet. Probabilities are per request.
type faults struct {
	lostRequest, lostReply, throttle, duplicate float64
	delay, duplicateDelay                       time.Duration // upper bounds
}

// process is one process's way to the table, and its clock.
type process struct {
	world *world
	edit  func(*Change) // breaks a rule on purpose
	mu    sync.Mutex

	refuse    func(Change) bool // these writes are answered with an error
	impatient bool              // waits for rounds half as long as it should, on purpose
	blind     bool              // sees room in every shard, on purpose
	rng       *rand.Rand
	faults    faults
	outage    time.Time // requests are lost until then
	paused    time.Time // the process stands still until then
	dead      bool
}

var calm = faults{delay: 8 * time.Millisecond}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 4711)) }

func newProcess(w *world, seed uint64, f faults) *process {
	return &process{world: w, rng: seeded(seed), faults: f}
}

func (p *process) set(f func(p *process)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(rng.Int64N(int64(d)))
}

func (p *process) Read(ctx context.Context, keys ...string) (Snapshot, error) {
	snapshot, err := trip(ctx, p, false, func() (Snapshot, error) { return p.world.read(keys) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := snapshot.Records[budgetKey("b")]; p.impatient && r != nil {
		c := Change{Set: map[string]int64{"grace": -r.Numbers["lease"] / 4}}
		snapshot.Records[budgetKey("b")] = c.Apply(r, time.Time{})
	}
	for key, r := range snapshot.Records {
		snapshot.Records[key] = p.sees(key, r)
	}
	return snapshot, err
}

func (p *process) Write(ctx context.Context, c Change) (Answer, error) {
	p.mu.Lock()
	edit, refuse := p.edit, p.refuse
	p.mu.Unlock()
	if edit != nil {
		edit(&c)
	}
	if refuse != nil && refuse(c) {
		time.Sleep(2 * time.Millisecond)
		return Answer{}, errThrottled
	}
	answer, err := trip(ctx, p, true, func() (Answer, error) { return p.world.write(c) })
	answer.Record = p.sees(c.Key, answer.Record)
	return answer, err
}

// sees is what a process is told of a record.
func (p *process) sees(key string, r *Record) *Record {
	if r == nil || !p.blind || !strings.HasPrefix(key, "shard#") {
		return r
	}
	c := Change{Set: map[string]int64{"used": 0}}
	return c.Apply(r, time.Time{})
}

// trip is one request and its reply, with all that can happen on the way.
func trip[T any](ctx context.Context, p *process, again bool, apply func() (T, error)) (T, error) {
	var zero T
	if err := p.unpaused(ctx); err != nil {
		return zero, err
	}
	p.world.mu.Lock()
	down := time.Now().Before(p.world.outage)
	p.world.mu.Unlock()
	p.mu.Lock()
	f, rng, dead, out := p.faults, p.rng, p.dead, down || time.Now().Before(p.outage)
	there, back := upTo(rng, f.delay/2), upTo(rng, f.delay/2)
	lost, lostReply := rng.Float64() < f.lostRequest, rng.Float64() < f.lostReply
	throttled, duplicated := rng.Float64() < f.throttle, again && rng.Float64() < f.duplicate
	later := upTo(rng, f.duplicateDelay)
	p.mu.Unlock()
	switch {
	case dead || out || lost:
		<-ctx.Done()
		return zero, ctx.Err()
	case throttled:
		return zero, errThrottled
	}
	time.Sleep(there)
	value, err := apply()
	if duplicated {
		go func() {
			time.Sleep(later)
			_, _ = apply()
		}()
	}
	if lostReply {
		<-ctx.Done()
		return zero, ctx.Err()
	}
	time.Sleep(back)
	if waitErr := p.unpaused(context.WithoutCancel(ctx)); waitErr != nil {
		return zero, waitErr
	}
	return value, err
}

func (p *process) unpaused(ctx context.Context) error {
	p.mu.Lock()
	left := time.Until(p.paused)
	p.mu.Unlock()
	if left > 0 && !pause(ctx, left, nil) {
		return ctx.Err()
	}
	return nil
}

// join starts a process of a calm fleet.
func join(t *testing.T, w *world, seed uint64, cfg Config) (*Leases, *process) {
	t.Helper()
	p := newProcess(w, seed, calm)
	cfg.Budget = "b"
	if cfg.Logger == nil {
		cfg.Logger = silence
	}
	l, err := New(t.Context(), p, cfg)
	if err != nil {
		t.Errorf("join: %v", err)
	}
	return l, p
}

func take(t *testing.T, l *Leases, n int) (releases []func()) {
	t.Helper()
	for range n {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		release, err := l.Acquire(ctx)
		cancel()
		require.NoError(t, err)
		releases = append(releases, release)
	}
	return releases
}

// kill is kill -9.
func kill(l *Leases, p *process) {
	p.set(func(p *process) { p.dead = true })
	l.stop()
}
