package session

import (
	"context"
	"errors"
	"fmt"

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
// succeeded, so a COMMIT is sent only for what the caller believes in.
type transaction struct {
	phase      txPhase
	id         TxID
	ended      bool // aborted, and rolled back on the server already
	savepoints []savepoint

	// why is what has aborted it. It is set in every aborted transaction.
	why error

	// refused says that the last Commit answered ErrTxAborted, so that a
	// Rollback which follows has nothing to do and is no mistake.
	refused bool
}

type txPhase uint8

const (
	txNone txPhase = iota
	txOpen
	txAborted
)

type savepoint struct {
	name string
	id   SavepointID
}

// open reports whether the server holds the transaction, as far as is known.
func (t transaction) open() bool { return t.phase != txNone && !t.ended }

// spoil aborts an open transaction.
func (t *transaction) spoil(why error) {
	if t.phase == txOpen {
		t.phase, t.why = txAborted, why
	}
}

// rolledBack notes that the server has ended the transaction.
func (t *transaction) rolledBack(why error) {
	t.spoil(why)
	t.ended, t.savepoints = true, nil
}

// abortedErr says that the transaction is aborted, and why.
func (t *transaction) abortedErr() error {
	return fmt.Errorf("%w: %w", ErrTxAborted, t.why)
}

// BeginTransaction opens a transaction on the handle's session. Every later
// statement of the handle runs inside it, until Commit or Rollback. With one
// open already it fails with ErrTxOpen and leaves that one alone.
func (s *SessionHandle) BeginTransaction(ctx context.Context) error {
	c, err := s.begin(ctx, "BeginTransaction", QueryOptions{}, brief)
	if err != nil {
		return err
	}
	if s.txState().phase != txNone {
		return c.finish(outcome{err: usage(ErrTxOpen)})
	}
	c.ready = func(ctx context.Context) error {
		if err := s.proveSession(ctx, risks); err != nil {
			return err
		}
		return s.beforeTx(ctx)
	}
	_, err = perform(c, s.beginTx, func(id TxID, present bool, err error) outcome {
		tx := transaction{phase: txOpen, id: id}
		switch {
		case err != nil:
		case present:
			s.setTx(tx)
		default: // nobody waits for it any more
			ctx, stop := s.policy.bounded()
			defer stop()
			if undo := s.rollBack(ctx, tx); !gone(undo) {
				s.lose(fmt.Errorf("roll back: %w", undo)) // later statements would be in it
			}
		}
		return outcome{err: err}
	})
	return err
}

func (s *SessionHandle) beginTx(ctx context.Context) (TxID, error) {
	id, err := s.conn.Begin(ctx)
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
// stored what came after.
//
// A commit is never cut short: when ctx ends first, the caller gets
// ErrCommitUnknown and the server finishes.
func (s *SessionHandle) Commit(ctx context.Context) error {
	c, err := s.begin(ctx, "Commit", QueryOptions{}, toItsEnd)
	if err != nil {
		return err
	}
	tx := s.txState()
	switch tx.phase {
	case txNone:
		return c.finish(outcome{err: usage(ErrNoTx)})
	case txAborted:
		aborted := &Error{Op: "Commit", Stage: StageExecute, Fault: FaultUsage, Target: s.policy.Target, Err: tx.abortedErr()}
		err := s.endByRollback(c, tx)
		if err == nil {
			s.setTx(transaction{refused: true})
			return aborted
		}
		return errjoin.Join(aborted, err)
	default:
	}
	err = do(c, func(ctx context.Context) error { return s.commit(ctx, tx) },
		func(_ bool, err error) outcome { return outcome{err: s.judgeCommit(err)} })
	var e *Error
	if c.callerLeft && errors.As(err, &e) {
		return withCause(e, ErrCommitUnknown)
	}
	return err
}

// usable is nil when a statement may run in the transaction.
func (t *transaction) usable() error {
	switch t.phase {
	case txNone:
		return ErrNoTx
	case txAborted:
		return t.abortedErr()
	default:
		return nil
	}
}

func usage(err error) *Error {
	return &Error{Stage: StageArgument, Fault: FaultUsage, Unsent: true, Err: err}
}

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

func (s *SessionHandle) abort(why error) {
	s.mu.Lock()
	s.mu.tx.spoil(why)
	s.mu.Unlock()
}

// noteTx aborts the open transaction when a statement of it has failed, as far
// as its caller was told. The lock is held.
func (s *SessionHandle) noteTx(c *call, o outcome, e *Error) {
	switch {
	case !c.statement && (!c.looks || e == nil):
	case e == nil && c.callerLeft:
		s.mu.tx.spoil(fmt.Errorf("%s ended when its caller had been told a failure", c.op))
	case e == nil, e.Unsent, e.Fault == FaultUsage, e.Fault == FaultUnsupported:
	case e.Fault == FaultContext && keepsTx(c, o): // the cancel chain finds out
	default:
		s.mu.tx.spoil(e)
	}
}

// keepsTx reports whether an open transaction is worth keeping after a call
// that was cut: the caller was told no failure of a statement, and nothing was
// changed by half.
func keepsTx(c *call, o outcome) bool {
	return !c.statement || (o.letGo && c.script.ReadOnly())
}
