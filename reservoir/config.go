package reservoir

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/option"
)

// Config says how a reservoir opens, keeps and lends its connections.
//
// The zero value of a field is its default; a negative number or duration
// turns the field off. Open and Close are the only ones without a default. Timeouts,
// ages and intervals below 1ms are refused: their unit is missing.
type Config[C any] struct {
	// Open makes one connection. It runs on a goroutine of the reservoir, on a
	// context that ends after OpenTimeout and when the reservoir closes, never
	// when a caller gives up. Until it returns it counts against MaxSize and
	// MaxConcurrentOpens, also past the end of its context. Required.
	Open func(ctx context.Context) (C, error)

	// Close ends one connection. It is called exactly once for each that Open
	// made, on a goroutine of its own. The connection counts against MaxSize
	// until Close returns. Required.
	Close func(C) error

	// Check proves that an idle connection still works. It runs on a goroutine
	// of the reservoir, with CheckOnRelease inside Loan.Release, on a context that
	// ends after CheckTimeout; an error closes the connection. Optional.
	Check func(ctx context.Context, c C) error

	// Reset makes a returned connection as good as new. It runs inside Loan.Release, on
	// a context that ends after CheckTimeout, or by the force of Recall; an error closes the connection. Release
	// waits for it, so it has to return soon after its context has ended; CheckOne and
	// Reservoir.Close do not. Optional.
	Reset func(ctx context.Context, c C) error

	// Watch is told of each connection that Open has made, before it is lent,
	// and of a function to call when the connection has ended by itself. An
	// idle one is closed and replaced then, at once and without a check; one
	// that is in use when it comes back. lost may be called from anywhere, also
	// inside Watch, and more than once; it does not wait and calls nothing back.
	// Watch runs on a goroutine of the reservoir and must return soon. Optional.
	Watch func(c C, lost func(cause error))

	// ExpiresAt says until when a connection that Open has made can be used, for
	// example because its credential ends then. Like MaxLifetime it is a bound
	// from which GuardWindow is taken off, and the connection is replaced in time
	// before it; the earlier of the two counts. The zero time is no bound. A
	// connection that can't be lent even once is closed and counts as a failed
	// open. It runs on a goroutine of the reservoir, before Watch, and must return
	// soon. Optional.
	ExpiresAt func(c C) time.Time

	// Admit asks for the permission to open one connection, for example of a
	// fleet-wide budget. It may wait as long as it likes, but must return soon
	// after ctx ends, which happens when the reservoir closes. The permission
	// lasts as long as the connection: release is called exactly once, after
	// Close returned or when the open failed or was not wanted any more. A nil
	// release is allowed. Its error is that of a failed open, and reaches the
	// same callers; but one that is ErrExhausted says that the budget is full
	// just now: nobody is failed, and it is asked again. Optional.
	Admit func(ctx context.Context) (release func(), err error)

	// MinIdle is how many idle connections the reservoir keeps ready.
	// Default 0; at most MaxSize.
	MinIdle int

	// MaxSize bounds the connections that exist: opening, idle, on loan and
	// closing. Default max(4, min(16, 2*NumCPU), MinIdle); from 1 to 2^31-1.
	MaxSize int

	// MaxConcurrentOpens bounds the opens under way at a time, those that wait
	// for Admit included. Default 8; negative: no bound but MaxSize.
	MaxConcurrentOpens int

	// MaxWaiters bounds the callers that wait for a connection to come free; one
	// more fails at once with ErrExhausted. Those for whom a connection is being
	// opened or checked, or can be, do not count. Default 0: no bound.
	MaxWaiters int

	// AcquireTimeout bounds a caller's wait, besides its own context. Default 30s.
	AcquireTimeout time.Duration
	// OpenTimeout bounds one Open, without its Admit. Default 5s.
	OpenTimeout time.Duration
	// CloseTimeout is when a Close counts as stalled, and how long
	// Reservoir.Close waits after its context ended; negative: it does not wait
	// then. Default 5s.
	CloseTimeout time.Duration
	// CheckTimeout bounds one Check and one Reset. Default 5s.
	CheckTimeout time.Duration

	// IdleTTL closes a connection that was idle that long, when more than MinIdle
	// were: a reservoir that is not used shrinks to MinIdle. A connection that
	// replaces an idle one, because of its age, is idle since that was. Default 5m.
	IdleTTL time.Duration
	// MaxLifetime is the age from which a connection expires.
	// Default 1h.
	MaxLifetime time.Duration
	// ReplaceAfter is the age from which a connection is replaced. It is lent on
	// while no other can be opened for it, because opens fail or Admit permits
	// none: until MaxLifetime less what it did not get of LifetimeJitter. With
	// LifetimeJitter at most MaxLifetime, which it needs. Default 0: shortly before
	// MaxLifetime.
	ReplaceAfter time.Duration
	// LifetimeJitter is added to ReplaceAfter if that is set, else to MaxLifetime,
	// in parts that spread evenly, so that connections opened together do not
	// expire together. Default 5m, at most MaxLifetime/12.
	LifetimeJitter time.Duration
	// GuardWindow is how long before its expiry, by MaxLifetime or ExpiresAt, a
	// connection is not lent any more. Less than MaxLifetime, with ReplaceAfter by more
	// than LifetimeJitter. Default 10s, at most
	// MaxLifetime/12.
	GuardWindow time.Duration

	// CheckInterval is how often an idle connection is checked; up to a quarter
	// of MaxSize, and no more than 64, at a time. Default 30s when Check is set.
	CheckInterval time.Duration
	// IdleBeforeCheck is how long a connection may be idle before
	// CheckOnAcquire looks at it. Default 1s; negative: look every time.
	IdleBeforeCheck time.Duration
	// CheckOnAcquire checks a connection before it is lent, while its caller
	// waits in the queue. When a check fails, or takes longer than opens do, a
	// connection is opened beside the checks that follow. It needs Check.
	CheckOnAcquire bool
	// CheckOnRelease checks a connection inside Release, after Reset. It needs
	// Check.
	CheckOnRelease bool

	// OnExhausted says what happens to a caller when MaxSize connections are
	// taken: Wait (default), FailFast or Overflow(n).
	OnExhausted Exhaustion

	// OpenRetry says who waits for another open after one has failed and no
	// connection is left: OpenRetryTimed (default), OpenRetryNever or
	// OpenRetryAlways.
	OpenRetry OpenRetry

	// LeakAfter reports a loan that is out for longer, once, with the stack of
	// its borrower, also while Close waits for it. The loan stays valid. Default 0: off.
	LeakAfter time.Duration

	// Hooks are told what happens. Optional.
	Hooks Hooks
}

