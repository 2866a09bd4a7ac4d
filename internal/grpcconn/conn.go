package grpcconn

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
)

// Config is what a Conn needs to know. Every field is required unless it says otherwise.
type Config struct {
	Authority string // that the server sees
	TLS       bool   // the connection is one: the scheme is https
	UserAgent string

	MaxMessage   int // largest message received, in bytes
	StreamWindow int // how much of a stream may come ahead of its reader, in bytes
	ConnWindow   int // and of all of them, before we have seen it

	// Keepalive is how long nothing may come while an RPC is under way before the peer is
	// asked by a ping, KeepaliveTimeout how long it may take to answer. Zero: it is not asked.
	Keepalive, KeepaliveTimeout time.Duration

	// Socket is what connection writes to and reads from in the end, if that may be done
	// without it: there is no TLS between. Nil: connection is used for everything.
	Socket net.Conn

	// Marshal and Unmarshal are the form of messages on the wire. What is sent is data, for
	// which Marshal may use the memory of buf, which is empty, and then each of rest, which is
	// not looked at any more once the sending returns. Of an RPC that sends several messages the data
	// of one is the buf of a later one: buf is not nil then, and data must not be memory of the message's.
	// It may be that, and is not changed, where buf is nil. What Unmarshal is given is the message's to keep.
	Marshal   func(buf []byte, message any) (data []byte, rest [][]byte, err error)
	Unmarshal func(data []byte, message any) error

	// Observe is who hears of the RPC that ctx is the context of. It is not nil.
	Observe func(ctx context.Context) Observer

	// OnRead is called with what was read from Socket, before anything is made of it, and
	// with the error that reading ends with; OnWrite with how many bytes were written to
	// it. OnEnd is called with the reason for which
	// the connection has ended, or lets no RPC begin any more, before an RPC hears of that;
	// it may be called more than once. All by whichever goroutine sees it; they must not wait.
	OnRead  func(data []byte, err error)
	OnWrite func(n int)
	OnEnd   func(reason error)
}

// Conn is a client on one connection. It is safe for use by any goroutine.
type Conn struct {
	cfg    Config
	nc     net.Conn
	socket *socket // nil: nc is used

	ready    chan struct{} // closed with the peer's first settings
	ended    chan struct{} // closed with the connection
	received atomic.Uint64 // reads that have brought something; for keepalive

	frames frameReader // the reader's

	mu struct { // guards the fields below; but for Observers nothing is called under it
		sync.Mutex
		err      error // why the connection has ended
		goAway   error // why no RPC may begin any more, though the connection lives
		gotReady bool

		streams map[uint32]*Stream
		nextID  uint32

		sendWindow   int64  // of the connection
		peer         limits // the peer's settings
		receivedConn int    // bytes of the connection's window that were not given back

		encoder *hpack.Encoder // into headers
		headers bytes.Buffer

		out     []byte // frames that nobody writes yet
		spare   []byte // the memory of frames that were written
		writing bool   // a goroutine writes, and looks at out when it is through
		acks    int    // answers to the peer's frames in out

		changed chan struct{} // closed when a window, room in out or a stream was gained, or no RPC may begin any more; nil: nobody waits
		pings   pings
	}
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// errClosed is why a connection ends that Close has ended.
var errClosed = errors.New("the connection was closed")

// New speaks HTTP/2 over nc, as a client, and waits for the settings with which every
// server begins. nc belongs to the Conn, and is closed if New fails. ctx bounds
// New alone. The reason of a failure is that of Config.OnEnd, or that of ctx.
func New(ctx context.Context, nc net.Conn, cfg Config) (*Conn, error) {
	c := &Conn{cfg: cfg, nc: nc, socket: newSocket(cfg.Socket), ready: make(chan struct{}), ended: make(chan struct{})}
	c.frames.conn = c
	c.frames.decoder = newHeaderDecoder()
	c.mu.streams = map[uint32]*Stream{}
	c.mu.nextID = 1
	c.mu.peer = defaultLimits
	c.mu.sendWindow = initialWindow
	c.mu.encoder = hpack.NewEncoder(&c.mu.headers)
	c.mu.out = c.appendPreface(nil)
	go c.read()
	c.mu.Lock()
	c.flush()
	select {
	case <-c.ready:
		return c, nil
	case <-c.ended:
		return nil, c.Err()
	case <-ctx.Done():
		err := context.Cause(ctx)
		c.end(err)
		return nil, err
	}
}

// Err is why the connection has ended, nil before that.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// appendPreface is what a client begins with: its settings, and the window of
// the connection, which settings do not have.
func (c *Conn) appendPreface(b []byte) []byte {
	b = append(b, clientPreface...)
	b = appendSettings(b,
		setting{settingEnablePush, 0},
		setting{settingInitialWindow, uint32(c.cfg.StreamWindow)},
		setting{settingMaxFrame, maxFrameReceived},
		setting{settingMaxHeaderList, maxHeaderList},
	)
	if c.cfg.ConnWindow > initialWindow {
		b = appendWindowUpdate(b, 0, c.cfg.ConnWindow-initialWindow)
	}
	return b
}

// changes is closed when something has changed that a sender waits for. The lock is held.
func (c *Conn) changes() <-chan struct{} {
	if c.mu.changed == nil {
		c.mu.changed = make(chan struct{})
	}
	return c.mu.changed
}

// tellChange wakes all who wait for changes. The lock is held.
func (c *Conn) tellChange() {
	if c.mu.changed != nil {
		close(c.mu.changed)
		c.mu.changed = nil
	}
}

// lastStreamID is the last that HTTP/2 has a number for.
const lastStreamID = math.MaxInt32
