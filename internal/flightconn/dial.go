package flightconn

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/flightpool/flightpool/internal/taskgroup"
)

// deadPeerTimeout is how soon the end of a silent link is noticed: an idle one
// by TCP keepalive; one with unanswered data by TCP_USER_TIMEOUT, which only
// Linux has. Elsewhere data is sent again until the HTTP/2 ping gives up
// (DefaultKeepalive and 20 s). The kernel does both, so that they do not count
// as pings, of which servers allow only so many.
const deadPeerTimeout = 75 * time.Second

// keepaliveTimeout is how long an HTTP/2 ping may stay unanswered.
const keepaliveTimeout = 20 * time.Second

// tcpKeepAlive finds a dead peer of an idle socket within deadPeerTimeout: a
// first probe after a fifth of it, and four that are not answered.
var tcpKeepAlive = net.KeepAliveConfig{Enable: true, Idle: deadPeerTimeout / 5, Interval: deadPeerTimeout / 5, Count: 4}

// redialBackoff paces the control channel and the clients of locations. gRPC's
// own pace would keep a server that came back unused for up to two minutes.
var redialBackoff = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 5 * time.Second},
	MinConnectTimeout: 20 * time.Second,
}

// dial opens a socket within DialTimeout: by Config.Dialer if there is one,
// else through the proxy that the environment names for addr, else directly.
// check, where it is not nil, looks at each address that is dialled directly.
//
// Whoever calls gives check only for locations of other hosts. It cannot be
// asked of an address that a proxy or Config.Dialer resolves: there the other
// side decides what is reached.
func (cfg *Config) dial(ctx context.Context, network, addr string, check func(addr string) error) (net.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, cfg.DialTimeout)
	defer stop()
	if cfg.Dialer != nil {
		conn, err := callUser("Config.Dialer", func() (net.Conn, error) {
			conn, err := cfg.Dialer(ctx, addr)
			return conn, withFixedText(err)
		})
		if conn == nil && err == nil {
			err = errors.New("Config.Dialer gave neither a connection nor an error")
		}
		return isolateConn(conn), err
	}
	if network != "tcp" {
		return cfg.dialDirect(ctx, network, addr, check)
	}
	proxy, err := cfg.proxyFor(addr)
	switch {
	case err != nil:
		return nil, err
	case proxy == nil:
		return cfg.dialDirect(ctx, network, addr, check)
	default:
		return cfg.dialThrough(ctx, proxy, addr)
	}
}

// dialDirect opens a socket to addr itself. The addresses of a name are tried
// in their order, both families in parallel as RFC 8305 has it, and share the
// time that ctx leaves; one connection comes of it. check sees the address that
// a name was resolved to, right before the socket is connected, so that a name
// that resolves otherwise the second time does not pass.
func (cfg *Config) dialDirect(ctx context.Context, network, addr string, check func(addr string) error) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: tcpKeepAlive, Control: setUserTimeout, Resolver: cfg.resolver}
	if check != nil {
		d.Control = func(network, found string, c syscall.RawConn) error {
			return cmp.Or(check(found), setUserTimeout(network, found, c))
		}
	}
	return d.DialContext(ctx, network, addr)
}

// How many bytes a server may send ahead of the reader of a stream, and of all streams of
// a connection. gRPC would find them out itself, up to 16 MiB, by a ping beside the data of
// every call. 4 MiB are 40 MB/s at a round trip of 100 ms; gRPC asks for more while it
// receives a message that is larger.
const (
	streamWindow = 4 << 20
	connWindow   = 16 << 20
)

