package sqldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/session"
)

// named is a connector that makes its pool when it is first needed.
type named struct {
	// make is a function, so that no verb of fmt shows the secrets of the name.
	make  func(context.Context) (*flightpool.FlightSQLPool, error)
	close time.Duration

	mu struct {
		sync.Mutex
		made   *flightpool.FlightSQLPool // or nil
		making *making                   // or nil
		closed bool
	}
}

// making is one attempt to make the pool. It serves whoever has come while it
// was under way, with its error too: none of them makes another attempt. One who
// gives up does not end it.
type making struct {
	done chan struct{}
	stop context.CancelFunc
	pool *flightpool.FlightSQLPool // valid, as is err, once done is closed
	err  error
}

var _ io.Closer = (*named)(nil)

func newNamed(name string, closeTimeout time.Duration) *named {
	return &named{close: closeTimeout, make: func(ctx context.Context) (*flightpool.FlightSQLPool, error) {
		return flightpool.New(ctx, name, flightpool.Config{})
	}}
}

// Connect is part of driver.Connector.
func (c *named) Connect(ctx context.Context) (driver.Conn, error) {
	p, err := c.get(ctx)
	if err != nil {
		return nil, err
	}
	return connect(ctx, p)
}

// Driver is part of driver.Connector.
func (c *named) Driver() driver.Driver { return ofPool{get: c.ready} }

// get is the pool, which is made unless it is.
func (c *named) get(ctx context.Context) (*flightpool.FlightSQLPool, error) {
	if ctx.Err() != nil {
		return nil, unopened(ctx)
	}
	p, m, err := c.begin()
	if p != nil || err != nil {
		return p, err
	}
	select {
	case <-m.done:
		return m.pool, m.err
	case <-ctx.Done():
		return nil, unopened(ctx)
	}
}

// begin is the pool, or the attempt to make it that is under way.
func (c *named) begin() (*flightpool.FlightSQLPool, *making, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.closed:
		return nil, nil, badArgument("Connect", flightpool.ErrClosed)
	case c.mu.made != nil:
		return c.mu.made, nil, nil
	case c.mu.making == nil:
		ctx, stop := context.WithCancel(detached())
		c.mu.making = &making{done: make(chan struct{}), stop: stop}
		go c.open(ctx, c.mu.making)
	}
	return nil, c.mu.making, nil
}

// open makes an attempt, which takes no longer than the target's dial_timeout.
func (c *named) open(ctx context.Context, m *making) {
	defer close(m.done)
	defer m.stop()
	m.pool, m.err = c.make(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.making = nil
	switch {
	case m.err == nil:
		c.mu.made = m.pool
	case c.mu.closed:
		m.err = badArgument("Connect", flightpool.ErrClosed)
	}
}

// unopened is the error of a caller whose context ends before there is a pool.
func unopened(ctx context.Context) error {
	return &flightpool.Error{
		Op: "Connect", Stage: session.StageAcquire, Fault: flightpool.FaultContext, Unsent: true,
		Ctx: ctx.Err(), Err: errors.New("the pool is still being opened"),
	}
}

// ready is the pool if it is made.
func (c *named) ready() *flightpool.FlightSQLPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.made
}

// Close is part of io.Closer: sql.DB.Close calls it. It waits for what is in use,
// for the target's close_timeout, and then ends it.
func (c *named) Close() error {
	c.mu.Lock()
	c.mu.closed = true
	m := c.mu.making
	c.mu.Unlock()
	if m != nil {
		m.stop()
		<-m.done
	}
	c.mu.Lock()
	p := c.mu.made
	c.mu.made = nil
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	const usual = 5 * time.Second
	wait := c.close
	if wait <= 0 {
		wait = usual
	}
	ctx, cancel := context.WithTimeout(detached(), wait)
	defer cancel()
	return p.Close(ctx)
}
