package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
)

// refusedCommit is a COMMIT that the server refused, and how the rollback ended that
// was sent after it. Its text and its chain are those of the refusal alone. A rollback
// of nil says that the server has no transaction of the handle's any more.
type refusedCommit struct {
	refusal, rollback error

	// left says that the server may have left the transaction before: see maybeLeft.
	left bool
}

func (e *refusedCommit) Error() string { return e.refusal.Error() }
func (e *refusedCommit) Unwrap() error { return e.refusal }

// notCommitted is the failure of what comes before a COMMIT, which was not sent,
// whatever the failure is. Without the type, one of the connection would read as an
// unknown outcome.
type notCommitted struct{ error }

func (e *notCommitted) Unwrap() error { return e.error }

// commit commits. After a refusal it has the transaction end on the server too, so that
// the handle can go on without a call that may fail. The proof is compared right
// before, and behind a confirmation: the server may confirm the COMMIT of a transaction that
// it has never seen. An answer that leaves it open whether the server has committed is passed on as it is,
// and no rollback follows: the session is given up.
func (s *SessionHandle) commit(ctx context.Context, tx transaction) error {
	if err := s.proveSession(ctx, accessChange); err != nil {
		return &notCommitted{err}
	}
	err := s.conn.EndTx(ctx, tx.id, true)
	if err == nil {
		return s.proveAfterCommit(ctx)
	}
	if !backend.FaultIn(err).KeepsConn() || meaningOf(effect.Commit, err) != effect.Refused {
		return err
	}
	left := s.maybeLeft(tx, err)
	switch status.Code(err) {
	case codes.Aborted, codes.AlreadyExists, codes.Internal, codes.Unknown, codes.Canceled, codes.DeadlineExceeded: // an engine's, by its words
		tx.hasChanged = false // a refused COMMIT ends a transaction, too, and has said what that means
	default: // it may be a proxy's, and no engine has seen the COMMIT
		tx.hasChanged = tx.hasChanged && !effect.CommitFailed(err)
	}
	rollback := s.rollBack(ctx, tx)
	left = left || s.txState().leftByServer != nil || rollback != nil && s.mayHaveStored(tx) // nobody has said that it was not left
	return &refusedCommit{refusal: asSent(err), rollback: rollback, left: left}
}

// recordCommitReply takes the server's word on a commit, and returns the caller's
// error. It runs before the call is finished, also when the caller has left, so that
// the handle's next call finds the transaction over, aborted or the session lost.
func (s *SessionHandle) recordCommitReply(err error) error {
	if err == nil {
		s.setTx(transaction{})
		return nil
	}
	var e *backend.Error
	if !errors.As(err, &e) {
		e = &backend.Error{Stage: backend.StageExecute, Err: err}
	}
	var refused *refusedCommit
	var before *notCommitted
	switch {
	case errors.As(err, &refused):
		// A Rollback after this, as callers defer it, has nothing left to do.
		if refused.rollback == nil {
			s.setTx(transaction{commitRefused: true})
		} else { // it may still be open
			s.abortTx(err)
			s.markDiscard(fmt.Errorf("a refused commit could not be rolled back: %w", refused.rollback))
		}
		if refused.left {
			return withCause(e, backend.ErrCommitUnknown)
		}
		return withCause(e, backend.ErrTxAborted)
	// The COMMIT was not sent. The server may have the transaction still, and only a
	// rollback can end it, since the COMMIT has failed for the caller.
	case e.Unsent, errors.As(err, &before):
		s.abortTx(err)
		return s.unlessStored(s.txState(), err)
	default:
		// The transaction may be open still, and would take in what the session
		// is sent later.
		s.setTx(transaction{})
		s.markLost(fmt.Errorf("end of transaction unknown: %w", err))
		return withCause(e, backend.ErrCommitUnknown)
	}
}

