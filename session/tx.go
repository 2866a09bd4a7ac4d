package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// Errors of transaction calls made in the wrong state. Nothing was sent.
var (
	// ErrTxOpen says that a transaction is open already. It is untouched.
	ErrTxOpen = errors.New("a transaction is open already")

	// ErrNoTx says that no transaction is open.
	ErrNoTx = errors.New("no transaction is open")

	// ErrNoSavepoint says that the transaction has no savepoint of the name.
	ErrNoSavepoint = errors.New("no such savepoint")
)

// transaction is the handle's own view of its transaction.
//
// INVARIANT: phase is txOpen only while every statement of the transaction has
// succeeded, so a COMMIT is never sent after a failure.
type transaction struct {
	phase         txPhase
	id            backend.TxID
	endedOnServer bool // aborted, and rolled back on the server already
	savepoints    []savepoint

	// unclearSavepoints are the names, as sent, of those that the server may have besides.
	unclearSavepoints []string

	// namedSavepoints counts those that were given names of ours.
	namedSavepoints int

	// abortedBy is what has aborted it. It is set in every aborted transaction.
	abortedBy error

	objects uint64 // changes of objects before it began

	// hasChanged says that a statement of it has changed something, or may have.
	hasChanged bool

	// leftByServer is errServerLeftTx once the answer to a rollback has said so.
	leftByServer error

	// commitRefused says that the last Commit answered ErrTxAborted, so that a
	// Rollback which follows has nothing to do and is no mistake.
	commitRefused bool
}

// The server's own state may differ: it may have aborted or left a transaction that is
// open here. It shows when the next statement or the Commit is answered.
type txPhase uint8

const (
	txNone txPhase = iota
	txOpen
	txAborted
)

type savepoint struct {
	name string // its caller's
	sent string // the server's
	id   backend.SavepointID
}

// openOnServer reports whether the server holds the transaction, as far as is known.
// Then it must be rolled back before the connection is used for something else.
func (t transaction) openOnServer() bool { return t.phase != txNone && !t.endedOnServer }

// markAborted aborts an open transaction. The first reason counts. Without an open one
// it does nothing.
func (t *transaction) markAborted(why error) {
	if t.phase == txOpen {
		t.phase, t.abortedBy = txAborted, why
	}
}

// markRolledBack notes that the server has ended the transaction. The handle is aborted
// still, until its caller calls Rollback or Commit: a statement that followed would
// otherwise run outside of the transaction it was meant for.
func (t *transaction) markRolledBack(why error) {
	t.markAborted(why)
	t.endedOnServer, t.savepoints = true, nil
}

// abortedErr says that the transaction is aborted, and why.
func (t *transaction) abortedErr() error {
	return fmt.Errorf("%w: %w", backend.ErrTxAborted, t.abortedBy)
}

// BeginTransaction opens a transaction on the handle's session. Every later
// statement of the handle runs inside it, until Commit or Rollback. With one
// open already it fails with ErrTxOpen and leaves that one alone.
func (s *SessionHandle) BeginTransaction(ctx context.Context) error {
	c, err := s.begin(ctx, "BeginTransaction", QueryOptions{}, finishWithinBudget)
	if err != nil {
		return err
	}
	if s.txState().phase != txNone {
		return c.finish(outcome{err: usageError(ErrTxOpen)})
	}
	c.beforeSend = func(ctx context.Context) error {
		if err := s.proveSession(ctx, accessState); err != nil {
			return err
		}
		if err := s.askAgain(ctx); err != nil {
			return err
		}
		return s.beforeTx(ctx)
	}
	objects := s.objectsChanged()
	_, err = runStep(c, s.beginTx, func(id backend.TxID, inTime bool, err error) outcome {
		tx := transaction{phase: txOpen, id: id, objects: objects}
		if err == nil && s.acceptsUnknownTx() {
			s.policy.ignoresTxIDs.Store(true)
		}
		switch {
		case err != nil:
		case inTime:
			s.setTx(tx)
		default: // nobody waits for it any more
			ctx, stop := s.policy.closeContext()
			defer stop()
			if undo := callback.Isolate(ownersCode, func() error { return s.rollBack(ctx, tx) }); undo != nil {
				s.markLost(fmt.Errorf("roll back: %w", undo)) // later statements would be in it
			}
		}
		return outcome{err: err}
	})
	return err
}

// beginTx begins on the server. An answer after which a transaction may be open costs
// the session: see notBegun. A connection that watches over its transactions is shown a
// session that was prepared for its borrowers right before: it might dial again by itself.
func (s *SessionHandle) beginTx(ctx context.Context) (id backend.TxID, err error) {
	if w, ok := s.conn.(backend.TxWatcher); ok {
		var unproven error
		id, err = w.BeginProven(ctx, func(ctx context.Context) error {
			unproven = s.kept.prove(ctx, accessState, "")
			return unproven
		})
		if unproven != nil {
			return "", unproven
		}
	} else {
		id, err = s.conn.Begin(ctx)
	}
	if err != nil {
		return "", notBegun(err)
	}
	return id, nil
}

