package reservoir

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// What the calls fail with; reach them with errors.Is.
var (
	// ErrClosed says that the reservoir is closed or closing.
	ErrClosed = errors.New("reservoir: closed")

	// ErrExhausted says that no connection came free in time. The error is an
	// *ExhaustedError.
	ErrExhausted = errors.New("reservoir: exhausted")

	// ErrReleased says that a loan was given back before, was taken back by a
	// forced Close, or is the zero Loan. Nothing was changed.
	ErrReleased = errors.New("reservoir: loan is not out")
)

var (
	errAcquireTimeout = errors.New("AcquireTimeout is over") // not a context's error: no caller's deadline has passed
	errFailFast       = errors.New("all connections are taken and the policy is FailFast")
	errQueueFull      = errors.New("MaxWaiters callers wait already")
	errEndedGoroutine = errors.New("reservoir: a callback ended its goroutine")
)

// ExhaustedError says why a caller got no connection. errors.Is finds
// ErrExhausted, LastOpen and Cause in it.
type ExhaustedError struct {
	// Total, InUse, Idle and Opening count connections, Waiting the other
	// callers in the queue, at the moment of the failure.
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

// OpenError is a failed open. It reaches a caller only when nothing else could
// serve it.
type OpenError struct {
	// Err is what Open or Admit said.
	Err error
}

func (e *OpenError) Error() string { return "reservoir: open: " + e.Err.Error() }

// Unwrap gives Err.
func (e *OpenError) Unwrap() error { return e.Err }

// CloseError says what Close could not do gently.
type CloseError struct {
	// Forced counts the loans that were still out and were closed under their
	// borrowers.
	Forced int
	// Remaining counts the connections whose Open, Check or Close had not
	// returned when Close gave up. They go on in the background.
	Remaining int
	// Cause is the error of Close's context.
	Cause error
}

func (e *CloseError) Error() string {
	return fmt.Sprintf("reservoir: close: %d loans closed by force, %d connections remain: %v", e.Forced, e.Remaining, e.Cause)
}

// Unwrap gives Cause.
func (e *CloseError) Unwrap() error { return e.Cause }

// PanicError is a panic of a callback, caught.
type PanicError struct {
	// Value is what the callback panicked with.
	Value any
	// Stack is where, as runtime/debug.Stack prints it.
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("reservoir: a callback panicked: %v\n%s", e.Value, e.Stack)
}

// guarded calls f, then always done with what f returned, even when f panics
// or ends its goroutine: a connection's state must not depend on the manners
// of a callback.
func guarded(f func() error, done func(error)) {
	err := errEndedGoroutine
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		done(err)
	}()
	err = f()
}
