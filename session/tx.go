package session

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/status"
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

	// marker is a prepared statement made with the transaction on a server
	// that confirms COMMITs of transactions it does not know. It lives and
	// dies with the session, so it tells whether this is still the one.
	marker Prepared
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

func (t *transaction) statementFailed(f Fault) {
	if t.phase == txOpen && f != FaultUsage && f != FaultUnsupported {
		t.phase = txAborted
	}
}

func (t *transaction) rolledBack() { t.phase, t.ended, t.savepoints = txAborted, true, nil }

// BeginTransaction opens a transaction on the handle's session. Every later
// statement of the handle runs inside it, until Commit or Rollback. With one
// open already it fails with ErrTxOpen and leaves that one alone.
func (s *SessionHandle) BeginTransaction(ctx context.Context) error {
	c, err := s.begin(ctx, "BeginTransaction", QueryOptions{}, true)
	if err != nil {
		return err
	}
	if s.txState().phase != txNone {
		return c.end(usage(ErrTxOpen))
	}
	tx, err := do(c, s.beginTx, func(tx transaction, err error) {
		if err == nil { // nobody waits for it any more
			if undo := s.endOpen(tx, nil); undo != nil {
				s.doom(undo)
			}
		}
		_ = c.end(err)
	})
	if err == nil {
		s.mu.Lock()
		s.mu.tx = tx
		s.mu.Unlock()
	}
	return c.end(err)
}

// beginTx begins, and makes the marker where the server needs watching.
func (s *SessionHandle) beginTx(ctx context.Context) (transaction, error) {
	trusted, err := s.conn.TrustsTxIDs(ctx)
	if err != nil {
		return transaction{}, err
	}
	tx := transaction{phase: txOpen}
	if !trusted {
		tx.marker, err = s.conn.Prepare(ctx, s.policy.probeSQL(), Call{})
		if err != nil && !FaultIn(err).KeepsConn() {
			return transaction{}, err
		}
	}
	tx.id, err = s.conn.Begin(ctx)
	if err != nil && tx.marker != nil {
		_ = tx.marker.Close(ctx) // the error of Begin is the one that counts
	}
	return tx, err
}

// Commit makes the transaction durable. It answers nil only when the server
// has committed this transaction in this session. ErrTxAborted: nothing is
// stored, call Rollback or go on to the next. ErrCommitUnknown: the outcome
// cannot be known. ErrSessionLost without ErrCommitUnknown: the session was
// gone before the commit was sent, nothing is stored.
//
// A commit is never cut short: when ctx ends first the caller gets
// ErrCommitUnknown and the server finishes.
func (s *SessionHandle) Commit(ctx context.Context) error {
	c, err := s.begin(ctx, "Commit", QueryOptions{}, true)
	if err != nil {
		return err
	}
	tx := s.txState()
	switch tx.phase {
	case txNone:
		return c.end(usage(ErrNoTx))
	case txAborted:
		return errors.Join(&Error{Op: "Commit", Stage: StageExecute, Fault: FaultUsage, Target: s.policy.Target, Err: ErrTxAborted}, s.endTx(c, tx, false))
	default:
		return s.endTx(c, tx, true)
	}
}

// Rollback undoes the transaction. In a handle without one it fails with
// ErrNoTx, which a deferred Rollback after Commit may ignore.
func (s *SessionHandle) Rollback(ctx context.Context) error {
	c, err := s.begin(ctx, "Rollback", QueryOptions{}, true)
	if err != nil {
		return err
	}
	tx := s.txState()
	if tx.phase == txNone {
		return c.end(usage(ErrNoTx))
	}
	return s.endTx(c, tx, false)
}

// endTx carries Commit and Rollback out.
func (s *SessionHandle) endTx(c *call, tx transaction, commit bool) error {
	if tx.ended { // the cancel chain has rolled it back
		s.setTx(transaction{})
		return c.end(s.closeMarker(c.rpc, tx))
	}
	_, err := do(c, func(ctx context.Context) (struct{}, error) {
		if commit {
			if err := s.checkMarker(ctx, tx); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, s.conn.EndTx(ctx, tx.id, commit)
	}, func(_ struct{}, err error) {
		_ = s.afterEnd(c, tx, commit, err)
	})
	var left *leftBehind
	if errors.As(err, &left) {
		e := c.end(err)
		if commit {
			return errors.Join(e, ErrCommitUnknown)
		}
		return e
	}
	return s.afterEnd(c, tx, commit, err)
}

// afterEnd takes the server's word on the end of a transaction.
func (s *SessionHandle) afterEnd(c *call, tx transaction, commit bool, err error) error {
	if err == nil {
		s.setTx(transaction{})
		if err := s.closeMarker(c.rpc, tx); err != nil {
			s.doom(fmt.Errorf("close transaction marker: %w", err))
		}
		return c.end(nil) // the end itself stands
	}
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Stage: StageExecute, Err: err}
		err = e
	}
	switch {
	case e.Unsent, errors.Is(err, errMarkerGone):
		s.abort()
	case e.Fault.KeepsConn() && commit:
		// The server refused: whatever it holds is not committed. It is
		// rolled back before the connection's return.
		s.abort()
		err = withCause(e, ErrTxAborted)
	case e.Fault.KeepsConn() && s.forgotten(c.rpc, err):
		// Gone on the server, with the commit it refused for example.
		s.setTx(transaction{})
		return c.end(s.closeMarker(c.rpc, tx))
	case e.Fault.KeepsConn():
		s.abort()
		s.doom(fmt.Errorf("roll back refused: %w", err))
	default:
		s.setTx(transaction{marker: tx.marker})
		s.doom(fmt.Errorf("end of transaction unknown: %w", err))
		if commit {
			err = withCause(e, ErrCommitUnknown)
		}
	}
	return c.end(err)
}

// withCause is e with one more cause in its chain.
func withCause(e *Error, cause error) *Error {
	out := *e
	out.Err = fmt.Errorf("%w: %w", cause, e.Err)
	return &out
}

// usable is nil when a statement may run in the transaction.
func (t transaction) usable() error {
	switch t.phase {
	case txNone:
		return ErrNoTx
	case txAborted:
		return ErrTxAborted
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

func (s *SessionHandle) abort() {
	s.mu.Lock()
	if s.mu.tx.phase == txOpen {
		s.mu.tx.phase = txAborted
	}
	s.mu.Unlock()
}

func (s *SessionHandle) doom(reason error) {
	s.mu.Lock()
	if s.mu.doomed == nil {
		s.mu.doomed = reason
	}
	s.mu.Unlock()
}

// forgotten reports whether the server refused to roll back because it does
// not know the transaction: it then says the same of one that never was.
func (s *SessionHandle) forgotten(ctx context.Context, refusal error) bool {
	never := s.conn.EndTx(ctx, "flightpool-never-begun", false)
	return FaultIn(never) == FaultStatement && FaultIn(refusal) == FaultStatement && status.Code(never) == status.Code(refusal)
}
