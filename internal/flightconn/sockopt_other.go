//go:build !linux

package flightconn

import "syscall"

func setUserTimeout(string, string, syscall.RawConn) error { return nil }