// Exhaustion is a policy for callers who find all connections taken.
type Exhaustion int

// The policies without a number.
const (
	// Wait queues the caller until a connection comes back.
	Wait Exhaustion = 0
	// FailFast fails the caller with ErrExhausted unless a connection is
	// idle or one can still be opened for it.
	FailFast Exhaustion = -1
)

// Overflow opens up to n connections beyond MaxSize for callers who wait. They
// are closed once they were idle for a second. New refuses an n below 1.
func Overflow(n int) Exhaustion {
	if n < 1 {
		return invalidOverflow
	}
	return Exhaustion(n)
}

const invalidOverflow Exhaustion = math.MinInt32

// OpenRetry says which callers wait on when an open has failed and no other
// connection can serve them. Opens are tried again in any case, after a pause
// that grows from 10ms to 1s. Those who wait on and get nothing fail with an
// ErrExhausted that has the open's error in its chain; an error that Permanent
// marks fails everybody at once.
type OpenRetry int

// The policies.
const (
	// OpenRetryTimed lets those wait whose context has a deadline, until then or
	// until AcquireTimeout: they have said how long they have. The others fail
	// with the open's error.
	OpenRetryTimed OpenRetry = iota
	// OpenRetryNever fails everybody with the open's error.
	OpenRetryNever
	// OpenRetryAlways lets everybody wait.
	OpenRetryAlways
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
	return c, errjoin.Join(faults...)
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
		"AcquireTimeout": c.AcquireTimeout, "OpenTimeout": c.OpenTimeout, "CloseTimeout": c.CloseTimeout, "CheckTimeout": c.CheckTimeout,
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
