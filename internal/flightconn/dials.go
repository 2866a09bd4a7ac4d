package flightconn

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/taskgroup"
)

// dialTracker counts the dials under way of an endpoint. gRPC's Close ends them
// and does not wait: a socket may come of one afterwards. A dial that is still
// under way at the end of Close may be stuck in a Config.Dialer that does not
// heed its context; how many are is told to the caller of Close.
type dialTracker struct {
	// reachesLoopback says that the endpoint's own transport leads to this machine.
	reachesLoopback atomic.Bool

	running taskgroup.Group
}

// dial makes a dial unless the endpoint is closed. What comes of it after its
// context has ended is closed. gRPC's Close may have returned by then, and
// nobody would wait for the end of the socket. dial runs on the goroutine of
// the caller, which is gRPC's.
func (d *dialTracker) dial(ctx context.Context, dial func() (net.Conn, error)) (net.Conn, error) {
	if !d.running.Add() {
		return nil, errClosed
	}
	defer d.running.Done() // a Dialer of the user's may panic
	raw, err := dial()
	if err == nil && ctx.Err() != nil {
		_ = raw.Close()
		return nil, ctx.Err()
	}
	return raw, err
}

// close refuses new dials and waits for those under way, whose contexts have
// ended, up to limit. It returns how many are left then. limit is no less than
// zero. It may be called more than once; all calls wait for the same dials.
func (d *dialTracker) close(limit time.Duration) int {
	d.running.Close()
	ctx, cancel := detached(limit)
	defer cancel()
	return d.running.Wait(ctx)
}
