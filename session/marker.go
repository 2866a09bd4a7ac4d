package session

import (
	"context"
	"fmt"
	"time"
)

// markerIdle is how long a session may be left alone before its marker is
// asked; no server forgets sessions faster.
const markerIdle = 30 * time.Second

// errMarkerGone says that the session that began the transaction is gone.
var errMarkerGone = fmt.Errorf("%w: the server has replaced the session, and the transaction is gone with it", ErrSessionLost)

// checkMarker proves that the session is still the one that began tx.
func (s *SessionHandle) checkMarker(ctx context.Context, tx transaction) error {
	if tx.marker == nil {
		return nil
	}
	stream, err := tx.marker.Query(ctx, nil, Call{Tx: tx.id})
	if err == nil {
		err = drain(stream)
	}
	if err == nil || !FaultIn(err).KeepsConn() {
		return err
	}
	return &Error{Stage: StageProbe, Fault: FaultSession, Err: fmt.Errorf("%w (%w)", errMarkerGone, err)}
}

// checkIdleTx proves the session before a statement that comes after a pause.
func (s *SessionHandle) checkIdleTx(ctx context.Context) error {
	s.mu.Lock()
	tx, touched := s.mu.tx, s.mu.touched
	s.mu.Unlock()
	if tx.phase != txOpen || tx.marker == nil || time.Since(touched) < markerIdle {
		return nil
	}
	return s.checkMarker(ctx, tx)
}

// closeMarker lets go of a transaction's marker; a server that has forgotten
// it as well is no failure.
func (s *SessionHandle) closeMarker(ctx context.Context, tx transaction) error {
	if tx.marker == nil {
		return nil
	}
	if err := tx.marker.Close(ctx); err != nil && !FaultIn(err).KeepsConn() {
		return err
	}
	return nil
}
