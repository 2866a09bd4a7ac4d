package fleet

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/lease"
)

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
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	m.reads.Add(uint64(len(keys)))
	snapshot, err := m.store.Read(ctx, keys...)
	if err != nil {
		m.failures.Add(1)
	}
	return snapshot, err
}

func (m *meter) write(ctx context.Context, change Change) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	m.writes.Add(1)
	answer, err := m.store.Write(ctx, change)
	switch {
	case err != nil:
		m.failures.Add(1)
	case !answer.Done:
		m.conditions.Add(1)
	}
	return answer, err
}

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
