package grpcconn

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/eof"
)

// Observer hears what becomes of an RPC. It is called under a lock and must not call
// the Conn.
type Observer interface {
	Begin()                // an RPC begins, though it may not be sent
	Sent()                 // it was handed to the connection
	BelievesRefusal() bool // whether it counts as not processed where it was refused by REFUSED_STREAM
	Disowned()             // the server has not processed it
	Header(metadata.MD)    // has come
	Trailer(metadata.MD)
	End(error) // nil: with the status OK
}

// Stream is one RPC. As with any stream of gRPC's one goroutine may send and one receive at
// a time.
//
// Its states: begun, until it is over: by trailers of the server's, by a reset of either side, or
// with the connection. What came before the server's end is received first; what came before
// an end of our own is dropped.
type Stream struct {
	conn     *Conn
	id       uint32
	ctx      context.Context //nolint:containedctx // its end is that of the RPC
	observer Observer
	receiver Receiver
	news     chan struct{} // a message or the end has come
	unwatch  func() bool   // ends the watch over ctx; nil: there is none
	single   bool          // one message is all that is sent
	method   string
	md       metadata.MD // that is sent
	raw      rawReceiver // receiver, where no other was asked for

	// The reader's alone.
	prefix [prefixLen]byte // of the message that comes
	got    int             // bytes of prefix
	left   int             // of the message

	encoded []byte // the sender's alone: memory of messages that were sent; nil: one message is all

	// The lock of the connection guards the rest.
	sendWindow  int64
	sentEnd     bool
	sent        []byte // the message that was sent, if that is all
	sentCount   int    // messages
	sentAgain   bool
	window      int // what the server may still send
	ungranted   int // what was taken and not given back to the window
	partial     int // what has come of a message that is not whole, and was not taken
	headersCame bool
	headerNews  chan struct{} // closed when headers have come, or the RPC is over; nil: nobody waits
	header      metadata.MD
	trailer     metadata.MD
	over        bool
	err         error // once it is over: io.EOF after the status OK
	queue       []queued
	first       [2]queued // where queue is, while it is short
}

// queued is a message that has come, and what of the window is given back when it is taken.
type queued struct {
	message any
	bytes   int
}

var _ grpc.ClientStream = (*Stream)(nil)

// NewStream is part of grpc.ClientConnInterface. The RPC ends with ctx at the latest.
// Nothing is written before something is sent, or waited for, of this RPC or another.
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	o, err := readOptions(opts)
	if err != nil {
		return nil, err
	}
	s, err := c.newStream(ctx, method, o.receiver)
	if err != nil {
		return nil, err
	}
	if s.single = !desc.ClientStreams; !s.single {
		s.encoded = []byte{}
	}
	if ctx.Done() != nil {
		s.unwatch = context.AfterFunc(ctx, s.cancel)
	}
	return s, nil
}

// newStream begins an RPC: its headers wait to be written.
func (c *Conn) newStream(ctx context.Context, method string, receiver Receiver) (*Stream, error) {
	s := &Stream{conn: c, ctx: ctx, observer: c.cfg.Observe(ctx), receiver: receiver, news: make(chan struct{}, 1)}
	s.queue = s.first[:0]
	if receiver == nil {
		s.raw.unmarshal = c.cfg.Unmarshal
		s.receiver = &s.raw
	}
	var err error
	if s.md, err = outgoing(ctx); err != nil {
		return nil, err
	}
	s.method = method
	s.observer.Begin()
	if err := c.enter(s); err != nil {
		s.observer.End(err)
		return nil, err
	}
	return s, nil
}

// enter gives s a number and puts its headers into out, once the peer allows one RPC more and
// reads what was sent before.
func (c *Conn) enter(s *Stream) error {
	for {
		if err := s.ctx.Err(); err != nil {
			return status.FromContextError(err).Err()
		}
		c.mu.Lock()
		switch {
		case c.mu.err != nil, c.mu.goAway != nil: // who ends the connection may not have told it yet
			err := cmp.Or(c.mu.err, c.mu.goAway)
			c.mu.Unlock()
			c.cfg.OnEnd(err)
			return lostStatus(err)
		case s.headersExceed(c.mu.peer.maxHeaderList):
			limit := c.mu.peer.maxHeaderList
			c.mu.Unlock()
			return status.Errorf(codes.Internal, "the headers cannot be sent: they are larger than the %d bytes that the server takes", limit)
		case int64(len(c.mu.streams)) < c.mu.peer.maxStreams && len(c.mu.out) < maxOutBegin:
			c.begin(s)
			c.mu.Unlock()
			return nil
		}
		changed := c.changes()
		c.startWriter() // RPCs that were begun and have sent nothing may be all that takes the room
		c.mu.Unlock()
		select {
		case <-changed:
		case <-s.ctx.Done():
		}
	}
}

