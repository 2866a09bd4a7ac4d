package dsql

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/flightpool/flightpool/lease"
)

// ConfigFromEnv reads a Config from the environment. A variable that is not set
// or empty has its default, one that cannot be understood is an error which
// names it; all are reported at once.
//
//	DSQL_RESERVOIR_ENABLED              false    keep connections ready; else Config.OnDemand
//	DSQL_RESERVOIR_TARGET_READY         MaxOpen  Config.TargetReady
//	DSQL_RESERVOIR_LOW_WATERMARK        MaxOpen  Config.LowWatermark
//	DSQL_RESERVOIR_BASE_LIFETIME        11m      Config.BaseLifetime
//	DSQL_RESERVOIR_LIFETIME_JITTER      2m       Config.LifetimeJitter
//	DSQL_RESERVOIR_GUARD_WINDOW         45s      Config.GuardWindow
//	DSQL_DISTRIBUTED_CONN_LEASE_ENABLED false    share the limits with the fleet
//	DSQL_DISTRIBUTED_CONN_LEASE_TABLE   -        Config.LeaseTable, when enabled
//	DSQL_DISTRIBUTED_CONN_LIMIT         9800     Config.ConnLimit
//	DSQL_MAX_OPEN                       -        Config.MaxOpen
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
// DSQL_MAX_OPEN, MaxOpen is at least the target; a watermark must not exceed it.
func ConfigFromEnv() (Config, error) { return configFrom(os.Getenv) }

func configFrom(env func(string) string) (Config, error) {
	e := environment{get: env}
	c := Config{
		Host:           env("CLUSTER_ENDPOINT"),
		User:           env("CLUSTER_USER"),
		OnDemand:       !e.flag("DSQL_RESERVOIR_ENABLED"),
		MaxOpen:        e.number("DSQL_MAX_OPEN", 1),
		TargetReady:    e.number("DSQL_RESERVOIR_TARGET_READY", 1),
		LowWatermark:   e.number("DSQL_RESERVOIR_LOW_WATERMARK", 1),
		BaseLifetime:   e.duration("DSQL_RESERVOIR_BASE_LIFETIME", time.Nanosecond, 11*time.Minute),
		LifetimeJitter: e.duration("DSQL_RESERVOIR_LIFETIME_JITTER", 0, 2*time.Minute),
		GuardWindow:    e.duration("DSQL_RESERVOIR_GUARD_WINDOW", 0, 45*time.Second),
		ConnLimit:      e.number("DSQL_DISTRIBUTED_CONN_LIMIT", 1),
	}
	c.MaxLifetime = e.duration("DSQL_RESERVOIR_MAX_LIFETIME", time.Nanosecond, sessionLimit-sessionMargin)
	c.IdleTTL = e.duration("DSQL_RESERVOIR_IDLE_TTL", 0, 0)
	c.LeakAfter = e.duration("DSQL_RESERVOIR_LEAK_AFTER", 0, 0)
	c.CheckInterval = e.duration("DSQL_RESERVOIR_CHECK_INTERVAL", 0, 0)
	c.CancelGrace = e.duration("DSQL_CANCEL_GRACE", time.Nanosecond, 0)
	c.OpenRate = e.rate("DSQL_OPEN_RATE")
	c.OpenBurst = e.number("DSQL_OPEN_BURST", 1)
	c.RateFallback = e.rate("DSQL_RATE_FALLBACK")
	c.Budget = env("DSQL_DISTRIBUTED_CONN_BUDGET")
	c.Lease = e.duration("DSQL_DISTRIBUTED_CONN_LEASE", time.Nanosecond, 0)
	c.LeaseGrace = e.duration("DSQL_DISTRIBUTED_CONN_LEASE_GRACE", time.Nanosecond, 0)
	c.LeaseShards = e.number("DSQL_DISTRIBUTED_CONN_LEASE_SHARDS", 1)
	c.LeaseBatch = e.number("DSQL_DISTRIBUTED_CONN_LEASE_BATCH", 1)
	c.LeaseStrict = e.flag("DSQL_DISTRIBUTED_CONN_LEASE_STRICT")
	const table = "DSQL_DISTRIBUTED_CONN_LEASE_TABLE"
	if e.flag("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED") {
		if c.LeaseTable = env(table); c.LeaseTable == "" {
			e.fault(table, "required when DSQL_DISTRIBUTED_CONN_LEASE_ENABLED is true")
		}
	}
	return c, errors.Join(e.faults...)
}

type environment struct {
	get    func(string) string
	faults []error
}

func (e *environment) fault(name, format string, args ...any) {
	e.faults = append(e.faults, fmt.Errorf("dsql: %s: "+format, append([]any{name}, args...)...))
}

func (e *environment) flag(name string) bool {
	text := strings.TrimSpace(e.get(name))
	if text == "" {
		return false
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		e.fault(name, "%q is neither true nor false", text)
	}
	return on
}

// number reads a whole number; 0 when it is not set.
func (e *environment) number(name string, least int) int {
	text := strings.TrimSpace(e.get(name))
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		e.fault(name, "%q is no whole number from %d on", text, least)
	}
	return n
}

// rate reads opens per second; 0 when it is not set. A zero that was asked for is
// off.
func (e *environment) rate(name string) float64 {
	text := strings.TrimSpace(e.get(name))
	if text == "" {
		return 0
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || f != 0 && lease.CheckRate(f) != nil:
		e.fault(name, "%q is no number of opens per second", text)
	case f == 0:
		return -1
	}
	return f
}

// duration reads a duration. A zero that was asked for is off.
func (e *environment) duration(name string, least, byDefault time.Duration) time.Duration {
	text := strings.TrimSpace(e.get(name))
	if text == "" {
		return byDefault
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil || d < least:
		e.fault(name, "%q is no duration from %v on, such as %v", text, least, cmp.Or(byDefault, time.Minute))
	case d == 0:
		return -1
	}
	return d
}
