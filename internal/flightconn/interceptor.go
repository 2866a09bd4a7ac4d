package flightconn

import (
	"errors"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

// ofInterceptor is err, with which an RPC has failed, without the *backend.Error that an interceptor may have of a call of
// another pool.
//
// INVARIANT: whether a call has sent anything is said by what it has sent itself (wrapError), not by another's error.
func ofInterceptor(err error) error {
	if err == nil || eof.Reached(err) {
		return err
	}
	if e := (*backend.Error)(nil); errors.As(err, &e) {
		return &interceptorError{err}
	}
	return err
}

type interceptorError struct{ err error }

func (e *interceptorError) Error() string        { return e.err.Error() }
func (e *interceptorError) Is(target error) bool { return errors.Is(e.err, target) }

// As finds what the chain has, but for a *backend.Error.
func (e *interceptorError) As(target any) bool {
	if _, ok := target.(**backend.Error); ok {
		return false
	}
	return errors.As(e.err, target)
}

// unfounded says what is wrong with the failure of an RPC that has ended well.
func (r *trackedRPC) unfounded() string {
	if r.owner != nil && r.owner.transport.own != nil { // it has no interceptors
		return "the server has ended the call well"
	}
	return "DialOptions: an interceptor has told a failure that the server has not"
}
