package flightconn

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/flightpool/flightpool/internal/eof"
)

// watchedConn reports the end of the socket to its transport. gRPC reads all
// the time, and closes when a write fails. A transport that is idle ends with a
// read that fails, one whose peer takes no more data with a write that does.
type watchedConn struct {
	net.Conn
	transport *transport
	opening   openingState
	count     func(sent, received int)
}

// sawRead is told of what was read from the socket itself.
func (c *watchedConn) sawRead(data []byte, err error) {
	c.count(0, len(data))
	c.opening.countReceived(data)
	c.reportRead(err)
}

// sawWrite is told of what was written to the socket itself.
func (c *watchedConn) sawWrite(n int) { c.count(n, 0) }

// Write counts.
func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.count(n, 0)
	return n, err
}

// sawEnd is told why HTTP/2 has ended, where no read has told more.
func (c *watchedConn) sawEnd(reason error) {
	switch {
	case c.opening.alert.Load():
		reason = errPlainText
	case errors.Is(reason, context.Canceled), errors.Is(reason, context.DeadlineExceeded): // that of connect
		reason = errNoSettings
	default:
		reason = fmt.Errorf("transport: %w", reason)
	}
	c.transport.markLost(reason)
}

// errNoSettings is a server that has not begun to speak HTTP/2.
var errNoSettings = &connectError{text: "HTTP/2: no answer of the server"}

// Read records the end of the socket before gRPC hears of it. During a
// handshake it leaves the reason to the handshake.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.count(0, n)
	c.opening.countReceived(p[:n])
	c.reportRead(err)
	return n, err
}

func (c *watchedConn) reportRead(err error) {
	if err != nil && !c.opening.handshaking.Load() {
		c.transport.markLost(c.opening.readFailure(err))
	}
}

// readError is the reason that a failed read gives. It does not lead to
// io.EOF: that is how results end, and a loss must not pass for it.
func readError(err error) error {
	if eof.Reached(err) {
		return errors.New("transport: the server has closed the connection")
	}
	return fmt.Errorf("transport: %w", eof.Hide(err))
}

// Close is gRPC's, or that of closeWithin by way of gRPC. Where a read has
// failed before, or the connection was closed by its owner, the reason stands
// already.
func (c *watchedConn) Close() error {
	switch {
	case c.opening.handshaking.Load():
	case c.opening.alert.Load():
		c.transport.markLost(errPlainText)
	default:
		c.transport.markLost(errClosedByGRPC)
	}
	return c.Conn.Close()
}
