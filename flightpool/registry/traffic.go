package registry

import (
	"net"
	"sync/atomic"
)

// traffic counts the bytes of a user's connections, both ways.
type traffic struct {
	sent, received atomic.Uint64
	counted        atomic.Bool // at least one socket was
}

func (t *traffic) count(c net.Conn) net.Conn {
	t.counted.Store(true)
	return countedConn{c, t}
}

type countedConn struct {
	net.Conn
	t *traffic
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.t.received.Add(uint64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.t.sent.Add(uint64(n))
	return n, err
}
