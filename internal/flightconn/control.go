package flightconn

import (
	"context"
	"net"

	"google.golang.org/grpc"
)

// maxControls is how many control channels are kept beside those in use: servers
// that move leave theirs behind.
const maxControls = 16

// controlChannel is a client for requests to cancel. The lock of its Endpoint
// guards users and used. All connections whose session is at one address share
// one; there is nothing in it of any of them.
type controlChannel struct {
	*redialingClient
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
		cc = &controlChannel{redialingClient: fresh}
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
// released like any other.
func (e *Endpoint) releaseControl(cc *controlChannel) {
	var unused []*controlChannel
	e.mu.Lock()
	cc.users--
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
