package flightconn

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// dialTracker counts the dials under way of an endpoint. gRPC's Close ends them
// and does not wait: a socket may come of one afterwards. A dial that is still
// under way at the end of Close may be stuck in a Config.Dialer that does not
// heed its context; how many are is told to the caller of Close.
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
// context has ended is closed. gRPC's Close may have returned by then, and
// nobody would wait for the end of the socket. dial runs on the goroutine of
// the caller, which is gRPC's.
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

// done counts a dial as ended, whatever came of it.
func (d *dialTracker) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.running--; d.mu.running == 0 && d.mu.ended != nil {
		close(d.mu.ended)
		d.mu.ended = nil
	}
}

// close refuses new dials and waits for those under way, whose contexts have
// ended, up to limit. It returns how many are left then. limit is no less than
// zero. It may be called more than once; all calls wait for the same dials.
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
