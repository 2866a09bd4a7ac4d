package dsql

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jackc/pgx/v5"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
)

// sessionLimit is how long DSQL lets a session live.
const sessionLimit = time.Hour

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
	// AWS_REGION, else AWS_DEFAULT_REGION.
	Region string
	// User is the database role: "admin" by default. Admin needs the IAM
	// action dsql:DbConnectAdmin, every other role dsql:DbConnect.
	User string
	// Database is "postgres" by default, the only one there is.
	Database string
	// RuntimeParams are set for each session, application_name for example.
	RuntimeParams map[string]string

	// Credentials sign the tokens. By default the SDK's chain, resolved once
	// and refreshed by its cache.
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
	// Dial replaces net.Dialer.DialContext. A connection that is no
	// syscall.Conn is not looked at before it is lent.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Pgx changes the settings of pgx: query mode, tracer, type map. What this
	// package decides (address, TLS, password, hooks of the dial) stays.
	Pgx func(*pgx.ConnConfig)

	// MaxOpen bounds the connections of this process. Default
	// max(4, min(16, 2*NumCPU)), or TargetReady if that is more.
	MaxOpen int
	// TargetReady is how many are kept ready: MaxOpen by default, negative:
	// none. At most MaxOpen.
	TargetReady int
	// LowWatermark is the number of ready connections from which on new ones
	// are asked of the fleet one at a time, so that processes in need come
	// first; it is also what WaitReady waits for by default. MaxOpen by
	// default, which is never: as fast as the budgets allow.
	LowWatermark int
	// OnDemand opens connections when they are asked for only, as an ordinary
	// pool does; TargetReady is not used.
	OnDemand bool
	// MaxConcurrentOpens bounds the opens under way: 8 by default.
	MaxConcurrentOpens int

	// BaseLifetime is the age from which a connection is replaced: 11m by
	// default. With LifetimeJitter at most 60m; it cannot be off.
	BaseLifetime time.Duration
	// LifetimeJitter is added in parts that spread evenly: 2m by default.
	LifetimeJitter time.Duration
	// GuardWindow is how long before its end a connection is not lent any
	// more: 45s by default.
	GuardWindow time.Duration

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
	// CloseTimeout bounds one close, and whatever else has no context of a
	// caller: 5s by default; it cannot be off.
	CloseTimeout time.Duration
	// CheckInterval is how often an idle connection is pinged: 30s by default.
	CheckInterval time.Duration
	// CheckTimeout bounds that ping, and OnReturn: 5s by default; it cannot be
	// off.
	CheckTimeout time.Duration
	// OnReturn, if set, makes a returned connection as good as new, for
	// example by undoing SET; an error closes it. To forget prepared
	// statements, call the connection's DeallocateAll: after DISCARD ALL pgx
	// would go on using those that it believes in.
	OnReturn func(ctx context.Context, conn *pgx.Conn) error

	// ConnLimit is how many connections the fleet may have: 10,000 by default.
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
	// Fallback is what is granted while LeaseTable cannot be reached: nothing
	// by default.
	Fallback lease.Fallback
	// Leases and Limiter replace what is made of the fields above. Whoever
	// made them closes them.
	Leases  lease.Leases
	Limiter lease.Limiter

	// Hooks are told what happens in the reservoir.
	Hooks reservoir.Hooks
	// Logger hears of refusals and of budgets: slog.Default() by default.
	Logger *slog.Logger
}

// resolve returns c with defaults filled in, or all of its faults.
func (c Config) resolve(env func(string) string) (Config, error) {
	host, region, where := place(c.Host, c.Region, env)
	c.Host, c.Region = host, region
	c.Port = cmp.Or(c.Port, 5432)
	c.User = cmp.Or(c.User, "admin")
	c.Database = cmp.Or(c.Database, "postgres")
	c.TokenLifetime = cmp.Or(c.TokenLifetime, 15*time.Minute)
	c.MaxOpen = cmp.Or(c.MaxOpen, max(4, min(16, 2*runtime.NumCPU()), c.TargetReady))
	c.TargetReady = cmp.Or(c.TargetReady, c.MaxOpen)
	c.LowWatermark = cmp.Or(c.LowWatermark, c.MaxOpen)
	c.BaseLifetime = cmp.Or(c.BaseLifetime, 11*time.Minute)
	c.LifetimeJitter = cmp.Or(c.LifetimeJitter, 2*time.Minute)
	c.GuardWindow = cmp.Or(c.GuardWindow, 45*time.Second)
	c.AcquireTimeout = cmp.Or(c.AcquireTimeout, 30*time.Second)
	c.OpenTimeout = cmp.Or(c.OpenTimeout, 5*time.Second)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 5*time.Second)
	c.CheckInterval = cmp.Or(c.CheckInterval, 30*time.Second)
	c.CheckTimeout = cmp.Or(c.CheckTimeout, 5*time.Second)
	c.ConnLimit = cmp.Or(c.ConnLimit, 10_000)
	c.OpenRate = cmp.Or(c.OpenRate, 100)
	c.OpenBurst = cmp.Or(c.OpenBurst, 500)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return c, errors.Join(append(c.faults(), where)...)
}

// faults finds what is wrong with a resolved configuration.
func (c Config) faults() []error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("dsql: "+format, args...))
		}
	}
	life := c.BaseLifetime + max(0, c.LifetimeJitter)
	fault(c.Port < 0 || c.Port > 65535, "Port: %d is no port", c.Port)
	fault(c.TokenLifetime < time.Second || c.TokenLifetime > 7*24*time.Hour, "TokenLifetime: %v is not between 1s and 168h", c.TokenLifetime)
	fault(c.TLS != nil && c.TLS.InsecureSkipVerify, "TLS: InsecureSkipVerify would send tokens to anybody")
	fault(c.MaxOpen < 1, "MaxOpen: %d is less than 1", c.MaxOpen)
	fault(c.TargetReady > c.MaxOpen, "TargetReady: %d is more than MaxOpen %d", c.TargetReady, c.MaxOpen)
	fault(c.LowWatermark > c.MaxOpen, "LowWatermark: %d is more than MaxOpen %d", c.LowWatermark, c.MaxOpen)
	fault(c.NoWait && (c.OnDemand || c.TargetReady < 1), "NoWait: nothing would ever be opened with OnDemand or without TargetReady")
	fault(c.BadConnWhenEmpty && !c.NoWait, "BadConnWhenEmpty: needs NoWait")
	fault(c.BaseLifetime < 0, "BaseLifetime: cannot be off, DSQL ends sessions after %v", sessionLimit)
	fault(life > sessionLimit, "BaseLifetime: %v with LifetimeJitter is more than the %v after which DSQL ends sessions", life, sessionLimit)
	fault(c.GuardWindow >= c.BaseLifetime && c.BaseLifetime > 0, "GuardWindow: %v is not less than BaseLifetime %v", c.GuardWindow, c.BaseLifetime)
	fault(c.OpenTimeout < 0, "OpenTimeout: cannot be off")
	fault(c.CloseTimeout < 0, "CloseTimeout: cannot be off")
	fault(c.CheckTimeout < 0, "CheckTimeout: cannot be off")
	fault(c.ConnLimit < 1, "ConnLimit: %d is less than 1", c.ConnLimit)
	fault(lease.CheckRate(c.OpenRate) != nil, "OpenRate: %v is not finite and at least %v", c.OpenRate, lease.MinRate)
	fault(c.OpenBurst < 1, "OpenBurst: %d is less than 1", c.OpenBurst)
	return faults
}
