package dsqlgate

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Codes in the place of a protocol version.
const (
	codeSSL    = 80877103
	codeGSS    = 80877104
	codeCancel = 80877102
)

const (
	handshakeLimit = 10 * time.Second
	maxStartup     = 10_000 // bytes, as PostgreSQL's
	maxPassword    = 64 << 10
)

// bufferedConn reads through a buffer that may hold the first bytes already.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// serve is the life of one connection.
func (g *Gate) serve(ctx context.Context, raw net.Conn) {
	s, err := g.handshake(ctx, raw)
	g.mu.Lock()
	delete(g.handshaking, raw)
	g.mu.Unlock()
	if err != nil {
		_ = raw.Close() // err tells more
		return
	}
	s.run()
	g.unregister(s)
}

// register makes a session one that faults reach, unless the gateway closes.
func (g *Gate) register(s *session) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return net.ErrClosed
	}
	g.sessions[s] = struct{}{}
	g.stats.Admitted++
	return nil
}

func (g *Gate) unregister(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s)
}

// handshake takes a connection from its first byte to ReadyForQuery.
func (g *Gate) handshake(ctx context.Context, raw net.Conn) (*session, error) {
	if err := raw.SetDeadline(time.Now().Add(handshakeLimit)); err != nil {
		return nil, err
	}
	conn, sni, err := g.startTLS(ctx, raw)
	if err != nil {
		return nil, err
	}
	code, body, err := readStartup(conn)
	if err != nil {
		return nil, err
	}
	if code == codeCancel {
		return nil, g.cancel(ctx, body)
	}
	var startup pgproto3.StartupMessage
	if err := startup.Decode(body); err != nil {
		return nil, err
	}
	g.delayOpen(ctx)
	switch {
	case sni == "":
		return nil, g.reject(conn, "sni", errNoSNI)
	case startup.Parameters["database"] != "postgres":
		return nil, g.reject(conn, "database", errDatabase)
	}
	if why := g.takeRefusal(); why != nil {
		return nil, g.reject(conn, "injected", why)
	}
	if why := g.admission.admit(time.Now()); why != nil {
		return nil, g.reject(conn, why.Code, why)
	}
	leave := sync.OnceFunc(g.admission.release)
	s, err := g.login(ctx, raw, conn, startup, leave)
	if err != nil {
		leave()
	}
	return s, err
}

// startTLS begins TLS, after an SSLRequest or directly.
func (g *Gate) startTLS(ctx context.Context, raw net.Conn) (conn *tls.Conn, sni string, err error) {
	in := bufio.NewReader(raw)
	first, err := in.Peek(1)
	if err != nil {
		return nil, "", err
	}
	config := &tls.Config{Certificates: []tls.Certificate{g.cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"postgresql"}}
	if first[0] != 0x16 { // not a TLS record
		if err := g.awaitSSLRequest(raw, in); err != nil {
			return nil, "", err
		}
		config.NextProtos = nil
	}
	conn = tls.Server(&bufferedConn{raw, in}, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		if !clientLeft(err) {
			g.count("tls")
		}
		return nil, "", err
	}
	return conn, conn.ConnectionState().ServerName, nil
}

// clientLeft reports whether a handshake failed because its client went away, as one
// that is killed does: then nothing was refused.
func clientLeft(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// awaitSSLRequest refuses whoever wants to go on in plain text.
func (g *Gate) awaitSSLRequest(raw net.Conn, in *bufio.Reader) error {
	for {
		code, _, err := readStartup(in)
		switch {
		case err != nil:
			return err
		case code == codeSSL:
			_, err := raw.Write([]byte("S"))
			return err
		case code == codeGSS:
			if _, err := raw.Write([]byte("N")); err != nil {
				return err
			}
		default:
			return g.reject(raw, "plaintext", errNoTLS)
		}
	}
}

// login checks the token and joins the client with PostgreSQL.
func (g *Gate) login(ctx context.Context, raw net.Conn, conn *tls.Conn, startup pgproto3.StartupMessage, leave func()) (*session, error) {
	if err := send(conn, &pgproto3.AuthenticationCleartextPassword{}); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	kind, body, err := readMessage(in, nil, maxPassword)
	if err != nil {
		return nil, err
	}
	var password pgproto3.PasswordMessage
	if kind != 'p' || password.Decode(body) != nil {
		return nil, g.reject(conn, "08006", errAccess)
	}
	user := startup.Parameters["user"]
	if err := g.verify(password.Password, user, time.Now()); err != nil {
		g.recordDenial(user, err)
		return nil, g.reject(conn, "08006", errAccess)
	}
	server, greeting, err := g.connectUpstream(ctx, startup.Parameters)
	if err != nil {
		return nil, errors.Join(err, g.reject(conn, "upstream", refuse("08006", err.Error())))
	}
	s := newSession(g, raw, conn, in, server, leave)
	err = raw.SetDeadline(time.Time{})
	if err == nil {
		err = g.register(s) // before the client can know that it is in
	}
	if err == nil {
		if _, err = conn.Write(greeting); err != nil {
			g.unregister(s)
		}
	}
	if err != nil {
		_ = server.Close() // err matters
		return nil, err
	}
	return s, nil
}

// cancel passes a request to cancel a query on.
func (g *Gate) cancel(ctx context.Context, body []byte) error {
	if g.holdCancel() {
		return io.EOF
	}
	network, address := pgconn.NetworkAddress(g.upstream.Host, g.upstream.Port)
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(handshakeLimit)) // an error: it is closed already
	_, err = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4)), body...))
	if err == nil {
		_, err = io.Copy(io.Discard, conn) // PostgreSQL hangs up when it has told the session
	}
	return errors.Join(err, conn.Close(), io.EOF) // the client's connection ends too
}

// reject tells a client why it is refused.
func (g *Gate) reject(conn net.Conn, reason string, why *pgproto3.ErrorResponse) error {
	g.count(reason)
	if err := send(conn, why); err != nil {
		return err
	}
	return errors.Join(fmt.Errorf("dsqlgate: refused: %s", why.Message), conn.Close())
}

func send(w io.Writer, messages ...pgproto3.BackendMessage) error {
	var out []byte
	for _, m := range messages {
		var err error
		if out, err = m.Encode(out); err != nil {
			return err
		}
	}
	_, err := w.Write(out)
	return err
}

// readStartup reads a message without a type. body includes the code.
func readStartup(r io.Reader) (code uint32, body []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size < 8 || size > maxStartup {
		return 0, nil, fmt.Errorf("dsqlgate: startup message of %d bytes", size)
	}
	body = make([]byte, size-4)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	return binary.BigEndian.Uint32(body), body, nil
}
