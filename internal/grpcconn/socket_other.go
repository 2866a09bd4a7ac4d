//go:build !unix

package grpcconn

import (
	"errors"
	"net"
)

// socket is for systems with sockets that are files.
type socket struct{}

func newSocket(net.Conn) *socket { return nil }

func (*socket) readAll(func([]byte, error) error) error { return errors.ErrUnsupported }

func (*socket) tryWrite([]byte) (int, error) { return 0, errors.ErrUnsupported }
