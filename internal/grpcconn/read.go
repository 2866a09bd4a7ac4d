package grpcconn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/flightpool/flightpool/internal/eof"
)

// readBufferLen is how much is read at once while much is coming, smallReadBuffer while
// less than that is there: many of it fit into a processor's cache. idleReadBuffer is what a
// connection keeps that is no socket of the system's, and cannot be asked whether there is something.
const (
	readBufferLen   = 128 << 10
	smallReadBuffer = 16 << 10
	idleReadBuffer  = 512
)

var (
	readBuffers      = sync.Pool{New: func() any { b := make([]byte, readBufferLen); return &b }}
	smallReadBuffers = sync.Pool{New: func() any { b := make([]byte, smallReadBuffer); return &b }}
)

// read reads until the connection ends.
func (c *Conn) read() {
	c.fail(c.readAll())
}

func (c *Conn) readAll() error {
	if c.socket != nil {
		return c.socket.readAll(c.took)
	}
	// A TLS connection keeps what it has decrypted: a small buffer is enough to begin with.
	idle := make([]byte, idleReadBuffer)
	for {
		n, err := c.nc.Read(idle)
		if failure := c.took(idle[:n], err); failure != nil {
			return failure
		}
		for _, larger := range []struct {
			buffers *sync.Pool
			least   int // that is worth another read
		}{{&smallReadBuffers, idleReadBuffer}, {&readBuffers, smallReadBuffer}} {
			if n < larger.least {
				break
			}
			if n, err = c.readInto(larger.buffers, larger.least); err != nil {
				return err
			}
		}
	}
}

// readInto reads into one of buffers for as long as that brings least bytes, and does not
// fill it. It returns what the last read has brought.
func (c *Conn) readInto(buffers *sync.Pool, least int) (int, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := c.nc.Read(*buf)
		if failure := c.took((*buf)[:n], err); failure != nil {
			return 0, failure
		}
		if n < least || n == len(*buf) && n < readBufferLen {
			return n, nil
		}
	}
}

// took makes of what was read what is in it. err is that of reading.
func (c *Conn) took(data []byte, err error) error {
	if c.socket != nil {
		c.cfg.OnRead(data, err)
	}
	if len(data) > 0 {
		c.received.Add(1)
		failure := c.frames.take(data)
		if c.frames.wakeReaders() && failure == nil {
			failure = c.drained()
		}
		if failure != nil {
			return failure
		}
	}
	if err != nil {
		return readError(err)
	}
	return nil
}

// readError is the reason that a failed read gives. It does not lead to io.EOF, which is how
// results end.
func readError(err error) error {
	if eof.Reached(err) {
		return errors.New("the server has closed the connection")
	}
	return eof.Hide(err)
}

// frameReader takes frames apart as their bytes come. It belongs to the reading
// goroutine. The payload of DATA is passed on in pieces; that of other frames is put
// together first.
type frameReader struct {
	conn *Conn

	header  [frameHeaderLen]byte
	got     int // bytes of header
	left    int // of the payload, what has not come
	payload []byte

	kind   frameType
	flags  byte
	stream uint32

	data      *Stream // that DATA is for, nil: nobody's
	padding   int     // behind the data
	padGiven  bool    // the length of the padding has come, or there is none
	block     []byte  // of headers whose end has not come
	blockOf   uint32  // the stream of it; 0: there is no such block
	blockEnds bool    // that block ends its stream

	decoder *headerDecoder
	wake    []*Stream // whose readers have something new
}

// take reads the next bytes. An error ends the connection.
func (f *frameReader) take(p []byte) error {
	for len(p) > 0 {
		if f.got < frameHeaderLen {
			n := copy(f.header[f.got:], p)
			f.got, p = f.got+n, p[n:]
			if f.got < frameHeaderLen {
				return nil
			}
			if err := f.begin(); err != nil {
				return err
			}
			if f.left > 0 && len(p) == 0 {
				return nil
			}
		}
		n := min(len(p), f.left)
		piece := p[:n]
		p = p[n:]
		if err := f.takePayload(piece); err != nil {
			return err
		}
	}
	return nil
}

