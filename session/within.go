package session

import (
	"context"
	"errors"
)

// WithTransaction runs fn inside a transaction: Commit when it returns nil,
// Rollback when it fails or panics. Its error is fn's, or Commit's.
func (s *SessionHandle) WithTransaction(ctx context.Context, fn func(ctx context.Context, s *SessionHandle) error) error {
	if err := s.BeginTransaction(ctx); err != nil {
		return err
	}
	finished := false
	rollback := func() error {
		// The caller's context may be what ended fn; the rollback must go
		// out all the same.
		bounded, stop := s.policy.bounded()
		defer stop()
		err := s.Rollback(bounded)
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
		return errors.Join(err, rollback())
	}
	err = s.Commit(ctx)
	if err != nil && s.txState().phase != txNone {
		_ = rollback()
	}
	return err
}
