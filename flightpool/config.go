package flightpool

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/session"
)

// Config says how a pool keeps its connections. The zero value of a field is
// the default named beside it; a negative number or duration switches the
// feature off where that makes sense. New reports every fault at once.
type Config struct {
	// MinIdle is how many idle connections are kept ready (1; negative: none,
	// and New does not connect). At most MaxSize.
	MinIdle int
	// MaxSize bounds the connections (max(4, min(16, 2*NumCPU), MinIdle)).
	MaxSize int

	AcquireTimeout time.Duration // longest wait for a connection, beside the context (30s; negative: the context's alone)
	DialTimeout    time.Duration // bounds making one connection, to its first answer (5s)
	CloseTimeout   time.Duration // bounds closing one connection, and cleaning one session (5s)
	IdleTTL        time.Duration // an idle connection beyond MinIdle is closed after it (5m; negative: never)
	MaxLifetime    time.Duration // age from which a connection is replaced (1h; negative: never)
	LifetimeJitter time.Duration // spread added to MaxLifetime (5m, at most MaxLifetime/12; negative: none)
	GuardWindow    time.Duration // a connection this close to its end is not lent (10s, at most MaxLifetime/12)

	DefaultQueryTimeout time.Duration // for calls without a Timeout of their own (none); a rollback has CloseTimeout at least
	DisableRetry        bool          // repeat nothing, whatever QueryOptions say

	HealthCheck HealthCheck

	// OnExhausted is what happens to a caller when MaxSize connections are
	// taken: Wait (default), FailFast or Overflow(n).
	OnExhausted Exhaustion
	MaxWaiters  int // callers that may wait; one more fails at once (no bound)

	// OpenRetry says who waits for the next open when one has failed and no
	// other connection is left: callers whose context has a deadline, or who
	// have a Timeout (OpenRetryTimed, the default), nobody (OpenRetryNever) or
	// everybody (OpenRetryAlways). Opens are tried again after pauses of 10ms to
	// 1s. Whoever waits does so until the deadline, until AcquireTimeout, or
	// until the server is unhealthy (HealthCheck.FailureThreshold), which
	// OpenRetryAlways does not heed. Errors that trying again does not cure
	// (credentials, certificates, calls that the server does not know) fail
	// everybody at once. New fails with the first failed open, but with
	// OpenRetryAlways goes on until its context ends.
	OpenRetry OpenRetry

	OnReturn SessionReset // how a used session is made clean (ResetAuto)
	Cancel   CancelPolicy // how a statement is stopped

	MaxConcurrentOpens int           // connections being made at a time (8; negative: MaxSize)
	Leases             lease.Leases  // the fleet's budget of connections (none): what is above the pool's share is closed for others, and all when it is revoked
	Limiter            lease.Limiter // the fleet's budget of opens (none)

	Auth Auth

	// TLS is for TLS targets (the system's roots, TLS 1.2 or later): RootCAs
	// for roots of your own, Certificates for mutual TLS. The one way not to
	// verify the server is InsecureSkipVerify there, or the target's option
	// tls_insecure_skip_verify.
	TLS *tls.Config

	// Headers are sent with every call; QueryOptions.Headers are one call's. The
	// pool prints their names only, but a print of this Config by reflection (%p,
	// or as an unexported field of another struct) shows their values, as it does
	// for no other field that may hold a secret.
	Headers metadata.MD

	// SessionHeader names a header that carries a random value of its own for
	// each connection, for servers that bind a session to one: ClickHouse's
	// x-clickhouse-session-id. Default: none.
	SessionHeader string

	// Locations decides whether rows are fetched from a location that the
	// server names for a part of a result, other than its own address, and
	// whether credentials go there: Auth, Headers, SessionHeader, cookies,
	// QueryOptions.Headers, client certificates and DialOptions. Without them
	// only the part's ticket is sent. It must return soon, is called from many
	// goroutines, and may be asked more than once.
	//
	// Default: the target's host, on any port, is asked with credentials, and
	// other hosts without. Never asked are plain text locations of a TLS
	// target, Unix sockets and loopback or link-local addresses of a target
	// that is not on this machine, by whatever name they go; a Dialer, or a
	// proxy, has to see to names itself.
	Locations func(location *url.URL) (allow, sendCredentials bool)

	// Dialer replaces the network: tunnels, SOCKS, a proxy of your choice,
	// tests. It is called once for each connection, and must not give two of
	// them one socket. Default: TCP or a Unix socket, through the proxy that
	// HTTPS_PROXY names unless NO_PROXY excludes the host, as gRPC has it.
	// The addresses of a name are tried in order within DialTimeout, and a
	// connection stays with the one that answered. A link that died silently
	// is noticed within 75 s (on systems other than Linux, and where the server is
	// stopped and its system still answers, with a call under way, within 7
	// minutes), and an idle one by the health check.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	// DialOptions are gRPC's, for interceptors and what else only its own client
	// understands: with any, that client carries the pool's calls, which then take about
	// as much time and memory as without a pool, and more. They are appended to the
	// pool's own. Those with a dialer are refused, since the pool's guards against silent
	// reconnects: use Dialer; so are those that take its TLS from a TLS target. Interceptors
	// must pass on the context that they are given, or one made of it: without its values
	// nobody knows what was sent, so that such a call is not sent at all. Nor is one sent
	// again that an interceptor repeats, which ends the connection: what may be repeated the
	// pool repeats. A status that they tell of one that was sent counts only where it is the
	// server's. They must return when that context has ended: the caller of the RPC waits
	// for them. To compress requests and answers, import
	// google.golang.org/grpc/encoding/gzip and pass
	// grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)). What a server compresses
	// unasked is an error without any options. LZ4 and ZSTD inside Arrow batches are
	// read without.
	DialOptions []grpc.DialOption
	Allocator   memory.Allocator // for Arrow buffers (memory.DefaultAllocator)

	// Traffic counts the bytes that the pool's sockets send and receive, those of TLS
	// and HTTP/2 included (nil: they are not counted). Pools may share one.
	Traffic *Traffic

	// MaxMessage is the largest message received, in bytes (64 MiB). Compressed
	// buffers of one may become 16 times that, and the dictionaries of one
	// stream take as much, and so may one value, such as a list, once nothing in it is
	// shared: NULLs and run-ends take no room in a message, and dictionaries and list views
	// name one thing again and again. Of a result with many endpoints 41 batches are held at
	// most, 5 of each of 8 endpoints and the caller's, and 64 MiB beside the
	// caller's and the next.
	MaxMessage int

	// Layer goes on top of every connection (none). The pool closes it; when
	// New fails that is the caller's to do.
	Layer Layer

	// OnConnect prepares each new connection before it is lent (none): settings,
	// attached databases, loaded extensions. What it leaves in the session is
	// there for all borrowers: when one has changed a setting, OnReturn puts
	// OnConnect's value back (ResetSQL does what its statements say). So that no
	// call runs without it in a session by which the server has replaced this one,
	// changes, and reads 5s after the last proof, cost a round trip more, and the
	// server must have prepared statements (those of OnConnect are closed). A server
	// that knows transactions by their ids takes no proof inside of one: if it replaces
	// the session between the proof and a BEGIN, that transaction runs without. Its time
	// is part of DialTimeout. An error closes the connection, and so do a result
	// that is still open, an open transaction and a panic. Its temporary tables are
	// for all borrowers, with the rows that they write; under ResetAuto the session
	// of one who drops, replaces or alters one is discarded. It may be called by several
	// goroutines, and must not keep s.
	OnConnect func(ctx context.Context, s *SessionHandle) error

	// StatementCache is how many prepared statements each connection keeps for calls of the
	// pool with parameters, at most 1,000 (off). Such a call takes three round trips then
	// in place of five once its text is known. It is for reads alone, without Headers, or outgoing
	// metadata of their context but such as traces have, and not with RetryNever; nor with times or durations among
	// Args, which are sent as what the column is now; what interceptors
	// of DialOptions add must not change what a text means: a statement that the server refuses, since it has forgotten it or a
	// table has changed, is prepared again within the call, and so a read that fails
	// by itself is sent twice. Borrowers see none of them. A session that leaves
	// anything to undo, a call that is cut, or the first run of ResetSQL's statements has them closed; they end
	// with their connection, and none is kept that was prepared beside a session that has changed a setting, nor what was prepared
	// before one of this pool has made, altered, dropped, attached or detached something. What other programs alter the server has to
	// notice, and GizmoSQL does not: it gives the bytes of the new columns as values of the old. Not with
	// DisableRetry or ResetNone. A server that answers parameters with another handle,
	// other backends than the pool's own, and values of a Layer that cannot be compared, keep none.
	StatementCache int

	// LeakAfter reports results and sessions that are out for longer, once,
	// with the stack of their borrower, also while Close waits for them (off).
	LeakAfter time.Duration

	// Tracer sees calls, opens and cancels from their start to their end (none):
	// one or more of QueryTracer, IngestTracer, BatchTracer, CancelTracer, ConnectTracer,
	// AcquireTracer and ReleaseTracer, or Tracers for several values. LogTracer is one.
	Tracer any
	Hooks  Hooks
	Logger *slog.Logger // what needs an operator's eye (nothing is logged)
}

