package reservoirtest_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightpool/flightpool/reservoir/reservoirtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server over real sockets that says back every byte it reads.
type echo struct {
	listener net.Listener
	live     atomic.Int64
}

func startEcho(t *testing.T) *echo {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &echo{listener: listener}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			e.live.Add(1)
			go e.serve(c)
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		<-done
	})
	return e
}

func (e *echo) serve(c net.Conn) {
	defer e.live.Add(-1)
	defer c.Close() //nolint:errcheck // it is over either way
	b := make([]byte, 1)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

func (e *echo) ping(ctx context.Context, c net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	b := []byte{7}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err := c.Read(b)
	return err
}

func (e *echo) open(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", e.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	if err := e.ping(ctx, c); err != nil { // it answers once it has counted us
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func TestExerciseHoldsOnRealSockets(t *testing.T) {
	e := startEcho(t)
	reservoirtest.Exercise(t, reservoirtest.Target[net.Conn]{
		Open:  e.open,
		Close: func(c net.Conn) error { return ignoreClosed(c.Close()) },
		Check: e.ping,
		Break: func(c net.Conn) { _ = c.Close() },
		Live:  func() int { return int(e.live.Load()) },
	})
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
