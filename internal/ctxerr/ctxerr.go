// Package ctxerr keeps the cause of a context's end in errors.
package ctxerr

import "context"

// Of is nil while ctx lives, and then its error. Where the end had a cause of
// its own (context.WithCancelCause and its like), errors.Is and errors.As find
// both, and the text has both.
func Of(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && cause != err { //nolint:errorlint // the same value means that there is no other cause
		return &ended{err, cause}
	}
	return err
}

type ended struct{ err, cause error }

func (e *ended) Error() string   { return e.err.Error() + ": " + e.cause.Error() }
func (e *ended) Unwrap() []error { return []error{e.err, e.cause} }

// Is makes two of one context the same error.
func (e *ended) Is(target error) bool {
	other, ok := target.(*ended) // errors.Is walks the chain
	return ok && other.Error() == e.Error()
}
