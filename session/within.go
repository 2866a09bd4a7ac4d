package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// WithTransaction runs fn inside a transaction: Commit when it returns nil,
// Rollback when it fails or panics. Its error is fn's, with that of a Rollback
// that failed, or Commit's: ErrBusy when fn returns nil with a result open or a
// call under way. A result that fn leaves open is ended with the transaction,
// which is rolled back then. When ctx has ended, the rollback goes on behind the
// caller, and later calls wait for it.
//
// INVARIANT: no later statement of the handle runs in the transaction.
func (s *SessionHandle) WithTransaction(ctx context.Context, fn func(ctx context.Context, s *SessionHandle) error) error {
	if err := s.BeginTransaction(ctx); err != nil {
		return err
	}
	finished := false
	rollback := func() error {
		bounded, stop := context.WithTimeout(ctx, s.policy.closeTimeout())
		defer stop()
		err := s.rollBackInterrupting(bounded, QueryOptions{})
		if bounded.Err() != nil {
			// The rollback must go out all the same, but nobody waits for it.
			s.rollBackInBackground()
			return nil
		}
		if errors.Is(err, ErrNoTx) || errors.Is(err, backend.ErrSessionLost) || errors.Is(err, backend.ErrHandleClosed) {
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
	switch {
	case errors.Is(err, backend.ErrCommitUnknown):
		s.rollBackInBackground() // the COMMIT may be under way still, and leave it open when it fails
	case err != nil && s.txState().phase != txNone:
		_ = rollback()
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
		err := s.rollBackInterrupting(ctx, QueryOptions{backgroundRollback: true})
		if err != nil && !errors.Is(err, ErrNoTx) && !errors.Is(err, backend.ErrHandleClosed) {
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

var errTxEnded = errors.New("the transaction of the call is over")

// interruptAndWait is interruptCall, and waits until no call is under way. It is for
// the background: a call that is left to its end, such as a COMMIT, may take as long as
// the server does. The end of the owner ends it.
func (s *SessionHandle) interruptAndWait(cause error) {
	for {
		s.interruptCall(cause)
		s.mu.Lock()
		ended := s.mu.ended
		s.mu.Unlock()
		if ended == nil {
			return
		}
		select {
		case <-ended:
		case <-s.policy.OwnerContext.Done():
			return
		}
	}
}

// markLost marks the session lost. A handle that runs a call lets go of the connection
// at the end of that. The first reason counts. Every later call answers ErrSessionLost
// with it.
func (s *SessionHandle) markLost(reason error) {
	s.mu.Lock()
	if s.mu.lost == nil {
		s.mu.lost = lostError(reason)
	}
	wasIdle := s.mu.state == idle
	if wasIdle { // until becomeIdle, so that Close leaves the rest to it
		s.mu.state, s.mu.ended = ending, make(chan struct{})
	}
	s.mu.Unlock()
	if wasIdle {
		s.becomeIdle(nil)
	}
}

// interruptCall ends the call under way, or its result, behind whoever runs it. Later
// calls wait for that. It takes the handle to ending before the call hears of it, so
// that no other call can begin in between.
func (s *SessionHandle) interruptCall(cause error) {
	s.mu.Lock()
	c := s.mu.call
	if s.mu.state != busy {
		s.mu.Unlock()
		return
	}
	s.mu.state, s.mu.ended = ending, make(chan struct{})
	s.mu.Unlock()
	c.interrupt(cause)
}
