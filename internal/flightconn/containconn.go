package flightconn

import (
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// isolateConn is a connection of Config.Dialer's with its panics caught: gRPC reads and
// writes it on goroutines of its own. The system's own sockets are left as they are.
func isolateConn(conn net.Conn) net.Conn {
	switch conn.(type) {
	case nil, *net.TCPConn, *net.UnixConn:
		return conn
	}
	return &isolatedConn{Conn: conn}
}

type isolatedConn struct {
	net.Conn
	broken atomic.Pointer[error] // by Write
}

func (c *isolatedConn) Read(p []byte) (int, error) {
	var read callback.Attempt[int]
	read.Run(func() (int, error) { return c.Conn.Read(p) })
	err := read.Failure(dialersConn)
	if broken := c.broken.Load(); broken != nil && err != nil {
		err = *broken
	}
	return read.Value, err
}

// Write fails where not all is written, which gRPC does not look at. It closes the
// connection then, and after a panic, since gRPC waits for a read to fail.
func (c *isolatedConn) Write(p []byte) (int, error) {
	var written callback.Attempt[int]
	written.Run(func() (int, error) { return c.Conn.Write(p) })
	err := written.Failure(dialersConn)
	if err == nil && written.Value < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil && written.Err == nil {
		c.broken.Store(&err)
		_ = c.Close()
	}
	return written.Value, err
}

func (c *isolatedConn) Close() error {
	var closed callback.Attempt[struct{}]
	closed.Run(callback.NoValue(c.Conn.Close))
	return closed.Failure(dialersConn)
}

// SetDeadline is part of net.Conn, as are those below.
func (c *isolatedConn) SetDeadline(t time.Time) error { return setDeadline(c.Conn.SetDeadline, t) }

func (c *isolatedConn) SetReadDeadline(t time.Time) error {
	return setDeadline(c.Conn.SetReadDeadline, t)
}

func (c *isolatedConn) SetWriteDeadline(t time.Time) error {
	return setDeadline(c.Conn.SetWriteDeadline, t)
}

func setDeadline(set func(time.Time) error, t time.Time) error {
	var done callback.Attempt[struct{}]
	done.Run(callback.NoValue(func() error { return set(t) }))
	return done.Failure(dialersConn)
}

func (c *isolatedConn) LocalAddr() net.Addr  { return addrOf(c.Conn.LocalAddr) }
func (c *isolatedConn) RemoteAddr() net.Addr { return addrOf(c.Conn.RemoteAddr) }

// addrOf is the address that a connection tells, or one that names none.
func addrOf(of func() net.Addr) net.Addr {
	var told callback.Attempt[net.Addr]
	told.Run(func() (net.Addr, error) { return of(), nil })
	if told.Value == nil {
		return &net.UnixAddr{Name: "unknown", Net: "unknown"}
	}
	return told.Value
}

const dialersConn = "Config.Dialer: its connection"
