//go:build unix

package dsql

import (
	"errors"
	"net"
	"syscall"
)

// nothingToRead says whether a socket is open and has nothing to read. It does not
// block. A socket that cannot be looked at counts as having nothing to read.
func nothingToRead(conn net.Conn) bool {
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return false
	}
	var buf [1]byte
	var peek error
	err = raw.Control(func(fd uintptr) {
		_, _, peek = syscall.Recvfrom(int(fd), buf[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err == nil && (errors.Is(peek, syscall.EAGAIN) || errors.Is(peek, syscall.EINTR))
}
