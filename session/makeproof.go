package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
)

// makeProof prepares the proof if the server is one that needs it. A server of which
// that could not be found out, since it refuses the question, is treated as one that
// needs it. The id is random, so that no other session's statement can answer with it.
// In a server that takes no such statement only pauses can be watched: see
// maxUnprovenPause.
//
// A server that refuses what it does not know needs it for what no call names: to an INSERT
// after a USE it has nothing to refuse. It is asked less often there, since no statement of a
// transaction runs outside of it.
func (s *SessionHandle) makeProof(ctx context.Context, n access) error {
	at := time.Now()
	trusted, err := s.conn.RejectsUnknownTx(ctx)
	if err != nil {
		if err = notBegun(err); !backend.FaultIn(err).KeepsConn() { // the transaction that it asks with
			return err
		}
	}
	p := proof{trusted: err == nil && trusted, unasked: err != nil, lastSent: at}
	_, watched := s.conn.(backend.TxWatcher)
	switch {
	case watched:
		p.state = proofNotNeeded
	case p.trusted && n < accessUnnamed:
		p.state = proofDeferred
	default:
		p.state, p.nonce = proofHeld, rand.Text()
		p.stmt, err = s.prepareProof(ctx, p.nonce)
		switch {
		case err == nil:
			s.policy.takesProofs.Store(true)
		case errors.Is(err, errReplaced):
			return &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultSession, Unsent: true, Err: errReplaced}
		case !backend.FaultIn(err).KeepsConn(), effect.NoVerdict(err), !p.trusted && s.policy.takesProofs.Load():
			return noWordOnProof(err)
		case p.trusted:
			p.state, p.stmt = proofNotNeeded, nil
		default:
			p.state, p.stmt = proofImpossible, nil
		}
	}
	s.mu.Lock()
	s.mu.proof = p
	s.mu.Unlock()
	return nil
}

// prepareProof prepares the statement that only this session has. One refusal may be a failure of the server's own. Two that
// name no reason may be so as well: behind them a statement that it executes shows that this failure is over.
func (s *SessionHandle) prepareProof(ctx context.Context, nonce string) (backend.Prepared, error) {
	prepare := func() (backend.Prepared, error) { return s.prepare(ctx, "SELECT '"+nonce+"'", nil, backend.Call{}) }
	stmt, err := prepare()
	if backend.FaultIn(err) == backend.FaultStatement {
		stmt, err = prepare()
	}
	if backend.FaultIn(err) != backend.FaultStatement || effect.NoVerdict(err) || effect.Of(effect.Statement, err) == effect.Refused {
		return stmt, err
	}
	if err := s.runProbe(ctx); err != nil {
		return nil, noWordOnProof(err)
	}
	return prepare()
}

// noWordOnProof is the failure of a call before which no answer of the server's to the proof has come. A
// page of HTTP in its place, taken for a refusal, would leave the session unwatched also with a server
// that takes the proof.
func noWordOnProof(err error) error {
	if !backend.FaultIn(err).KeepsConn() {
		return err
	}
	return &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultSession, Unsent: true, Err: fmt.Errorf("%w: the proof of the session: %w", backend.ErrSessionLost, err)}
}
