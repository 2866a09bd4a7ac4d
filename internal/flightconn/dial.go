package flightconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// deadPeerTimeout is how soon the end of a silent link is noticed: an idle one
// by TCP keepalive; one with unanswered data by TCP_USER_TIMEOUT, which only
// Linux has. Elsewhere data is sent again until the HTTP/2 ping gives up
// (DefaultKeepalive and 20 s). The kernel does both, so that they do not count
// as pings, of which servers allow only so many.
const deadPeerTimeout = 75 * time.Second

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
		conn, err := callUser("Config.Dialer", func() (net.Conn, error) { return cfg.Dialer(ctx, addr) })
		if conn == nil && err == nil {
			err = errors.New("Config.Dialer gave neither a connection nor an error")
		}
		return conn, err
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

// transportOptions are the options of every client that is made here. The
// target given to gRPC is a placeholder: the dialer alone chooses the address,
// so that no resolver or balancer spreads the RPCs of a session over several
// servers. addr is the authority that the server sees, and what gRPC compares a
// certificate with unless tlsConfig names another. dialer decides how often
// there is a transport: once for a connection (transport.dialOnce), as needed
// for clients that hold no session (newClient).
//
// Config.DialOptions are for the caller to append behind these, so that they
// win.
func (cfg *Config) transportOptions(addr string, tlsConfig *tls.Config, dialer func(context.Context, string) (net.Conn, error)) []grpc.DialOption {
	creds := insecure.NewCredentials()
	if tlsConfig != nil {
		creds = credentials.NewTLS(isolateTLSCallbacks(tlsConfig))
	}
	authority := addr
	if _, _, err := net.SplitHostPort(addr); err != nil {
		authority = "localhost" // a unix path
	}
	if tlsConfig != nil && tlsConfig.ServerName != "" {
		authority = tlsConfig.ServerName // gRPC refuses two names for one server
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(reportingCredentials{creds}),
		grpc.WithContextDialer(dialer),
		grpc.WithAuthority(authority),
		grpc.WithNoProxy(), // dial sees to it
		// A call is sent once. What is left to gRPC is the transparent
		// retry of a stream that the server vouches not to have processed.
		grpc.WithDisableRetry(),
		grpc.WithStatsHandler(sendStatsHandler{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cfg.MaxMessage)),
		grpc.WithConnectParams(redialBackoff),
	}
	if cfg.Keepalive > 0 {
		opts = append(opts, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: cfg.Keepalive, Timeout: 20 * time.Second}))
	}
	return opts
}
