package sqlconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"
)

// errCut is why a connection is lost that its driver closed because a
// statement's context ended. It says nothing about the server, so it wraps
// neither the context's error nor driver.ErrBadConn.
var errCut = errors.New("sqlconn: the driver closed the connection when the context of a statement ended")

// stopTime bounds an attempt to stop a statement on the server.
const stopTime = 5 * time.Second

// statement is the latest one of a connection.
type statement struct {
	ended func() error // its context's
	stop  func()
}

// began remembers the statement that a dead connection is judged by.
func (c *Conn) began(ctx context.Context) {
	c.latest.Store(&statement{ended: ctx.Err, stop: func() { c.stop(ctx) }})
}

// failed takes note of an error that tells the end of the connection. The
// statement that a driver has given up goes on at the server, so it is stopped.
func (c *Conn) failed(ctx context.Context, err error) {
	switch {
	case over(ctx, err) && (Broken(err) || !c.valid()):
		err = errCut
	case Broken(err):
	case c.valid():
		return
	default: // the driver's own word for it
		err = fmt.Errorf("%w: %w", driver.ErrBadConn, err)
	}
	if c.lost.CompareAndSwap(nil, &err) && errors.Is(err, errCut) {
		c.stopOnce(func() { c.stop(ctx) })
	}
}

// early is how much before the end of a context a driver may give a statement up
// that carries the deadline out by its socket.
const early = 100 * time.Millisecond

// over says whether err comes of the end of ctx. Drivers close or time out the
// socket then, which looks like a fault of the server; what has an SQLSTATE the
// server itself has said.
func over(ctx context.Context, err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return false
	}
	if ctx.Err() != nil {
		return true
	}
	var timeout net.Error
	end, ok := ctx.Deadline()
	return ok && time.Until(end) <= early && errors.As(err, &timeout) && timeout.Timeout()
}

func (c *Conn) valid() bool {
	v, ok := c.raw.(driver.Validator)
	if !ok {
		return true
	}
	valid, err := caught(c, func() (bool, error) { return v.IsValid(), nil })
	return valid && err == nil
}

// stopOnce begins to stop the latest statement. Close waits for it.
func (c *Conn) stopOnce(stop func()) {
	if c.session == "" || c.stopping.Swap(true) {
		return
	}
	go guarded(func() error { stop(); return nil }, func(error) { close(c.stopped) })
}

// awaitStop sees to it that no statement of a connection that was cut runs on.
func (c *Conn) awaitStop() {
	if latest := c.latest.Load(); latest != nil && errors.Is(c.Lost(), errCut) {
		c.stopOnce(latest.stop)
	}
	if c.stopping.Load() {
		<-c.stopped
	}
}

// stop ends the session on the server from another one, which it opens for that,
// with ctx's values. A number means something on its own server alone, and behind
// one address there may be several: nothing is ended on another.
func (c *Conn) stop(ctx context.Context) {
	t := c.target
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	err := func() error {
		other, err := t.connect(ctx)
		if err != nil {
			return err
		}
		defer other.raw.Close() //nolint:errcheck // it has done its work
		if other.server != c.server {
			return fmt.Errorf("sqlconn: stop: the session is on %s, and this is %s", c.server, other.server)
		}
		other.session = "" // it is not itself worth stopping
		return t.run(ctx, other, fmt.Sprintf(t.cfg.Kind.StopSQL, c.session))
	}()
	if t.cfg.Stopped != nil {
		t.cfg.Stopped(err)
	}
}

// identify asks a new session who and where it is.
func (c *Conn) identify(ctx context.Context) error {
	query := c.target.cfg.Kind.IdentifySQL
	if query == "" {
		return nil
	}
	return c.inside(ctx, func(conn *sql.Conn) error {
		if err := conn.QueryRowContext(ctx, query).Scan(&c.session, &c.server); err != nil {
			return fmt.Errorf("sqlconn: %s: %w", query, err)
		}
		return nil
	})
}