// HealthKind is what a health check does.
type HealthKind uint8

// The kinds of health check.
const (
	// Ping makes one cheap round trip (default).
	Ping HealthKind = iota
	// Query runs HealthCheck.SQL.
	Query
	// FullValidate runs SQL and, where the server has session options, asks
	// for them, which an evicted session cannot answer.
	FullValidate
)

// HealthCheck says how connections, and through them the server, are watched.
type HealthCheck struct {
	Kind HealthKind
	// SQL is a harmless query ("SELECT 1"), without a secret, since a server may repeat
	// it in the errors of opens. With Ping a server may refuse it, which shows a
	// session that works too; with the other kinds such a server's opens fail. One that is known
	// to leave something in the session, such as SET or BEGIN, is refused.
	SQL             string
	Timeout         time.Duration // bounds one check (5s)
	Interval        time.Duration // between checks of an idle connection (30s; negative: none)
	IdleBeforeCheck time.Duration // ValidateOnAcquire spares connections used more recently (1s; negative: none)

	// FailureThreshold failures to reach the server in a row (3; negative:
	// never) that have gone on for UnhealthyAfter (5s; negative: however short,
	// and however far apart) make it unhealthy: a restart of the server that is
	// shorter does not. After 5s without an attempt the row begins anew, since
	// nobody knows what was between: where no connection is kept ready (MinIdle)
	// and callers who do not wait come seldom, each of their failures counts alone.
	// Unless there is a connection, in use or idle, those who wait for an
	// unhealthy server fail with ErrUnhealthy, and so do new calls, but for one
	// trial at growing intervals. With OpenRetryAlways all of them wait.
	FailureThreshold int
	UnhealthyAfter   time.Duration
	// RecoveryThreshold successes in a row make it healthy again (2): an open or a
	// check, and after one of these also calls that are answered.
	RecoveryThreshold int

	ValidateOnAcquire bool // check a connection before it is lent
	ValidateOnRelease bool // check a connection when it comes back
}

