// Package driverapi is what package sqldriver and package adbcpool have in common: both
// put the interface of a driver over a session.
package driverapi

import (
	"context"
	"errors"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/session"
)

// NoCtxTimeout bounds what an interface asks for without a context: rollbacks and the
// closing of statements.
const NoCtxTimeout = 30 * time.Second

// OwnContext is the context of what an interface asks for without one. base has the
// values of the context in which the connection was opened.
func OwnContext(base context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(base, NoCtxTimeout)
}

// BadArgument is the error of a call that was given something impossible.
func BadArgument(op string, err error) error {
	return &backend.Error{Op: op, Stage: backend.StageArgument, Fault: backend.FaultUsage, Unsent: true, Err: err}
}

// EndedByContext reports whether a call of a session has failed since its context has ended. What else is in the chain of
// the error may then be the cause of that end, in an errgroup the failure of another call.
func EndedByContext(err error) bool { return backend.FaultIn(err) == backend.FaultContext }

// UnendedTx is the transaction that a failed end may have left open in a session, of
// which the caller believes that it is over.
//
// INVARIANT: no statement is sent while it is set: it would become part of a
// transaction that nobody commits.
type UnendedTx bool

// Record takes the outcome of a commit or rollback.
func (l *UnendedTx) Record(err error) { *l = err != nil }

// RollBack rolls back what is left. It runs before the next statement, with its
// context, so that the end of a transaction does not wait for a second answer. In a
// session that is lost nothing is left, and the statement says so itself. That another is, in
// what the context has ended with, says nothing.
func (l *UnendedTx) RollBack(ctx context.Context, s *session.SessionHandle) error {
	if !*l {
		return nil
	}
	err := s.Rollback(ctx)
	if err != nil && (EndedByContext(err) || !errors.Is(err, session.ErrNoTx) && !errors.Is(err, backend.ErrSessionLost)) {
		return err
	}
	*l = false
	return nil
}
