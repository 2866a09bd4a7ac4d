package dsql

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/internal/callback"
)

// contain runs a call of pgx's for database/sql. A panic of the user's in it, in a value or a tracer, is an
// error, and cuts the connection, since nobody knows what was sent: database/sql would keep the connection,
// and the locks of a transaction, for ever. It does so where a value or tracer ends the goroutine.
func contain[T any](l *loan, do func() (T, error)) (T, error) {
	var a callback.Attempt[T]
	defer func() {
		if !a.Returned {
			l.Value().abort()
		}
	}()
	a.Run(do)
	return a.Value, a.Failure("dsql: a value or tracer")
}

// containError is contain for calls that only fail.
func containError(l *loan, do func() error) error {
	_, err := contain(l, callback.NoValue(do))
	return err
}

// commitContained is contain for a COMMIT.
func commitContained(l *loan, do func() error) error {
	err := containError(l, do)
	if broke := new(callback.PanicError); errors.As(err, &broke) {
		return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	}
	return err
}

// runContained is runOnLoan for database/sql.
func runContained[T any](ctx context.Context, l *loan, do func() (T, error)) (T, error) {
	return runOnLoan(ctx, l, func() (T, error) { return contain(l, do) })
}
