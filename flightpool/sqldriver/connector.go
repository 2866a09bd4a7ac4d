package sqldriver

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/badconn"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/driverapi"
)

// dsnConnector is a connector that makes its pool when it is first needed.
type dsnConnector struct {
	// newPool is a function, so that no verb of fmt shows the secrets of the name.
	newPool        func(context.Context) (*flightpool.FlightSQLPool, error)
	acquireTimeout time.Duration // as in Config
	closeTimeout   time.Duration

	mu struct {
		sync.Mutex
		pool    *flightpool.FlightSQLPool // or nil
		attempt *openAttempt              // or nil
		closed  bool
	}
}

// The defaults of Config.
const (
	usualAcquireTimeout = 30 * time.Second
	usualCloseTimeout   = 5 * time.Second
)

// openAttempt is one attempt to make the pool. It serves whoever has come while it
// was under way, with its error too: none of them makes another attempt. One who
// gives up does not end it.
type openAttempt struct {
	done chan struct{}
	stop context.CancelFunc
	pool *flightpool.FlightSQLPool // valid, as is err, once done is closed
	err  error
}

var _ io.Closer = (*dsnConnector)(nil)

// newDSNConnector is a connector to name, of which cfg was read.
func newDSNConnector(name string, cfg flightpool.Config) *dsnConnector {
	c := &dsnConnector{acquireTimeout: cfg.AcquireTimeout, closeTimeout: cfg.CloseTimeout}
	c.newPool = func(ctx context.Context) (*flightpool.FlightSQLPool, error) {
		return flightpool.New(ctx, name, flightpool.Config{})
	}
	return c
}

// Connect is part of driver.Connector.
func (c *dsnConnector) Connect(ctx context.Context) (driver.Conn, error) {
	p, err := c.getOrOpen(ctx)
	if err != nil {
		return nil, badconn.Hide(err)
	}
	return connect(ctx, p)
}

// Driver is part of driver.Connector.
func (c *dsnConnector) Driver() driver.Driver { return poolDriver{getPool: c.openedPool} }

// getOrOpen is the pool, which is made unless it is. Who waits for that does so until ctx
// or AcquireTimeout ends, as for a connection of a pool that is there.
func (c *dsnConnector) getOrOpen(ctx context.Context) (*flightpool.FlightSQLPool, error) {
	if ctx.Err() != nil {
		return nil, stillOpeningError(ctx)
	}
	p, m, err := c.poolOrAttempt()
	if p != nil || err != nil {
		return p, err
	}
	longest := cmp.Or(c.acquireTimeout, usualAcquireTimeout)
	bound := newBound(longest)
	defer bound.Stop()
	select {
	case <-m.done:
		return m.pool, m.err
	case <-ctx.Done():
		return nil, stillOpeningError(ctx)
	case <-bound.C:
		return nil, openingTooLongError(longest)
	}
}

// poolOrAttempt is the pool, or the attempt to make it that is under way.
func (c *dsnConnector) poolOrAttempt() (*flightpool.FlightSQLPool, *openAttempt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.closed:
		return nil, nil, driverapi.BadArgument("Connect", flightpool.ErrClosed)
	case c.mu.pool != nil:
		return c.mu.pool, nil, nil
	case c.mu.attempt == nil:
		ctx, stop := context.WithCancel(detached())
		c.mu.attempt = &openAttempt{done: make(chan struct{}), stop: stop}
		go c.runAttempt(ctx, c.mu.attempt)
	}
	return nil, c.mu.attempt, nil
}

// runAttempt makes an attempt, which ends with its first open or, with open_retry=always, with the first
// that succeeds.
func (c *dsnConnector) runAttempt(ctx context.Context, m *openAttempt) {
	defer close(m.done)
	defer m.stop()
	m.pool, m.err = c.newPool(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.attempt = nil
	switch {
	case m.err == nil:
		c.mu.pool = m.pool
	case c.mu.closed:
		m.err = driverapi.BadArgument("Connect", flightpool.ErrClosed)
	}
}

// stillOpeningError is the error of a caller whose context ends before there is a pool.
func stillOpeningError(ctx context.Context) error {
	return unsentError(ctx, "Connect", "the pool is still being opened")
}

// unsentError is the error of a call whose context has ended while it waited.
func unsentError(ctx context.Context, op, why string) error {
	return &flightpool.Error{
		Op: op, Stage: backend.StageAcquire, Fault: flightpool.FaultContext, Unsent: true,
		Ctx: ctxerr.Of(ctx), Err: errors.New(why),
	}
}

// openedPool is the pool if it is made.
func (c *dsnConnector) openedPool() *flightpool.FlightSQLPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.pool
}

// Close is part of io.Closer: sql.DB.Close calls it. It waits for what is in use,
// for the target's close_timeout, and then ends it.
func (c *dsnConnector) Close() error {
	c.mu.Lock()
	c.mu.closed = true
	m := c.mu.attempt
	c.mu.Unlock()
	if m != nil {
		m.stop()
		<-m.done
	}
	c.mu.Lock()
	p := c.mu.pool
	c.mu.pool = nil
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(detached(), cmp.Or(max(0, c.closeTimeout), usualCloseTimeout))
	defer cancel()
	return p.Close(ctx)
}
