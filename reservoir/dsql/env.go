package dsql

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/option"
	"github.com/flightpool/flightpool/lease"
)

// ConfigFromEnv reads a Config from the environment. A variable that is not set
// or empty has its default, one that cannot be understood is an error which
// names it; all are reported at once.
//
//	DSQL_RESERVOIR_ENABLED              false    keep connections ready; else Config.OnDemand
//	DSQL_RESERVOIR_TARGET_READY         MaxSize  Config.MinIdle
//	DSQL_RESERVOIR_LOW_WATERMARK        MaxSize  Config.LowWatermark
//	DSQL_RESERVOIR_BASE_LIFETIME        11m      Config.ReplaceAfter
//	DSQL_RESERVOIR_LIFETIME_JITTER      2m       Config.LifetimeJitter
//	DSQL_RESERVOIR_GUARD_WINDOW         45s      Config.GuardWindow
//	DSQL_DISTRIBUTED_CONN_LEASE_ENABLED false    share the limits with the fleet
//	DSQL_DISTRIBUTED_CONN_LEASE_TABLE   -        Config.LeaseTable, when enabled
//	DSQL_DISTRIBUTED_CONN_LIMIT         9800     Config.ConnLimit
//	DSQL_MAX_OPEN                       -        Config.MaxSize
//	CLUSTER_ENDPOINT                    -        Config.Host
//	CLUSTER_USER                        admin    Config.User
//
// and beside those of the document that this package follows
//
//	DSQL_RESERVOIR_MAX_LIFETIME         59m      Config.MaxLifetime
//	DSQL_RESERVOIR_IDLE_TTL             5m       Config.IdleTTL, 0: off
//	DSQL_RESERVOIR_LEAK_AFTER           off      Config.LeakAfter
//	DSQL_RESERVOIR_CHECK_INTERVAL       5m       Config.CheckInterval, 0: off
//	DSQL_CANCEL_GRACE                   500ms    Config.CancelGrace
//	DSQL_OPEN_RATE                      100      Config.OpenRate
//	DSQL_OPEN_BURST                     500      Config.OpenBurst
//	DSQL_RATE_FALLBACK                  a part   Config.RateFallback, 0: none
//	DSQL_DISTRIBUTED_CONN_BUDGET        -        Config.Budget
//	DSQL_DISTRIBUTED_CONN_LEASE         60s      Config.Lease
//	DSQL_DISTRIBUTED_CONN_LEASE_GRACE   20s      Config.LeaseGrace
//	DSQL_DISTRIBUTED_CONN_LEASE_SHARDS  -        Config.LeaseShards
//	DSQL_DISTRIBUTED_CONN_LEASE_BATCH   -        Config.LeaseBatch
//	DSQL_DISTRIBUTED_CONN_LEASE_STRICT  false    Config.LeaseStrict
//
// AWS_REGION and the credentials are read when the Config is used. Mind that
// DSQL_RESERVOIR_ENABLED must be set to true for connections to be kept ready,
// whereas a Config made in Go keeps them ready unless OnDemand is set. Without
// DSQL_MAX_OPEN, MaxSize is at least the target; a watermark must not exceed it.
func ConfigFromEnv() (Config, error) { return configFrom(os.Getenv) }

func configFrom(env func(string) string) (Config, error) {
	var defaults Config
	fields.Fill(&defaults)
	c := Config{
		OnDemand:     true, // unless DSQL_RESERVOIR_ENABLED says otherwise
		ReplaceAfter: defaults.ReplaceAfter, LifetimeJitter: defaults.LifetimeJitter,
		MaxLifetime: defaults.MaxLifetime, GuardWindow: defaults.GuardWindow,
	}
	var faults []error
	fault := func(key string, err error) { faults = append(faults, fmt.Errorf("dsql: %s: %w", key, err)) }
	for _, key := range fields.Keys() {
		row, _ := fields.Find(key)
		text := env(key)
		if _, isText := row.Pointer(&c).(*string); !isText {
			text = strings.TrimSpace(text)
		}
		if text == "" {
			continue
		}
		set, err := row.Parse(text)
		if err != nil {
			fault(key, err)
			continue
		}
		set(&c)
	}
	const enabled, table = "DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "DSQL_DISTRIBUTED_CONN_LEASE_TABLE"
	on := false
	if text := strings.TrimSpace(env(enabled)); text != "" {
		var err error
		if on, err = option.Bool(text); err != nil {
			fault(enabled, err)
		}
	}
	switch {
	case !on:
		c.LeaseTable = ""
	case c.LeaseTable == "":
		fault(table, errors.New("required when "+enabled+" is true"))
	}
	return c, errjoin.Join(faults...)
}

type (
	intField      = option.Field[Config, int]
	durationField = option.Field[Config, time.Duration]
	rateField     = option.Field[Config, float64]
	boolField     = option.Field[Config, bool]
	textField     = option.Field[Config, string]
)

