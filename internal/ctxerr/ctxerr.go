// Package ctxerr says how contexts have ended.
package ctxerr

import (
	"context"
	"errors"
	"reflect"
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

// Late is Of, and leaves the cause to whoever looks into the error: to ask for it takes a lock that the one who ends the
// context holds until all who wait on it are woken, so that each of them would wait once more. The context of somebody
// else's make is asked at once: it may be used for something else when the call that was given it has returned.
func Late(ctx context.Context) error {
	if t := reflect.TypeOf(ctx); t != cancelType && t != deadlineType {
		return Of(ctx)
	}
	if err := ctx.Err(); err != nil {
		return &lateError{err, ctx}
	}
	return nil
}

// What package context makes of a context that it cancels itself. What such a context tells when it has ended stays the
// same, and no method of another's is called for it.
var cancelType, deadlineType = ownTypes()

func ownTypes() (cancel, deadline reflect.Type) {
	cancelCtx, stop := context.WithCancel(context.Background())
	stop()
	deadlineCtx, stop := context.WithDeadline(context.Background(), time.Now().Add(time.Hour))
	stop()
	return reflect.TypeOf(cancelCtx), reflect.TypeOf(deadlineCtx)
}

// A lateError is how ctx has ended: err, and the cause if there is another.
type lateError struct {
	err error
	ctx context.Context //nolint:containedctx // it has ended
}

func (e *lateError) Error() string { return Of(e.ctx).Error() }
func (e *lateError) Unwrap() error { return Of(e.ctx) }

// IsTimeout reports whether err, which Of or Late has returned, is that of a deadline. A cause that is one, such as what
// another call has failed with, does not count.
func IsTimeout(err error) bool {
	switch e := err.(type) { //nolint:errorlint // as Of and Late have made it
	case *endedError:
		err = e.err
	case *lateError:
		err = e.err
	}
	return errors.Is(err, context.DeadlineExceeded)
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