// The names of other packages that a pool's user needs.
type (
	// Exhaustion is a policy for callers who find all connections taken.
	Exhaustion = reservoir.Exhaustion
	// SessionReset says how a used session is made clean.
	SessionReset = session.SessionReset
	// CancelPolicy bounds the cancel chain.
	CancelPolicy = session.CancelPolicy
	// OpenRetry says who waits for another open after one has failed.
	OpenRetry = reservoir.OpenRetry
)

// The policies on failed opens; see Config.OpenRetry.
const (
	OpenRetryTimed  = reservoir.OpenRetryTimed
	OpenRetryNever  = reservoir.OpenRetryNever
	OpenRetryAlways = reservoir.OpenRetryAlways
)

// The exhaustion policies without a number.
const (
	Wait     = reservoir.Wait
	FailFast = reservoir.FailFast
)

// Overflow opens up to n connections beyond MaxSize for callers who wait.
func Overflow(n int) Exhaustion { return reservoir.Overflow(n) }

// The ways to make a session clean; see package session.
var (
	ResetAuto    = session.ResetAuto
	ResetDiscard = session.ResetDiscard
	ResetNone    = session.ResetNone
)

// ResetSQL runs statements after every session and every call that was not a
// plain read.
func ResetSQL(statements ...string) SessionReset { return session.ResetSQL(statements...) }
