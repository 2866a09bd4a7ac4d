// Package ctxerr says how contexts have ended.
package ctxerr

import (
	"context"
	"errors"
	"time"
)

// Of is nil while ctx lives, and then its error. Where the end had a cause of
// its own (context.WithCancelCause and its like), errors.Is and errors.As find
// both, and the text has both. A cause that wraps that error is told alone.
func Of(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, err):
		return cause
	}
	return &endedError{err, cause}
}

type endedError struct{ err, cause error }

func (e *endedError) Error() string   { return e.err.Error() + ": " + e.cause.Error() }
func (e *endedError) Unwrap() []error { return []error{e.err, e.cause} }

// Is makes two of one context the same error.
func (e *endedError) Is(target error) bool {
	other, ok := target.(*endedError) // errors.Is walks the chain
	return ok && other.Error() == e.Error()
}

// deadlineSkew is how much before the end of a caller's context somebody may carry it
// out who was told the deadline, such as a server with a clock of its own or a driver
// by its socket.
const deadlineSkew = 100 * time.Millisecond

// IsDue says whether a deadline has been reached, as far as what has failed by it, and by
// nothing else, can tell: an end that is due counts as the caller's.
func IsDue(deadline func() (time.Time, bool)) bool {
	at, ok := deadline()
	return ok && time.Until(at) <= deadlineSkew
}

// Ended is how a caller's context has ended, which err tells, or nil. A server that is
// told the deadline enforces it too and may be first: byTime says that something has
// failed as it does when its time is over. Only that may come before the deadline.
func Ended(err func() error, deadline func() (time.Time, bool), byTime bool) error {
	ended := err()
	if ended == nil && byTime && IsDue(deadline) {
		return context.DeadlineExceeded
	}
	return ended
}
