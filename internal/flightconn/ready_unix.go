//go:build unix

package flightconn

import (
	"io"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc/mem"
)

// readsWhenReady says that sockets of the system have a readyReader.
const readsWhenReady = true

// readyReader reads a socket of the system, and has a buffer only while there is
// something to read. One goroutine may read.
type readyReader struct {
	conn net.Conn
	raw  syscall.RawConn
	busy bool // the latest read has brought more than a small buffer holds

	// Of the read under way. They are fields, and try is made once, so that a read
	// allocates nothing.
	size int
	pool mem.BufferPool
	buf  *[]byte
	n    int
	err  error
	try  func(fd uintptr) (done bool)
}

// newReadyReader is nil where conn is no socket of the system's.
func newReadyReader(conn net.Conn) *readyReader {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil
	}
	r := &readyReader{conn: conn, raw: raw}
	r.try = r.tryRead
	return r
}

// read waits for something to read, and then takes a buffer from pool for it: of size
// where much is coming, else a small one, of which many fit into a processor's cache. It
// returns the buffer only if there is something in it.
func (r *readyReader) read(size int, pool mem.BufferPool) (*[]byte, int, error) {
	if !r.busy {
		size = min(size, smallReadBuffer)
	}
	r.size, r.pool, r.buf, r.n, r.err = size, pool, nil, 0, nil
	waitErr := r.raw.Read(r.try)
	buf, n, err := r.buf, r.n, r.err
	r.pool, r.buf = nil, nil
	r.busy = n >= smallReadBuffer
	switch {
	case waitErr != nil:
		return nil, 0, waitErr
	case err != nil:
		return nil, 0, &net.OpError{Op: "read", Net: r.conn.LocalAddr().Network(), Source: r.conn.LocalAddr(), Addr: r.conn.RemoteAddr(), Err: os.NewSyscallError("read", err)}
	case n == 0:
		return nil, 0, io.EOF
	default:
		return buf, n, nil
	}
}

// tryRead is false where there is nothing to read yet: it is called again when there is.
func (r *readyReader) tryRead(fd uintptr) (done bool) {
	r.buf = r.pool.Get(r.size)
	for {
		r.n, r.err = syscall.Read(int(fd), *r.buf)
		if r.err != syscall.EINTR { //nolint:errorlint // the system's own
			break
		}
	}
	if r.n > 0 {
		return true
	}
	r.pool.Put(r.buf)
	r.buf = nil
	return r.err != syscall.EAGAIN //nolint:errorlint // the system's own
}
