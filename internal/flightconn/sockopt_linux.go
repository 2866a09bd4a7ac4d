package flightconn

import (
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, in milliseconds. It has this number on
// all architectures of Linux.
const tcpUserTimeout = 18

// setUserTimeout bounds how long sent data may stay unanswered. Where the
// kernel refuses, the HTTP/2 ping is left. It is called before the socket is
// connected, as net.Dialer.Control.
func setUserTimeout(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(deadPeerTimeout.Milliseconds()))
	})
}
