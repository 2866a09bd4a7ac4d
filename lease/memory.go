package lease

import (
	"context"
	"sync"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/lease/internal/fifo"
)

// NewLeases is a budget of limit connections within one process. It panics
// when limit is not positive. name appears in errors. It is no Reclaimer: what one
// pool keeps idle is not asked for when another waits.
func NewLeases(name string, limit int) Leases {
	if limit <= 0 {
		panic("lease: limit must be positive")
	}
	return &memoryLeases{name: name, limit: limit, allReleased: make(chan struct{})}
}

type memoryLeases struct {
	name  string
	limit int

	mu sync.Mutex
	// INVARIANT: 0 <= inUse <= limit, and nobody waits while inUse < limit.
	inUse       int
	waiters     fifo.Queue
	closed      bool
	allReleased chan struct{} // closed when closed && inUse == 0
	granted     uint64
	denied      uint64
}

// Acquire counts its outcome when it is known, so that each call is counted
// once: a lease handed to a caller that has just left was not granted.
func (m *memoryLeases) Acquire(ctx context.Context) (func(), error) {
	err := m.acquire(ctx)
	m.mu.Lock()
	if err == nil {
		m.granted++
	} else {
		m.denied++
	}
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(m.release), nil
}

func (m *memoryLeases) acquire(ctx context.Context) error {
	ended := ctx.Err() != nil
	m.mu.Lock()
	switch {
	case m.closed:
		m.mu.Unlock()
		return m.fail(ErrClosed, nil)
	case ended:
		m.mu.Unlock()
		return m.fail(ErrLimit, ctxerr.Of(ctx))
	case m.inUse < m.limit:
		m.inUse++
		m.mu.Unlock()
		return nil
	}
	ticket := m.waiters.Join()
	m.mu.Unlock()

	select {
	case err := <-ticket.Answered():
		if err == nil && ctx.Err() != nil { // both came at once
			m.release()
			return m.fail(ErrLimit, ctxerr.Of(ctx))
		}
		return err
	case <-ctx.Done():
		return m.endWait(ctx, ticket)
	}
}

// endWait ends a wait whose ctx ended. A lease granted meanwhile goes back, to
// the next waiter.
func (m *memoryLeases) endWait(ctx context.Context, ticket *fifo.Ticket) error {
	m.mu.Lock()
	waited := m.waiters.Leave(ticket)
	m.mu.Unlock()
	if !waited {
		if err := <-ticket.Answered(); err != nil {
			return err
		}
		m.release()
	}
	return m.fail(ErrLimit, ctxerr.Of(ctx))
}

func (m *memoryLeases) release() {
	m.mu.Lock()
	next := m.waiters.Next()
	if next == nil {
		m.inUse--
		m.signalAllReleased()
	}
	m.mu.Unlock()
	if next != nil {
		next.Answer(nil)
	}
}

func (m *memoryLeases) signalAllReleased() {
	if m.closed && m.inUse == 0 {
		close(m.allReleased)
	}
}

func (m *memoryLeases) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{
		Limit: m.limit, Owners: 1, Used: m.inUse, InUse: m.inUse, Waiting: m.waiters.Len(),
		Granted: m.granted, Denied: m.denied,
	}
}

func (m *memoryLeases) Close(ctx context.Context) error {
	m.mu.Lock()
	var waiting []*fifo.Ticket
	if !m.closed {
		m.closed = true
		waiting = m.waiters.All()
		m.signalAllReleased()
	}
	m.mu.Unlock()
	for _, ticket := range waiting {
		ticket.Answer(m.fail(ErrClosed, nil))
	}
	select {
	case <-m.allReleased:
	case <-ctx.Done():
	}
	select {
	case <-m.allReleased: // also when ctx had ended before
		return nil
	default:
		return m.fail(ErrInUse, ctxerr.Of(ctx))
	}
}

func (m *memoryLeases) fail(reason, cause error) error {
	return &Error{Budget: m.name, Reason: reason, Used: m.Stats().InUse, Limit: m.limit, Err: cause}
}
