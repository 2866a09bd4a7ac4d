package lease

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Why a budget refuses. All are reached by errors.Is through any wrapping.
var (
	// ErrLimit says that the budget is used up.
	ErrLimit = errors.New("the fleet's budget is used up")

	// ErrUnavailable says that the keeper of the budget cannot be reached
	// and that the configured Fallback grants nothing.
	ErrUnavailable = errors.New("the fleet's budget cannot be reached")

	// ErrClosed says that the budget was closed before or during the call.
	ErrClosed = errors.New("the fleet's budget is closed")

	// ErrInUse says that Close ended before every lease was released.
	ErrInUse = errors.New("leases are still in use")
)

// Error tells which budget refused, why, and what it looked like.
type Error struct {
	Budget string // what the budget is for, for example the cluster's endpoint
	Reason error  // ErrLimit, ErrUnavailable, ErrClosed or ErrInUse
	Used   int    // as last seen; 0 for a Limiter
	Limit  int    // connections, or opens per second
	Held   int    // leases of this process
	Share  int    // the most that it may have while the fleet is short; 0: it is not
	Err    error  // the cause: the context's error, the keeper's last one, or nil
}

func (e *Error) Error() string {
	s := fmt.Sprintf("lease %q: %v", e.Budget, e.Reason)
	if e.Used > 0 {
		s += fmt.Sprintf(" (%d of %d", e.Used, e.Limit)
		if e.Held > 0 || e.Share > 0 {
			s += fmt.Sprintf("; %d of them here", e.Held)
		}
		if e.Share > 0 {
			s += fmt.Sprintf(", the share of a process is %d", e.Share)
		}
		s += ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap reaches the reason and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Err}
}

// Fallback is what a fleet's budget grants while its keeper cannot be
// reached. Its zero value is Pessimistic.
type Fallback struct {
	most int // INVARIANT: >= 0; math.MaxInt means without bound
}

// Pessimistic grants nothing: the limit holds whatever happens, and no
// connection is opened until the keeper answers again.
func Pessimistic() Fallback { return Fallback{} }

// Share lets this process have n connections (for a Limiter: n opens per
// second), counting those it already has. One that has more keeps them, one for
// one. The limit holds while what each process has, or its share if that is
// more, adds up to no more. n <= 0 is Pessimistic.
func Share(n int) Fallback { return Fallback{most: max(n, 0)} }

// Optimistic grants everything and leaves the limit to the server.
func Optimistic() Fallback { return Fallback{most: math.MaxInt} }

// Allows is how many connections, or opens per second, the fallback lets one
// process have: 0 for Pessimistic, math.MaxInt for Optimistic.
func (f Fallback) Allows() int { return f.most }

func (f Fallback) String() string {
	switch f.most {
	case 0:
		return "Pessimistic"
	case math.MaxInt:
		return "Optimistic"
	default:
		return "Share(" + strconv.Itoa(f.most) + ")"
	}
}