// transportOptions are the options of every client that is made here. The
// target given to gRPC is a placeholder: the dialer alone chooses the address,
// so that no resolver or balancer spreads the RPCs of a session over several
// servers. addr is the authority that the server sees, and what gRPC compares a
// certificate with unless tlsConfig names another. dialer decides how often
// there is a transport: once for a connection (transport.dialOnce), as needed
// for clients that hold no session (newClient). end is sendStatsHandler's.
//
// Config.DialOptions are for the caller to append behind these, so that they
// win.
func (cfg *Config) transportOptions(addr string, tlsConfig *tls.Config, dialer func(context.Context, string) (net.Conn, error), end func(reason error)) []grpc.DialOption {
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(newCredentials(tlsConfig)),
		grpc.WithContextDialer(dialer),
		grpc.WithAuthority(authority(addr, tlsConfig)),
		grpc.WithNoProxy(), // dial sees to it
		// A call is sent once. What is left to gRPC is the transparent
		// retry of a stream that the server vouches not to have processed.
		grpc.WithDisableRetry(),
		grpc.WithStatsHandler(sendStatsHandler{end}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cfg.MaxMessage)),
		grpc.WithConnectParams(redialBackoff),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
	}
	if cfg.Keepalive > 0 {
		opts = append(opts, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: cfg.Keepalive, Timeout: keepaliveTimeout}))
	}
	if tlsConfig != nil {
		opts = append(opts, grpc.WithPerRPCCredentials(onlyTLS{}))
	}
	return opts
}

// onlyTLS has gRPC send nothing to a TLS target in plain text, where DialOptions have replaced
// the TLS by that. It has nothing to present itself.
type onlyTLS struct{}

// GetRequestMetadata is part of credentials.PerRPCCredentials.
func (onlyTLS) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, nil
}

// RequireTransportSecurity is part of credentials.PerRPCCredentials.
func (onlyTLS) RequireTransportSecurity() bool { return true }

// newCredentials is the TLS of a transport, or none.
func newCredentials(tlsConfig *tls.Config) reportingCredentials {
	if tlsConfig == nil {
		return reportingCredentials{insecure.NewCredentials()}
	}
	return reportingCredentials{credentials.NewTLS(isolateTLSCallbacks(tlsConfig))}
}

// authority is the name by which the server is called, and which gRPC compares a
// certificate with.
func authority(addr string, tlsConfig *tls.Config) string {
	if tlsConfig != nil && tlsConfig.ServerName != "" {
		return tlsConfig.ServerName // gRPC refuses two names for one server
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return "localhost" // a unix path
	}
	return addr
}

// dialTracker counts the dials under way of an endpoint. gRPC's Close ends them
// and does not wait: a socket may come of one afterwards. A dial that is still
// under way at the end of Close may be stuck in a Config.Dialer that does not
// heed its context; how many are is told to the caller of Close.
type dialTracker struct {
	// reachesLoopback says that the endpoint's own transport leads to this machine.
	reachesLoopback atomic.Bool

	running taskgroup.Group
}

// dial makes a dial unless the endpoint is closed. What comes of it after its
// context has ended is closed. gRPC's Close may have returned by then, and
// nobody would wait for the end of the socket. dial runs on the goroutine of
// the caller, which is gRPC's.
func (d *dialTracker) dial(ctx context.Context, dial func() (net.Conn, error)) (net.Conn, error) {
	if !d.running.Add() {
		return nil, errClosed
	}
	defer d.running.Done() // a Dialer of the user's may panic
	raw, err := dial()
	if err == nil && ctx.Err() != nil {
		_ = raw.Close()
		return nil, ctx.Err()
	}
	return raw, err
}

// close refuses new dials and waits for those under way, whose contexts have
// ended, up to limit. It returns how many are left then. limit is no less than
// zero. It may be called more than once; all calls wait for the same dials.
func (d *dialTracker) close(limit time.Duration) int {
	d.running.Close()
	ctx, cancel := detached(limit)
	defer cancel()
	return d.running.Wait(ctx)
}

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
	answer, err := http.ReadResponse(from, req) //nolint:bodyclose // RFC 9110, 9.3.6: a tunnel has none, whatever the header says, and Close would read it
	if err != nil {
		return nil, err
	}
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
