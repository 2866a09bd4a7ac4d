package lease

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/lease/internal/fifo"
)

// NewLeases is a budget of limit connections within one process. It panics
// when limit is not positive. name appears in errors. While it is full and callers
// wait, holders (Holder) that have more than their share are asked to give it up.
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
	// INVARIANT: no more are in use than limit, and nobody waits while fewer are.
	holders     fifo.Shared[*Holder]
	asking      bool // a timer is to call askHolders soon
	looking     bool // one is to call it since callers who are not wanted now may be again
	repeating   bool // one is to begin the next round
	closed      bool
	allReleased chan struct{} // closed when closed and nothing is in use
	granted     uint64
	denied      uint64
}

// Acquire counts its outcome when it is known, so that each call is counted
// once: a lease handed to a caller that has just left was not granted.
func (m *memoryLeases) Acquire(ctx context.Context) (func(), error) {
	holder := HolderOf(ctx)
	err := m.acquire(ctx, holder)
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
	return sync.OnceFunc(func() { m.release(holder) }), nil
}

func (m *memoryLeases) acquire(ctx context.Context, holder *Holder) error {
	ended := ctx.Err() != nil
	m.mu.Lock()
	switch {
	case m.closed:
		m.mu.Unlock()
		return m.fail(ErrClosed, nil)
	case ended:
		m.mu.Unlock()
		return m.fail(ErrLimit, ctxerr.Of(ctx))
	case m.holders.InUse() < m.limit:
		m.holders.Take(holder)
		m.mu.Unlock()
		return nil
	}
	ticket := m.holders.Join(holder)
	m.askSoon()
	m.mu.Unlock()

	select {
	case err := <-ticket.Answered():
		if err == nil && ctx.Err() != nil { // both came at once
			m.release(holder)
			return m.fail(ErrLimit, ctxerr.Of(ctx))
		}
		return err
	case <-ctx.Done():
		return m.endWait(ctx, holder, ticket)
	}
}

// endWait ends a wait whose ctx ended. A lease granted meanwhile goes back, to
// the next waiter.
func (m *memoryLeases) endWait(ctx context.Context, holder *Holder, ticket *fifo.Ticket) error {
	m.mu.Lock()
	waited := m.holders.Leave(holder, ticket)
	m.mu.Unlock()
	if !waited {
		if err := <-ticket.Answered(); err != nil {
			return err
		}
		m.release(holder)
	}
	return m.fail(ErrLimit, ctxerr.Of(ctx))
}

func (m *memoryLeases) release(holder *Holder) {
	m.mu.Lock()
	m.holders.Release(holder)
	next := m.holders.Next()
	m.signalAllReleased()
	m.mu.Unlock()
	if next != nil {
		next.Answer(nil)
	}
}

func (m *memoryLeases) signalAllReleased() {
	if m.closed && m.holders.InUse() == 0 {
		close(m.allReleased)
	}
}

// Of many who come at once, holders are asked once. Those that had nothing to give up are asked
// again while somebody waits, and all while somebody waits who was not wanted.
const (
	askAfter  = 10 * time.Millisecond
	lookEvery = 100 * time.Millisecond
	askEvery  = time.Second
)

// askSoon has askHolders called, and again from time to time for as long as somebody waits. mu is held.
func (m *memoryLeases) askSoon() {
	m.askIn(askAfter, &m.asking)
	if !m.repeating {
		m.repeating = true
		time.AfterFunc(askEvery, m.askAgain)
	}
}

// askIn has askHolders called, unless that is coming already. mu is held.
func (m *memoryLeases) askIn(after time.Duration, coming *bool) {
	if *coming {
		return
	}
	*coming = true
	time.AfterFunc(after, func() {
		m.mu.Lock()
		*coming = false
		m.mu.Unlock()
		m.askHolders()
	})
}

func (m *memoryLeases) askAgain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.repeating = false
	if m.holders.Waiting() > 0 || m.holders.GivingUp() {
		m.holders.NewRound()
		m.askSoon()
	}
}

// askHolders asks for what holders have above their shares.
func (m *memoryLeases) askHolders() {
	m.holders.AskWanted(&m.mu, (*Holder).Wanted)
	m.mu.Lock()
	above := m.holders.Above(0)
	if len(above) == 0 {
		above = m.holders.Excess(0)
	}
	if m.holders.Wanted() < m.holders.Waiting() {
		m.askIn(lookEvery, &m.looking)
	}
	m.mu.Unlock()
	for holder, n := range above {
		go holder.Ask(n, func(closing int, err error) {
			m.mu.Lock()
			m.holders.Answered(holder, closing)
			m.mu.Unlock()
			if closing < n { // others may have what is lacking
				m.askHolders()
			}
			if err != nil {
				slog.Error("a holder failed to give up connections", "budget", m.name, "error", err)
			}
		})
	}
}

func (m *memoryLeases) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{
		Limit: m.limit, Owners: 1, Used: m.holders.InUse(), InUse: m.holders.InUse(), Waiting: m.holders.Waiting(),
		Granted: m.granted, Denied: m.denied,
	}
}

func (m *memoryLeases) Close(ctx context.Context) error {
	m.mu.Lock()
	var waiting []*fifo.Ticket
	if !m.closed {
		m.closed = true
		waiting = m.holders.All()
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
