package flightconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// maxControls is how many control channels are kept beside those in use: servers
// that move leave theirs behind.
const maxControls = 16

// controlChannel is a client for requests to cancel. The lock of its Endpoint
// guards users and used. All connections whose session is at one address share
// one; there is nothing in it of any of them.
type controlChannel struct {
	*redialingClient
	peer  string
	users int
	used  uint64 // in the order of uses
}

// control returns the channel for requests that must not queue behind what
// they are to stop. It leads to peer, where the session is, or to the server's
// own address if that is empty: a name may have several addresses, and another
// server would not find what is to be stopped. It is dialled when it is first
// used, and again as needed: it holds no session, each RPC presents that of
// its connection. The caller must call done.
//
// The lock is not held while a client is made, so that two goroutines may make
// one; the second closes its own. Nothing is dialled by that. After the
// endpoint's Close it fails.
func (e *Endpoint) control(peer string) (cc *controlChannel, done func(), err error) {
	cc, closed := e.acquireControl(peer, nil)
	if cc == nil && !closed {
		fresh, err := e.newControl(peer)
		if err != nil {
			return nil, nil, err
		}
		if cc, closed = e.acquireControl(peer, fresh); cc == nil || cc.redialingClient != fresh {
			_ = fresh.Close() // another goroutine was first
		}
	}
	if closed {
		return nil, nil, errClosed
	}
	return cc, func() { e.releaseControl(cc) }, nil
}

// newControl makes the client of a control channel. gRPC calls the dialer
// whenever it needs a transport, each time for the same address. A peer is
// dialled directly: it is known only where the session's own transport was
// (transport.peer).
func (e *Endpoint) newControl(peer string) (*redialingClient, error) {
	dialer := func(ctx context.Context) (net.Conn, error) {
		if peer != "" {
			ctx, stop := context.WithTimeout(ctx, e.cfg.DialTimeout)
			defer stop()
			return e.cfg.dialDirect(ctx, e.cfg.Network, peer, nil)
		}
		return e.cfg.dial(ctx, e.cfg.Network, e.cfg.Address, nil)
	}
	opts := append([]grpc.DialOption{grpc.WithIdleTimeout(controlIdle)}, e.cfg.DialOptions...)
	return e.cfg.newClient(e.cfg.Address, e.cfg.TLS, dialer, opts...)
}

// acquireControl counts a use of the channel to peer, which is fresh unless
// there is one already. It is nil where there is neither. The look for a
// channel and the entry of a fresh one are one step under the lock. The caller
// must call releaseControl for a channel that it was given, and close fresh if
// that was not taken.
func (e *Endpoint) acquireControl(peer string, fresh *redialingClient) (cc *controlChannel, closed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return nil, true
	}
	cc = e.mu.control[peer]
	if cc == nil && fresh != nil {
		if e.mu.control == nil {
			e.mu.control = map[string]*controlChannel{}
		}
		cc = &controlChannel{redialingClient: fresh, peer: peer}
		e.mu.control[peer] = cc
	}
	if cc != nil {
		cc.users++
		e.mu.uses++
		cc.used = e.mu.uses
	}
	return cc, false
}

// releaseControl ends a use, and closes the channels that are too many: those
// that were used longest ago, and none that is in use. There may be more than
// maxControls while all are in use. A channel that Endpoint.Close has closed is
// released like any other, and one that was closed for an interceptor's sake
// (sendStatsHandler) is forgotten.
func (e *Endpoint) releaseControl(cc *controlChannel) {
	closed := cc.GetState() == connectivity.Shutdown
	var unused []*controlChannel
	e.mu.Lock()
	cc.users--
	if closed && e.mu.control[cc.peer] == cc {
		delete(e.mu.control, cc.peer)
	}
	for len(e.mu.control) > maxControls {
		var oldest string
		var old *controlChannel
		for peer, c := range e.mu.control {
			if c.users == 0 && (old == nil || c.used < old.used) {
				oldest, old = peer, c
			}
		}
		if old == nil {
			break
		}
		delete(e.mu.control, oldest)
		unused = append(unused, old)
	}
	e.mu.Unlock()
	for _, c := range unused {
		_ = c.Close()
	}
}

