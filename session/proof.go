package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

const (
	// maxProofAge is how long after the last proof was sent the session is asked
	// for it again before another read is. A server's clock begins when a
	// statement does, not when it ends.
	maxProofAge = 5 * time.Second

	// maxUnprovenPause is how long a handle with something to lose may pause on a
	// server that has given no proof.
	maxUnprovenPause = 30 * time.Second
)

// proof shows that the session is still the one in which the handle has something to
// lose: a transaction, prepared statements, temporary objects, settings. A server that refuses
// what it does not know needs it for the latter two alone, which no call names. It is
// a prepared statement that answers with a number nobody else knows. Its handle
// on the server alone proves nothing: a server that counts them gives the same
// one to a statement of the session that replaced ours.
//
// INVARIANT: it is made before there is anything to lose, but for what is first left in a
// transaction of a server that refuses unknown ones: by the first call behind the transaction, which does not see
// what has replaced the session before that. On others it is compared before
// whatever changes data, before every COMMIT and behind one that was confirmed, and behind a
// ROLLBACK whose confirmation is to say that nothing is stored; on all, outside of transactions
// whose ids are a proof, before what is sent more than maxProofAge after the last proof.
//
// SwanLake evicts a session 15 minutes after its last statement has begun, and the next
// request gets a new one under the same id, without an error; so does GizmoSQL, after a time that
// is configured there. The zero proof is that of a handle that has nothing to lose yet.
type proof struct {
	state    proofState
	trusted  bool // the server is known to refuse transactions that it does not know
	unasked  bool // it has refused the question whether it does
	stmt     backend.Prepared
	nonce    string
	lastSent time.Time // when the last proof was sent that has held, or without one the last statement that was answered, or came with nothing to lose
}

type proofState uint8

const (
	proofUnknown    proofState = iota
	proofNotNeeded             // the connection watches, or the server refuses what it does not know, and such a statement
	proofDeferred              // the server refuses what it does not know, and there is nothing else to lose yet
	proofHeld                  // stmt is there
	proofImpossible            // the server has refused such a statement
)

// recordAnswer takes note that the session itself has answered what was sent at at.
// Answers may be recorded in another order than they were sent in.
func (p *proof) recordAnswer(at time.Time) {
	if at.After(p.lastSent) {
		p.lastSent = at
	}
}

// recordUnproven is recordAnswer for an answer before which the session need not have
// been proven, such as that of a Rollback: after a pause it may be another session's. Where
// there is a proof, only that counts: else reads that follow each other closely would go on
// unproven for as long as they do.
func (p *proof) recordUnproven(at time.Time) {
	if p.stmt == nil && at.Sub(p.lastSent) < maxUnprovenPause {
		p.recordAnswer(at)
	}
}

// errReplaced says that the session is not the one that the handle began with.
var errReplaced = fmt.Errorf("%w: %w", backend.ErrSessionLost, backend.ErrSessionReplaced)

// errUnproven says that the server offers no way to find out whether the session was
// replaced.
var errUnproven = fmt.Errorf("%w: the server may have replaced the session since the last statement was sent %s ago or more, and gives no means to find out", backend.ErrSessionLost, maxUnprovenPause)

// proveSession makes sure that the session is still the handle's before anything is
// sent to it. An error of it has the fault of the session or of the connection, or of a
// refusal, and nothing of the call is sent then. A plain read in a session that was
// proven lately goes without a round trip: at worst it reads in a new session, and
// answeredByOtherSession or the next proof tells. Before a change that risk is not
// taken.
func (s *SessionHandle) proveSession(ctx context.Context, n access) error {
	if s.stateless { // nothing else is kept from one call to the next
		return s.kept.prove(ctx, n, "")
	}
	if _, err := s.rollBackStrayTx(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	tx, unnamed := s.mu.tx, s.mu.sideEffects.any()
	mayLose := tx.phase != txNone || unnamed || len(s.mu.prepared) > 0
	if !mayLose && s.mu.proof.stmt == nil { // whichever session answers what comes now is the handle's
		s.mu.proof.recordAnswer(time.Now())
	}
	p := s.mu.proof
	s.mu.Unlock()
	if tx.phase == txNone || !p.trusted && p.state != proofNotNeeded { // else the server asks for the transaction's id, which no proof can name
		if err := s.kept.prove(ctx, n, tx.id); err != nil {
			return err
		}
	}
	idle := time.Since(p.lastSent)
	switch {
	case p.state == proofUnknown && n >= accessState, p.state == proofDeferred && n == accessUnnamed && tx.phase == txNone:
		return s.makeProof(ctx, n)
	case p.state == proofDeferred && unnamed && tx.phase == txNone: // a transaction has left something
		return s.makeProof(ctx, accessUnnamed)
	case p.trusted && tx.phase != txNone: // its id is the proof, and there is no other
		return nil
	case p.state == proofHeld && (n != accessRead && !p.trusted || idle >= maxProofAge):
		return s.checkProof(ctx, tx.id)
	case p.state == proofImpossible && idle >= maxUnprovenPause:
		return &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultSession, Unsent: true, Err: errUnproven}
	default:
		return nil
	}
}