// takePayload reads what has come of a frame's payload: nothing where the frame has none.
func (f *frameReader) takePayload(piece []byte) error {
	n := len(piece)
	if f.kind == frameData {
		if err := f.takeData(piece); err != nil {
			return err
		}
	} else if n < f.left || len(f.payload) > 0 {
		f.payload = append(f.payload, piece...)
		piece = f.payload
	}
	if f.left -= n; f.left > 0 {
		return nil
	}
	f.got = 0
	err := f.finish(piece)
	if cap(f.payload) > minMaxFrame {
		f.payload = nil
	}
	return err
}

// begin judges the header of a frame.
func (f *frameReader) begin() error {
	f.left = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
	f.kind, f.flags = frameType(f.header[3]), f.header[4]
	f.stream = binary.BigEndian.Uint32(f.header[5:]) &^ (1 << 31)
	switch {
	case string(f.header[:5]) == "HTTP/":
		return &protocolError{codeProtocol, "the server answers in HTTP/1, so it is none of gRPC"}
	case f.left > maxFrameReceived:
		return &protocolError{codeFrameSize, fmt.Sprintf("a frame of %d bytes", f.left)}
	case f.kind != frameData && f.left > minMaxFrame+frameHeaderLen && f.kind != frameHeaders && f.kind != frameContinuation:
		return &protocolError{codeFrameSize, fmt.Sprintf("a frame of type %d with %d bytes", f.kind, f.left)}
	case f.blockOf != 0 && (f.kind != frameContinuation || f.stream != f.blockOf):
		return &protocolError{codeProtocol, "headers without an end"}
	case f.kind == frameData:
		return f.beginData()
	default:
		f.payload = f.payload[:0]
		return nil
	}
}

// finish deals with a frame that has come whole. payload is not kept.
func (f *frameReader) finish(payload []byte) error {
	c := f.conn
	switch f.kind {
	case frameData:
		return f.finishData()
	case frameHeaders, frameContinuation:
		return f.takeHeaders(payload)
	case frameReset:
		return f.takeReset(payload)
	case frameSettings:
		return c.takeSettings(f.flags, f.stream, payload)
	case framePing:
		return c.takePing(f.flags, f.stream, payload)
	case frameGoAway:
		return c.takeGoAway(f.stream, payload)
	case frameWindowUpdate:
		return c.takeWindowUpdate(f.stream, payload)
	case framePushPromise:
		return &protocolError{codeProtocol, "PUSH_PROMISE, which was refused in the settings"}
	default:
		return nil // PRIORITY, and what is not known
	}
}

// checkStream fails for a frame of a stream that was never begun.
func (f *frameReader) checkStream(what string) error {
	c := f.conn
	c.mu.Lock()
	next := c.mu.nextID
	c.mu.Unlock()
	if f.stream%2 == 0 || f.stream >= next {
		return &protocolError{codeProtocol, fmt.Sprintf("%s for stream %d, which was not begun", what, f.stream)}
	}
	return nil
}

// takeReset ends a stream that the server has reset.
func (f *frameReader) takeReset(p []byte) error {
	if err := f.checkStream("RST_STREAM"); err != nil {
		return err
	}
	if len(p) != 4 {
		return &protocolError{codeFrameSize, "RST_STREAM of another length"}
	}
	code := errorCode(binary.BigEndian.Uint32(p))
	c := f.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.streams[f.stream]
	if s == nil {
		return nil
	}
	unprocessed := code == codeRefusedStream && s.observer.BelievesRefusal()
	if unprocessed && c.sendAgain(s) {
		return nil
	}
	s.finish(s.resetStatus(code), unprocessed)
	f.wakeLater(s)
	return nil
}

// wakeLater has the reader of s woken once all that has come was looked at: one wake is
// enough for a message and the end behind it.
func (f *frameReader) wakeLater(s *Stream) {
	if len(f.wake) == 0 || f.wake[len(f.wake)-1] != s {
		f.wake = append(f.wake, s)
	}
}

// wakeReaders reports whether it has woken any.
func (f *frameReader) wakeReaders() bool {
	if len(f.wake) == 0 {
		return false
	}
	for i, s := range f.wake {
		s.wake()
		f.wake[i] = nil
	}
	f.wake = f.wake[:0]
	return true
}
