package reservoir

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/flightpool/flightpool/internal/option"
)

// Validate returns every fault of c that New would refuse it for, or nil. An
// owner that has settings of its own can so report all faults together.
func (c Config[C]) Validate() error {
	_, err := c.resolve()
	return err
}

// maxConnections bounds the sizes, so that sums of them fit.
const maxConnections = math.MaxInt32

// off is what a duration that was turned off becomes: rules read "<= 0".
const off = 0

// resolve returns c with every default filled in and everything that is off
// set to off, or all of its faults.
func (c Config[C]) resolve() (Config[C], error) {
	duration := func(d *time.Duration, byDefault time.Duration) {
		switch {
		case *d == 0:
			*d = byDefault
		case *d < 0:
			*d = off
		}
	}
	number := func(n *int, byDefault, disabled int) {
		switch {
		case *n == 0:
			*n = byDefault
		case *n < 0:
			*n = disabled
		}
	}
	faults := c.faults()
	number(&c.MinIdle, 0, 0)
	number(&c.MaxSize, max(4, min(16, 2*runtime.NumCPU()), c.MinIdle), 0)
	number(&c.MaxConcurrentOpens, 8, math.MaxInt32)
	number(&c.MaxWaiters, math.MaxInt, math.MaxInt)
	duration(&c.AcquireTimeout, 30*time.Second)
	duration(&c.OpenTimeout, 5*time.Second)
	duration(&c.CloseTimeout, 5*time.Second)
	duration(&c.CheckTimeout, 5*time.Second)
	duration(&c.IdleTTL, 5*time.Minute)
	duration(&c.MaxLifetime, time.Hour)
	duration(&c.ReplaceAfter, off)
	duration(&c.LifetimeJitter, min(5*time.Minute, c.MaxLifetime/12))
	guard := 10 * time.Second
	if c.MaxLifetime > 0 {
		guard = min(guard, c.MaxLifetime/12)
	}
	duration(&c.GuardWindow, guard)
	duration(&c.IdleBeforeCheck, time.Second)
	duration(&c.LeakAfter, off)
	if c.Check == nil {
		c.CheckInterval = off
	} else {
		duration(&c.CheckInterval, 30*time.Second)
	}
	if c.MinIdle > c.MaxSize && c.MaxSize > 0 {
		faults = append(faults, fmt.Errorf("reservoir: MinIdle: %d is more than MaxSize %d", c.MinIdle, c.MaxSize))
	}
	if c.MaxLifetime > 0 && int64(c.GuardWindow) >= c.baseLifetime() {
		faults = append(faults, fmt.Errorf("reservoir: GuardWindow: %v is not less than the shortest life %v", c.GuardWindow, time.Duration(c.baseLifetime())))
	}
	if c.ReplaceAfter > 0 && c.ReplaceAfter > c.MaxLifetime-c.LifetimeJitter {
		faults = append(faults, fmt.Errorf("reservoir: ReplaceAfter: %v with LifetimeJitter %v is more than MaxLifetime %v", c.ReplaceAfter, c.LifetimeJitter, c.MaxLifetime))
	}
	return c, errors.Join(faults...)
}

// faults finds what is wrong with the fields as the user set them.
func (c Config[C]) faults() []error {
	fault, faults := option.Collect("reservoir: ")
	fault(c.Open == nil, "Open: required")
	fault(c.Close == nil, "Close: required")
	fault(c.MaxSize < 0, "MaxSize: %d is less than 1", c.MaxSize)
	fault(c.MaxSize > maxConnections || c.MinIdle > maxConnections, "MaxSize, MinIdle: %d and %d, more than %d", c.MaxSize, c.MinIdle, maxConnections)
	fault(c.OnExhausted < FailFast || c.OnExhausted > maxConnections, "OnExhausted: Overflow needs a number from 1 to %d", maxConnections)
	fault(c.OpenRetry < OpenRetryTimed || c.OpenRetry > OpenRetryAlways, "OpenRetry: %d is not a policy", c.OpenRetry)
	for name, d := range map[string]time.Duration{
		"MaxLifetime": c.MaxLifetime, "ReplaceAfter": c.ReplaceAfter, "IdleTTL": c.IdleTTL, "CheckInterval": c.CheckInterval, "LeakAfter": c.LeakAfter,
	} {
		fault(d > 0 && d < time.Millisecond, "%s: %v is less than 1ms: is the unit missing?", name, d)
	}
	fault(c.Check == nil && c.CheckInterval > 0, "CheckInterval: needs Check")
	fault(c.Check == nil && c.CheckOnAcquire, "CheckOnAcquire: needs Check")
	fault(c.Check == nil && c.CheckOnRelease, "CheckOnRelease: needs Check")
	fault(c.MaxLifetime > 0 && c.LifetimeJitter > math.MaxInt64-c.MaxLifetime, "LifetimeJitter: %v is too long", c.LifetimeJitter)
	return *faults
}

// overflow is how many connections beyond MaxSize may exist.
func (e Exhaustion) overflow() int { return max(0, int(e)) }