// Rollback undoes the transaction. ErrCommitUnknown: the server had left the
// transaction by itself, or a rollback, in whose answer it may have said so, failed or
// was not answered; what was done after that may be stored. ErrSessionLost: the
// transaction went with the session, and with it what such a server knew of having left
// it; see Commit for what may be stored all the same. In a handle without a transaction it
// fails with ErrNoTx, which a deferred Rollback after Commit may ignore. After a Commit that
// answered ErrTxAborted there is nothing to undo, and it answers nil. DefaultQueryTimeout does
// not hold for it where CloseTimeout is longer.
func (s *SessionHandle) Rollback(ctx context.Context) error {
	return s.rollbackCall(ctx, QueryOptions{Timeout: s.rollbackTimeout()})
}

func (s *SessionHandle) rollbackCall(ctx context.Context, opts QueryOptions) error {
	c, err := s.begin(ctx, "Rollback", opts, finishWithinBudget)
	if err != nil {
		return s.unlessStored(s.txState(), err)
	}
	tx := s.txState()
	switch {
	case tx.commitRefused:
		s.setTx(transaction{})
		return c.finish(outcome{})
	case tx.phase == txNone:
		return c.finish(outcome{err: usageError(ErrNoTx)})
	}
	return s.endByRollback(c, tx, transaction{})
}

// endByRollback ends the transaction, of which none is left, and the call: in this order,
// since the next call may begin another. If nothing could be sent, the transaction stays
// aborted and is rolled back with the handle's Close. Otherwise the server may have it
// still, and the connection is discarded.
func (s *SessionHandle) endByRollback(c *call, tx, none transaction) error {
	if tx.endedOnServer { // the cancel chain has rolled it back
		s.setTx(none)
		return c.finish(outcome{err: tx.leftByServer})
	}
	if s.mayHaveStored(tx) {
		c.leftMeans = errServerLeftTx
	}
	err := runStepWithoutValue(c, func(ctx context.Context) error { return s.rollBack(ctx, tx) }, func(_ bool, err error) outcome {
		left := s.txState().leftByServer
		if err == nil {
			s.setTx(none)
			return outcome{err: left}
		}
		s.abortTx(err)
		var e *backend.Error
		if !errors.As(err, &e) {
			e = &backend.Error{Stage: backend.StageExecute, Err: err}
		}
		if !e.Unsent {
			s.markDiscard(fmt.Errorf("rollback failed: %w", err))
		}
		if left == nil && !e.Unsent && !errors.Is(e, backend.ErrSessionLost) && s.mayHaveStored(tx) {
			left = errServerLeftTx
		}
		if left != nil {
			e = withCause(e, left)
		}
		return outcome{err: e}
	})
	return s.unlessStored(tx, err)
}

// rollBack ends the transaction on the server, and answers nil when it is gone
// there, however that came.
//
// A refusal says either that the server has ended the transaction by itself,
// with the commit that it refused for example, or that it cannot roll back now.
// Some servers say the first once and then forget it. For the rest a transaction of
// our own tells whether the server can begin and end one: then none is open in the
// session. Unless the status of the refusal speaks of a state, the connection is
// given up all the same, since the server may have kept ours.
//
// Failures that are not the server's refusal are returned as they are. That the server
// had left the transaction before is kept in its leftByServer.
func (s *SessionHandle) rollBack(ctx context.Context, tx transaction) error {
	first := s.sendRollback(ctx, tx)
	if first == nil || backend.FaultIn(first) != backend.FaultStatement {
		return first
	}
	err := asSent(s.sendRollback(ctx, tx)) // as the first was
	if err == nil || backend.FaultIn(err) != backend.FaultStatement {
		return err
	}
	fresh, beginErr := s.conn.Begin(ctx)
	if beginErr != nil || s.conn.EndTx(ctx, fresh, false) != nil {
		return err
	}
	if s.mayHaveStored(tx) { // no answer was our session's confirmation, and the last ones may be another's
		s.recordLeft(err)
	}
	switch status.Code(err) {
	case codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition:
	default:
		s.markDiscard(fmt.Errorf("rollback refused: %w", err))
	}
	return nil
}

