package fleet

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/lease"
)

// Store keeps the records of budgets. DynamoDB is one, PostgreSQL another,
// NewMemory a third. All methods may be called concurrently. No method repeats
// a request whose outcome is unknown: whoever calls it decides that.
//
// Change.Holds and Change.Apply say what a change means; package fleettest holds a
// Store against them. A Store need not make a duplicate harmless: a write that was
// given up, and is done later, is part of the protocol. So a call that does not return soon
// after its context has ended is given up, and a panic is a failure of that call.
type Store interface {
	// Read returns the records of keys that exist. It is consistent: each
	// record contains every write that was answered before Read was called.
	// The records need not be of one moment.
	Read(ctx context.Context, keys ...string) (Snapshot, error)

	// Write makes a change if its conditions hold, both at once. An error
	// says that the outcome is unknown: the change may have been made, or be
	// made later. An error whose chain has a method Permanent that returns true
	// says that no retry will change it; a *ConfigError is one.
	Write(ctx context.Context, change Change) (Answer, error)
}

// Snapshot is what Read returns.
type Snapshot struct {
	Records map[string]*Record // must not be changed
	Now     time.Time          // the store's clock; zero when it has none
}

// Answer is what is known after a Write.
type Answer struct {
	Done   bool      // the conditions held and the change was made
	Record *Record   // after the change when Done; else the one for which a condition failed, nil when there is none
	Now    time.Time // the store's clock; zero when it has none
}

// Record is one item of a store.
type Record struct {
	Numbers map[string]int64  `json:"numbers,omitempty"`
	Texts   map[string]string `json:"texts,omitempty"`
	Owners  map[string]Owner  `json:"owners,omitempty"`
}

// Owner is what one process has of a record.
type Owner struct {
	Leases int64 `json:"n"`
	Seq    int64 `json:"q"`           // different after each write of the owner
	Round  int64 `json:"r"`           // the latest round that the owner has checked in to
	Want   int64 `json:"w,omitempty"` // connections that the owner would like, when that is more than it has
	Kept   int64 `json:"k,omitempty"` // connections that the owner has and cannot give back, when that is more than its share
}

// Change is one conditional write of one record. All conditions must hold.
type Change struct {
	Key string

	Absent  bool             // the record does not exist; it is made
	Equal   map[string]int64 // numbers that must have this value; one that is missing has none
	AtMost  map[string]int64 // numbers that may not be larger; one that is missing fails
	OwnerAt map[string]int64 // sequence numbers that owners must have
	NoOwner string           // an owner that must not be there, and the record must

	Set    map[string]int64
	Add    map[string]int64 // to numbers that exist: name them in Equal or AtMost, or with OwnerAt
	Text   map[string]string
	Put    map[string]Owner
	Remove []string // owners
	Stamp  string   // a number to set to the store's clock in milliseconds since 1970, if it has one

	// Expires lets the store remove the record after that time. No rule
	// depends on it. Zero: never.
	Expires time.Time
}

// Holds reports whether the conditions hold for r, nil if there is no record.
func (c *Change) Holds(r *Record) bool {
	if c.Absent {
		return r == nil
	}
	if r == nil {
		return len(c.Equal)+len(c.AtMost)+len(c.OwnerAt) == 0 && c.NoOwner == ""
	}
	for name, want := range c.Equal {
		if have, ok := r.Numbers[name]; !ok || have != want {
			return false
		}
	}
	for name, most := range c.AtMost {
		if have, ok := r.Numbers[name]; !ok || have > most {
			return false
		}
	}
	for id, seq := range c.OwnerAt {
		if have, ok := r.Owners[id]; !ok || have.Seq != seq {
			return false
		}
	}
	_, there := r.Owners[c.NoOwner]
	return !there
}

