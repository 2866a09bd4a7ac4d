package dsql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/internal/badconn"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
)

// What the calls fail with; reach them with errors.Is. An open's own error is an
// *OpenError.
var (
	// ErrReservoirEmpty says that no connection came free in time. The error is
	// an *EmptyError. It never is, nor wraps, driver.ErrBadConn.
	ErrReservoirEmpty = errors.New("dsql: the reservoir is empty")

	// ErrClosed says that the pool or its Cluster is closed.
	ErrClosed = reservoir.ErrClosed

	// ErrReleased says that a connection was used after its Release. Nothing was
	// sent.
	ErrReleased = reservoir.ErrReleased

	// ErrCommitUnknown says that the connection was lost after COMMIT was sent
	// and before it was answered, or that the answer was a fault of the server
	// (SQLSTATE classes 08, 53, 57, 58 and XX): nobody knows whether the transaction was
	// committed. RetryOCC never runs such a one again.
	ErrCommitUnknown = errors.New("dsql: whether the transaction was committed is not known")

	// ErrLost says that the connection was lost after a statement may have been
	// sent and before it was answered. It is neither safe to retry nor
	// driver.ErrBadConn.
	ErrLost = errors.New("dsql: the connection was lost before the statement was answered")
)

var (
	errUnwanted       = errors.New("BeforeAcquire does not want the connection")
	errNoWait         = errors.New("nothing is ready and NoWait is set")
	errAcquireTimeout = fmt.Errorf("AcquireTimeout is over: %w", context.DeadlineExceeded)
)

// EmptyError says why a caller got no connection. errors.Is finds
// ErrReservoirEmpty, Cause and LastOpen in it.
type EmptyError struct {
	// Waited is for how long.
	Waited time.Duration
	// Ready, InUse and Opening count connections, Waiting the other callers, of
	// MaxSize, at the moment of the failure.
	Ready, InUse, Opening, Waiting, MaxSize int
	// Leases and Limiter are the budgets at that moment: opens that wait there
	// wait for the fleet.
	Leases  lease.Stats
	Limiter lease.LimiterStats
	// Cause ended the wait: the caller's context, AcquireTimeout or NoWait.
	Cause error
	// LastOpen is why the latest open failed; nil when it did not.
	LastOpen error

	// Signing is how many opens wait for credentials. The cluster has not been asked for them yet.
	Signing int
	// Unanswered is for how long the cluster has not answered the oldest login under way; 0: none is.
	Unanswered time.Duration
}

func (e *EmptyError) Error() string {
	s := fmt.Sprintf("%v after %v: %d ready, %d in use, %d opening of %d, %d waiting: %v",
		ErrReservoirEmpty, e.Waited, e.Ready, e.InUse, e.Opening, e.MaxSize, e.Waiting, e.Cause)
	switch {
	case e.Leases.Degraded:
		s += "; the table of the leases cannot be reached"
	case e.Leases.Waiting > 0:
		s += fmt.Sprintf("; %d opens wait for a lease, the fleet has %d of %d%s", e.Leases.Waiting, e.Leases.Used, e.Leases.Limit, e.fleetText())
	case e.Limiter.Waiting > 0:
		s += fmt.Sprintf("; %d opens wait for a permit of the fleet", e.Limiter.Waiting)
	case e.Signing > 0:
		s += fmt.Sprintf("; %d opens wait for credentials", e.Signing)
	}
	if e.LastOpen != nil {
		s += fmt.Sprintf(" (last open: %v)", e.LastOpen)
	}
	return s
}

// fleetText tells how many processes share the leases, and what part each has.
func (e *EmptyError) fleetText() string {
	switch {
	case e.Leases.Share > 0:
		return fmt.Sprintf(" in %d processes, of which each may have %d", e.Leases.Owners, e.Leases.Share)
	case e.Leases.Owners > 0:
		return fmt.Sprintf(" in %d processes", e.Leases.Owners)
	}
	return ""
}

// Is says whether target is ErrReservoirEmpty.
func (e *EmptyError) Is(target error) bool { return target == ErrReservoirEmpty }

// Unwrap gives the cause and the last open's error.
//
// INVARIANT: driver.ErrBadConn is not in the chain: database/sql would call
// three times more, at once.
func (e *EmptyError) Unwrap() []error {
	var chain []error
	for _, err := range []error{e.Cause, e.LastOpen} {
		if err != nil {
			chain = append(chain, badconn.Hide(err))
		}
	}
	return chain
}
