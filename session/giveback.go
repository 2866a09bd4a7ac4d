package session

import (
	"context"
	"fmt"
)

// giveBack cleans the session and returns the connection. The state is
// cleaning. A connection that is discarded is rolled back first: servers may
// keep the transactions of dropped connections.
func (s *SessionHandle) giveBack() error {
	s.mu.Lock()
	reason, lost, tx := s.mu.discard, s.mu.lost, s.mu.tx
	s.mu.Unlock()
	var failure error
	switch {
	case lost != nil:
		reason = lostError(lost)
	case reason != nil:
		ctx, stop := s.policy.bounded()
		_ = s.endOpen(ctx, tx, nil)
		stop()
	default:
		failure = s.clean()
		reason = failure
	}
	s.mu.Lock()
	s.mu.state = closed
	returns := s.mu.returns
	s.mu.returns = nil
	s.mu.Unlock()
	if returns != nil {
		returns(reason)
	}
	return failure
}

// giveBackFor is giveBack at the end of c, or of a call that nobody waits for if
// c is nil. Its error has gone into the reason to discard.
//
// INVARIANT: a caller never waits past the end of its context for the session to
// be made clean.
func (s *SessionHandle) giveBackFor(c *call) {
	if c == nil || !s.sendsToGiveBack() {
		_ = s.giveBack()
		return
	}
	done := make(chan struct{})
	s.policy.run(func() {
		defer close(done)
		_ = s.giveBack()
	})
	select {
	case <-done:
	case <-c.left:
	}
}

// endOpen ends what no mode may leave open.
func (s *SessionHandle) endOpen(ctx context.Context, tx transaction, prepared map[*PreparedQuery]struct{}) error {
	if tx.open() {
		if err := s.rollBack(ctx, tx); !gone(err) {
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

// markDiscard has the connection closed when the handle is done with it.
func (s *SessionHandle) markDiscard(reason error) {
	s.mu.Lock()
	if s.mu.discard == nil {
		s.mu.discard = reason
	}
	s.mu.Unlock()
}

// Discard is Close for a session whose connection its owner does not trust any
// more: it is closed, for the reason, and not used again.
func (s *SessionHandle) Discard(reason error) error {
	s.markDiscard(reason)
	return s.Close()
}
