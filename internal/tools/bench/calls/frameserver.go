package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
)

const (
	firstWindow   = 64<<10 - 1 // HTTP/2's, until a peer says another
	receiveWindow = 1 << 20
)

// A frameConn is a connection of a gRPC server that cuts replies into frames where they lie and writes many frames
// at once. gRPC's own server copies each of them, and takes longer for it than the pool takes to receive.
type frameConn struct {
	nc     net.Conn
	framer *http2.Framer
	answer func(method string, stream grpc.ServerStream) error

	writing sync.Mutex // held for one write; not taken with mu held
	encoder *hpack.Encoder
	encoded bytes.Buffer // what encoder has written

	mu         sync.Mutex
	changed    sync.Cond // when anything below, or a stream, has changed
	window     int64     // what may be sent on all streams
	streamInit int64     // what may be sent on a new one
	streams    map[uint32]*frameStream
	ended      bool
}

// serveFrames answers the calls on the connections that lis accepts.
func serveFrames(lis net.Listener, answer func(method string, stream grpc.ServerStream) error) {
	for {
		nc, err := lis.Accept()
		if err != nil {
			return
		}
		c := &frameConn{nc: nc, answer: answer, window: firstWindow, streamInit: firstWindow, streams: map[uint32]*frameStream{}}
		c.changed.L = &c.mu
		c.encoder = hpack.NewEncoder(&c.encoded)
		go c.read()
	}
}

// Write writes whole frames.
func (c *frameConn) Write(frames []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.nc.Write(frames)
}

func (c *frameConn) read() {
	r := bufio.NewReaderSize(c.nc, 64<<10)
	c.framer = http2.NewFramer(c, r)
	c.framer.SetReuseFrames()
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err := io.CopyN(io.Discard, r, int64(len(http2.ClientPreface)))
	if err == nil {
		err = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: receiveWindow})
	}
	if err == nil {
		err = c.framer.WriteWindowUpdate(0, receiveWindow-firstWindow)
	}
	for err == nil {
		var f http2.Frame
		if f, err = c.framer.ReadFrame(); err == nil {
			err = c.take(f)
		}
	}
	_ = c.nc.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.changed.Broadcast()
}

func (c *frameConn) take(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			c.setWindow(int64(v))
		}
		return c.framer.WriteSettingsAck()
	case *http2.PingFrame:
		if f.IsAck() {
			return nil
		}
		return c.framer.WritePing(true, f.Data)
	case *http2.DataFrame:
		return c.receive(f)
	case *http2.MetaHeadersFrame:
		c.begin(f)
	case *http2.WindowUpdateFrame:
		c.widen(f)
	case *http2.RSTStreamFrame:
		c.reset(f.StreamID)
	}
	return nil
}

func (c *frameConn) setWindow(v int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		s.window += v - c.streamInit
	}
	c.streamInit = v
	c.changed.Broadcast()
}

func (c *frameConn) widen(f *http2.WindowUpdateFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		c.window += int64(f.Increment)
	} else if s := c.streams[f.StreamID]; s != nil {
		s.window += int64(f.Increment)
	}
	c.changed.Broadcast()
}

func (c *frameConn) begin(f *http2.MetaHeadersFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &frameStream{c: c, id: f.StreamID, window: c.streamInit, sent: f.StreamEnded()}
	c.streams[s.id] = s
	method := f.PseudoValue("path")
	go func() { s.finish(c.answer(method, s)) }()
}

// receive keeps what came, and lets the client send as much again: a client does not wait for what is done with it.
func (c *frameConn) receive(f *http2.DataFrame) error {
	c.mu.Lock()
	s := c.streams[f.StreamID]
	if s == nil {
		c.mu.Unlock()
		return c.framer.WriteWindowUpdate(0, f.Length)
	}
	s.in.Write(f.Data())
	s.sent = s.sent || f.StreamEnded()
	s.taken += f.Length
	credit := s.taken
	if s.sent || credit >= receiveWindow/4 {
		s.taken = 0
	} else {
		credit = 0
	}
	c.changed.Broadcast()
	c.mu.Unlock()
	if credit == 0 {
		return nil
	}
	if err := c.framer.WriteWindowUpdate(0, credit); err != nil || f.StreamEnded() {
		return err
	}
	return c.framer.WriteWindowUpdate(f.StreamID, credit)
}

func (c *frameConn) reset(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		s.left = true
		delete(c.streams, id)
		c.changed.Broadcast()
	}
}

// encode is called with writing held.
func (c *frameConn) encode(fields []hpack.HeaderField) []byte {
	c.encoded.Reset()
	for _, f := range fields {
		must(c.encoder.WriteField(f))
	}
	return bytes.Clone(c.encoded.Bytes())
}
