package flightpool

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// socksProxy is a SOCKS 5 proxy that leads to one address, and remembers what
// it was asked for.
func socksProxy(t *testing.T, to string) (address string, asked func() []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var working sync.WaitGroup
	var mu sync.Mutex
	var names []string
	working.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			working.Go(func() {
				defer func() { _ = c.Close() }()
				head := make([]byte, 3+5)
				if _, err := io.ReadFull(c, head[:3]); err != nil { // version, one method, none needed
					return
				}
				_, _ = c.Write([]byte{5, 0})
				if _, err := io.ReadFull(c, head[:5]); err != nil { // connect to a name of n bytes
					return
				}
				name := make([]byte, int(head[4])+2)
				_, _ = io.ReadFull(c, name)
				mu.Lock()
				names = append(names, fmt.Sprintf("%s:%d", name[:len(name)-2], binary.BigEndian.Uint16(name[len(name)-2:])))
				mu.Unlock()
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
				go func() {
					_, _ = io.Copy(server, c)
					_ = server.Close()
				}()
				_, _ = io.Copy(c, server)
				_ = server.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		working.Wait()
	})
	return l.Addr().String(), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return names
	}
}

// throughSocks is the client's side, as a Dialer.
func throughSocks(proxy string) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", proxy)
		if err != nil {
			return nil, err
		}
		host, port, _ := net.SplitHostPort(address)
		n, _ := strconv.Atoi(port)
		request := append([]byte{5, 1, 0, 5, 1, 0, 3, byte(len(host))}, host...)
		if _, err := c.Write(binary.BigEndian.AppendUint16(request, uint16(n))); err != nil {
			return nil, err
		}
		_, err = io.ReadFull(c, make([]byte, 2+10))
		return c, err
	}
}

func TestADialerLeadsThroughASocksProxyAndTLSChecksTheServersOwnName(t *testing.T) {
	ca := newAuthority(t)
	srv := serve(t, testserver.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.issue("server")}, MinVersion: tls.VersionTLS12}})
	proxy, asked := socksProxy(t, srv.Addr())
	dialer := throughSocks(proxy)
	works(t, "grpc+tls://localhost:31337", Config{MaxSize: 1, Dialer: dialer, TLS: &tls.Config{RootCAs: ca.pool}})
	require.Equal(t, []string{"localhost:31337"}, asked(), "one connection, one dial; the proxy resolves the name")
	_, err := New(t.Context(), "grpc+tls://elsewhere.example:31337", Config{Dialer: dialer, TLS: &tls.Config{RootCAs: ca.pool}})
	require.ErrorContains(t, err, "elsewhere.example")
}

func TestNotVerifyingTheServerHasOnlyLoudNames(t *testing.T) {
	for _, name := range []string{"insecure", "skip_verify", "tls_skip_verify", "tls_verify"} {
		_, _, err := ParseTarget("grpc+tls://h:1/?" + name + "=true")
		require.ErrorContains(t, err, name)
	}
	_, cfg, err := ParseTarget("grpc+tls://h:1/?tls_insecure_skip_verify=true")
	require.NoError(t, err)
	require.True(t, cfg.TLS.InsecureSkipVerify)
	_, cfg, err = ParseTarget("grpc+tls://h:1/?tls_insecure_skip_verify=false")
	require.NoError(t, err)
	require.Nil(t, cfg.TLS, "false is the default")
	_, _, err = ParseTarget("grpc://h:1/?tls_insecure_skip_verify=false")
	require.NoError(t, err, "as programs write it that have one template for all targets")
	_, err = New(t.Context(), "grpc://h:1/?tls_insecure_skip_verify=true", Config{MinIdle: -1})
	require.ErrorContains(t, err, "plain text", "it cannot be meant where there is no TLS")
}

// gRPC's Close ends a dial and does not wait for it.
func TestCloseWaitsForDialsUnderWay(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		var dials, open atomic.Int32
		slow := func(ctx context.Context, addr string) (net.Conn, error) {
			open.Add(1)
			defer open.Add(-1)
			if dials.Add(1) > 1 { // MinIdle's, while the first is in use
				<-ctx.Done()
				time.Sleep(time.Second) // it takes that long to give up
				return srv.Dial(context.WithoutCancel(ctx), addr)
			}
			return srv.Dial(ctx, addr)
		}
		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: slow})
		require.NoError(t, err)
		held, err := p.AcquireSession(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		require.EqualValues(t, 2, dials.Load())
		require.NoError(t, held.Close())
		require.NoError(t, p.Close(t.Context()))
		require.Zero(t, open.Load())
		synctest.Wait()
		require.Zero(t, srv.Ledger().Snapshot().Conns, "what came of it is closed")
	})
}

func TestCloseNamesADialerThatDoesNotReturn(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		var dials atomic.Int32
		end := make(chan struct{})
		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				<-end
				return nil, errAway
			}
			return srv.Dial(ctx, addr)
		}})
		require.NoError(t, err)
		held, err := p.AcquireSession(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, held.Close())
		start := time.Now()
		require.ErrorContains(t, p.Close(t.Context()), "does Config.Dialer heed its own?")
		require.LessOrEqual(t, time.Since(start), 15*time.Second)
		close(end)
	})
}

func TestADialerThatGivesNothingIsAnError(t *testing.T) {
	nothing := func(context.Context, string) (net.Conn, error) { return nil, nil } //nolint:nilnil // on purpose
	_, err := New(t.Context(), "grpc://server:1", Config{Dialer: nothing})
	require.ErrorContains(t, err, "Config.Dialer gave neither a connection nor an error")
	require.Equal(t, FaultTransport, faultIn(err))
}
