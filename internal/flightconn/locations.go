package flightconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// locationIdle is how long the client of a location is kept without a stream.
const locationIdle = 5 * time.Minute

// locations are the clients of the servers that results are fetched from, one
// for each, shared by all connections of an endpoint. They hold no session,
// so they may dial again as they need.
type locations struct {
	cfg *Config
	mu  struct { // guards the fields below and those of each location; nothing is called under it
		sync.Mutex
		open   map[string]*location
		closed bool
	}
}

// location is the client of one location.
//
// INVARIANT: cc is closed only while streams is 0, or when the endpoint closes.
type location struct {
	owner   *locations
	uri     string
	cc      *grpc.ClientConn
	streams int
	idle    *time.Timer // runs while streams is 0
}

// use returns the client of uri, connected, and counts a stream on it. The
// caller must call done.
func (ls *locations) use(ctx context.Context, uri string) (*location, error) {
	l, err := ls.take(uri)
	if err != nil {
		return nil, err
	}
	if err := l.connect(ctx); err != nil {
		l.done()
		return nil, err
	}
	return l, nil
}

func (ls *locations) take(uri string) (*location, error) {
	at, err := ls.resolve(uri)
	if err != nil {
		return nil, err
	}
	ls.mu.Lock()
	l := ls.mu.open[uri]
	ls.mu.Unlock()
	if l == nil {
		if l, err = ls.dial(uri, at); err != nil {
			return nil, err
		}
	}
	return ls.add(l)
}

func (ls *locations) dial(uri string, at place) (*location, error) {
	var tlsConfig *tls.Config
	if at.secure {
		if tlsConfig = ls.cfg.TLS; tlsConfig == nil {
			tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	}
	opts := ls.cfg.transportOptions(at.addr, tlsConfig, func(ctx context.Context, _ string) (net.Conn, error) {
		return ls.cfg.dial(ctx, at.network, at.addr)
	})
	cc, err := grpc.NewClient("passthrough:///location", append(opts, ls.cfg.DialOptions...)...)
	if err != nil {
		return nil, err
	}
	return &location{owner: ls, uri: uri, cc: cc}, nil
}

// add counts a stream on l, or on the one that is known by its address.
func (ls *locations) add(l *location) (*location, error) {
	ls.mu.Lock()
	known, closed := ls.mu.open[l.uri], ls.mu.closed
	switch {
	case closed:
	case known != nil:
		known.streams++
		if known.idle != nil {
			known.idle.Stop()
		}
	default:
		if ls.mu.open == nil {
			ls.mu.open = map[string]*location{}
		}
		ls.mu.open[l.uri] = l
		l.streams, known = 1, l
	}
	ls.mu.Unlock()
	if known != l || closed {
		_ = l.cc.Close() // it was never used; another goroutine was first
	}
	if closed {
		return nil, errClosed
	}
	return known, nil
}

// done takes back a stream.
func (l *location) done() {
	ls := l.owner
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.streams--
	if l.streams == 0 && !ls.mu.closed {
		l.idle = time.AfterFunc(locationIdle, l.expire)
	}
}

// expire closes the client unless a stream has come meanwhile.
func (l *location) expire() {
	ls := l.owner
	ls.mu.Lock()
	expired := l.streams == 0 && ls.mu.open[l.uri] == l
	if expired {
		delete(ls.mu.open, l.uri)
	}
	ls.mu.Unlock()
	if expired {
		_ = l.cc.Close()
	}
}

func (ls *locations) close() {
	ls.mu.Lock()
	open := ls.mu.open
	ls.mu.open, ls.mu.closed = nil, true
	for _, l := range open {
		if l.idle != nil {
			l.idle.Stop()
		}
	}
	ls.mu.Unlock()
	for _, l := range open {
		_ = l.cc.Close()
	}
}

// connect waits until there is a transport, for Config.DialTimeout at most: a
// host that does not answer must not hold up the next location.
func (l *location) connect(ctx context.Context) error {
	limit := l.owner.cfg.DialTimeout
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l.cc.Connect()
	for {
		switch state := l.cc.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return nil // the RPC fails at once, and knows why
		default:
			if !l.cc.WaitForStateChange(bounded, state) {
				if err := ctx.Err(); err != nil {
					return err
				}
				return fmt.Errorf("no connection within %v", limit)
			}
		}
	}
}

// place is where a location is.
type place struct {
	network, addr string
	secure        bool
}

// resolve refuses to show our credentials in clear where the endpoint itself
// is encrypted.
func (ls *locations) resolve(uri string) (place, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return place{}, err
	}
	at, err := parseLocation(u)
	if err != nil {
		return place{}, err
	}
	if ls.cfg.TLS != nil && !at.secure {
		return place{}, errors.New("the location is not encrypted but the connection is")
	}
	return at, nil
}

func parseLocation(u *url.URL) (place, error) {
	switch u.Scheme {
	case "grpc", "grpc+tcp", "grpc+tls":
		if u.Port() == "" {
			return place{}, errors.New("the location has no port")
		}
		return place{network: "tcp", addr: u.Host, secure: u.Scheme == "grpc+tls"}, nil
	case "grpc+unix":
		return place{network: "unix", addr: u.Path}, nil
	default:
		return place{}, fmt.Errorf("scheme %q is not supported", u.Scheme)
	}
}
