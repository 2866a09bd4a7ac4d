package sqlconn

import (
	"sync"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// driverCalls are the calls under way of one driver's connection.
//
// INVARIANT: no call begins once close was called.
type driverCalls struct {
	mu      sync.Mutex
	running int
	closed  bool
	idle    chan struct{} // closed by the end of the last one after close; nil before
}

// begin reports whether a call may be made; then end must follow.
func (k *driverCalls) begin() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.running++
	}
	return !k.closed
}

func (k *driverCalls) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running--; k.running == 0 && k.idle != nil {
		close(k.idle)
		k.idle = nil
	}
}

// busy reports whether a call is under way.
func (k *driverCalls) busy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running > 0
}

// close lets no call begin, and waits for those under way, but no longer than limit. It
// reports whether they have ended.
func (k *driverCalls) close(limit time.Duration) bool {
	k.mu.Lock()
	k.closed = true
	if k.running > 0 && k.idle == nil {
		k.idle = make(chan struct{})
	}
	idle := k.idle
	k.mu.Unlock()
	return idle == nil || callback.EndsWithin(idle, limit)
}
