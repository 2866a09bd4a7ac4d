package flightconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/internal/netname"
)

// Why a transport ended, where the network has no reason of its own.
var (
	errClosed = errors.New("closed by its owner")
	errRedial = errors.New("the transport ended and is not dialled again")

	// errClosedByGRPC is the reason where gRPC closes the transport. It does not
	// say why; the calls under way are told.
	errClosedByGRPC = errors.New("transport closed: protocol error, missed keepalive or server shutdown")
)

// transport is one transport: it is dialled once and never again.
//
// INVARIANT: lost is set before any call learns of the transport's end. gRPC
// reads and closes through watchedConn, which sets it first, so that a call
// that fails finds the reason there.
//
// Its life: gRPC dials with the first RPC (dialOnce), shakes hands
// (reportingCredentials), and reads until the socket ends. From then on it is
// lost, for good. A handshake that fails, a missed keepalive, a GOAWAY and
// Close end it in the same way.
type transport struct {
	cc     *grpc.ClientConn
	dialed atomic.Bool
	lost   atomic.Pointer[error]
	onLost atomic.Pointer[func(error)] // taken out by who calls it

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		socket net.Conn
		peer   string // where socket leads, if it was dialled directly
	}
}

// newTransport makes the transport of one connection. Nothing is dialled before
// the first RPC. gRPC closes a client that is idle for 30 minutes unless it is
// told not to, which would be the end of the session. An error is that of an
// option.
func newTransport(cfg *Config) (*transport, error) {
	e := &transport{}
	opts := append(cfg.transportOptions(cfg.Address, cfg.TLS, e.dialOnce(cfg), func() { e.closeWithin(errUntracked, 0) }), grpc.WithIdleTimeout(0))
	if readsWhenReady && cfg.TLS == nil && cfg.Dialer == nil {
		opts = append(opts, grpc.WithReadBufferSize(readBuffer))
	}
	cc, err := grpc.NewClient("passthrough:///flight", append(opts, cfg.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	e.cc = cc
	return e, nil
}

// dialOnce makes the dialer that gRPC calls whenever it wants a transport. It
// answers once: gRPC would replace a dead transport, and with it the server
// session, without a word.
//
// An address that names several servers is dialled once too: peer is the one
// that answered. A Close that comes while the dial is under way finds no socket
// to close; so the socket is closed here when the transport is lost already.
func (e *transport) dialOnce(cfg *Config) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, _ string) (net.Conn, error) {
		if !e.dialed.CompareAndSwap(false, true) {
			e.markLost(errRedial)
			return nil, e.Lost()
		}
		raw, err := cfg.dialTracker.dial(ctx, func() (net.Conn, error) { return cfg.dial(ctx, cfg.Network, cfg.Address, nil) })
		if err != nil {
			e.markLost(dialError(cfg.Address, err))
			return nil, err
		}
		e.mu.Lock()
		e.mu.socket = raw
		if tcp, direct := raw.(*net.TCPConn); direct && cfg.Dialer == nil {
			e.mu.peer = tcp.RemoteAddr().String()
			if netname.IsLoopback(hostOf(e.mu.peer)) {
				cfg.dialTracker.reachesLoopback.Store(true)
			}
		}
		e.mu.Unlock()
		if e.Lost() != nil { // closed meanwhile
			_ = raw.Close()
		}
		return &watchedConn{Conn: raw, transport: e, ready: newReadyReader(raw)}, nil
	}
}

// closeWithin closes the transport within limit. gRPC's Close waits until it
// has written GOAWAY, which never happens if the peer does not read; closing
// the socket ends that wait. reason is what later calls are told, unless the
// transport has ended before; zero or less closes the socket at once, without a
// GOAWAY.
func (e *transport) closeWithin(reason error, limit time.Duration) {
	e.markLost(reason)
	if limit <= 0 {
		e.closeSocket()
	} else {
		defer time.AfterFunc(limit, e.closeSocket).Stop()
	}
	_ = e.cc.Close()
}

// closeSocket closes the socket if there is one. What gRPC or TLS made of it
// ends with it.
func (e *transport) closeSocket() {
	e.mu.Lock()
	raw := e.mu.socket
	e.mu.Unlock()
	if raw != nil {
		_ = raw.Close()
	}
}

// peer is the one address, of those that the server's name may have, that the
// session is at. It is empty where only a proxy or Config.Dialer knows.
// Requests to cancel go there (Endpoint.control).
func (e *transport) peer() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.peer
}

// watchedConn reports the end of the socket to its transport. gRPC reads all
// the time, and closes when a write fails. A transport that is idle ends with a
// read that fails, one whose peer takes no more data with a write that does.
type watchedConn struct {
	net.Conn
	transport *transport
	opening   openingState
	ready     *readyReader // nil where the socket is none of the system's
}

// readBuffer is how much gRPC reads at once from a socket that needs no buffer while
// there is nothing to read: large results take fewer calls of the system. It reads at
// most smallReadBuffer while less than that is there. Any other holds on to its buffer,
// whose size is pinnedReadBuffer at most.
const (
	readBuffer       = 128 << 10
	smallReadBuffer  = 16 << 10
	pinnedReadBuffer = 32 << 10
)

// ReadOnReady is what gRPC reads by, in place of Read, from a connection that has it:
// it takes a buffer only when there is something to read. gRPC does not document it;
// TestAnIdleConnectionHoldsNoReadBuffer tells when it does not ask for it any more.
func (c *watchedConn) ReadOnReady(size int, pool mem.BufferPool) (buf *[]byte, n int, err error) {
	if c.ready != nil {
		buf, n, err = c.ready.read(size, pool)
	} else {
		buf = pool.Get(min(size, pinnedReadBuffer))
		if n, err = c.Conn.Read(*buf); n == 0 {
			pool.Put(buf)
			buf = nil
		}
	}
	if buf != nil {
		c.opening.countReceived((*buf)[:n])
	}
	c.reportRead(err)
	return buf, n, err
}

// Read records the end of the socket before gRPC hears of it. During a
// handshake it leaves the reason to the handshake.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
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
