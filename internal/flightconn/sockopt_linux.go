package flightconn

import (
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, in milliseconds.
const tcpUserTimeout = 18

// setUserTimeout bounds how long sent data may stay unanswered. Where the kernel
// refuses, the HTTP/2 ping is left.
func setUserTimeout(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(deadPeerTimeout.Milliseconds()))
	})
}
