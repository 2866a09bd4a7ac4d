package memnet

import (
	"net"
	"sync"
)

// Conn is the accepting side of a connection. All methods are safe for
// concurrent use.
type Conn struct {
	net.Conn
	listener *Listener

	gate sync.Cond // guards the fields below; woken when one changes
	mu   sync.Mutex
	// INVARIANT: once closed, neither Read nor Write waits at the gate.
	frozen, closed bool

	done chan struct{} // closed with the connection
}

func newConn(inner net.Conn, l *Listener) *Conn {
	c := &Conn{Conn: inner, listener: l, done: make(chan struct{})}
	c.gate.L = &c.mu
	return c
}

// Read is net.Conn's. While the connection is frozen nothing arrives, the end
// of the connection included; deadlines do not end that.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.pass() {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write is net.Conn's. It waits while the connection is frozen.
func (c *Conn) Write(b []byte) (int, error) {
	if !c.pass() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// pass waits while c is frozen and reports whether c is still open.
func (c *Conn) pass() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.frozen && !c.closed {
		c.gate.Wait()
	}
	return !c.closed
}

// Freeze makes the connection a black hole: nothing passes in either
// direction until Thaw, and nothing is lost. The other side sees its writes
// succeed until the buffers between are full.
func (c *Conn) Freeze() { c.setFrozen(true) }

// Thaw ends Freeze.
func (c *Conn) Thaw() { c.setFrozen(false) }

// Frozen reports whether the connection is a black hole now.
func (c *Conn) Frozen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frozen
}

// Done is closed when this side has closed or cut the connection.
func (c *Conn) Done() <-chan struct{} { return c.done }

func (c *Conn) setFrozen(frozen bool) {
	c.mu.Lock()
	c.frozen = frozen
	c.mu.Unlock()
	c.gate.Broadcast()
}

// Cut ends the connection as a crash of this side does: the other side gets a
// reset and loses what it has not read.
func (c *Conn) Cut() {
	if !c.finish() {
		return
	}
	switch inner := c.Conn.(type) {
	case *pipeEnd:
		inner.reset()
	case *net.TCPConn:
		_ = inner.SetLinger(0) // makes Close send a reset
		_ = inner.Close()
	default:
		_ = inner.Close()
	}
}

// Close ends the connection in good order. Later calls do nothing.
func (c *Conn) Close() error {
	if !c.finish() {
		return nil
	}
	return c.Conn.Close()
}

// finish opens the gate for ever. It reports whether this call did it.
func (c *Conn) finish() bool {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if first {
		c.gate.Broadcast()
		c.listener.forget(c)
		close(c.done)
	}
	return first
}
