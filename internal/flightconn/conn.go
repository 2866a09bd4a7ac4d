package flightconn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/session"
)

// Conn is session.Conn over one HTTP/2 transport to a Flight SQL server.
type Conn struct {
	endpoint *Endpoint
	epoch    *epoch
	id       *identity
	channel  *channel
	flight   pb.FlightServiceClient // over channel
	closing  sync.Once
	closeErr error
	trips    roundTrips

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		running map[*run]struct{}
	}
}

var (
	_ session.Conn      = (*Conn)(nil)
	_ session.Watchable = (*Conn)(nil)
	_ session.Expirer   = (*Conn)(nil)
)

func (c *Conn) cfg() *Config   { return &c.endpoint.cfg }
func (c *Conn) target() string { return c.endpoint.cfg.Address }

// Lost is part of session.Conn.
func (c *Conn) Lost() error { return c.epoch.Lost() }

// ExpiresAt is part of session.Expirer.
func (c *Conn) ExpiresAt() time.Time { return c.id.credential().Expires }

// OnLost is part of session.Watchable.
func (c *Conn) OnLost(f func(reason error)) { c.epoch.watch(f) }

// enter admits a call unless the epoch has ended.
func (c *Conn) enter(r *run) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch.Lost() != nil { // closed, too
		return false
	}
	if c.mu.running == nil {
		c.mu.running = map[*run]struct{}{}
	}
	c.mu.running[r] = struct{}{}
	return true
}

func (c *Conn) leave(r *run) {
	c.mu.Lock()
	delete(c.mu.running, r)
	c.mu.Unlock()
}

// Close is part of session.Conn. It returns within Config.CloseTimeout.
func (c *Conn) Close() error {
	c.closing.Do(func() { c.closeErr = c.close() })
	return c.closeErr
}

func (c *Conn) close() error {
	lost := c.epoch.Lost()
	alive := lost == nil || errors.Is(lost, session.ErrSessionReplaced)
	c.endpoint.live.release(c)
	c.epoch.lose(errClosed)
	c.mu.Lock()
	running := c.mu.running
	c.mu.running = nil
	c.mu.Unlock()
	for r := range running {
		r.cancel()
	}
	limit := c.cfg().CloseTimeout
	if !alive || limit <= 0 {
		c.epoch.shut(errClosed, 0)
		return nil
	}
	start := time.Now()
	err := c.closeSession(limit)
	c.epoch.shut(errClosed, limit-time.Since(start))
	return err
}

// closeSession tells the server that the session is over, once the endpoint is
// known to have that call.
func (c *Conn) closeSession(limit time.Duration) error {
	support := &c.endpoint.support
	if support.closeSession.isRefused() {
		return nil
	}
	ctx, cancel := detached(limit)
	defer cancel()
	r := &run{conn: c, op: "Close", callerErr: func() error { return nil }, callerDeadline: ctx.Deadline}
	err := c.rawAction(r.rpc(ctx), c.flight, flight.CloseSessionActionType, &flight.CloseSessionRequest{}, &flight.CloseSessionResult{})
	if unsupported(err) {
		support.closeSession.refuse()
		return nil
	}
	if err != nil {
		return r.fail(session.StageClose, err)
	}
	return nil
}

// detached is the one place that makes a context of nobody's: Close has none
// to give, and its RPC must be made even so.
func detached(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}