// proveAfterRollback makes sure that it was the handle's session which has confirmed a
// rollback, as a read does before it is sent. No transaction is open any more.
func (s *SessionHandle) proveAfterRollback(ctx context.Context) error {
	s.mu.Lock()
	p := s.mu.proof
	s.mu.Unlock()
	idle := time.Since(p.lastSent)
	switch {
	case p.state == proofHeld:
		return asSent(s.checkProof(ctx, ""))
	case p.state == proofImpossible && idle >= maxUnprovenPause:
		return &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultSession, Err: errUnproven}
	default:
		return nil
	}
}

// checkProof compares the proof. It is asked in tx, so that it shows the transaction as well.
func (s *SessionHandle) checkProof(ctx context.Context, tx backend.TxID) error {
	s.mu.Lock()
	p := s.mu.proof
	s.mu.Unlock()
	within := maxProofAge
	if p.trusted { // such servers replace sessions after long pauses, if at all, and may be slow
		within = maxUnprovenPause
	}
	return askInTime(within, func(at time.Time) error {
		if err := p.compare(ctx, tx); err != nil {
			return err
		}
		s.mu.Lock()
		s.mu.proof.recordAnswer(at)
		s.mu.Unlock()
		return nil
	})
}

// maxProofTries is how often a proof that comes late is asked for again.
const maxProofTries = 3

// askInTime asks for a proof until an answer has come within a time for which it is true: a
// server's clock begins when the proof is sent, which ask is told.
func askInTime(within time.Duration, ask func(at time.Time) error) error {
	for range maxProofTries {
		at := time.Now()
		if err := ask(at); err != nil {
			return err
		}
		if time.Since(at) < within {
			return nil
		}
	}
	return &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultSession, Unsent: true, Err: fmt.Errorf("%w: the proof that the session is still the same took longer than %s each time", backend.ErrSessionLost, within)}
}

// compare asks the session for its proof. Any other answer than the number, also a
// refusal, is that of another session: ours has the statement, and no transaction that
// is open and sound refuses it.
func (p *proof) compare(ctx context.Context, tx backend.TxID) error {
	answer, err := p.read(ctx, tx)
	switch {
	case err != nil && !backend.FaultIn(err).KeepsConn():
		return err
	case err != nil:
		err = fmt.Errorf("%w (%w)", errReplaced, err)
	case answer != p.nonce:
		err = errReplaced
	default:
		return nil
	}
	return &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultSession, Unsent: true, Err: err}
}

// answeredByOtherSession is not nil when the server has said with an answer that
// another session gave it, and the handle had something to lose in its own, or that was prepared.
// It costs no round trip: the backend has noticed it, as Flight SQL's does by a changed cookie.
// Before the proof is made, nothing is at risk and the new session is as good.
func (s *SessionHandle) answeredByOtherSession() error {
	if !errors.Is(s.conn.Lost(), backend.ErrSessionReplaced) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.proof.state == proofUnknown && s.kept == nil {
		return nil
	}
	return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultSession, Err: errReplaced}
}

// read runs the statement to its end and returns the first value. All of it is read,
// since what is left open would hold the session.
func (p *proof) read(ctx context.Context, tx backend.TxID) (answer string, err error) {
	stream, err := p.stmt.Query(ctx, nil, backend.Call{Tx: tx})
	if err != nil {
		return "", err
	}
	defer stream.Close()
	batch, err := nextRows(stream)
	switch {
	case eof.Reached(err):
		return "", nil
	case err != nil:
		return "", err
	case batch.NumCols() > 0:
		answer = firstValue(batch.Column(0))
	}
	return answer, drain(stream)
}

// closeProof closes the proof's prepared statement. The handle is being cleaned: nothing needs it again.
func (s *SessionHandle) closeProof(ctx context.Context) error {
	s.mu.Lock()
	stmt := s.mu.proof.stmt
	s.mu.Unlock()
	if stmt == nil {
		return nil
	}
	return stmt.Close(ctx)
}
