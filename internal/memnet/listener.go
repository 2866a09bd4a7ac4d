package memnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// Listener hands out connections that can be cut and frozen. All methods are
// safe for concurrent use.
type Listener struct {
	inner net.Listener // nil: in memory
	addr  net.Addr

	incoming chan *pipeEnd // of the in-memory listener, unbuffered
	done     chan struct{} // closed by Close

	mu struct {
		sync.Mutex
		closed   bool
		accepted int
		// INVARIANT: conns are those accepted whose Close or Cut has not
		// been called, in the order of their acceptance.
		conns []*Conn
	}
}

// ErrInMemoryOnly is what Dial answers on a Listener made by Over.
var ErrInMemoryOnly = errors.New("memnet: this listener is dialled through the network")

// New returns a listener in memory. Clients reach it through Dial only.
func New(name string) *Listener {
	return &Listener{addr: addr(name), incoming: make(chan *pipeEnd), done: make(chan struct{})}
}

// Over returns a listener that puts its controls on what inner accepts. It
// owns inner.
func Over(inner net.Listener) *Listener {
	return &Listener{inner: inner, addr: inner.Addr(), done: make(chan struct{})}
}

// Accept waits for the next connection. Its result is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.accept()
	if err != nil {
		return nil, err
	}
	conn := newConn(c, l)

	l.mu.Lock()
	closed := l.mu.closed
	if !closed {
		l.mu.accepted++
		l.mu.conns = append(l.mu.conns, conn)
	}
	l.mu.Unlock()

	if closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l *Listener) accept() (net.Conn, error) {
	if l.inner != nil {
		return l.inner.Accept()
	}
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Dial connects to an in-memory listener; it waits for Accept until ctx ends.
// Its address argument is ignored, so that it fits grpc.WithContextDialer.
func (l *Listener) Dial(ctx context.Context, _ string) (net.Conn, error) {
	if l.inner != nil {
		return nil, ErrInMemoryOnly
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, server := newPipe(l.addr)
	select {
	case l.incoming <- server:
		return client, nil
	case <-l.done:
		return nil, fmt.Errorf("memnet: dial %s: connection refused", l.addr)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Addr is the address listened on.
func (l *Listener) Addr() net.Addr { return l.addr }

// Conns are the accepted connections that are open, oldest first.
func (l *Listener) Conns() []*Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.conns)
}

// Accepted is how many connections were ever accepted.
func (l *Listener) Accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.accepted
}

// Close stops listening. Accepted connections live on. Later calls do nothing.
func (l *Listener) Close() error {
	l.mu.Lock()
	first := !l.mu.closed
	l.mu.closed = true
	l.mu.Unlock()
	if !first {
		return nil
	}
	close(l.done)
	if l.inner != nil {
		return l.inner.Close()
	}
	return nil
}

func (l *Listener) forget(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.conns = slices.DeleteFunc(l.mu.conns, func(o *Conn) bool { return o == c })
}

type addr string

func (a addr) Network() string { return "memory" }
func (a addr) String() string  { return string(a) }
