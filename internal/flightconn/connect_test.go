package flightconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/session"
)

// TestAServerThatIsNotOneIsToldByItsFirstBytes speaks for servers that the
// network of other tests does not have.
func TestAServerThatIsNotOneIsToldByItsFirstBytes(t *testing.T) {
	const hint = "^the server closed the connection during the handshake: plain text to a TLS port"
	for name, test := range map[string]struct {
		says   string
		secure bool
		want   string
	}{
		"nothing":                       {"", false, hint},
		"a few bytes":                   {"\x00\x00", false, hint},
		"a TLS alert":                   {"\x15\x03\x01\x00\x02\x02\x46", false, hint},
		"a longer TLS alert":            {"\x15\x03\x01\x00\x02\x02\x46\x15\x03\x01\x00\x02\x01\x00", false, hint},
		"HTTP/1":                        {"HTTP/1.1 400 Bad Request\r\n\r\n", false, "HTTP/1.1 header"},
		"settings, and then nothing":    {"\x00\x00\x00\x04\x00\x00\x00\x00\x00", false, "^transport: the server has closed the connection"},
		"nothing, asked for TLS":        {"", true, "^TLS handshake: the server closed the connection$"},
		"settings, asked for TLS":       {"\x00\x00\x00\x04\x00\x00\x00\x00\x00", true, "TLS to a plain text port"},
		"a handshake failure (TLS 1.2)": {"\x15\x03\x03\x00\x02\x02\x28", true, "^TLS handshake: remote error: tls: handshake failure$"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := Config{Address: here, Dialer: func(context.Context, string) (net.Conn, error) {
				mine, its := net.Pipe()
				go func() {
					go func() { _, _ = io.Copy(io.Discard, its) }()
					_, _ = io.WriteString(its, test.says)
					synctest.Wait() // what the client has to say is said
					_ = its.Close()
				}()
				return mine, nil
			}}
			if test.secure {
				cfg.TLS = &tls.Config{ServerName: "server", MinVersion: tls.VersionTLS12}
			}
			_, err := opened(t, cfg)
			e := failure(t, err)
			require.Regexp(t, test.want, e.Err.Error(), name)
			require.Equal(t, session.FaultTransport, e.Fault, name)
			require.NotErrorIs(t, err, io.EOF, name)
			require.Equal(t, codes.Unavailable, status.Code(err), "the chain reaches the status")
		})
	}
}

func TestADialsErrorDoesNotNameTheAddressAgain(t *testing.T) {
	refused := errors.New("refused")
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}
	for want, err := range map[string]error{
		"refused":              &net.OpError{Op: "dial", Net: "tcp", Addr: addr, Err: refused},
		"127.0.0.1:8: refused": &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: addr.IP, Port: 8}, Err: refused},
		"name lookup: no such host (asked 1.1.1.1:53)": &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "db", Server: "1.1.1.1:53"}},
		"name lookup: timeout":                         &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "timeout", Name: "db"}},
		"proxy p:1: refused":                           fmt.Errorf("proxy p:1: %w", refused),
		"EOF":                                          io.EOF,
	} {
		got := dialError("127.0.0.1:7", err)
		require.Equal(t, want, got.Error())
		require.NotErrorIs(t, got, io.EOF)
		if errors.Is(err, refused) {
			require.ErrorIs(t, got, refused)
		}
	}
}
