//go:build unix

package grpcconn

import (
	"io"
	"net"
	"os"
	"syscall"
)

// socket is one of the system's. It is read when there is something to read, so that an idle
// connection needs no buffer, and written as far as that needs no waiting.
type socket struct {
	conn net.Conn
	raw  syscall.RawConn

	// Of the read, and of the write, under way. They are fields, and the functions are
	// made once, so that neither allocates.
	readInto  *[]byte
	readSize  int
	readN     int
	readErr   error
	tryRead   func(fd uintptr) (done bool)
	writeFrom []byte
	writeN    int
	writeErr  error
	writeOnce func(fd uintptr) (done bool)
}

// newSocket is nil where conn is no socket of the system's.
func newSocket(conn net.Conn) *socket {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{conn: conn, raw: raw, readSize: smallReadBuffer}
	s.tryRead, s.writeOnce = s.read, s.write
	return s
}

// readAll gives take what comes, and at last the error that reading ends with, or until
// take fails.
func (s *socket) readAll(take func(data []byte, err error) error) error {
	for {
		s.readN, s.readErr = 0, nil
		err := s.raw.Read(s.tryRead)
		if err == nil {
			err = s.readFailure()
		}
		buf := s.readInto
		s.readInto = nil
		if buf == nil {
			return take(nil, err)
		}
		n := s.readN
		failure := take((*buf)[:n], err)
		readBuffers.Put(buf)
		if failure != nil {
			return failure
		}
		if s.readSize = smallReadBuffer; n >= smallReadBuffer {
			s.readSize = readBufferLen
		}
	}
}

func (s *socket) readFailure() error {
	switch {
	case s.readErr != nil:
		return s.opError("read", s.readErr)
	case s.readN == 0:
		return io.EOF
	default:
		return nil
	}
}

func (s *socket) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: s.conn.LocalAddr().Network(), Source: s.conn.LocalAddr(), Addr: s.conn.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}

// read is false where there is nothing to read yet: it is called again when there is.
func (s *socket) read(fd uintptr) (done bool) {
	buf := readBuffers.Get().(*[]byte)
	for {
		s.readN, s.readErr = syscall.Read(int(fd), (*buf)[:s.readSize])
		if s.readErr != syscall.EINTR { //nolint:errorlint // the system's own
			break
		}
	}
	if s.readN > 0 {
		s.readInto = buf
		return true
	}
	readBuffers.Put(buf)
	return s.readErr != syscall.EAGAIN //nolint:errorlint // the system's own
}

// tryWrite writes as much of p as the socket takes at once. One goroutine may be in it.
func (s *socket) tryWrite(p []byte) (n int, err error) {
	s.writeFrom, s.writeN, s.writeErr = p, 0, nil
	err = s.raw.Write(s.writeOnce)
	s.writeFrom = nil
	if err == nil && s.writeErr != nil {
		err = s.opError("write", s.writeErr)
	}
	return s.writeN, err
}

// write is always done: what is not taken at once is written by somebody who may wait.
func (s *socket) write(fd uintptr) (done bool) {
	for {
		n, err := syscall.Write(int(fd), s.writeFrom)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
		case err != nil:
			s.writeErr = err
		default:
			s.writeN = n
		}
		return true
	}
}
