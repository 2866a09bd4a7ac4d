package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
)

// Kept are the connections whose sessions were prepared for their borrowers, each with
// the proof that its session is still that one. Every session may be replaced by the
// server, which then has nothing of what was set, so the proof is held on every server.
//
// INVARIANT: on a connection in Kept nothing is sent that changes anything, or is sent
// more than maxProofAge after the last proof, before the proof was compared. A nil *Kept
// has none.
type Kept struct {
	byConn sync.Map // backend.Conn to *keptProof
}

type keptProof struct {
	proof
	provenAt atomic.Int64 // when the last proof was sent that has held, in nanoseconds since 1970
}

// Forget is for a connection that is being closed.
func (k *Kept) Forget(c backend.Conn) {
	if k != nil {
		k.byConn.Delete(c)
	}
}

// of is the proof of a connection's session, nil for one that nothing was kept in.
func (k *Kept) of(c backend.Conn) *keptProof {
	if k == nil {
		return nil
	}
	if found, ok := k.byConn.Load(c); ok {
		return found.(*keptProof)
	}
	return nil
}

// Prove makes sure that the session of a connection which is about to be borrowed is
// still the one that was prepared. After an error the connection must be closed.
func (k *Kept) Prove(ctx context.Context, c backend.Conn) error {
	return k.of(c).prove(ctx, accessRead, "")
}

// NewKeeping makes a handle that prepares the session of a new connection for those who
// borrow it later: CloseKeeping ends it.
func NewKeeping(ctx context.Context, conn backend.Conn, policy *Policy) (*SessionHandle, error) {
	kept := &keptProof{proof: proof{state: proofHeld, nonce: rand.Text()}}
	stmt, err := conn.Prepare(ctx, "SELECT '"+kept.nonce+"'", backend.Call{})
	switch {
	case err == nil:
		kept.stmt = stmt
	case !backend.FaultIn(err).KeepsConn():
		return nil, err
	default:
		kept.state = proofImpossible
	}
	s := New(conn, policy, func(error) {})
	s.kept = kept
	return s, nil
}

var errNotKept = errors.New("the server has no prepared statements, by which to find out whether it has replaced the session by one in which nothing of this is set")

// CloseKeeping ends a handle of NewKeeping. What it has set, made and attached stays. Its
// prepared statements are closed. An error means that the connection must be closed; an
// open transaction is rolled back then. It is one if a call or a result is open.
func (s *SessionHandle) CloseKeeping(ctx context.Context) error {
	left, err := s.startKeeping()
	if err != nil {
		_ = s.Discard(err) // err says more
		return err
	}
	if err = s.closeTxAndStatements(ctx, transaction{}, left.prepared); err == nil && left.needsProbe {
		err = s.runProbe(ctx)
	}
	switch {
	case err != nil:
	case left.any:
		if err = s.kept.prove(ctx, accessChange, ""); err == nil {
			s.policy.Kept.byConn.Store(s.conn, s.kept)
		}
	case s.kept.stmt != nil:
		err = s.kept.stmt.Close(ctx)
	}
	s.mu.Lock()
	s.mu.state, s.mu.releaseConn = closed, nil
	s.mu.Unlock()
	return err
}

type leftToKeep struct {
	any        bool // there is something to lose
	prepared   map[*PreparedQuery]struct{}
	needsProbe bool
}

// startKeeping has every later call refused, unless the session cannot be kept as it is.
func (s *SessionHandle) startKeeping() (leftToKeep, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := leftToKeep{s.mu.sideEffects.any(), s.mu.prepared, s.mu.needsProbe}
	switch {
	case s.mu.state == closed, s.mu.state == cleaning, s.mu.closing:
		return left, keepingError(backend.FaultUsage, backend.ErrHandleClosed)
	case s.mu.lost != nil:
		return left, keepingError(backend.FaultSession, lostError(s.mu.lost))
	case s.mu.state != idle, s.mu.rollbackDone != nil:
		return left, keepingError(backend.FaultUsage, fmt.Errorf("%w: a call or its result is still open", backend.ErrBusy))
	case s.mu.tx.phase != txNone:
		return left, keepingError(backend.FaultUsage, ErrTxOpen)
	case s.mu.discardReason != nil:
		return left, keepingError(backend.FaultSession, s.mu.discardReason)
	case left.any && s.kept.state == proofImpossible:
		return left, keepingError(backend.FaultUnsupported, errNotKept)
	}
	s.mu.state, s.mu.prepared = cleaning, nil
	return left, nil
}

func keepingError(fault backend.Fault, err error) error {
	return &backend.Error{Stage: backend.StageExecute, Fault: fault, Err: err}
}

// prove makes sure, before anything is sent to it, that a session which was prepared for
// its borrowers is still that one: see Kept.
func (k *keptProof) prove(ctx context.Context, n access, tx backend.TxID) error {
	if k == nil || k.state == proofImpossible || n == accessRead && time.Since(time.Unix(0, k.provenAt.Load())) < maxProofAge {
		return nil
	}
	return askInTime(func(at time.Time) error {
		if err := k.compare(ctx, tx); err != nil {
			return err
		}
		k.provenAt.Store(at.UnixNano())
		return nil
	})
}