// dropControl closes a channel that is not in use any more: what it was for is rare, and it counts among the server's connections.
func (e *Endpoint) dropControl(cc *controlChannel) {
	e.mu.Lock()
	unused := cc.users == 0 && e.mu.control[cc.peer] == cc
	if unused {
		delete(e.mu.control, cc.peer)
	}
	e.mu.Unlock()
	if unused {
		_ = cc.Close()
	}
}

// redialingClient is a gRPC client that holds no session and may dial again as it needs:
// that of a location or a control channel. Of a failed attempt gRPC keeps only
// the text; client keeps the error, and calls that fail for it lead there.
//
// It is safe for use by any goroutine. Once an attempt to connect has failed,
// RPCs fail at once until the next, for which redialBackoff sets the time.
type redialingClient struct {
	*grpc.ClientConn
	failure atomic.Pointer[connectError] // of the latest attempt
}

// newClient makes a client of addr, which dials by dial. Nothing is dialled
// yet. dial is called for each attempt, and counted by the endpoint
// (dialTracker). more is appended last.
func (cfg *Config) newClient(addr string, tlsConfig *tls.Config, dial func(context.Context) (net.Conn, error), more ...grpc.DialOption) (*redialingClient, error) {
	c := &redialingClient{}
	opts := cfg.transportOptions(addr, tlsConfig, func(ctx context.Context, _ string) (net.Conn, error) {
		raw, err := cfg.dialTracker.dial(ctx, func() (net.Conn, error) { return dial(ctx) })
		if err != nil {
			c.recordFailure(dialError(addr, err))
			return nil, err
		}
		return &dialledConn{Conn: raw, client: c, count: cfg.countBytes()}, nil
	}, func(error) { _ = c.Close() })
	cc, err := grpc.NewClient("passthrough:///redialled", append(opts, more...)...)
	if err != nil {
		return nil, err
	}
	c.ClientConn = cc
	return c, nil
}

// dialledConn is a transport that a client has dialled. The handshake finds its
// client by it (reportingCredentials).
type dialledConn struct {
	net.Conn
	client *redialingClient
	count  func(sent, received int)
}

// Read counts.
func (c *dialledConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.count(0, n)
	return n, err
}

// Write counts.
func (c *dialledConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.count(n, 0)
	return n, err
}

// recordFailure takes note of a failed attempt; nil: it has succeeded. The end of a
// context is not kept in the chain: it is that of an attempt, not of a call.
func (c *redialingClient) recordFailure(err error) {
	var why *connectError
	if errors.As(err, &why) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		why = &connectError{text: why.text}
	}
	c.failure.Store(why)
}

// Invoke is part of grpc.ClientConnInterface.
func (c *redialingClient) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.withDialError(c.ClientConn.Invoke(ctx, method, args, reply, opts...))
}

// NewStream is part of grpc.ClientConnInterface.
func (c *redialingClient) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.ClientConn.NewStream(ctx, desc, method, opts...)
	return stream, c.withDialError(err)
}

// withDialError gives an RPC that failed for want of a transport the reason of that.
//
// gRPC marks such an RPC by UNAVAILABLE and a text; other failures, UNAVAILABLE
// from the server among them, stay as they are, since a failed attempt of
// before has nothing to do with them.
func (c *redialingClient) withDialError(err error) error {
	if s, ok := status.FromError(err); !ok || s.Code() != codes.Unavailable || !strings.Contains(s.Message(), "connection error") {
		return err
	}
	if why := c.failure.Load(); why != nil {
		return &unconnectedError{why, err}
	}
	return err
}

// unconnectedError says why there is no transport. The text of gRPC's own error
// says the same in more words.
type unconnectedError struct {
	reason *connectError
	cause  error
}

func (e *unconnectedError) Error() string   { return e.reason.Error() }
func (e *unconnectedError) Unwrap() []error { return []error{e.reason, e.cause} }
