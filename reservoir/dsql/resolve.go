package dsql

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"time"

	"github.com/flightpool/flightpool/lease"
)

// sessionLimit is how long DSQL lets a session live. Its clock starts before
// ours, and no two run alike: sessionMargin is kept from it.
const (
	sessionLimit  = time.Hour
	sessionMargin = time.Minute
)

// connLimit is what a fleet may have of the 10,000 connections of a cluster.
const connLimit = 9_800

// resolve returns c with defaults filled in, or all of its faults.
func (c Config) resolve(env func(string) string) (Config, error) {
	host, region, where := place(c.Host, c.Region, env)
	c.Host, c.Region = host, region
	c.Port = cmp.Or(c.Port, 5432)
	c.User = cmp.Or(c.User, "admin")
	c.Database = cmp.Or(c.Database, "postgres")
	c.TokenLifetime = cmp.Or(c.TokenLifetime, 15*time.Minute)
	c.ConnLimit = cmp.Or(c.ConnLimit, connLimit)
	most := max(4, min(16, 2*runtime.NumCPU()), c.TargetReady)
	if c.alone() {
		most = min(most, max(1, c.ConnLimit))
	}
	c.MaxOpen = cmp.Or(c.MaxOpen, most)
	c.TargetReady = cmp.Or(c.TargetReady, c.MaxOpen)
	c.LowWatermark = cmp.Or(c.LowWatermark, c.MaxOpen)
	c.BaseLifetime = cmp.Or(c.BaseLifetime, 11*time.Minute)
	c.LifetimeJitter = cmp.Or(c.LifetimeJitter, 2*time.Minute)
	c.MaxLifetime = cmp.Or(c.MaxLifetime, sessionLimit-sessionMargin)
	c.GuardWindow = cmp.Or(c.GuardWindow, 45*time.Second)
	c.AcquireTimeout = cmp.Or(c.AcquireTimeout, 30*time.Second)
	c.OpenTimeout = cmp.Or(c.OpenTimeout, 5*time.Second)
	c.CancelGrace = cmp.Or(c.CancelGrace, 500*time.Millisecond)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 5*time.Second)
	c.CheckInterval = cmp.Or(c.CheckInterval, 5*time.Minute)
	c.CheckTimeout = cmp.Or(c.CheckTimeout, 5*time.Second)
	c.Budget = cmp.Or(c.Budget, budget(c.Host, c.Region))
	c.OpenRate = cmp.Or(c.OpenRate, 100)
	c.OpenBurst = cmp.Or(c.OpenBurst, 500)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c, errors.Join(append(c.faults(), where)...)
}

// alone says that ConnLimit is this process's own.
func (c Config) alone() bool { return c.Leases == nil && c.LeaseTable == "" }

// faults finds what is wrong with a resolved configuration.
func (c Config) faults() []error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("dsql: "+format, args...))
		}
	}
	life, most := c.BaseLifetime+max(0, c.LifetimeJitter), sessionLimit-sessionMargin
	fault(c.Port < 0 || c.Port > 65535, "Port: %d is no port", c.Port)
	fault(c.TokenLifetime < time.Second || c.TokenLifetime > 7*24*time.Hour, "TokenLifetime: %v is not between 1s and 168h", c.TokenLifetime)
	fault(c.TLS != nil && c.TLS.InsecureSkipVerify, "TLS: InsecureSkipVerify would send tokens to anybody")
	fault(c.MaxOpen < 1, "MaxOpen: %d is less than 1", c.MaxOpen)
	fault(c.TargetReady > c.MaxOpen, "TargetReady: %d is more than MaxOpen %d", c.TargetReady, c.MaxOpen)
	fault(c.LowWatermark > c.MaxOpen, "LowWatermark: %d is more than MaxOpen %d", c.LowWatermark, c.MaxOpen)
	fault(c.NoWait && (c.OnDemand || c.TargetReady < 1), "NoWait: nothing would ever be opened with OnDemand or without TargetReady")
	fault(c.BadConnWhenEmpty && !c.NoWait, "BadConnWhenEmpty: needs NoWait")
	fault(c.BaseLifetime < 0, "BaseLifetime: cannot be off, DSQL ends sessions after %v", sessionLimit)
	fault(c.MaxLifetime < 0, "MaxLifetime: cannot be off, DSQL ends sessions after %v", sessionLimit)
	fault(c.MaxLifetime > most, "MaxLifetime: %v is more than %v, DSQL ends sessions after %v", c.MaxLifetime, most, sessionLimit)
	fault(life > c.MaxLifetime && c.MaxLifetime > 0, "BaseLifetime: %v with LifetimeJitter is more than MaxLifetime %v", life, c.MaxLifetime)
	shortest := c.MaxLifetime - max(0, c.LifetimeJitter)
	fault(c.GuardWindow >= shortest && c.MaxLifetime > 0, "GuardWindow: %v is not less than MaxLifetime without LifetimeJitter, %v", c.GuardWindow, shortest)
	fault(math.IsNaN(c.RateFallback) || c.RateFallback > 0 && lease.CheckRate(c.RateFallback) != nil, "RateFallback: %v is not finite and at least %v", c.RateFallback, lease.MinRate)
	fault(c.OpenTimeout < 0, "OpenTimeout: cannot be off")
	fault(c.CancelGrace < 0, "CancelGrace: cannot be off")
	fault(c.CloseTimeout < 0, "CloseTimeout: cannot be off")
	fault(c.CheckTimeout < 0, "CheckTimeout: cannot be off")
	fault(c.Lease < 0 || c.LeaseGrace < 0 || c.LeaseShards < 0 || c.LeaseBatch < 0, "Lease, LeaseGrace, LeaseShards, LeaseBatch: less than 0")
	fault(c.LeaseStrict && c.Fallback != lease.Pessimistic(), "LeaseStrict: cannot hold with Fallback %v", c.Fallback)
	fault(c.ConnLimit < 1, "ConnLimit: %d is less than 1", c.ConnLimit)
	fault(c.alone() && c.ConnLimit >= 1 && c.MaxOpen > c.ConnLimit, "MaxOpen: %d is more than ConnLimit %d", c.MaxOpen, c.ConnLimit)
	fault(lease.CheckRate(c.OpenRate) != nil, "OpenRate: %v is not finite and at least %v", c.OpenRate, lease.MinRate)
	fault(c.OpenBurst < 1, "OpenBurst: %d is less than 1", c.OpenBurst)
	return faults
}
