//go:build !linux

package flightconn

import "syscall"

// setUserTimeout does nothing: only Linux has TCP_USER_TIMEOUT. Data that is
// not answered is sent again until the HTTP/2 ping gives up (deadPeerTimeout).
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