// Commit makes the transaction durable. It answers nil only when the server
// has committed this transaction in this session.
//
// ErrTxAborted: the server refused, or a statement had failed; nothing of the
// transaction is stored. The handle has no transaction any more: begin the next,
// or call Rollback, which does nothing then. ErrCommitUnknown: whether it is
// stored cannot be known, in whole or in part; the session is lost, unless the
// server answers well after ctx has ended. An answer of INTERNAL, UNKNOWN,
// CANCELLED or DEADLINE_EXCEEDED is a refusal only if its text speaks of one, and
// of no connection that the server has lost itself. ErrSessionLost without
// ErrCommitUnknown: the session was gone before the commit was sent, and the
// transaction with it; but a server that leaves a transaction by itself and goes
// on without one, as SwanLake does when it changes a second catalogue, may have
// stored what came after, and one that replaces the session while a statement is
// on its way, that statement. A server that accepts transactions which it does not
// know, and has no prepared statements to prove a session by, may also have replaced
// it in the last 30 seconds: what failed there, ErrTxAborted too, does not say that
// nothing is stored, nor Rollback's nil, nor that of Commit that anything is.
//
// A commit is never cut short: when ctx ends first, the caller gets
// ErrCommitUnknown and the server finishes.
func (s *SessionHandle) Commit(ctx context.Context) error {
	s.commits.Add(1)
	err := s.commitCall(ctx)
	if err != nil && !errors.Is(err, backend.ErrCommitUnknown) {
		s.commits.Add(-1)
	}
	return err
}

func (s *SessionHandle) commitCall(ctx context.Context) error {
	c, err := s.begin(ctx, "Commit", QueryOptions{}, finishWhenLeft)
	if err != nil {
		return s.unlessStored(s.txState(), err)
	}
	tx := s.txState()
	switch tx.phase {
	case txNone:
		return c.finish(outcome{err: usageError(ErrNoTx)})
	case txAborted:
		aborted := &backend.Error{Op: "Commit", Stage: backend.StageExecute, Fault: backend.FaultUsage, Target: s.policy.Target, Err: tx.abortedErr()}
		c.answer = aborted
		err := s.endByRollback(c, tx, transaction{commitRefused: true})
		if err == nil {
			return aborted
		}
		if errors.Is(err, errServerLeftTx) {
			return err // that nothing is stored is not known
		}
		if s.mayHaveStored(tx) {
			return err
		}
		return errjoin.Join(aborted, err)
	default:
	}
	c.leftMeans = backend.ErrCommitUnknown
	return runStepWithoutValue(c, func(ctx context.Context) error { return s.commit(ctx, tx) },
		func(_ bool, err error) outcome { return outcome{err: s.recordCommitReply(err)} })
}

// checkUsable is nil when a statement may run in the transaction.
func (t *transaction) checkUsable() error {
	switch t.phase {
	case txNone:
		return ErrNoTx
	case txAborted:
		return t.abortedErr()
	default:
		return nil
	}
}

// usageError is the error of a call that cannot be made so, or not in this state.
// Nothing was sent, and the connection and an open transaction are as before.
func usageError(err error) *backend.Error {
	return &backend.Error{Stage: backend.StageArgument, Fault: backend.FaultUsage, Unsent: true, Err: err}
}

// txState is a copy. Only the call that holds the handle changes the state in a way
// that it could miss: the phase, the id and the savepoints.
func (s *SessionHandle) txState() transaction {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.tx
}

func (s *SessionHandle) setTx(tx transaction) {
	s.mu.Lock()
	s.mu.tx = tx
	s.mu.Unlock()
}

// abortTx has every statement refused until the caller ends the transaction. It sends
// nothing.
func (s *SessionHandle) abortTx(why error) {
	s.mu.Lock()
	s.mu.tx.markAborted(why)
	s.mu.Unlock()
}

// recordTxOutcome aborts the open transaction when a statement of it has failed, as far
// as its caller was told. The lock is held. Nothing is aborted by what was not sent,
// nor by what the server does not have, unless a proxy says so in its place, or it may be the rest of
// what was begun that it does not have. A call that was cut leaves it to the cancel to
// find out whether the transaction goes on, unless the statement failed for its caller.
func (s *SessionHandle) recordTxOutcome(c *call, o outcome, e *backend.Error) {
	if s.mu.tx.phase != txNone && c.isStatement() && !c.script.ReadOnly() && (e == nil || !e.Unsent && (!c.failedWhole(e) || meaningOf(effect.Statement, e) != effect.Refused)) {
		s.mu.tx.hasChanged = true
	}
	switch {
	case !c.isStatement() && (!c.serverMayExecute || e == nil):
	case e == nil, e.Unsent, turnedDown(e) && !c.mayBeHalfDone(e):
		if c.failureReported { // the caller left before this was known, and was told that it may run
			s.mu.tx.markAborted(fmt.Errorf("%s ended when its caller had been told a failure", c.op))
		}
	case e.Fault == backend.FaultContext && mayKeepTx(c, o): // the cancel chain finds out
	default:
		s.mu.tx.markAborted(e)
	}
}

// mayKeepTx reports whether an open transaction is worth keeping after a call that was
// cut: the caller was told no failure of a statement, and nothing was changed by half.
// Who was told that its context has ended a statement was told a failure.
func mayKeepTx(c *call, o outcome) bool {
	return !c.isStatement() || (o.readerReleased && c.script.ReadOnly())
}
