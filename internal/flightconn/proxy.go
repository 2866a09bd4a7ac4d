package flightconn

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// proxyFor is the proxy that leads to addr, or nil: HTTPS_PROXY, unless
// NO_PROXY or a loopback address excludes it, as gRPC has it by default. Which
// is for plain text targets too, since a CONNECT carries either.
//
// The environment is read once for the process, as net/http does.
func (cfg *Config) proxyFor(addr string) (*url.URL, error) {
	choose := cfg.proxy
	if choose == nil {
		choose = http.ProxyFromEnvironment
	}
	proxy, err := choose(&http.Request{URL: &url.URL{Scheme: "https", Host: addr}})
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	if proxy != nil && proxy.Scheme != "http" && proxy.Scheme != "https" {
		return nil, fmt.Errorf("proxy %s: scheme %q is neither http nor https; dial it in Config.Dialer", proxy.Host, proxy.Scheme)
	}
	return proxy, nil
}

// dialThrough has a proxy connect to addr, whose name the proxy resolves. Which
// address that is remains the proxy's to know, so the connection has no peer.
// The socket is closed on every error.
func (cfg *Config) dialThrough(ctx context.Context, proxy *url.URL, addr string) (net.Conn, error) {
	at := proxy.Host
	if proxy.Port() == "" {
		at = net.JoinHostPort(proxy.Hostname(), map[string]string{"http": "80", "https": "443"}[proxy.Scheme])
	}
	conn, err := cfg.dialDirect(ctx, "tcp", at, nil)
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", at, err)
	}
	// A handshake heeds no context: its end is a deadline that has passed.
	disarm := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	tunnel, err := openTunnel(ctx, conn, proxy, addr)
	if err != nil || !disarm() {
		_ = conn.Close()
		if cause := ctx.Err(); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("proxy %s: %w", at, err)
	}
	return tunnel, nil
}

// openTunnel makes a tunnel of a connection to the proxy. Where its URL is
// https, TLS protects the credentials of the URL, which go to the proxy alone;
// the server's own TLS goes through the tunnel. conn is the caller's to close.
func openTunnel(ctx context.Context, conn net.Conn, proxy *url.URL, addr string) (net.Conn, error) {
	if proxy.Scheme == "https" {
		secure := tls.Client(conn, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = secure
	}
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{}}
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		req.Header.Set("Proxy-Authorization", basicAuth(user.Username(), password))
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	from := bufio.NewReader(conn)
	answer, err := http.ReadResponse(from, req)
	if err != nil {
		return nil, err
	}
	_ = answer.Body.Close() // a tunnel has none
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("does not connect to %s: %s", addr, answer.Status)
	}
	return &tunnel{Conn: conn, buffered: from}, nil
}

// tunnel reads first what came along with the proxy's answer: a server may
// speak before its client does.
type tunnel struct {
	net.Conn
	buffered *bufio.Reader
}

func (t *tunnel) Read(p []byte) (int, error) { return t.buffered.Read(p) }