// How the environment writes values.
var (
	count          = option.Number{Least: 1, Wrong: "is no whole number from 1 on"}.Read
	opensPerSecond = option.Float{Check: lease.CheckRate, Wrong: "is no number of opens per second"}.Read
)

func duration(least, suchAs time.Duration) func(string) (time.Duration, error) {
	return option.Duration{Least: least, Wrong: fmt.Sprintf("is no duration from %v on, such as %v", least, suchAs)}.Read
}

// withUnit refuses what a check refuses, and durations without a unit.
func withUnit(check func(time.Duration) error) func(time.Duration) error {
	return func(d time.Duration) error { return cmp.Or(check(d), option.HasUnit(d)) }
}

// What is refused.
var (
	neverOff    = withUnit(option.Refuse(option.Below0[time.Duration], "cannot be off"))
	sessionsEnd = withUnit(option.Refuse(option.Below0[time.Duration], fmt.Sprintf("cannot be off, DSQL ends sessions after %v", sessionLimit)))
	isPort      = option.Refuse(func(n int) bool { return n < 0 || n > 65535 }, "%v is no port")
	tokenLasts  = option.Refuse(func(d time.Duration) bool { return d < time.Second || d > 7*24*time.Hour }, "%v is not between 1s and 168h")
	verifies    = option.Refuse(func(c *tls.Config) bool { return c != nil && c.InsecureSkipVerify }, "InsecureSkipVerify would send tokens to anybody")
	isRate      = option.Refuse(func(f float64) bool { return lease.CheckRate(f) != nil }, fmt.Sprintf("%%v is not finite and at least %v", lease.MinRate))
	isRateOrOff = option.Refuse(func(f float64) bool { return !(f <= 0) && lease.CheckRate(f) != nil }, fmt.Sprintf("%%v is not finite and at least %v", lease.MinRate))
)

