package reservoir

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// What the calls fail with; reach them with errors.Is.
var (
	// ErrClosed says that the reservoir is closed or closing.
	ErrClosed = errors.New("reservoir: closed")

	// ErrExhausted says that no connection came free in time. The error is an
	// *ExhaustedError.
	ErrExhausted = errors.New("reservoir: exhausted")

	// ErrReleased says that a loan was given back before, was taken back by a
	// forced Close or Recall, or is the zero Loan. Nothing was changed.
	ErrReleased = errors.New("reservoir: the connection is not borrowed")
)

var (
	errAcquireTimeout = errors.New("AcquireTimeout is over") // not a context's error: no caller's deadline has passed
	errFailFast       = errors.New("all connections are taken and the policy is FailFast")
	errQueueFull      = errors.New("MaxWaiters callers wait already")
	errLeft           = errors.New("the caller's context has ended")
	errCallerGone     = errors.New("reservoir: a method of the caller's context, or a hook, has ended the caller's goroutine")
	errNoReason       = errors.New("the owner has failed all callers without a reason")
)

// ExhaustedError says why a caller got no connection. errors.Is finds
// ErrExhausted, LastOpen and Cause in it.
type ExhaustedError struct {
	// Total, InUse, Idle and Opening count connections, Waiting the other
	// callers in the queue, at the moment of the failure; up to 100ms before it
	// where another caller's deadline has passed in that time.
	Total, InUse, Idle, Opening, Waiting int
	// MaxSize is the bound of Total.
	MaxSize int
	// Waited is how long the caller was in the queue.
	Waited time.Duration
	// LastOpen is why the latest open failed; nil when it did not.
	LastOpen error
	// Cause is what ended the wait: the caller's deadline, AcquireTimeout,
	// FailFast or MaxWaiters.
	Cause error
}

func (e *ExhaustedError) Error() string {
	s := fmt.Sprintf("reservoir: exhausted after %v: %d of %d connections, %d in use, %d idle, %d opening, %d waiting: %v",
		e.Waited, e.Total, e.MaxSize, e.InUse, e.Idle, e.Opening, e.Waiting, e.Cause)
	if e.LastOpen != nil {
		s += fmt.Sprintf(" (last open: %v)", e.LastOpen)
	}
	return s
}

// Is says whether target is ErrExhausted.
func (e *ExhaustedError) Is(target error) bool { return target == ErrExhausted }

// Unwrap gives the cause and the last open's error.
func (e *ExhaustedError) Unwrap() []error {
	if e.LastOpen == nil {
		return []error{e.Cause}
	}
	return []error{e.Cause, e.LastOpen}
}

// waitError is the error of a wait that ended in that way.
func waitError(err error, how waitOutcome, state *ExhaustedError, waited time.Duration) error {
	var open *OpenError
	switch {
	case how == timedOut, err == errFailFast: //nolint:errorlint // of this reservoir: an open may have failed with another's
		return newExhaustedError(err, state, waited)
	case how != canceled && (errors.As(err, &open) || errors.Is(err, ErrClosed)): // the caller's context may have ended by another's
		return err
	default:
		return &waitEndedError{waited, err}
	}
}

// A waitEndedError is why a caller has waited in vain, such as its ctx's error.
// Its text is made only when it is asked for: many may leave together.
type waitEndedError struct {
	waited time.Duration
	err    error
}

func (e *waitEndedError) Error() string {
	if e.waited <= 0 {
		return fmt.Sprintf("reservoir: acquire: %v", e.err)
	}
	return fmt.Sprintf("reservoir: acquire after %v: %v", e.waited, e.err)
}

func (e *waitEndedError) Unwrap() error { return e.err }

// OpenError is a failed open. It reaches a caller only when nothing else could
// serve it.
type OpenError struct {
	// Err is what Open or Admit said.
	Err error
}

func (e *OpenError) Error() string { return "reservoir: open: " + e.Err.Error() }

// Unwrap gives Err.
func (e *OpenError) Unwrap() error { return e.Err }

// UnusableError says why what Open has made can't be lent even once. It reaches those whom an error of
// Open does.
type UnusableError struct {
	// Err is what ExpiresAt or Watch said, or how they have ended.
	Err error
}

func (e *UnusableError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *UnusableError) Unwrap() error { return e.Err }

// Permanent marks an error of Open or Admit that will not go away by trying
// again, such as a refused credential: it reaches those who wait at once, whatever
// OpenRetry says. It is nil for a nil err.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err is marked by Permanent. It may call methods of the user's error, so
// that no lock is held.
func IsPermanent(err error) bool {
	var lasting *permanentError
	return errors.As(err, &lasting)
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// StillClosing marks an error of Open whose connection is being closed behind it: it counts, and
// keeps the permission of Admit, until closed is closed, and is stalled after CloseTimeout as any Close is. The
// reservoir that gets it first counts it. Those who wait are told at once. It is nil for a nil err.
func StillClosing(err error, closed <-chan struct{}) error {
	if err == nil {
		return nil
	}
	return &stillClosingError{err: err, closed: closed}
}

type stillClosingError struct {
	err    error
	closed <-chan struct{}
	taken  atomic.Bool // a reservoir counts it
}

func (e *stillClosingError) Error() string { return e.err.Error() }
func (e *stillClosingError) Unwrap() error { return e.err }

// RangeError says that the number given to a call is out of its bounds. Nothing
// was changed.
type RangeError struct {
	Op     string // the call
	Value  int
	Bounds string // such as "between 0 and MaxSize 8"
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("reservoir: %s: %d is not %s", e.Op, e.Value, e.Bounds)
}

// CloseError says what Close could not do gently.
type CloseError struct {
	// Forced counts the loans that were still out and were closed under their
	// borrowers.
	Forced int
	// Remaining counts the connections whose Open, Check or Close had not
	// returned when Close gave up, or where there is none the hooks. They go on
	// in the background.
	Remaining int
	// Cause is the error of Close's context. In that of a further Close it is
	// ErrClosed as well.
	Cause error

	further bool // of a further Close
}

func (e *CloseError) Error() string {
	return fmt.Sprintf("reservoir: close: %d borrowed connections closed by force, %d remain: %v", e.Forced, e.Remaining, e.Cause)
}

// Unwrap gives Cause.
func (e *CloseError) Unwrap() error { return e.Cause }

// ClosedBefore reports whether err is that of a further Close: another had come before. That it is
// ErrClosed does not say so, since the context of the first may have ended with that as its cause.
func ClosedBefore(err error) bool {
	if e := (*CloseError)(nil); errors.As(err, &e) {
		return e.further
	}
	return errors.Is(err, ErrClosed)
}

// PanicError is a panic of a callback, caught: Value is what it panicked with, and
// Stack where, as runtime/debug.Stack prints it. Stack is not part of the error's
// text. errors.Is and errors.As find Value if it is an error.
type PanicError = callback.PanicError

// who names what a reservoir calls in the errors of package callback. It calls hooks
// and the functions of Config by Isolate, or by Guard where no more is left to do:
// what the reservoir does must not depend on how they end.
const who = "reservoir: a callback"
