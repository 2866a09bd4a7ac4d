package session

import (
	"context"
	"fmt"
)

// cleanAndReturn cleans the session and returns the connection. The state is
// cleaning. A connection that is discarded is rolled back first: servers may
// keep the transactions of dropped connections.
//
// It is reached once for each connection: the state cleaning is entered once, by Close
// of an idle handle or by becomeIdle, and releaseConn is taken away under the lock.
// Nothing is sent on a lost connection. What fails on one that is discarded anyway is
// not worth an error.
func (s *SessionHandle) cleanAndReturn() error {
	s.mu.Lock()
	reason, lost, tx := s.mu.discardReason, s.mu.lost, s.mu.tx
	s.mu.Unlock()
	var failure error
	switch {
	case lost != nil:
		reason = lostError(lost)
	case reason != nil:
		ctx, stop := s.policy.closeContext()
		_ = s.closeTxAndStatements(ctx, tx, nil)
		stop()
	default:
		failure = s.cleanSession()
		reason = failure
	}
	s.mu.Lock()
	s.mu.state = closed
	releaseConn := s.mu.releaseConn
	s.mu.releaseConn = nil
	s.mu.Unlock()
	if releaseConn != nil {
		releaseConn(reason)
	}
	return failure
}

// cleanAndReturnFor is cleanAndReturn at the end of c, or, if c is nil, of a call that
// no caller waits for. Its error has gone into the reason to discard.
//
// INVARIANT: a caller never waits past the end of its context for the session to be
// made clean.
//
// If there is nothing to send, no goroutine is needed. Else c's context is still
// watched: call.end takes the hook on it off only after this.
func (s *SessionHandle) cleanAndReturnFor(c *call) {
	if c == nil || !s.returnNeedsServer() {
		_ = s.cleanAndReturn()
		return
	}
	done := make(chan struct{})
	s.policy.goInBackground(func() {
		defer close(done)
		_ = s.cleanAndReturn()
	})
	select {
	case <-done:
	case <-c.callerGone:
	}
}

// closeTxAndStatements rolls back the open transaction and closes the proof and the
// prepared statements. It does so under every reset mode. Without the statements it is
// for a connection that is closed next: they end with the session.
func (s *SessionHandle) closeTxAndStatements(ctx context.Context, tx transaction, prepared map[*PreparedQuery]struct{}) error {
	if tx.openOnServer() {
		if err := s.rollBack(ctx, tx); !txGone(err) {
			return fmt.Errorf("roll back: %w", err)
		}
		if f := s.policy.Observe.RolledBack; f != nil {
			f()
		}
	}
	if err := s.closeProof(ctx); err != nil {
		return fmt.Errorf("close the session's proof: %w", err)
	}
	for q := range prepared {
		if err := q.stmt.Close(ctx); err != nil {
			return fmt.Errorf("close prepared statement: %w", err)
		}
	}
	return nil
}

// markDiscard has the connection closed when the handle is done with it. The handle
// goes on meanwhile; the first reason counts.
func (s *SessionHandle) markDiscard(reason error) {
	s.mu.Lock()
	if s.mu.discardReason == nil {
		s.mu.discardReason = reason
	}
	s.mu.Unlock()
}

// Discard is Close for a session whose connection must not be reused: the connection
// is closed, for the given reason.
func (s *SessionHandle) Discard(reason error) error {
	s.markDiscard(reason)
	return s.Close()
}
