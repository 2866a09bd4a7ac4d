package registry

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc/stats"
)

// byteCounter counts the bytes of a user's connections, both ways: for database/sql by
// the socket, for Flight SQL as a stats.Handler, what messages and headers take on
// the wire. A dialer of our own would count TLS and frames too, but switch off
// what the pool's own does about proxies.
type byteCounter struct {
	sent, received atomic.Uint64
	anyCounted     atomic.Bool // at least one connection was, or can be
}

// TagRPC is nothing.
func (*byteCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn is nothing.
func (*byteCounter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is nothing.
func (*byteCounter) HandleConn(context.Context, stats.ConnStats) {}

// HandleRPC counts what came and went.
func (t *byteCounter) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.OutPayload:
		t.sent.Add(uint64(s.WireLength))
	case *stats.InPayload:
		t.received.Add(uint64(s.WireLength))
	case *stats.InHeader:
		t.received.Add(uint64(s.WireLength))
	case *stats.InTrailer:
		t.received.Add(uint64(s.WireLength))
	}
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
