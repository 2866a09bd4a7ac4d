package flightconn

import (
	"container/list"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

const (
	// locationIdle is how long the client of a location is kept without a
	// stream, and idleLocations how many are.
	locationIdle  = 5 * time.Minute
	idleLocations = 32

	// openLocations bounds the clients with a stream. The pool's own results
	// use eight each; a driver may open all the endpoints of a result at once.
	openLocations = 1024

	// downFor is how long a location that could not be reached is tried after
	// all others, and downLocations how many of those are remembered.
	downFor       = 30 * time.Second
	downLocations = 256
)

// locations are the clients of the servers that results are fetched from, one for each
// address, shared by all connections of an endpoint. They hold no session, so they may
// dial again as they need.
//
// One result may name any number of them, so three bounds hold: on clients with
// a stream, on those without, and on how long the latter are kept.
type locations struct {
	cfg *Config
	mu  struct { // guards the fields below and those of each location; nothing is called under it
		sync.Mutex
		open   map[locationAddr]*location
		idle   list.List // of the *location without a stream, the longest idle first
		dials  int       // clients that are being made, not yet in open
		down   map[locationAddr]time.Time
		closed bool
	}
}

// location is the client of one location.
//
// INVARIANT: cc is closed only while streams is 0, or when the endpoint closes.
// INVARIANT: a location is in the idle list exactly while streams is 0.
//
// It leaves the map before its client is closed, so that nobody is given one
// that is being closed; the next who needs the address dials anew.
type location struct {
	owner   *locations
	at      locationAddr
	cc      *redialingClient
	streams int
	idle    *list.Element
	expiry  *time.Timer // runs while idle
}

// acquire returns the client of an address, connected, and counts a stream on
// it. The caller must call its release. An address that cannot be reached is no
// error of it, unless the time is up: the RPC fails then, with the reason.
func (ls *locations) acquire(ctx context.Context, at locationAddr) (*location, error) {
	l, err := ls.getOrDial(at)
	if err != nil {
		return nil, err
	}
	if err := l.connect(ctx); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// getOrDial counts a stream on the client of an address, which it makes if
// there is none. A known client is counted under the lock that it was found
// under: it could be closed otherwise before it is used.
func (ls *locations) getOrDial(at locationAddr) (*location, error) {
	ls.mu.Lock()
	known, n := ls.mu.open[at], len(ls.mu.open)+ls.mu.dials
	if known != nil {
		known.addStream()
	} else {
		ls.mu.dials++
	}
	ls.mu.Unlock()
	if known != nil {
		return known, nil
	}
	var made *location
	err := fmt.Errorf("%d other locations are in use", n)
	if n < openLocations+idleLocations {
		made, err = ls.dial(at)
	}
	return ls.add(made, err)
}

func (ls *locations) dial(at locationAddr) (*location, error) {
	var opts []grpc.DialOption
	if at.getsCredentials { // the user's own options may carry credentials
		opts = ls.cfg.DialOptions
	}
	var check func(addr string) error
	if at.mustBeRemote {
		check = ls.cfg.checkRemote
	}
	cc, err := ls.cfg.newClient(at.addr, ls.cfg.locationTLS(at), func(ctx context.Context) (net.Conn, error) {
		return ls.cfg.dial(ctx, at.network, at.addr, check)
	}, opts...)
	if err != nil {
		return nil, err
	}
	return &location{owner: ls, at: at, cc: cc}, nil
}

// locationTLS is the TLS configuration for a location, nil for plain text. Who
// we are is shown only where credentials go, and a ServerName that the user set
// is the name of the pool's own server.
func (cfg *Config) locationTLS(at locationAddr) *tls.Config {
	switch {
	case !at.secure:
		return nil
	case cfg.TLS == nil:
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
	c := cfg.TLS.Clone()
	if !at.sameHost {
		c.ServerName = ""
	}
	if !at.getsCredentials {
		c.Certificates, c.GetClientCertificate = nil, nil
		c.ClientSessionCache = nil // a session that is resumed shows the certificate it was begun with
	}
	return c
}

// addStream counts a stream. The owner's lock is held.
func (l *location) addStream() {
	l.streams++
	l.removeFromIdle()
}

// add ends what getOrDial counts in dials. It counts a stream on made, or on the
// client that another goroutine has added for its address meanwhile. err is why
// there is none.
func (ls *locations) add(made *location, err error) (*location, error) {
	ls.mu.Lock()
	ls.mu.dials--
	if err == nil && ls.mu.closed {
		err = errClosed
	}
	var l *location
	if err == nil {
		l = made
		if known := ls.mu.open[made.at]; known != nil {
			l = known
		}
		if ls.mu.open == nil {
			ls.mu.open = map[locationAddr]*location{}
		}
		ls.mu.open[l.at] = l
		l.addStream()
	}
	ls.mu.Unlock()
	if made != nil && (err != nil || l != made) {
		_ = made.cc.Close() // it was never used
	}
	return l, err
}

// removeFromIdle takes l out of the idle list. The owner's lock is held.
func (l *location) removeFromIdle() {
	if l.idle != nil {
		l.owner.mu.idle.Remove(l.idle)
		l.expiry.Stop()
		l.idle, l.expiry = nil, nil
	}
}

// release takes back a stream. Of the clients without one, the longest idle go
// when there are too many, and those that have no transport at once.
func (l *location) release() {
	connected := l.cc.GetState() == connectivity.Ready
	ls := l.owner
	var unused *location
	ls.mu.Lock()
	l.streams--
	if l.streams == 0 && !ls.mu.closed {
		l.idle = ls.mu.idle.PushBack(l)
		l.expiry = time.AfterFunc(locationIdle, l.expire)
		switch {
		case !connected:
			unused = l
		case ls.mu.idle.Len() > idleLocations:
			unused = ls.mu.idle.Front().Value.(*location)
		}
		if unused != nil {
			unused.removeFromIdle()
			delete(ls.mu.open, unused.at)
		}
	}
	ls.mu.Unlock()
	if unused != nil {
		_ = unused.cc.Close()
	}
}

// expire closes the client unless a stream has come meanwhile.
func (l *location) expire() {
	ls := l.owner
	ls.mu.Lock()
	expired := l.idle != nil
	if expired {
		l.removeFromIdle()
		delete(ls.mu.open, l.at)
	}
	ls.mu.Unlock()
	if expired {
		_ = l.cc.Close()
	}
}

// close ends all clients, with the streams on them. Later calls of acquire
// fail.
func (ls *locations) close() {
	ls.mu.Lock()
	open := ls.mu.open
	ls.mu.open, ls.mu.closed = nil, true
	for _, l := range open {
		l.removeFromIdle()
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
			l.owner.markReachable(l.at)
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			l.owner.markUnreachable(l.at)
			return nil // the RPC fails at once, and knows why
		default:
			if !l.cc.WaitForStateChange(bounded, state) {
				if err := ctx.Err(); err != nil {
					return err
				}
				l.owner.markUnreachable(l.at)
				return fmt.Errorf("no connection within %v", limit)
			}
		}
	}
}

// markUnreachable remembers an address that could not be reached.
func (ls *locations) markUnreachable(at locationAddr) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.mu.down == nil || len(ls.mu.down) >= downLocations {
		ls.mu.down = map[locationAddr]time.Time{} // whoever is forgotten is found out again
	}
	ls.mu.down[at] = time.Now().Add(downFor)
}

func (ls *locations) markReachable(at locationAddr) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.mu.down, at)
}

// isDown reports whether an address could not be reached a short time ago.
func (ls *locations) isDown(at locationAddr) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	until, known := ls.mu.down[at]
	return known && time.Now().Before(until)
}

// anyDown spares the common case from looking at each location.
func (ls *locations) anyDown() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.mu.down) > 0
}
