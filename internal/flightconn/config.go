package flightconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/internal/errjoin"
)

// Defaults of Config. DefaultMaxMessage has room for large batches: gRPC's own
// limit of 4 MiB refuses one of 256k rows of two integers.
const (
	DefaultDialTimeout  = 5 * time.Second
	DefaultCloseTimeout = 5 * time.Second
	DefaultMaxMessage   = 64 << 20
	DefaultPrefetch     = 4

	// DefaultRequestLimit leaves head-room below the 4 MiB at which gRPC
	// servers of every language refuse a message unless told otherwise.
	DefaultRequestLimit = 4<<20 - 64<<10

	// DefaultKeepalive is just over the five minutes that servers enforce by
	// default: a client that pings more often is disconnected in the middle
	// of a long query. Dead hosts are found sooner, by TCP keepalive, which
	// no server counts.
	DefaultKeepalive = 5*time.Minute + 20*time.Second
)

// UserPass is a user name and a password.
type UserPass struct{ User, Password string }

// Config tells how to reach a Flight SQL server and who to be there. The zero
// value of a field is its default; a negative duration or count switches it
// off. Maps, slices and pointers must not be changed after NewEndpoint.
type Config struct {
	// Network is "tcp" (default) or "unix".
	Network string

	// Address is host:port, or a path for "unix". Required.
	Address string

	// TLS secures the transport. Nil: no encryption.
	TLS *tls.Config

	// Basic, when set, is presented in a handshake of each connection, so
	// that each gets a token (and with many servers a session) of its own.
	Basic *UserPass

	// Authorization, when set, gives the credential of a new connection, which
	// presents it for its whole life. It is called from many goroutines.
	// rejected is the header that the server last refused as unauthenticated,
	// empty if none: a source that still holds it should fetch another.
	// Excludes Basic.
	Authorization func(ctx context.Context, rejected string) (Credential, error)

	// Headers are sent with every RPC.
	Headers metadata.MD

	// SessionHeader is the name of a header whose value is each connection's own.
	SessionHeader string

	// DialOptions are appended last.
	DialOptions []grpc.DialOption

	// Dialer replaces the network. addr is Address, or host:port (or path)
	// of a location that the server named. Nil: the network itself, or the
	// proxy that HTTPS_PROXY and NO_PROXY name.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)

	// Allocator holds the Arrow buffers that are made here. Default:
	// memory.DefaultAllocator.
	Allocator memory.Allocator

	DialTimeout  time.Duration // bounds each dial, that of a location among them (5 s)
	CloseTimeout time.Duration // bounds Close (5 s; off: no CloseSession is sent)
	Keepalive    time.Duration // HTTP/2 ping while a call waits that long (5 m 20 s)

	MaxMessage   int // largest message received, in bytes (64 MiB)
	RequestLimit int // largest message sent, in bytes (4 MiB less 64 KiB)
	Prefetch     int // batches read ahead per endpoint of a multi-endpoint result (4; off: 1), 64 MiB of all of them

	// Locations decides of a location that the server names, other than its
	// own address, whether rows are fetched there, and whether credentials,
	// cookies and headers go there. Nil: see checkLocation; they go to the
	// same host only.
	Locations func(location *url.URL) (allow, sendCredentials bool)

	// CountBytes, when set, is told how many bytes each socket has sent and received, as
	// they come. It must not wait, and is called from many goroutines.
	CountBytes func(sent, received int)

	// CancelActions are the server's own actions that cancel, tried in this
	// order after the standard ones. Each is sent the ticket of the running
	// statement's first endpoint as its body.
	CancelActions []string

	// ProbeSQL, when set, is planned (GetFlightInfo) to prove a connection,
	// instead of a GetSqlInfo.
	ProbeSQL string

	dialTracker *dialTracker // of the endpoint

	// Seams of tests: the environment's proxies and the system's resolver.
	proxy    func(*http.Request) (*url.URL, error)
	resolver *net.Resolver
}

// resolve validates cfg and fills in the defaults. It works on a copy, so that
// the caller's Config stays as it was, and reports every fault, not only the
// first. Headers are not looked at: package flightpool has done that by
// CheckHeaders, with the names that its users know.
//
// A Dialer may give Address any meaning, so only the network's own form of it
// is checked.
func (cfg Config) resolve() (Config, error) {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	switch cfg.Network {
	case "":
		cfg.Network = "tcp"
	case "tcp", "unix":
	default:
		bad("Network", "%q is neither tcp nor unix", cfg.Network)
	}
	if cfg.Address == "" {
		bad("Address", "is required")
	} else if cfg.Network == "tcp" && cfg.Dialer == nil {
		if _, _, err := net.SplitHostPort(cfg.Address); err != nil {
			bad("Address", "%v", err)
		}
	}
	if cfg.Basic != nil && cfg.Authorization != nil {
		bad("Authorization", "excludes Basic")
	}
	if cfg.DialTimeout < 0 {
		bad("DialTimeout", "cannot be off")
	}
	if cfg.MaxMessage < 0 {
		bad("MaxMessage", "cannot be off")
	}
	if cfg.RequestLimit < 0 || cfg.RequestLimit > 0 && cfg.RequestLimit < minRequestLimit {
		bad("RequestLimit", "%d is below %d", cfg.RequestLimit, minRequestLimit)
	}
	for i, name := range cfg.CancelActions {
		if name == "" {
			bad("CancelActions", "name %d is empty", i)
		}
	}
	if len(errs) > 0 {
		return cfg, errjoin.Join(errs...)
	}
	cfg.DialTimeout = cmp.Or(cfg.DialTimeout, DefaultDialTimeout)
	cfg.dialTracker = &dialTracker{}
	cfg.CloseTimeout = cmp.Or(cfg.CloseTimeout, DefaultCloseTimeout)
	cfg.Keepalive = cmp.Or(cfg.Keepalive, DefaultKeepalive)
	cfg.MaxMessage = cmp.Or(cfg.MaxMessage, DefaultMaxMessage)
	cfg.RequestLimit = cmp.Or(cfg.RequestLimit, DefaultRequestLimit)
	cfg.Prefetch = cmp.Or(cfg.Prefetch, DefaultPrefetch)
	cfg.Prefetch = max(cfg.Prefetch, 1)
	if cfg.Allocator == nil {
		cfg.Allocator = memory.DefaultAllocator
	}
	return cfg, nil
}

// countBytes is CountBytes, or nobody's.
func (cfg *Config) countBytes() func(sent, received int) {
	if cfg.CountBytes == nil {
		return func(int, int) {}
	}
	return cfg.CountBytes
}

// minRequestLimit holds a schema message and one row of a modest table.
const minRequestLimit = 4 << 10
