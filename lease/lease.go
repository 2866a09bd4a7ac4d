package lease

import (
	"context"
	"time"
)

// Leases is a budget of connections. All methods may be called concurrently.
type Leases interface {
	// Acquire waits until the budget has room for one more connection and
	// takes that room. Waiters of one process are served in their order; of
	// several Holders (WithHolder) that one comes first which has least.
	//
	// The caller must call release exactly when the connection's Close has
	// returned, or when it was never dialled. release does not block, may
	// be called from any goroutine, and does nothing the second time.
	//
	// Acquire fails with ErrLimit when ctx ends while the budget is full,
	// with ErrUnavailable when the budget's keeper cannot be reached and
	// the configured Fallback grants nothing, and with ErrClosed after
	// Close. Errors of a ctx that ended are in the chain.
	Acquire(ctx context.Context) (release func(), err error)

	// Stats is a snapshot.
	Stats() Stats

	// Close refuses further Acquires, fails the waiting ones, gives back
	// what is unused and waits until ctx ends for the leases still in use.
	// It returns ErrInUse when some are left: their room comes back by
	// expiry. A second Close waits like the first.
	Close(ctx context.Context) error
}

// Limiter is a budget of opens over time. All methods may be called
// concurrently.
type Limiter interface {
	// Wait blocks until one open is permitted. The permit is spent when
	// Wait returns nil: open at once, or not at all. Waiters of one process
	// are served in their order.
	//
	// Wait fails with ErrLimit when ctx ends first, with ErrUnavailable when the budget's
	// keeper cannot be reached and the configured Fallback grants nothing,
	// and with ErrClosed after Close.
	Wait(ctx context.Context) error

	// Refused tells that the server itself refused an open as too fast, so
	// that the budget is empty whatever this side believes. It takes away
	// what is left of the burst, for the whole fleet. It does not block.
	Refused()

	// Stats is a snapshot.
	Stats() LimiterStats

	// Close fails the waiters and ends the limiter's goroutines. It waits
	// for them until ctx ends.
	Close(ctx context.Context) error
}

// Revoker is what a Leases is beside when leases can be lost after they were
// granted, because the process was taken for dead or may have been.
type Revoker interface {
	// OnRevoke registers f and returns a function that ends the
	// registration. f runs on a goroutine of its own, never two at a time
	// for one registration, and not again once stop has returned. Close waits
	// for an f that runs until its context ends, so that f must not call
	// Close. A panic in f is logged, and f is called for later events as ever.
	OnRevoke(f func(Revocation)) (stop func())

	// Valid fails with ErrUnavailable when leases granted before no longer
	// cover the opening of a connection. Ask it between a long wait and the
	// open.
	Valid() error
}

// Revocation asks a holder of leases to close its connections: idle ones now,
// those in use by the deadline. The room they take may be granted to others
// after it. Each release is called as usual.
type Revocation struct {
	Deadline time.Time // in this process's monotonic time
	Cause    error
}

// Stats describes a Leases. Fleet-wide numbers are those last seen.
type Stats struct {
	Limit   int // connections the fleet may have; 0 when not known yet
	Used    int // leases taken by the whole fleet
	InUse   int // leases granted here and not released
	Spare   int // leases held here in advance of need
	Waiting int // Acquires under way
	Owners  int // processes that share the budget, this one included, as last seen; 0: not known
	Share   int // the most that this process may have while the fleet is short; 0: it is not

	// Unbacked is how many of InUse the keeper does not know: granted by the
	// Fallback, or kept by a process that was taken for dead.
	Unbacked int

	// Degraded says that the keeper cannot be reached, so that the Fallback
	// decides. Cause is the last error then.
	Degraded bool
	Cause    error

	Granted   uint64 // Acquires that succeeded
	Denied    uint64 // Acquires that failed
	Fallbacks uint64 // Acquires that the Fallback granted
	Losses    uint64 // times this process was taken for dead
	Reaped    uint64 // dead processes whose leases were freed from here

	Traffic Traffic
}

// LimiterStats describes a Limiter.
type LimiterStats struct {
	Waiting int // Waits under way

	Degraded bool  // as in Stats
	Cause    error // as in Stats

	Granted   uint64 // Waits that succeeded
	Denied    uint64 // Waits that failed
	Fallbacks uint64 // Waits that the Fallback granted
	Dropped   uint64 // permits reserved and not used in time
	Refusals  uint64 // calls of Refused

	Traffic Traffic
}

// Traffic counts what a budget asked of its keeper. It is zero for the
// budgets of one process.
type Traffic struct {
	Reads      uint64
	Writes     uint64 // attempts, refused conditions included: all are billed
	Conditions uint64 // writes whose condition did not hold
	Failures   uint64 // requests without a definite answer, throttling among them

	// ClockSkew is the keeper's clock minus this process's, as the SDK last
	// observed it. No budget depends on it: it explains signing errors.
	ClockSkew time.Duration
}

// Admit joins two budgets into the permission for one open: first a lease,
// then a permit, since waiting for a permit with a lease in hand costs the
// fleet no rate, while a permit that waits for a lease is spent. When the
// permit fails, or the lease was lost meanwhile, the lease is released before
// Admit's function returns. Either budget may be nil.
//
// The release function must be called after the connection's Close has
// returned, or when the open failed. It is never nil without an error, does
// not block, and does nothing the second time.
func Admit(leases Leases, limiter Limiter) func(ctx context.Context) (release func(), err error) {
	return func(ctx context.Context) (func(), error) {
		release := func() {}
		if leases != nil {
			var err error
			if release, err = leases.Acquire(ctx); err != nil {
				return nil, err
			}
		}
		if limiter == nil {
			return release, nil
		}
		granted := false
		defer func() {
			if !granted { // an error, or a panic in the limiter
				release()
			}
		}()
		if err := limiter.Wait(ctx); err != nil {
			return nil, err
		}
		if l, ok := leases.(Revoker); ok {
			if err := l.Valid(); err != nil {
				return nil, err
			}
		}
		granted = true
		return release, nil
	}
}
