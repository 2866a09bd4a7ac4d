package memnet

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// window is how many bytes one direction holds before a writer waits.
const window = 64 << 10

var lastPort atomic.Int64

// newPipe returns the two ends of a buffered, full-duplex connection. Each
// client end has an address of its own.
func newPipe(server net.Addr) (client, accepted *pipeEnd) {
	up, down := newStream(), newStream()
	local := addr(fmt.Sprintf("client:%d", lastPort.Add(1)))
	client = &pipeEnd{in: down, out: up, local: local, remote: server}
	accepted = &pipeEnd{in: up, out: down, local: server, remote: local}
	return client, accepted
}

// pipeEnd is one end of a connection in memory.
type pipeEnd struct {
	in, out       *stream
	local, remote net.Addr
}

func (p *pipeEnd) Read(b []byte) (int, error)  { return p.in.read(b) }
func (p *pipeEnd) Write(b []byte) (int, error) { return p.out.write(b) }
func (p *pipeEnd) LocalAddr() net.Addr         { return p.local }
func (p *pipeEnd) RemoteAddr() net.Addr        { return p.remote }

// Close lets the other end read what was written; what it writes is refused.
func (p *pipeEnd) Close() error {
	p.in.end(func(s *stream) { s.readerGone = true })
	p.out.end(func(s *stream) { s.writerGone = true })
	return nil
}

func (p *pipeEnd) reset() {
	for _, s := range []*stream{p.in, p.out} {
		s.end(func(s *stream) { s.broken, s.buf = true, nil })
	}
}

func (p *pipeEnd) SetDeadline(t time.Time) error {
	_ = p.SetReadDeadline(t)
	return p.SetWriteDeadline(t)
}

func (p *pipeEnd) SetReadDeadline(t time.Time) error {
	p.in.setDeadline(&p.in.readBy, t)
	return nil
}

func (p *pipeEnd) SetWriteDeadline(t time.Time) error {
	p.out.setDeadline(&p.out.writeBy, t)
	return nil
}

// stream is one direction of a connection.
type stream struct {
	mu      sync.Mutex // guards everything below
	changed sync.Cond

	buf []byte // written and not yet read; at most window bytes

	writerGone, readerGone bool // closed by that side
	broken                 bool // reset

	readBy, writeBy deadline
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newStream() *stream {
	s := &stream{}
	s.changed.L = &s.mu
	return s
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readerGone:
			return 0, net.ErrClosed
		case s.broken:
			return 0, syscall.ECONNRESET
		case s.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(s.buf) > 0:
			n := copy(b, s.buf)
			s.buf = s.buf[n:]
			s.changed.Broadcast()
			return n, nil
		case s.writerGone:
			return 0, io.EOF
		case len(b) == 0:
			return 0, nil
		}
		s.changed.Wait()
	}
}

func (s *stream) write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.writerGone:
			return n, net.ErrClosed
		case s.broken:
			return n, syscall.ECONNRESET
		case s.readerGone:
			return n, syscall.EPIPE
		case s.writeBy.passed():
			return n, os.ErrDeadlineExceeded
		case n == len(b):
			return n, nil
		}
		if room := window - len(s.buf); room > 0 {
			k := min(room, len(b)-n)
			s.buf = append(s.buf, b[n:n+k]...)
			n += k
			s.changed.Broadcast()
			continue
		}
		s.changed.Wait()
	}
}

func (s *stream) end(how func(*stream)) {
	s.mu.Lock()
	how(s)
	s.readBy.stop()
	s.writeBy.stop()
	s.mu.Unlock()
	s.changed.Broadcast()
}

func (s *stream) setDeadline(d *deadline, t time.Time) {
	s.mu.Lock()
	d.stop()
	d.at = t
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, s.wake)
	}
	s.mu.Unlock()
	s.changed.Broadcast()
}

// wake takes the lock so that no reader is between its check and its Wait.
func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}
