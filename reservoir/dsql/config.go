package dsql

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jackc/pgx/v5"

	"github.com/flightpool/flightpool/internal/printing"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
)

// Config says where the cluster is and how many connections are kept ready.
// The zero value of a field is its default; a negative number or duration turns
// it off where that makes sense. Only Host is required.
type Config struct {
	// Host is the cluster's endpoint, or its identifier of 26 characters when
	// Region is known.
	Host string
	// Port is 5432 by default.
	Port int
	// Region is where tokens are signed for: by default that of Host, else
	// AWS_REGION, else AWS_DEFAULT_REGION, else that of the AWS profile.
	Region string
	// User is the database role: "admin" by default. Admin needs the IAM
	// action dsql:DbConnectAdmin, every other role dsql:DbConnect.
	User string
	// Database is "postgres" by default, the only one there is.
	Database string
	// RuntimeParams are set for each session, application_name for example.
	RuntimeParams map[string]string

	// Credentials sign the tokens. By default the SDK's chain, resolved once
	// and refreshed by its cache. A provider has a minute for an answer; later ones are
	// asked for anew.
	Credentials aws.CredentialsProvider
	// TokenLifetime is how long after its making a token may open a
	// connection: 15m by default, at least 1s, at most 168h. It does not bound
	// the session.
	TokenLifetime time.Duration

	// TLS has roots and the like. The server's name is always verified against
	// Host; InsecureSkipVerify is refused.
	TLS *tls.Config
	// DirectTLS begins with TLS instead of asking for it: one round trip less.
	DirectTLS bool
	// Dial replaces net.Dialer.DialContext. When it does not return at the end of its
	// context, the open fails without it, and what it makes then is closed. A
	// connection that is no syscall.Conn is not looked at before it is lent.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Pgx changes the settings of pgx: query mode, tracer. What this package
	// decides (address, TLS, password, the dial) stays. A
	// BuildContextWatcherHandler set here ends statements in the place of
	// CancelGrace. Types are registered by AfterConnect.
	Pgx func(*pgx.ConnConfig)

	// MaxSize bounds the connections of this process. Default
	// max(4, min(16, 2*NumCPU)), or MinIdle if that is more; at most ConnLimit
	// where that is this process's alone.
	MaxSize int
	// MinIdle is how many are kept ready: MaxSize by default, negative:
	// none. At most MaxSize.
	MinIdle int
	// LowWatermark is the number of ready connections from which on new ones
	// are asked of the fleet one at a time, so that processes in need come
	// first; once fewer are ready, all that are missing are asked for. It is also
	// what WaitReady waits for by default. MaxSize by default, and where it is negative,
	// which is never: as fast as the budgets allow.
	LowWatermark int
	// OnDemand opens connections when they are asked for only, as an ordinary
	// pool does; MinIdle is not used. With a MaxSize of ConnLimit too, no more leases of
	// LeaseTable are taken in advance than LeaseBatch.
	OnDemand bool
	// MaxConcurrentOpens bounds the opens under way: 8 by default.
	MaxConcurrentOpens int

	// ReplaceAfter is the age from which a connection is replaced: 11m by
	// default. With LifetimeJitter at most MaxLifetime; it cannot be off.
	ReplaceAfter time.Duration
	// LifetimeJitter is added to ReplaceAfter in parts that spread evenly: 2m by
	// default; negative: none, and a fleet that started at once replaces its
	// connections at once.
	LifetimeJitter time.Duration
	// MaxLifetime is the age up to which a connection is used while no other can
	// be opened for it, because a table cannot be reached for example, less what it
	// did not get of LifetimeJitter: 59m by default, which is also the most, since
	// DSQL ends a session after 60m.
	MaxLifetime time.Duration
	// GuardWindow is how long before MaxLifetime a connection is not lent any
	// more: 45s by default.
	GuardWindow time.Duration
	// IdleTTL closes a connection that was idle for so long, when more than
	// MinIdle were: 5m by default; negative: never.
	IdleTTL time.Duration

	// AcquireTimeout bounds a caller's wait besides its context: 30s by
	// default.
	AcquireTimeout time.Duration
	// NoWait fails a caller at once with ErrReservoirEmpty when nothing is
	// ready. It needs connections that are kept ready: nothing else would open
	// one.
	NoWait bool
	// BadConnWhenEmpty makes ErrReservoirEmpty a driver.ErrBadConn too, for
	// database/sql only. Together with NoWait this is the mode of the document
	// that this package follows: database/sql then tries three times, at once
	// and without a pause, and fails. It needs NoWait: else each of the three
	// would wait.
	BadConnWhenEmpty bool
	// OpenTimeout bounds one open, its repetitions after refusals included:
	// 5s by default; it cannot be off.
	OpenTimeout time.Duration
	// CancelGrace is how long a statement whose context has ended has to end, too:
	// 500ms by default; it cannot be off. The server is asked at once to cancel
	// it, by a second connection. When it has answered in time, its connection
	// stays; else that is closed.
	CancelGrace time.Duration
	// CloseTimeout bounds one close, and whatever else has no context of a
	// caller: 5s by default; it cannot be off.
	CloseTimeout time.Duration
	// CheckInterval is how often an idle connection is pinged: 5m by default;
	// negative: never. A peer that fell silent is found earlier by TCP's keepalive,
	// unless Dial is set: within half a minute.
	CheckInterval time.Duration
	// CheckTimeout bounds that ping, and OnReturn: 5s by default; it cannot be
	// off.
	CheckTimeout time.Duration
	// AfterConnect, if set, prepares each new connection, for example by
	// registering types (conn.TypeMap). It is a part of the open, within
	// OpenTimeout; an error closes the connection and fails the open, and so does
	// the end of ctx if it does not return.
	AfterConnect func(ctx context.Context, conn *pgx.Conn) error
	// BeforeAcquire, if set, looks at a connection before it is lent; when it
	// returns false, the connection is closed and another one taken, unless ctx,
	// which is the caller's, has ended. When it does not return then, the connection
	// is cut without it.
	BeforeAcquire func(ctx context.Context, conn *pgx.Conn) bool
	// BeforeClose, if set, is told of a connection that is about to be closed,
	// unless a borrower still has it. When it does not return within CloseTimeout,
	// the connection is cut without it.
	BeforeClose func(conn *pgx.Conn)
	// AcquireTracer, if set, hears of every call for a connection.
	AcquireTracer AcquireTracer
	// LeakAfter reports a loan that is out for longer to Hooks.Leaked, once, with
	// the stack of its borrower. Off by default.
	LeakAfter time.Duration
	// OnReturn, if set, makes a returned connection as good as new, for
	// example by undoing SET; an error closes it, and so does the end of ctx if it does
	// not return. To forget prepared
	// statements, call the connection's DeallocateAll: after DISCARD ALL pgx
	// would go on using those that it believes in.
	OnReturn func(ctx context.Context, conn *pgx.Conn) error

	// ConnLimit is how many connections the fleet may have: 9,800 by default, a
	// little less than the 10,000 of DSQL, for other clients and for processes
	// that were taken for dead. Without LeaseTable and Leases it bounds MaxSize.
	ConnLimit int
	// OpenRate is how many opens per second the fleet may make: 100 by
	// default.
	OpenRate float64
	// OpenBurst is how many at once: 500 by default. Keep it below the
	// cluster's 1,000, which other clients use too.
	OpenBurst int
	// LeaseTable is a DynamoDB table in Region in which the fleet shares these
	// limits. Empty: they are this process's alone.
	LeaseTable string
	// Budget names the limits in the table: by default the cluster's identifier
	// and region, whichever name of it Host is, else Host.
	Budget string
	// Lease, LeaseGrace, LeaseShards, LeaseBatch and LeaseStrict are the settings
	// of dynamolease.Config of these names, whose defaults they have.
	Lease, LeaseGrace       time.Duration
	LeaseShards, LeaseBatch int
	LeaseStrict             bool
	// Fallback is how many connections this process may have while LeaseTable
	// cannot be reached: by default those that it has, each of which it may
	// replace, and no more.
	Fallback lease.Fallback
	// RateFallback is how many opens per second this process may make while
	// LeaseTable cannot be reached. By default its part of OpenRate, divided by
	// the number of processes that were seen last; as long as none were, by
	// ConnLimit / MaxSize. Negative: none.
	RateFallback float64
	// Leases and Limiter replace what is made of the fields above. Whoever
	// made them closes them.
	Leases  lease.Leases
	Limiter lease.Limiter

	// Hooks are told what happens in the reservoir.
	Hooks reservoir.Hooks
	// Logger hears of refusals and of budgets: slog.Default() by default. A panic in
	// its handler is caught.
	Logger *slog.Logger
}

// String shows the settings; of Credentials and the like only that they are set, and of a
// Host that is no name, but a connection string for example.
func (c Config) String() string {
	if isNoName(c.Host) {
		return printing.Struct("dsql.Config", c, "Host")
	}
	return printing.Struct("dsql.Config", c)
}

// Format prints String under every verb: fmt would walk into Credentials, where
// those of a static provider stand.
func (c Config) Format(f fmt.State, _ rune) { printing.Format(f, c.String()) }

// LogValue is String, for slog.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON gives String. It cannot be read back.
func (c Config) MarshalJSON() ([]byte, error) { return printing.JSON(c.String()) }
