package flightpool

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// badSocket is a connection of a Dialer's one method of which goes wrong.
type badSocket struct {
	net.Conn
	method string
	armed  *atomic.Bool
}

func (c badSocket) goesWrong(method string) bool { return c.method == method && c.armed.Load() }

func (c badSocket) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.goesWrong("Read") {
		panic("no")
	}
	return n, err
}

func (c badSocket) Write(p []byte) (int, error) {
	switch {
	case c.goesWrong("Write"):
		panic("no")
	case c.goesWrong("short Write") && len(p) > 1:
		return c.Conn.Write(p[:len(p)-1])
	}
	return c.Conn.Write(p)
}

func (c badSocket) Close() error {
	err := c.Conn.Close()
	if c.goesWrong("Close") {
		panic("no")
	}
	return err
}

// gRPC calls them on goroutines of its own, where a panic would end the program.
func TestABadConnectionOfADialerIsLost(t *testing.T) {
	for _, method := range []string{"Read", "Write", "short Write", "Close"} {
		t.Run(method, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				var armed atomic.Bool
				p, err := New(t.Context(), "grpc://server:1", Config{MaxSize: 1, Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
					conn, err := srv.Dial(ctx, addr)
					return badSocket{conn, method, &armed}, err
				}})
				require.NoError(t, err)
				armed.Store(true)
				start := time.Now()
				_, err = p.Update(t.Context(), "CREATE TABLE t (a BIGINT)")
				if method != "Close" {
					require.ErrorIs(t, err, ErrSessionLost)
					checkPanicIsFound(t, err)
				}
				if method == "short Write" {
					require.ErrorIs(t, err, io.ErrShortWrite)
				} else if method != "Close" {
					require.ErrorContains(t, err, "Config.Dialer: its connection panicked: no")
				}
				require.Less(t, time.Since(start), time.Second)
				srv.Faults().KillConns()
				armed.Store(method == "Close")
				v, err := firstValue(t.Context(), p, "SELECT 1")
				require.NoError(t, err)
				require.Equal(t, "1", v)
				_ = p.Close(t.Context()) // a Close that has failed is told
				require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 0 }))
			})
		})
	}
}

// A textless error is one whose text cannot be had: the nil of a type of the program's own.
type textless struct{ text string }

func (e *textless) Error() string { return e.text }

func TestAnErrorOfADialerWithoutATextIsAnError(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, _ *testserver.Server) {
		_, err := New(t.Context(), "grpc://server:1", Config{MaxSize: 1, OpenRetry: OpenRetryNever, Dialer: func(context.Context, string) (net.Conn, error) {
			return nil, (*textless)(nil)
		}})
		require.ErrorContains(t, err, "Config.Dialer: a callback panicked")
		_, err = New(t.Context(), "grpc://server:1", Config{MaxSize: 1, OpenRetry: OpenRetryNever, Dialer: func(context.Context, string) (net.Conn, error) {
			return nil, &textless{"no way"}
		}})
		require.EqualError(t, err, "New server:1: dial: no way")
		require.ErrorAs(t, err, new(*textless))
	})
}