// Apply returns what r becomes by the change, without touching r. now is the
// store's clock, zero when it has none.
func (c *Change) Apply(r *Record, now time.Time) *Record {
	fresh := &Record{Numbers: map[string]int64{}, Texts: map[string]string{}, Owners: map[string]Owner{}}
	if r != nil {
		maps.Copy(fresh.Numbers, r.Numbers)
		maps.Copy(fresh.Texts, r.Texts)
		maps.Copy(fresh.Owners, r.Owners)
	}
	maps.Copy(fresh.Numbers, c.Set)
	maps.Copy(fresh.Texts, c.Text)
	maps.Copy(fresh.Owners, c.Put)
	for name, delta := range c.Add {
		fresh.Numbers[name] += delta
	}
	for _, id := range c.Remove {
		delete(fresh.Owners, id)
	}
	if c.Stamp != "" && !now.IsZero() {
		fresh.Numbers[c.Stamp] = now.UnixMilli()
	}
	return fresh
}

// meter bounds each request of a store and counts them. A read counts each of its keys,
// as a store bills it. Its counters may be read at any time.
type meter struct {
	store   Store
	timeout time.Duration

	reads, writes, conditions, failures atomic.Uint64
}

func newMeter(store Store, timeout time.Duration) *meter {
	return &meter{store: store, timeout: timeout}
}

func (m *meter) read(ctx context.Context, keys ...string) (Snapshot, error) {
	m.reads.Add(uint64(len(keys)))
	snapshot, err := withinTimeout(ctx, m.timeout, func(ctx context.Context) (Snapshot, error) { return m.store.Read(ctx, keys...) })
	if err != nil {
		m.failures.Add(1)
	}
	return snapshot, err
}

func (m *meter) write(ctx context.Context, change Change) (Answer, error) {
	m.writes.Add(1)
	answer, err := withinTimeout(ctx, m.timeout, func(ctx context.Context) (Answer, error) { return m.store.Write(ctx, change) })
	switch {
	case err != nil:
		m.failures.Add(1)
	case !answer.Done:
		m.conditions.Add(1)
	}
	return answer, err
}

// withinTimeout makes a request. One of a store that does not heed its context goes on behind; a
// write may be done then, as any that was given up.
func withinTimeout[T any](ctx context.Context, limit time.Duration, request func(context.Context) (T, error)) (none T, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	a, inTime := callback.Within(ctx, storeGrace, func() (T, error) { return request(ctx) }, nil, cancel)
	if !inTime {
		return none, ctxerr.Of(ctx)
	}
	return a.Value, a.Failure("lease: the store")
}

// storeGrace is what a store has to return once the context of its request has ended.
const storeGrace = 100 * time.Millisecond

// traffic is what was counted, and the clock's difference where the store knows one.
func (m *meter) traffic() lease.Traffic {
	t := lease.Traffic{
		Reads: m.reads.Load(), Writes: m.writes.Load(),
		Conditions: m.conditions.Load(), Failures: m.failures.Load(),
	}
	if s, ok := m.store.(interface{ ClockSkew() time.Duration }); ok {
		t.ClockSkew = s.ClockSkew()
	}
	return t
}

// Memory is a Store within one process, for tests and simulations. Records that it
// gives out are its own, which callers must not change.
type Memory struct {
	mu      sync.Mutex
	records map[string]*Record // INVARIANT: a record is never changed once it is here
}

// NewMemory is an empty store.
func NewMemory() *Memory { return &Memory{records: map[string]*Record{}} }

// Read is as Store says.
func (m *Memory) Read(ctx context.Context, keys ...string) (Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return Snapshot{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make(map[string]*Record, len(keys))
	for _, key := range keys {
		if r := m.records[key]; r != nil {
			found[key] = r
		}
	}
	return Snapshot{Records: found}, nil
}

// Write is as Store says. Its outcome is never unknown.
func (m *Memory) Write(_ context.Context, change Change) (Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.records[change.Key]
	if !change.Holds(old) {
		return Answer{Record: old}, nil
	}
	fresh := change.Apply(old, time.Time{})
	m.records[change.Key] = fresh
	return Answer{Done: true, Record: fresh}, nil
}

// Budgets returns the names of the budgets in the store, sorted.
func (m *Memory) Budgets(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for key := range m.records {
		if name, ok := strings.CutPrefix(key, BudgetPrefix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