// sendRollback sends one, and keeps what its answer says of the server's leaving the
// transaction. SwanLake says that once: what answers the next one does not take it back.
//
// A session that the server has put in the place of ours confirms the rollback too, and
// knows nothing of the transaction. So the session is proven behind the confirmation:
// before it, an aborted transaction would refuse the proof.
func (s *SessionHandle) sendRollback(ctx context.Context, tx transaction) error {
	err := s.conn.EndTx(ctx, tx.id, false)
	if err == nil && s.mayHaveStored(tx) {
		return s.proveAfterRollback(ctx)
	}
	if s.maybeLeft(tx, err) {
		s.recordLeft(err)
	}
	return err
}

// recordLeft keeps that the server has left the transaction, or may have, by its answer to
// a rollback.
func (s *SessionHandle) recordLeft(answer error) {
	s.mu.Lock()
	s.mu.tx.leftByServer = &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: fmt.Errorf("%w: %w", errServerLeftTx, answer)}
	s.mu.Unlock()
}

// maybeLeft reports whether the server may have left the transaction before its end was
// asked for, so that statements of it may be stored: its answer says so, or could have.
//
// Servers that accept unknown transactions run on in autocommit after some errors: a
// statement of a second catalogue, a conflict in the middle. They say so once, at the
// end of the transaction. Whether a statement that they refused was the first that they
// ran so is not known.
func (s *SessionHandle) maybeLeft(tx transaction, answer error) bool {
	return s.mayHaveStored(tx) && (status.Code(answer) == codes.FailedPrecondition || meaningOf(effect.Commit, answer) == effect.NotKnown)
}

// mayHaveStored reports whether something of a transaction that is not committed may be
// stored: where the server is one that may leave it (maybeLeft) and a statement of it
// may have changed something, also one that its caller has left and that is still under way. Then only the
// answer of our own session to the ROLLBACK tells.
func (s *SessionHandle) mayHaveStored(tx transaction) bool {
	return s.acceptsUnknownTx() && (tx.hasChanged || s.changeUnderWay())
}

// changeUnderWay reports whether the server may be running a change of the handle.
func (s *SessionHandle) changeUnderWay() bool {
	s.mu.Lock()
	c := s.mu.call
	s.mu.Unlock()
	return c != nil && c.stepBegun.Load() && c.isStatement() && c.mayChange()
}

// unlessStored is the error of the end of tx. With a session that is lost goes what the server
// knew of having left the transaction: where something may be stored, the error is not that of
// what was not sent, which could be repeated, and with it the whole transaction.
func (s *SessionHandle) unlessStored(tx transaction, err error) error {
	others := backend.FaultIn(err) == backend.FaultContext && !s.isLost() // in the cause of its context
	if errors.Is(err, backend.ErrSessionLost) && !others && s.mayHaveStored(tx) {
		return asSent(err)
	}
	return err
}

// errServerLeftTx says that the server had left the transaction before its rollback, or
// may have.
var errServerLeftTx = fmt.Errorf("%w: the server may have left the transaction before the rollback, so that statements of it may be stored", backend.ErrCommitUnknown)

// withCause is e with one more cause in its chain.
func withCause(e *backend.Error, cause error) *backend.Error {
	out := *e
	out.Err = fmt.Errorf("%w: %w", cause, e.Err)
	return &out
}

// proveAfterCommit makes sure that it was the handle's session which has confirmed a COMMIT. One
// that the server has put in its place since the last proof confirms it, too, and what came of
// the transaction is not known then. However late the answer comes, it is of a session that was
// there before the COMMIT.
func (s *SessionHandle) proveAfterCommit(ctx context.Context) error {
	s.mu.Lock()
	p := s.mu.proof
	s.mu.Unlock()
	if p.state != proofHeld || p.trusted {
		return nil
	}
	at := time.Now()
	if err := p.compare(ctx, ""); err != nil {
		return asSent(err)
	}
	s.mu.Lock()
	s.mu.proof.recordAnswer(at)
	s.mu.Unlock()
	return nil
}
