package fleet

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

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
