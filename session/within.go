package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/internal/errjoin"
)

// WithTransaction runs fn inside a transaction: Commit when it returns nil,
// Rollback when it fails or panics. Its error is fn's, with that of a Rollback
// that failed, or Commit's. When ctx has
// ended, the rollback goes on behind the caller, and later calls wait for it.
func (s *SessionHandle) WithTransaction(ctx context.Context, fn func(ctx context.Context, s *SessionHandle) error) error {
	if err := s.BeginTransaction(ctx); err != nil {
		return err
	}
	finished := false
	rollback := func() error {
		bounded, stop := context.WithTimeout(ctx, s.policy.closeTimeout())
		defer stop()
		err := s.Rollback(bounded)
		if bounded.Err() != nil {
			// The rollback must go out all the same, but nobody waits for it.
			s.rollBackBehind()
			return nil
		}
		if errors.Is(err, ErrNoTx) || errors.Is(err, ErrSessionLost) || errors.Is(err, ErrHandleClosed) {
			return nil // there is nothing left to undo
		}
		return err
	}
	defer func() {
		if !finished { // fn panicked
			_ = rollback()
		}
	}()
	err := fn(ctx, s)
	finished = true
	if err != nil {
		return errjoin.Join(err, rollback())
	}
	err = s.Commit(ctx)
	if err != nil && s.txState().phase != txNone && !errors.Is(err, ErrCommitUnknown) {
		_ = rollback()
	}
	return err
}

// rollBackBehind rolls the open transaction back behind the caller. Later calls
// of the handle wait for that.
func (s *SessionHandle) rollBackBehind() {
	done := make(chan struct{})
	s.mu.Lock()
	if s.mu.undoing != nil || s.mu.tx.phase == txNone {
		s.mu.Unlock()
		return
	}
	s.mu.undoing = done
	s.mu.Unlock()
	s.policy.run(func() {
		ctx, stop := s.policy.bounded()
		defer stop()
		err := s.rollbackCall(ctx, QueryOptions{undo: true})
		if err != nil && !errors.Is(err, ErrNoTx) && !errors.Is(err, ErrHandleClosed) {
			s.markDiscard(fmt.Errorf("rollback failed: %w", err))
		}
		s.mu.Lock()
		s.mu.undoing = nil
		s.mu.Unlock()
		close(done)
	})
}
