package flightconn

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// tcpKeepAlive finds a dead host within 75 s. The kernel sends it, so that it
// does not count as a ping of which servers allow only so many.
var tcpKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4}

// redialling paces the control channel and the clients of locations. gRPC's
// own pace would keep a server that came back unused for up to two minutes.
var redialling = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 5 * time.Second},
	MinConnectTimeout: 20 * time.Second,
}

// dial opens a socket, or asks Config.Dialer for one.
func (cfg *Config) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if cfg.Dialer != nil {
		return cfg.Dialer(ctx, addr)
	}
	d := net.Dialer{KeepAliveConfig: tcpKeepAlive}
	return d.DialContext(ctx, network, addr)
}

// transportOptions are the options of every client that is made here. The
// target given to gRPC names nobody: dialer alone decides where a transport
// goes, one address at a time, so that no resolver or balancer can spread the
// RPCs of a session over several servers.
func (cfg *Config) transportOptions(addr string, tlsConfig *tls.Config, dialer func(context.Context, string) (net.Conn, error)) []grpc.DialOption {
	creds := insecure.NewCredentials()
	if tlsConfig != nil {
		creds = credentials.NewTLS(tlsConfig)
	}
	authority := addr
	if _, _, err := net.SplitHostPort(addr); err != nil {
		authority = "localhost" // a unix path
	}
	if tlsConfig != nil && tlsConfig.ServerName != "" {
		authority = tlsConfig.ServerName // gRPC refuses two names for one server
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(dialer),
		grpc.WithAuthority(authority),
		grpc.WithNoProxy(),
		// A call is sent once. What is left to gRPC is the transparent
		// retry of a stream that the server vouches not to have processed.
		grpc.WithDisableRetry(),
		grpc.WithStatsHandler(sentWatcher{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cfg.MaxMessage)),
		grpc.WithConnectParams(redialling),
	}
	if cfg.Keepalive > 0 {
		opts = append(opts, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: cfg.Keepalive, Timeout: 20 * time.Second}))
	}
	return opts
}