// begin is enter's last step. The lock is held.
//
// INVARIANT: streams begin in the order of their numbers: the number is drawn, and the headers
// are put into out, in one section under the lock.
func (c *Conn) begin(s *Stream) {
	s.id = c.mu.nextID
	if c.mu.nextID += 2; c.mu.nextID > lastStreamID {
		c.mu.goAway = errNoNumbers
	}
	s.window, s.sendWindow = c.cfg.StreamWindow, c.mu.peer.window
	c.mu.streams[s.id] = s
	s.observer.Sent()
	c.encodeHeaders(s)
	c.mu.out = appendHeaders(c.mu.out, s.id, c.mu.headers.Bytes(), c.mu.peer.maxFrame)
	c.watch()
}

// finish ends an RPC. err is io.EOF after the status OK. disowned says that the server
// claims not to have processed it. The lock is held; who calls wakes the reader.
//
// INVARIANT: what a server has begun to answer is not disowned. It might come twice.
func (s *Stream) finish(err error, disowned bool) {
	if s.over {
		return
	}
	s.over, s.err = true, err
	s.tellHeader()
	delete(s.conn.mu.streams, s.id)
	s.conn.freeOut()
	if disowned && !s.headersCame {
		s.observer.Disowned()
	}
	if eof.Reached(err) {
		err = nil
	}
	s.observer.End(err)
	s.conn.tellChange()
}

// wake has the reader look again.
func (s *Stream) wake() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// cancel ends an RPC whose context has ended.
func (s *Stream) cancel() { s.abort(status.FromContextError(s.ctx.Err()).Err()) }

// abort ends an RPC from our side. What has come of it is dropped.
func (s *Stream) abort(err error) {
	c := s.conn
	c.mu.Lock()
	if s.over {
		c.mu.Unlock()
		return
	}
	s.finish(err, false)
	s.queue = nil
	c.mu.out = appendReset(c.mu.out, s.id, codeCancel)
	c.flush()
	s.wake()
	if reason := c.drained(); reason != nil {
		c.end(reason)
	}
}

// resetStream ends an RPC that the server has made a mess of. It is the reader's; the lock
// is held.
func (c *Conn) resetStream(s *Stream, code errorCode, err error) {
	if s.over {
		return
	}
	s.finish(err, false)
	c.mu.out = appendReset(c.mu.out, s.id, code)
	c.startWriter()
	c.frames.wakeLater(s)
}

// Context is part of grpc.ClientStream.
func (s *Stream) Context() context.Context { return s.ctx }

// Header is part of grpc.ClientStream. It waits until headers have come, or the
// RPC is over.
func (s *Stream) Header() (metadata.MD, error) {
	c := s.conn
	for {
		c.mu.Lock()
		header, came, err := s.header, s.headersCame, s.err
		if came || s.over {
			c.mu.Unlock()
			if came || eof.Reached(err) {
				err = nil
			}
			return header, err
		}
		if s.headerNews == nil {
			s.headerNews = make(chan struct{})
		}
		news := s.headerNews
		c.flush()
		select {
		case <-news:
		case <-s.ctx.Done():
			s.cancel()
		}
	}
}

// tellHeader wakes who waits for headers. The lock is held.
func (s *Stream) tellHeader() {
	if s.headerNews != nil {
		close(s.headerNews)
		s.headerNews = nil
	}
}

// Trailer is part of grpc.ClientStream.
func (s *Stream) Trailer() metadata.MD {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.trailer
}

// wait waits for news, or ends the RPC with its context.
func (s *Stream) wait() {
	select {
	case <-s.news:
	case <-s.ctx.Done():
		s.cancel()
	}
}
