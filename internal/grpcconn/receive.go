package grpcconn

import (
	"encoding/binary"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Receiver makes the messages of a stream while their bytes come. Start, Write and Finish
// are called by the goroutine that reads the connection: they must not wait, and nothing
// of the bytes may be kept. Deliver is called by who receives.
type Receiver interface {
	// Start begins a message of size bytes, and Write is given them, piece by piece.
	Start(size int)
	Write(p []byte)

	// Finish is the message, once all of it was written.
	Finish() (message any, err error)

	// Deliver puts a message of Finish's into what RecvMsg was called with.
	Deliver(message, into any) error
}

// prefixLen is the length of what stands before each message: whether it is compressed, and its length.
const prefixLen = 5

// receive makes messages of data. It is the reader's. An error is the end of the RPC.
func (s *Stream) receive(p []byte) error {
	fresh := 0 // bytes that s.partial does not have yet
	for len(p) > 0 {
		if s.got < prefixLen {
			n := copy(s.prefix[s.got:], p)
			s.got, p, fresh = s.got+n, p[n:], fresh+n
			if s.got < prefixLen {
				break
			}
			if err := s.startMessage(); err != nil {
				return err
			}
		}
		n := min(len(p), s.left)
		s.receiver.Write(p[:n])
		s.left, p, fresh = s.left-n, p[n:], fresh+n
		if s.left == 0 {
			if err := s.finishMessage(fresh); err != nil {
				return err
			}
			fresh = 0
		}
	}
	if fresh > 0 {
		s.conn.mu.Lock()
		if s.partial += fresh; len(s.queue) == 0 {
			s.grantPartial()
		}
		s.conn.mu.Unlock()
	}
	return nil
}

// startMessage reads the prefix.
func (s *Stream) startMessage() error {
	size := int(binary.BigEndian.Uint32(s.prefix[1:]))
	switch {
	case s.prefix[0] != 0:
		return internalStatus("the server has sent a compressed message, which nobody has asked for: with Config.DialOptions gRPC's own client reads those")
	case size > s.conn.cfg.MaxMessage:
		return status.Errorf(codes.ResourceExhausted, "received message larger than max: %d bytes, and the limit is %d", size, s.conn.cfg.MaxMessage)
	}
	s.left = size
	s.receiver.Start(size)
	return nil
}

// leastQueued is how large messages that wait for their reader have to be on average, on the wire.
// What a Receiver makes of one takes a few hundred bytes, however small it is, and a window has room
// for a million that are empty. A batch takes more than that by its header alone.
const leastQueued = 64

// finishMessage puts a message into the queue.
func (s *Stream) finishMessage(fresh int) error {
	s.got = 0
	message, err := s.receiver.Finish()
	if err != nil {
		return internalStatus("a message that cannot be read: " + err.Error())
	}
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit := c.cfg.StreamWindow / leastQueued; len(s.queue) >= limit && s.receiver != Receiver(&s.raw) {
		return status.Errorf(codes.ResourceExhausted, "received more than %d messages that were not read, of less than %d bytes each", limit, leastQueued)
	}
	if !s.over {
		s.queue = append(s.queue, queued{message, s.partial + fresh})
		s.partial = 0
		c.frames.wakeLater(s)
	}
	return nil
}

// grantPartial gives back to the window what has come of a message that is not whole.
//
// INVARIANT: nothing of it is given back while messages before it wait for their reader: what
// waits is no more than the window, and one message.
func (s *Stream) grantPartial() {
	s.grant(s.partial)
	s.partial = 0
}

// grant gives n bytes back to the window, in quarters of it. The lock is held.
func (s *Stream) grant(n int) {
	s.ungranted += n
	c := s.conn
	if s.over || s.ungranted < c.cfg.StreamWindow/4 {
		return
	}
	s.window += s.ungranted
	c.mu.out = appendWindowUpdate(c.mu.out, s.id, s.ungranted)
	s.ungranted = 0
	c.startWriter()
}

// RecvMsg is part of grpc.ClientStream. It is io.EOF itself after the status OK, else the
// status, or that of the context.
func (s *Stream) RecvMsg(into any) error {
	message, err := s.next()
	if err != nil {
		if s.unwatch != nil {
			s.unwatch()
		}
		return err
	}
	return s.deliver(message, into)
}

func (s *Stream) deliver(message, into any) error {
	err := s.receiver.Deliver(message, into)
	if err != nil {
		err = internalStatus("a message that cannot be read: " + err.Error())
		s.abort(err)
	}
	return err
}

// next waits for the next message.
func (s *Stream) next() (any, error) {
	c := s.conn
	for {
		c.mu.Lock()
		if len(s.queue) > 0 {
			q := s.queue[0]
			s.queue[0].message = nil
			if s.queue = s.queue[1:]; len(s.queue) == 0 {
				s.queue = s.first[:0]
				s.grantPartial()
			}
			s.grant(q.bytes)
			c.mu.Unlock()
			return q.message, nil
		}
		if s.over {
			err := s.err
			c.mu.Unlock()
			return nil, err
		}
		c.flush()
		s.wait()
	}
}

// rawReceiver keeps the bytes of a message, for Config.Unmarshal. Its memory grows with what
// comes, not with what is announced.
type rawReceiver struct {
	unmarshal func(data []byte, message any) error
	data      []byte
}

// eagerLen is how much is taken for a message before anything of it has come.
const eagerLen = 64 << 10

func (r *rawReceiver) Start(size int) { r.data = make([]byte, 0, min(size, eagerLen)) }
func (r *rawReceiver) Write(p []byte) { r.data = append(r.data, p...) }

func (r *rawReceiver) Finish() (any, error) {
	data := r.data
	r.data = nil
	return &data, nil
}

func (r *rawReceiver) Deliver(message, into any) error {
	return r.unmarshal(*message.(*[]byte), into)
}
