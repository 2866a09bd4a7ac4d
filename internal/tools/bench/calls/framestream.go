package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

const (
	frameSize = 16 << 10  // of DATA, as gRPC's servers cut it
	flushSize = 128 << 10 // what is written at once, if there is as much
)

// errLeft ends a stream whose client has reset it or has gone.
var errLeft = errors.New("the client has left")

var replyHeaders = []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}}

// A frameStream is one call. SendMsg and RecvMsg are its handler's alone.
type frameStream struct {
	grpc.ServerStream // of which handlers use no other method

	c  *frameConn
	id uint32

	// With c.mu.
	window int64
	in     bytes.Buffer // messages as they came
	taken  uint32       // bytes for which the client has no new window yet
	sent   bool         // by the client: there is no more
	left   bool

	// Its handler's.
	began bool        // the headers are in out
	out   net.Buffers // frames that are not written yet: head, payload, head, payload …
	size  int
	heads []headers // of them those whose payload is made when they are written
}

type headers struct {
	at     int // in out
	fields []hpack.HeaderField
	flags  http2.Flags
}

// RecvMsg reads the next message into a *[]byte, or passes over it.
func (s *frameStream) RecvMsg(m any) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for {
		b := s.in.Bytes()
		if len(b) >= 5 && len(b)-5 >= int(binary.BigEndian.Uint32(b[1:])) {
			message := s.in.Next(5 + int(binary.BigEndian.Uint32(b[1:])))[5:]
			if m != nil {
				*m.(*[]byte) = bytes.Clone(message)
			}
			return nil
		}
		switch {
		case s.left || s.c.ended:
			return errLeft
		case s.sent:
			return io.EOF
		}
		s.c.changed.Wait()
	}
}

// SendMsg sends a []byte, which is not changed afterwards.
func (s *frameStream) SendMsg(m any) error {
	if !s.began {
		s.began = true
		s.headers(0, replyHeaders)
	}
	message := m.([]byte)
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	if len(message) < 1<<10 {
		return s.data(append(prefix, message...))
	}
	if err := s.data(prefix); err != nil {
		return err
	}
	return s.data(message)
}

func (s *frameStream) data(b []byte) error {
	for len(b) > 0 {
		if s.size >= flushSize {
			if err := s.flush(); err != nil {
				return err
			}
		}
		n, err := s.take(min(len(b), frameSize))
		if err != nil {
			return err
		}
		s.out = append(s.out, s.head(http2.FrameData, 0, n), b[:n])
		s.size += n
		b = b[n:]
	}
	return nil
}

// take waits until something may be sent, up to n bytes. What stands in out is written before it waits.
func (s *frameStream) take(n int) (int, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for {
		if s.left || s.c.ended {
			return 0, errLeft
		}
		if room := min(s.window, s.c.window, int64(n)); room > 0 {
			s.window -= room
			s.c.window -= room
			return int(room), nil
		}
		if s.size > 0 {
			s.c.mu.Unlock()
			err := s.flush()
			s.c.mu.Lock()
			if err != nil {
				return 0, err
			}
			continue
		}
		s.c.changed.Wait()
	}
}

func (s *frameStream) headers(flags http2.Flags, fields []hpack.HeaderField) {
	s.heads = append(s.heads, headers{len(s.out), fields, flags | http2.FlagHeadersEndHeaders})
	s.out = append(s.out, nil, nil)
	s.size++
}

func (s *frameStream) head(t http2.FrameType, flags http2.Flags, size int) []byte {
	head := []byte{byte(size >> 16), byte(size >> 8), byte(size), byte(t), byte(flags), 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[5:], s.id)
	return head
}

// flush writes what is in out. Headers are encoded in the order in which they are written, since each encoding
// refers to those before on its connection.
func (s *frameStream) flush() error {
	s.c.writing.Lock()
	defer s.c.writing.Unlock()
	for _, h := range s.heads {
		payload := s.c.encode(h.fields)
		s.out[h.at], s.out[h.at+1] = s.head(http2.FrameHeaders, h.flags, len(payload)), payload
	}
	out := s.out // WriteTo moves it on
	_, err := out.WriteTo(s.c.nc)
	s.out, s.size, s.heads = s.out[:0], 0, s.heads[:0]
	return err
}

// finish sends the status, with what is not written yet.
func (s *frameStream) finish(err error) {
	s.c.mu.Lock()
	left := s.left
	delete(s.c.streams, s.id)
	s.c.mu.Unlock()
	if left {
		return
	}
	var fields []hpack.HeaderField
	if !s.began {
		fields = slices.Clone(replyHeaders)
	}
	st := status.Convert(err)
	fields = append(fields, hpack.HeaderField{Name: "grpc-status", Value: strconv.Itoa(int(st.Code()))})
	if err != nil {
		fields = append(fields, hpack.HeaderField{Name: "grpc-message", Value: st.Message()})
	}
	s.headers(http2.FlagHeadersEndStream, fields)
	_ = s.flush() // a connection that has failed ends by its reader
}
