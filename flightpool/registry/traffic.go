package registry

import (
	"net"
	"sync/atomic"
	"syscall"

	"github.com/flightpool/flightpool/flightpool"
)

// byteCounter counts the bytes of a user's sockets, both ways.
type byteCounter struct {
	sent, received atomic.Uint64      // of database/sql's
	flight         flightpool.Traffic // of Flight SQL's
	anyCounted     atomic.Bool        // at least one connection was, or can be
}

// countConn counts a socket.
func (t *byteCounter) countConn(c net.Conn) net.Conn {
	t.anyCounted.Store(true)
	counted := countedConn{c, t}
	if sys, ok := c.(syscall.Conn); ok {
		return countedSocket{counted, sys}
	}
	return counted
}

type countedConn struct {
	net.Conn
	t *byteCounter
}

// countedSocket is one that can be looked at without reading. Drivers that look at a
// socket to see whether the server has closed it need that.
type countedSocket struct {
	countedConn
	syscall.Conn
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
