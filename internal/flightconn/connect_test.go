package flightconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
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
		"HTTP/1":                        {"HTTP/1.1 400 Bad Request\r\n\r\n", false, "^transport: HTTP/2: the server answers in HTTP/1, so it is none of gRPC$"},
		"settings, and then nothing":    {"\x00\x00\x00\x04\x00\x00\x00\x00\x00", false, "^transport: the server has closed the connection$"},
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
			require.Equal(t, backend.FaultTransport, e.Fault, name)
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

// failing is a connection of which reads and writes end so.
type failing struct {
	net.Conn
	n   int
	err error
}

func (f failing) Read([]byte) (int, error)  { return f.n, f.err }
func (f failing) Write([]byte) (int, error) { return f.n, f.err }

// A server that hangs up before its first word often wants another certificate;
// one that has spoken does not.
func TestAHangUpBeforeTheFirstWordIsTold(t *testing.T) {
	const hint = "another client certificate"
	for name, c := range map[string]struct {
		spoke int
		err   error
		lost  string
	}{
		"broken pipe":              {0, syscall.EPIPE, hint},
		"reset":                    {0, syscall.ECONNRESET, hint},
		"reset after a word":       {1, syscall.ECONNRESET, ""},
		"broken pipe after a word": {1, syscall.EPIPE, ""},
		"anything else":            {0, syscall.ETIMEDOUT, ""},
		"nothing":                  {0, nil, ""},
	} {
		e := &transport{}
		conn := &secureConn{Conn: failing{n: c.spoke}, transport: e}
		_, err := conn.Read(make([]byte, 1))
		require.NoError(t, err, name)
		conn.Conn = failing{err: c.err}
		_, err = conn.Write([]byte("x"))
		require.Equal(t, c.err, err, name)
		if c.lost == "" {
			require.NoError(t, e.Lost(), name)
		} else {
			require.ErrorContains(t, e.Lost(), c.lost, name)
			require.ErrorIs(t, e.Lost(), c.err, name)
		}
	}
	e := &transport{}
	_, err := (&secureConn{Conn: failing{err: io.EOF}, transport: e}).Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	require.ErrorContains(t, e.Lost(), "the server has closed the connection", "TLS itself has failed")
}

// What ended a transport is told by how far it had come.
func TestTheReasonOfAnEndIsThatOfItsBeginning(t *testing.T) {
	alert := string([]byte{tlsAlert}) + strings.Repeat("x", frameHeader)
	settings := strings.Repeat("\x00", frameHeader)
	for name, c := range map[string]struct {
		plain bool
		says  []string
		err   error
		hint  bool
	}{
		"nothing":                       {true, nil, io.EOF, true},
		"reset":                         {true, nil, syscall.ECONNRESET, true},
		"timed out":                     {true, nil, syscall.ETIMEDOUT, false},
		"a byte short of a frame":       {true, []string{settings[1:]}, io.EOF, true},
		"a frame":                       {true, []string{settings}, io.EOF, false},
		"a frame in parts":              {true, []string{settings[:4], settings[4:]}, io.EOF, false},
		"an alert":                      {true, []string{alert}, io.EOF, true},
		"an alert that is none":         {true, []string{settings, alert}, io.EOF, false},
		"an alert, timed out":           {true, []string{alert}, syscall.ETIMEDOUT, false},
		"nothing, encrypted":            {false, nil, io.EOF, false},
		"an alert's byte, encrypted":    {false, []string{alert}, io.EOF, false},
		"nothing that counts, then all": {true, []string{"", settings}, io.EOF, false},
	} {
		o := &openingState{}
		o.withoutTLS.Store(c.plain)
		for _, p := range c.says {
			o.countReceived([]byte(p))
		}
		require.Equal(t, c.hint, errors.Is(o.readFailure(c.err), errPlainText), name)
		require.NotErrorIs(t, o.readFailure(c.err), io.EOF, name)
	}
}

func TestTheReasonOfAHandshakeIsInOneWord(t *testing.T) {
	for want, err := range map[string]error{
		"TLS handshake: no answer":                        context.Canceled,
		"TLS handshake: no answer ":                       context.DeadlineExceeded,
		"TLS handshake: the server closed the connection": io.EOF,
		"TLS handshake: bad":                              errors.New("bad"),
	} {
		require.EqualError(t, handshakeError(err), strings.TrimSpace(want))
	}
	require.NoError(t, handshakeError(nil))
	// What did not fail to dial keeps its words, and what has no address too.
	read := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	require.EqualError(t, dialError("db:1", read), read.Error())
	require.EqualError(t, dialError("db:1", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}), syscall.ECONNREFUSED.Error())
}
