package flightconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc/credentials"

	"github.com/flightpool/flightpool/internal/eof"
)

// connectError is why no transport came about. Its text says all there is to
// say, so that what gRPC makes of it need not be shown beside it. backend.Error
// has it in its chain, so that errors.As finds what is behind it: a
// certificate's error, a DNS error, a syscall's number.
type connectError struct {
	text string
	err  error // without a way to io.EOF
}

func (e *connectError) Error() string { return e.text }
func (e *connectError) Unwrap() error { return e.err }

// withFixedText is an error of the user's whose text is asked for here, where a panic in
// that is caught, and not again: gRPC and who watches the pool ask on goroutines of their own.
func withFixedText(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if _, ok := err.(*net.OpError); ok { //nolint:errorlint // dialError looks into it
		return err
	}
	return &connectError{text, err}
}

// dialError is the reason that a failed dial of addr gives. The error of a
// socket names what it was dialled for, as the call's error does already; an
// address that a name led to is kept. Which DNS server was asked is told, since
// a wrong one is a common cause. An error of Config.Dialer or of a proxy is
// shown in its own words, though it may have an OpError in its chain.
func dialError(addr string, err error) error {
	text := err.Error()
	var lookup *net.DNSError
	if op, ok := err.(*net.OpError); ok && op.Op == "dial" { //nolint:errorlint // a proxy's or Dialer's own words stand
		text = op.Err.Error()
		switch {
		case errors.As(op.Err, &lookup):
			text = "name lookup: " + lookup.Err
			if lookup.Server != "" {
				text += " (asked " + lookup.Server + ")"
			}
		case op.Addr != nil && op.Addr.String() != addr:
			text = op.Addr.String() + ": " + text
		}
	}
	return &connectError{text, eof.Hide(err)}
}

// reportingCredentials is the TLS of a transport, or none. It tells the transport's
// watchedConn, or the client that dials again, why a handshake failed, since gRPC keeps
// only the text. It also reads what the server says of the client's certificate, which
// in TLS 1.3 comes after the handshake.
type reportingCredentials struct {
	credentials.TransportCredentials
}

// ClientHandshake is part of credentials.TransportCredentials. raw is what our
// dialer has returned: a watchedConn for a connection's own transport, a
// dialledConn for a client that dials again. While a handshake is under way the
// watchedConn reports nothing of its reads, so that the reason of the
// handshake, which says more, is the first.
func (h reportingCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	watched, ok := raw.(*watchedConn)
	if !ok {
		conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
		if a, ok := raw.(*dialledConn); ok {
			a.client.recordFailure(handshakeError(err))
		}
		return conn, info, err
	}
	watched.opening.handshaking.Store(true)
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		watched.transport.markLost(handshakeError(err))
		return nil, nil, err
	}
	watched.opening.handshaking.Store(false)
	if conn == raw {
		watched.opening.withoutTLS.Store(true)
		return conn, info, nil
	}
	return &secureConn{Conn: conn, transport: watched.transport}, info, nil
}

// Clone is part of credentials.TransportCredentials.
func (h reportingCredentials) Clone() credentials.TransportCredentials {
	return reportingCredentials{h.TransportCredentials.Clone()}
}

// handshakeError is the reason that a failed handshake gives; nil for a nil
// err. The context that ends a handshake is gRPC's, for one attempt to connect:
// it must not be found in the chain, where it would pass for the caller's.
func handshakeError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record):
		text = "TLS handshake: the server does not speak TLS: TLS to a plain text port? use grpc://"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // gRPC's own, not a caller's
		return &connectError{text: "TLS handshake: no answer"}
	case eof.Reached(err):
		text = "TLS handshake: the server closed the connection"
	case strings.Contains(text, "ALPN"): // gRPC tells of its own versions, and has no type for it
		text = "TLS handshake: the server does not offer HTTP/2 (ALPN h2), which gRPC needs: TLS that a proxy ends?"
	default:
		text = "TLS handshake: " + text
	}
	return &connectError{text, eof.Hide(err)}
}

// secureConn is what TLS makes of a watchedConn. gRPC reads and writes through
// it.
type secureConn struct {
	net.Conn
	transport *transport
	answered  atomic.Bool
}

// Read reports what TLS itself fails with; failures of the socket are reported
// already.
func (c *secureConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.answered.Store(true)
	}
	if err != nil {
		c.transport.markLost(readError(err))
	}
	return n, err
}

// Write reports a server that closes the connection before it has sent
// anything, which usually means that it rejected the client certificate; its
// TLS alert may be lost. In TLS 1.3 the client has finished its handshake
// before the server has looked at the certificate, so that the refusal may meet
// the first write.
func (c *secureConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil && !c.answered.Load() && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
		c.transport.markLost(&connectError{"the server closed the connection after the TLS handshake: does it want another client certificate?", err})
	}
	return n, err
}

// openingState is how far the beginning of a transport has come. It tells a
// server that speaks no HTTP/2, or wants TLS, from one that has gone away: both
// close the socket.
type openingState struct {
	handshaking atomic.Bool // a handshake is under way, or has failed: it reports why itself
	withoutTLS  atomic.Bool // the handshake is over, and there was none
	alert       atomic.Bool // the first byte was tlsAlert
	received    int         // bytes, up to frameHeader; only the reader knows them
}

const (
	// frameHeader is the length of the header of an HTTP/2 frame: a server
	// that has sent less speaks no HTTP/2.
	frameHeader = 9

	// tlsAlert is the first byte by which a TLS server refuses what is no
	// handshake. The first frame of an HTTP/2 server, its settings, would be
	// over a million bytes long.
	tlsAlert = 21
)

// errPlainText is a guess in the form of a question: a server that closes for
// another reason before its first frame looks the same.
var errPlainText = &connectError{text: "the server closed the connection during the handshake: plain text to a TLS port? use grpc+tls://"}

// countReceived takes note of what gRPC has read. It is called by gRPC's reader
// alone, before the read's error is judged.
func (o *openingState) countReceived(p []byte) {
	if o.received == 0 && len(p) > 0 && p[0] == tlsAlert && o.withoutTLS.Load() {
		o.alert.Store(true)
	}
	o.received = min(o.received+len(p), frameHeader)
}

// readFailure is why the transport ended by a read that failed with err.
func (o *openingState) readFailure(err error) error {
	closed := eof.Reached(err) || errors.Is(err, syscall.ECONNRESET)
	if closed && o.withoutTLS.Load() && (o.received < frameHeader || o.alert.Load()) {
		return errPlainText
	}
	return readError(err)
}