// fields are those of Config that have a variable, a default or bounds of their
// own. Where no Default stands here, the zero value is it, or the reservoir and
// the leases have it.
var fields = option.Table[Config]{
	textField{Name: "Host", Key: "CLUSTER_ENDPOINT", At: func(c *Config) *string { return &c.Host }, Read: option.Text},
	textField{Name: "User", Key: "CLUSTER_USER", At: func(c *Config) *string { return &c.User }, Read: option.Text, Default: "admin"},
	intField{Name: "Port", At: func(c *Config) *int { return &c.Port }, Default: 5432, Check: isPort},
	textField{Name: "Database", At: func(c *Config) *string { return &c.Database }, Default: "postgres"},
	durationField{Name: "TokenLifetime", At: func(c *Config) *time.Duration { return &c.TokenLifetime }, Default: 15 * time.Minute, Check: tokenLasts},
	option.Field[Config, *tls.Config]{Name: "TLS", At: func(c *Config) **tls.Config { return &c.TLS }, Check: verifies},

	intField{Name: "ConnLimit", Key: "DSQL_DISTRIBUTED_CONN_LIMIT", At: func(c *Config) *int { return &c.ConnLimit }, Read: count, Default: connLimit, Check: option.AtLeastOne},
	intField{Name: "MaxSize", Key: "DSQL_MAX_OPEN", At: func(c *Config) *int { return &c.MaxSize }, Read: count, DefaultBy: maxOpen, Check: option.AtLeastOne},
	intField{Name: "MinIdle", Key: "DSQL_RESERVOIR_TARGET_READY", At: func(c *Config) *int { return &c.MinIdle }, Read: count, DefaultBy: asMaxSize},
	intField{Name: "LowWatermark", Key: "DSQL_RESERVOIR_LOW_WATERMARK", At: func(c *Config) *int { return &c.LowWatermark }, Read: count, DefaultBy: asMaxSize, OffAs: asMaxSize},
	boolField{Name: "OnDemand", Key: "DSQL_RESERVOIR_ENABLED", At: func(c *Config) *bool { return &c.OnDemand }, Read: option.Not(option.Bool)},

	durationField{Name: "ReplaceAfter", Key: "DSQL_RESERVOIR_BASE_LIFETIME", At: func(c *Config) *time.Duration { return &c.ReplaceAfter }, Read: duration(1, 11*time.Minute), Default: 11 * time.Minute, Check: sessionsEnd},
	durationField{Name: "LifetimeJitter", Key: "DSQL_RESERVOIR_LIFETIME_JITTER", At: func(c *Config) *time.Duration { return &c.LifetimeJitter }, Read: duration(0, 2*time.Minute), Default: 2 * time.Minute, Check: option.HasUnit},
	durationField{Name: "MaxLifetime", Key: "DSQL_RESERVOIR_MAX_LIFETIME", At: func(c *Config) *time.Duration { return &c.MaxLifetime }, Read: duration(1, sessionLimit-sessionMargin), Default: sessionLimit - sessionMargin, Check: sessionsEnd},
	durationField{Name: "GuardWindow", Key: "DSQL_RESERVOIR_GUARD_WINDOW", At: func(c *Config) *time.Duration { return &c.GuardWindow }, Read: duration(0, 45*time.Second), Default: 45 * time.Second, Check: option.HasUnit},
	durationField{Name: "IdleTTL", Key: "DSQL_RESERVOIR_IDLE_TTL", At: func(c *Config) *time.Duration { return &c.IdleTTL }, Read: duration(0, time.Minute), Check: option.HasUnit},
	durationField{Name: "LeakAfter", Key: "DSQL_RESERVOIR_LEAK_AFTER", At: func(c *Config) *time.Duration { return &c.LeakAfter }, Read: duration(0, time.Minute), Check: option.HasUnit},
	durationField{Name: "CheckInterval", Key: "DSQL_RESERVOIR_CHECK_INTERVAL", At: func(c *Config) *time.Duration { return &c.CheckInterval }, Read: duration(0, time.Minute), Default: 5 * time.Minute, Check: option.HasUnit},
	durationField{Name: "CheckTimeout", At: func(c *Config) *time.Duration { return &c.CheckTimeout }, Default: 5 * time.Second, Check: neverOff},
	durationField{Name: "AcquireTimeout", At: func(c *Config) *time.Duration { return &c.AcquireTimeout }, Default: 30 * time.Second, Check: option.HasUnit},
	durationField{Name: "OpenTimeout", At: func(c *Config) *time.Duration { return &c.OpenTimeout }, Default: 5 * time.Second, Check: neverOff},
	durationField{Name: "CancelGrace", Key: "DSQL_CANCEL_GRACE", At: func(c *Config) *time.Duration { return &c.CancelGrace }, Read: duration(1, time.Minute), Default: 500 * time.Millisecond, Check: neverOff},
	durationField{Name: "CloseTimeout", At: func(c *Config) *time.Duration { return &c.CloseTimeout }, Default: 5 * time.Second, Check: neverOff},

	rateField{Name: "OpenRate", Key: "DSQL_OPEN_RATE", At: func(c *Config) *float64 { return &c.OpenRate }, Read: option.NeverOff(opensPerSecond, "cannot be off"), Default: 100, Check: isRate},
	intField{Name: "OpenBurst", Key: "DSQL_OPEN_BURST", At: func(c *Config) *int { return &c.OpenBurst }, Read: count, Default: 500, Check: option.AtLeastOne},
	rateField{Name: "RateFallback", Key: "DSQL_RATE_FALLBACK", At: func(c *Config) *float64 { return &c.RateFallback }, Read: opensPerSecond, Check: isRateOrOff},
	textField{Name: "LeaseTable", Key: "DSQL_DISTRIBUTED_CONN_LEASE_TABLE", At: func(c *Config) *string { return &c.LeaseTable }, Read: option.Text},
	textField{Name: "Budget", Key: "DSQL_DISTRIBUTED_CONN_BUDGET", At: func(c *Config) *string { return &c.Budget }, Read: option.Text, DefaultBy: func(c *Config) string { return budgetName(c.Host, c.Region) }},
	durationField{Name: "Lease", Key: "DSQL_DISTRIBUTED_CONN_LEASE", At: func(c *Config) *time.Duration { return &c.Lease }, Read: duration(1, time.Minute)},
	durationField{Name: "LeaseGrace", Key: "DSQL_DISTRIBUTED_CONN_LEASE_GRACE", At: func(c *Config) *time.Duration { return &c.LeaseGrace }, Read: duration(1, time.Minute)},
	intField{Name: "LeaseShards", Key: "DSQL_DISTRIBUTED_CONN_LEASE_SHARDS", At: func(c *Config) *int { return &c.LeaseShards }, Read: count},
	intField{Name: "LeaseBatch", Key: "DSQL_DISTRIBUTED_CONN_LEASE_BATCH", At: func(c *Config) *int { return &c.LeaseBatch }, Read: count},
	boolField{Name: "LeaseStrict", Key: "DSQL_DISTRIBUTED_CONN_LEASE_STRICT", At: func(c *Config) *bool { return &c.LeaseStrict }, Read: option.Bool},
	option.Field[Config, *slog.Logger]{Name: "Logger", At: func(c *Config) **slog.Logger { return &c.Logger }, DefaultBy: func(*Config) *slog.Logger { return slog.Default() }},
}

func maxOpen(c *Config) int {
	most := max(4, min(16, 2*runtime.NumCPU()), c.MinIdle)
	if c.limitIsLocal() {
		most = min(most, max(1, c.ConnLimit))
	}
	return most
}

func asMaxSize(c *Config) int { return c.MaxSize }
