package flightpool

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

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

func (c badSocket) panicsIn(method string) {
	if c.goesWrong(method) {
		panic("no")
	}
}

func (c badSocket) LocalAddr() net.Addr {
	c.panicsIn("LocalAddr")
	return c.Conn.LocalAddr()
}

func (c badSocket) RemoteAddr() net.Addr {
	c.panicsIn("RemoteAddr")
	return c.Conn.RemoteAddr()
}

func (c badSocket) SetReadDeadline(t time.Time) error {
	c.panicsIn("SetReadDeadline")
	return c.Conn.SetReadDeadline(t)
}

func (c badSocket) SetWriteDeadline(t time.Time) error {
	c.panicsIn("SetWriteDeadline")
	return c.Conn.SetWriteDeadline(t)
}

// What TLS, and gRPC's client, ask of a connection besides is asked on goroutines of theirs, too.
func TestABadPartOfADialersConnectionEndsNoProgram(t *testing.T) {
	ca := newAuthority(t)
	srv := serve(t, testserver.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.issue("server")}}})
	for _, method := range []string{"LocalAddr", "RemoteAddr", "SetReadDeadline", "SetWriteDeadline"} {
		for kind, options := range map[string][]grpc.DialOption{"own": nil, "gRPC's": {grpc.WithReadBufferSize(1 << 14)}} {
			t.Run(method+"/"+kind, func(t *testing.T) {
				var armed atomic.Bool
				armed.Store(true)
				works(t, "grpc+tls://"+srv.Addr(), Config{
					TLS: &tls.Config{RootCAs: ca.pool}, DialOptions: options,
					Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
						conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
						return badSocket{conn, method, &armed}, err
					},
				})
			})
		}
	}
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
