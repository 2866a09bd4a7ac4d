// Package leftover keeps a transaction that was given up from taking in the
// statements of the next.
package leftover

import (
	"context"
	"errors"

	"github.com/flightpool/flightpool/session"
)

// UnendedTx is the transaction that a failed end may have left open in a session, of
// which the caller believes that it is over.
//
// INVARIANT: no statement is sent while it is set: it would become part of a
// transaction that nobody commits.
type UnendedTx bool

// Record takes the outcome of a commit or rollback.
func (l *UnendedTx) Record(err error) { *l = err != nil }

// RollBack rolls back what is left. It runs before the next statement, with its
// context, so that the end of a transaction does not wait for a second answer.
func (l *UnendedTx) RollBack(ctx context.Context, s *session.SessionHandle) error {
	if !*l {
		return nil
	}
	err := s.Rollback(ctx)
	if err != nil && !errors.Is(err, session.ErrNoTx) {
		return err
	}
	*l = false
	return nil
}
