package sqldriver

import (
	"fmt"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/callback"
)

const ownersCode = "an interceptor or driver of the pool's owner" // in errors

// contain makes a call for database/sql, which keeps its connection, and the locks of a transaction, for
// ever where that does not return. A panic of what the pool's owner has put beneath is an error. Of
// runtime.Goexit database/sql cannot be told: the pool loses nothing by it, and what the caller has open
// of database/sql's stays locked.
func contain[T any](op string, call func() (T, error)) (T, error) {
	var a callback.Attempt[T]
	if a.Run(call); a.Returned {
		return a.Value, a.Err
	}
	return a.Value, &backend.Error{Op: op, Stage: backend.StageExecute, Fault: backend.FaultUnknown, Err: a.Failure(ownersCode)}
}

// containError is contain for calls that only fail.
func containError(op string, call func() error) error {
	_, err := contain(op, callback.NoValue(call))
	return err
}

// commitContained is contain for a commit, of which a panic says nothing.
func commitContained(call func() error) error {
	returned := false
	err := containError("Commit", func() error {
		err := call()
		returned = true
		return err
	})
	if !returned {
		return fmt.Errorf("%w: %w", flightpool.ErrCommitUnknown, err)
	}
	return err
}
