package grpcconn

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/memnet"
)

// cutOverTLS has a server answer a call by data, in TLS records of at most piece bytes, and end
// the connection by end. It is what the client received, how that ended, and what was heard of it.
func cutOverTLS(t testing.TB, server, client *tls.Config, data []byte, piece int, end func(c *tls.Conn, raw net.Conn)) (messages, heard []string, err error) {
	l := memnet.New("server:1") // its connections take any amount, which TLS needs that writes to both sides
	defer func() { _ = l.Close() }()
	called := make(chan struct{})
	var serving sync.WaitGroup
	serving.Go(func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = raw.Close() }()
		theirs := tls.Server(raw, server)
		if theirs.Handshake() != nil {
			return
		}
		serving.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
		_, _ = theirs.Write(appendSettings(nil))
		<-called
		for rest := data; len(rest) > 0; {
			n := min(piece, len(rest))
			if _, err := theirs.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
		end(theirs, raw)
	})
	defer serving.Wait()
	ours, err := l.Dial(t.Context(), "")
	require.NoError(t, err)
	c, err := New(t.Context(), tls.Client(ours, client), testConfig())
	require.NoError(t, err)
	defer c.Close(0)
	ctx, j := observed(soon(t))
	s, err := c.NewStream(ctx, streaming, "/s/m")
	require.NoError(t, err)
	require.NoError(t, s.SendMsg([]byte("q")))
	close(called)
	for err == nil {
		var m []byte
		if err = s.RecvMsg(&m); err == nil {
			messages = append(messages, string(m))
		}
	}
	return messages, j.heard(), err
}

// However TLS is ended, by close_notify too, a result ends well by its status OK alone, wherever
// the records of it begin and end.
func TestAnAnswerOverTLSIsCutAnywhere(t *testing.T) {
	whole := conversation(t)
	ends := map[string]func(c *tls.Conn, raw net.Conn){
		"close_notify":  func(c *tls.Conn, _ net.Conn) { _ = c.CloseWrite() },
		"the socket":    func(_ *tls.Conn, raw net.Conn) { _ = raw.Close() },
		"half a record": func(_ *tls.Conn, raw net.Conn) { _, _ = raw.Write([]byte{23, 3, 3, 0, 40, 1, 2}) },
		"a record of another key": func(_ *tls.Conn, raw net.Conn) {
			_, _ = raw.Write(append([]byte{23, 3, 3, 0, 40}, make([]byte, 40)...))
		},
		"plain text of another TLS": func(_ *tls.Conn, raw net.Conn) { _, _ = raw.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) },
	}
	first := 0
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		server, client := testTLS(t)
		server.MaxVersion, client.ClientSessionCache = version, tls.NewLRUClientSessionCache(1)
		for name, end := range ends {
			t.Run(fmt.Sprintf("%x %s", version, name), func(t *testing.T) {
				first++ // each way has other offsets
				for n := first % 9; n <= len(whole); n = max(n+1, min(n+9, len(whole))) {
					messages, heard, err := cutOverTLS(t, server, client, whole[:n], 1+n%11, end)
					require.True(t, slices.Equal(messages, []string{"one", "two", ""}[:len(messages)]), "%q", messages)
					if n == len(whole) {
						require.Equal(t, io.EOF, err)
						require.Len(t, messages, 3)
						continue
					}
					require.Equal(t, codes.Unavailable, status.Code(err), "%d bytes: %v", n, err)
					require.NotContains(t, heard, "trailer")
				}
			})
		}
	}
}
