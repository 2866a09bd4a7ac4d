package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// WithTransaction runs fn inside a transaction: Commit when it returns nil,
// Rollback when it fails or panics. Its error is fn's, or Commit's: ErrBusy when
// fn returns nil with a result open or a call under way; with either goes that of
// a Rollback that failed. A result that fn leaves open is ended with the
// transaction, which is rolled back then. When ctx has ended, the rollback goes on behind the
// caller, and later calls wait for it. fn neither commits nor rolls back: where it has
// called Commit, and that has not said that nothing is stored, what fails after it is
// ErrCommitUnknown.
//
// INVARIANT: no later statement of the handle runs in the transaction.
func (s *SessionHandle) WithTransaction(ctx context.Context, fn func(ctx context.Context, s *SessionHandle) error) error {
	if err := s.BeginTransaction(ctx); err != nil {
		return err
	}
	commits := s.commits.Load()
	err := s.runAndCommit(ctx, fn)
	if err != nil && s.commits.Load() > commits { // of fn, or of a goroutine that it has left
		return fmt.Errorf("%w: its function has called Commit: %w", backend.ErrCommitUnknown, err)
	}
	return err
}

// runAndCommit is WithTransaction once the transaction has begun.
func (s *SessionHandle) runAndCommit(ctx context.Context, fn func(ctx context.Context, s *SessionHandle) error) error {
	finished := false
	defer func() {
		if !finished { // fn panicked
			_ = s.RollbackOpen(ctx)
		}
	}()
	err := fn(ctx, s)
	finished = true
	if err != nil {
		return errjoin.Join(err, s.RollbackOpen(ctx))
	}
	err = s.commitCall(ctx)
	switch {
	case errors.Is(err, backend.ErrCommitUnknown):
		s.rollBackInBackground() // the COMMIT may be under way still, and leave it open when it fails
	case err != nil && s.txState().phase != txNone:
		err = errjoin.Join(err, s.RollbackOpen(ctx))
	}
	return err
}

// RollbackOpen rolls back the transaction if one is open, and ends what is under way in
// it: a result that was not released, for example. Without one, and in a handle that is
// closed or lost, it does nothing; ErrSessionLost says that it cannot be known whether
// something is stored: see Rollback. When ctx has ended it answers nil, and after the
// pool's CloseTimeout an error: the rollback goes on behind the caller then, and later
// calls wait for it.
func (s *SessionHandle) RollbackOpen(ctx context.Context) error {
	bounded, stop := context.WithTimeout(ctx, s.policy.closeTimeout())
	defer stop()
	err := s.rollBackInterrupting(bounded, QueryOptions{quiet: true, Timeout: -1})
	if err != nil && bounded.Err() != nil {
		// The rollback must go out all the same, but nobody waits for it.
		stored := s.mayHaveStored(s.txState())
		s.rollBackInBackground()
		late := &backend.Error{Op: "Rollback", Stage: backend.StageExecute, Fault: backend.FaultTransport, Target: s.policy.Target, Ctx: ctxerr.Of(ctx), Err: errors.New("no answer within CloseTimeout")}
		switch {
		case late.Ctx != nil && !stored:
			return nil
		case late.Ctx != nil:
			late.Fault, late.Err = backend.FaultContext, errServerLeftTx
		case stored:
			late = withCause(late, errServerLeftTx)
		}
		return late
	}
	if errors.Is(err, ErrNoTx) || errors.Is(err, backend.ErrHandleClosed) || errors.Is(err, backend.ErrSessionLost) && !s.mayHaveStored(s.txState()) {
		return nil // there is nothing left to undo
	}
	var e *backend.Error
	if errors.As(err, &e) && !errors.Is(err, backend.ErrCommitUnknown) && !errors.Is(err, backend.ErrSessionLost) && s.mayHaveStored(s.txState()) {
		return withCause(e, errServerLeftTx) // its owner does not roll back again
	}
	return err
}

// rollBackInBackground rolls the open transaction back in the background. Later calls
// of the handle wait for that. What is still under way in the transaction may take as
// long as its call allows; the rollback itself is bounded. Where it fails the session
// is lost: its transaction may be open, and its owner was told that it is over. Until
// done is closed, rollbackDone keeps other calls waiting in tryBegin; the rollback's
// own call passes by its option.
func (s *SessionHandle) rollBackInBackground() {
	done := make(chan struct{})
	s.mu.Lock()
	if s.mu.rollbackDone != nil || s.mu.tx.phase == txNone {
		s.mu.Unlock()
		return
	}
	s.mu.rollbackDone = done
	s.mu.Unlock()
	s.policy.goInBackground(func() {
		s.interruptAndWait(errTxEnded)
		ctx, stop := s.policy.closeContext()
		defer stop()
		err := callback.Isolate(ownersCode, func() error { return s.rollBackInterrupting(ctx, QueryOptions{backgroundRollback: true, Timeout: -1}) })
		if err != nil && s.txState().phase != txNone && !errors.Is(err, backend.ErrHandleClosed) {
			s.markLost(fmt.Errorf("rollback failed: %w", err))
		}
		s.mu.Lock()
		s.mu.rollbackDone = nil
		s.mu.Unlock()
		close(done)
	})
}

// rollBackInterrupting is Rollback, and ends what is still under way in the
// transaction. A call of another goroutine may begin between the two: hence the loop.
func (s *SessionHandle) rollBackInterrupting(ctx context.Context, opts QueryOptions) error {
	err := s.rollbackCall(ctx, opts)
	for errors.Is(err, backend.ErrBusy) && ctx.Err() == nil {
		s.interruptCall(errTxEnded)
		err = s.rollbackCall(ctx, opts)
	}
	return err
}
