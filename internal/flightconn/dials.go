package flightconn

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// dialTracker counts the dials under way of an endpoint. gRPC's Close ends them and
// does not wait: a socket may come of one afterwards.
type dialTracker struct {
	// reachesLoopback says that the endpoint's own transport leads to this machine.
	reachesLoopback atomic.Bool

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		running int
		closed  bool
		ended   chan struct{} // closed when running reaches zero after closed
	}
}

// dial makes a dial unless the endpoint is closed. What comes of it after its
// context has ended is closed.
func (d *dialTracker) dial(ctx context.Context, dial func() (net.Conn, error)) (net.Conn, error) {
	d.mu.Lock()
	if d.mu.closed {
		d.mu.Unlock()
		return nil, errClosed
	}
	d.mu.running++
	d.mu.Unlock()
	defer d.done() // a Dialer of the user's may panic
	raw, err := dial()
	if err == nil && ctx.Err() != nil {
		_ = raw.Close()
		return nil, ctx.Err()
	}
	return raw, err
}

func (d *dialTracker) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.running--; d.mu.running == 0 && d.mu.ended != nil {
		close(d.mu.ended)
		d.mu.ended = nil
	}
}

// close refuses new dials and waits for those under way, whose contexts have
// ended, up to limit. It returns how many are left then.
func (d *dialTracker) close(limit time.Duration) int {
	d.mu.Lock()
	d.mu.closed = true
	if d.mu.running == 0 {
		d.mu.Unlock()
		return 0
	}
	if d.mu.ended == nil {
		d.mu.ended = make(chan struct{})
	}
	ended := d.mu.ended
	d.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
		return 0
	case <-timer.C:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.running
}
