package grpcconn

import (
	"encoding/binary"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/eof"
)

// SendMsg is part of grpc.ClientStream. It waits for the windows of the peer, and returns when
// all of the message waits to be written; it may be changed then. It is io.EOF when
// the RPC is over: RecvMsg says why.
//
// Of an RPC with one message it ends the sending, and the frames leave at once. It has no
// error then: whoever has sent all goes on to receive, and io.EOF of the sending would pass for
// the end of what is received.
func (s *Stream) SendMsg(message any) error {
	data, rest, err := s.conn.cfg.Marshal(s.encoded[:0], message)
	if err != nil {
		err = internalStatus("a message that cannot be encoded: " + err.Error())
		s.abort(err)
		return err
	}
	if err := s.send(data, rest, s.single); err != nil && (!s.single || !eof.Reached(err)) {
		return err
	}
	if s.sentCount > 1 { // the first may be sent again
		s.encoded = data
	}
	return nil
}

// CloseSend is part of grpc.ClientStream. Its error is always nil.
func (s *Stream) CloseSend() error {
	c := s.conn
	c.mu.Lock()
	if !s.over && !s.sentEnd {
		s.sentEnd = true
		c.mu.out = appendFrameHeader(c.mu.out, 0, frameData, flagEndStream, s.id)
	}
	c.flush()
	return nil
}

// send puts a message into out, as much of it at a time as the windows allow. last says that
// nothing comes after it.
func (s *Stream) send(data []byte, rest [][]byte, last bool) error {
	size := len(data)
	for _, piece := range rest {
		size += len(piece)
	}
	if uint64(size) > 1<<32-1 {
		err := status.Errorf(codes.ResourceExhausted, "a message of %d bytes is longer than gRPC can say", size)
		s.abort(err)
		return err
	}
	var prefix [prefixLen]byte
	binary.BigEndian.PutUint32(prefix[1:], uint32(size))
	m := unsent{piece: prefix[:], data: data, rest: rest, left: prefixLen + size}
	c := s.conn
	for {
		c.mu.Lock()
		if s.over || s.sentEnd {
			c.mu.Unlock()
			return io.EOF
		}
		s.sent = nil
		for n := s.room(m.left); n > 0; n = s.room(m.left) {
			flags := byte(0)
			if s.sentEnd = last && n == m.left; s.sentEnd {
				flags = flagEndStream
			}
			c.mu.out = appendFrameHeader(c.mu.out, n, frameData, flags, s.id)
			c.mu.out = m.appendTo(c.mu.out, n)
			s.sendWindow -= int64(n)
			c.mu.sendWindow -= int64(n)
		}
		if m.left == 0 {
			if s.sentCount++; s.sentCount == 1 && len(rest) == 0 {
				s.sent = data
			}
			if last {
				c.flush()
			} else {
				c.startWriter()
				c.mu.Unlock()
			}
			return nil
		}
		changed := c.changes()
		c.startWriter()
		c.mu.Unlock()
		select {
		case <-changed:
		case <-s.ctx.Done():
			s.cancel()
		}
	}
}

// unsent is what is left to send of a message: piece, then data, then rest.
type unsent struct {
	piece, data []byte
	rest        [][]byte
	left        int
}

// appendTo moves n bytes of those left to b.
func (m *unsent) appendTo(b []byte, n int) []byte {
	m.left -= n
	for {
		taken := min(n, len(m.piece))
		b = append(b, m.piece[:taken]...)
		m.piece = m.piece[taken:]
		switch n -= taken; {
		case n == 0:
			return b
		case m.data != nil:
			m.piece, m.data = m.data, nil
		default:
			m.piece, m.rest = m.rest[0], m.rest[1:]
		}
	}
}

// room is how many bytes of those wanted may go into the next frame. The lock is held.
func (s *Stream) room(wanted int) int {
	c, limit := s.conn, maxOut
	if s.sentCount == 0 && wanted <= minMaxFrame {
		limit = maxOutBegin
	}
	return int(max(0, min(int64(wanted), s.sendWindow, c.mu.sendWindow, int64(c.mu.peer.maxFrame), int64(limit-len(c.mu.out)))))
}

// sendAgain begins an RPC a second time that the server has not processed (REFUSED_STREAM), or
// does no harm if it has, if all that was sent of it is one message for which there is room, and nothing was answered. It
// is the reader's; the lock is held.
func (c *Conn) sendAgain(s *Stream) bool {
	size := int64(prefixLen + len(s.sent))
	if s.sentAgain || s.sentCount != 1 || s.sent == nil || s.headersCame || c.mu.goAway != nil ||
		int64(len(c.mu.streams)) > c.mu.peer.maxStreams ||
		size > min(c.mu.peer.window, c.mu.sendWindow, int64(c.mu.peer.maxFrame)) {
		return false
	}
	s.sentAgain = true
	s.observer.Disowned()
	delete(c.mu.streams, s.id)
	c.begin(s)
	flags := byte(0)
	if s.sentEnd {
		flags = flagEndStream
	}
	c.mu.out = appendFrameHeader(c.mu.out, int(size), frameData, flags, s.id)
	c.mu.out = append(c.mu.out, 0)
	c.mu.out = binary.BigEndian.AppendUint32(c.mu.out, uint32(len(s.sent)))
	c.mu.out = append(c.mu.out, s.sent...)
	s.sendWindow -= size
	c.mu.sendWindow -= size
	c.startWriter()
	return true
}
