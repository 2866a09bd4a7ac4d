package adbcpool

import (
	"context"
	"errors"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/session"
)

// leftover is the transaction that a failed end may have left open in a
// session, of which the caller believes that it is over.
//
// INVARIANT: no statement is sent while it is set: it would become part of a
// transaction that nobody commits.
type leftover bool

// note takes the outcome of a commit or rollback.
func (l *leftover) note(err error) { *l = leftover(err != nil) }

// end rolls back what is left. It runs before the next statement, with its
// context, so that the end of a transaction does not wait for a second answer.
func (l *leftover) end(ctx context.Context, s *flightpool.SessionHandle) error {
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
