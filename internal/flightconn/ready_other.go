//go:build !unix

package flightconn

import (
	"errors"
	"net"

	"google.golang.org/grpc/mem"
)

const readsWhenReady = false

// readyReader is for systems with sockets that are files.
type readyReader struct{}

func newReadyReader(net.Conn) *readyReader { return nil }

func (*readyReader) read(int, mem.BufferPool) (*[]byte, int, error) {
	return nil, 0, errors.ErrUnsupported
}
