package flightconn

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/grpcconn"
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
// Its life: it is dialled once (dialOnce), shakes hands (reportingCredentials), and
// is read until the socket ends. From then on it is lost, for good. A handshake that
// fails, a missed keepalive, a GOAWAY and Close end it in the same way.
//
// It is a grpcconn.Conn, which connect makes. With Config.DialOptions, which only gRPC's
// own client understands, it is that: it dials with the first RPC.
type transport struct {
	cc     grpc.ClientConnInterface // one of the two below
	grpc   *grpc.ClientConn
	own    *grpcconn.Conn // nil before connect, and with grpc
	dialed atomic.Bool
	lost   atomic.Pointer[error]
	onLost atomic.Pointer[func(error)] // taken out by who calls it

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		socket net.Conn
		peer   string // where socket leads, if it was dialled directly
	}
}

// newTransport makes the transport of one connection. Nothing is dialled before connect,
// or the first RPC. gRPC closes a client that is idle for 30 minutes unless it is
// told not to, which would be the end of the session. An error is that of an
// option.
func newTransport(cfg *Config) (*transport, error) {
	e := &transport{}
	if len(cfg.DialOptions) == 0 {
		return e, nil
	}
	opts := append(cfg.transportOptions(cfg.Address, cfg.TLS, e.dialOnce(cfg), func(reason error) { e.closeWithin(reason, 0) }), grpc.WithIdleTimeout(0))
	cc, err := grpc.NewClient("passthrough:///flight", append(opts, cfg.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	e.cc, e.grpc = cc, cc
	return e, nil
}

// handshakeTimeout bounds TLS and the beginning of HTTP/2, as gRPC does.
const handshakeTimeout = 20 * time.Second

// connect dials, shakes hands and begins HTTP/2, if that is not left to gRPC. Where it fails
// the transport is lost, but for the end of ctx. The error is a status, as that of an
// RPC would be.
func (e *transport) connect(ctx context.Context, cfg *Config) error {
	if e.grpc != nil {
		return nil
	}
	err := e.begin(ctx, cfg)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	default:
		return status.Error(codes.Unavailable, err.Error())
	}
}

func (e *transport) begin(ctx context.Context, cfg *Config) error {
	watched, err := e.leaveableDial(ctx, cfg)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, handshakeTimeout)
	defer stop()
	conn, _, err := newCredentials(cfg.TLS).ClientHandshake(ctx, authority(cfg.Address, cfg.TLS), watched)
	if err != nil {
		return err
	}
	var socket net.Conn
	if conn == net.Conn(watched) {
		socket = watched.Conn
	}
	e.own, err = grpcconn.New(ctx, conn, grpcconn.Config{
		Authority: authority(cfg.Address, cfg.TLS), TLS: cfg.TLS != nil, UserAgent: userAgent,
		MaxMessage: cfg.MaxMessage, StreamWindow: streamWindow, ConnWindow: connWindow,
		Keepalive: max(cfg.Keepalive, 0), KeepaliveTimeout: keepaliveTimeout,
		Marshal: marshalMessage, Unmarshal: unmarshalMessage,
		Observe: func(ctx context.Context) grpcconn.Observer { return trackedIn(ctx) },
		Socket:  socket, OnRead: watched.sawRead, OnWrite: watched.sawWrite, OnEnd: watched.sawEnd,
	})
	e.cc = e.own
	return err
}

// leaveableDial dials, and returns when ctx ends, or DialTimeout, even if a Dialer of the user's
// does not. What comes of that is closed (dialTracker).
func (e *transport) leaveableDial(ctx context.Context, cfg *Config) (*watchedConn, error) {
	ctx, stop := context.WithTimeout(ctx, cfg.DialTimeout)
	defer stop()
	dial := callback.Go(func() (net.Conn, error) { return e.dialOnce(cfg)(ctx, "") })
	select {
	case <-dial.Done:
	case <-ctx.Done():
		select {
		case <-dial.Done:
		default:
			e.markLost(dialError(cfg.Address, ctx.Err()))
			return nil, ctx.Err()
		}
	}
	dial.Resume()
	if dial.Err != nil {
		return nil, dial.Err
	}
	return dial.Value.(*watchedConn), nil
}

// userAgent is what servers see of us in their logs.
const userAgent = "flightpool"

// errOtherDialer is why a connection is refused that another dialer than dialOnce has made.
var errOtherDialer = errors.New("DialOptions: they replace the pool's dialer, which lets gRPC make no second connection unseen: use Dialer")

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
			if e.grpc != nil { // what waits for a transport (grpc.WaitForReady) waits for none
				_ = e.grpc.Close()
			}
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
		return &watchedConn{Conn: raw, transport: e, count: cfg.countBytes()}, nil
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
	switch {
	case e.grpc != nil:
		_ = e.grpc.Close()
	case e.own != nil:
		e.own.Close(limit)
	}
	e.closeSocket() // that of an open which has failed, too
}

// hasSocket reports whether the dial has brought a socket.
func (e *transport) hasSocket() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.socket != nil
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
