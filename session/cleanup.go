package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
)

// Close rolls back an open transaction, closes what is open, makes the session
// clean and returns the connection to its pool. It is bounded by the pool's
// CloseTimeout. A call under way is cancelled and the connection returns when
// the outcome is known. Close is idempotent; its error says why the session could not be
// made clean and its connection is closed, not what a server has stored that leaves transactions:
// Rollback does. A connection that is closed for another reason, as by ResetDiscard, is no error.
func (s *SessionHandle) Close() error {
	if !s.startClosing() {
		return nil
	}
	if err := s.cleanAndReturn(); err != nil {
		return &backend.Error{Op: "Close", Stage: backend.StageClose, Fault: backend.FaultIn(err), Target: s.policy.Target, Err: err}
	}
	return nil
}

// CloseWithin is Close for a caller who waits no longer than ctx allows: the connection
// is made clean behind it then. When it returns, every call answers ErrHandleClosed.
func (s *SessionHandle) CloseWithin(ctx context.Context) {
	if s.startClosing() {
		s.cleanAndReturnFor(ctx.Done)
	}
}

// startClosing has every later call refused. It reports whether the session is its
// caller's to clean; else the call under way does so, or it was closed before.
func (s *SessionHandle) startClosing() bool {
	s.mu.Lock()
	wasIdle, c := s.mu.state == idle, (*call)(nil)
	switch s.mu.state {
	case idle:
		s.mu.state = cleaning
	case busy:
		s.mu.closing, c = true, s.mu.call
	case ending:
		s.mu.closing = true
	default: // closed, or being closed, already
	}
	s.mu.Unlock()
	if c != nil {
		c.interrupt(backend.ErrHandleClosed)
	}
	return wasIdle
}

// cleanAndReturn cleans the session and returns the connection. The state is cleaning.
//
// It is reached once for each connection: the state cleaning is entered once, by Close
// of an idle handle or by becomeIdle, and releaseConn is taken away under the lock. An
// allocator or driver of the user's that panics meanwhile, or ends the goroutine, costs
// the connection: nobody waits for it in the background, where a panic would end the
// process.
func (s *SessionHandle) cleanAndReturn() (failure error) {
	var cleaned callback.Attempt[error]
	defer func() {
		reason := cleaned.Value
		if !cleaned.Returned {
			reason = cleaned.Failure("the cleaning of the session")
			failure = reason
		}
		s.mu.Lock()
		s.mu.state = closed
		releaseConn := s.mu.releaseConn
		s.mu.releaseConn = nil
		s.mu.Unlock()
		if releaseConn != nil {
			releaseConn(reason)
		}
	}()
	cleaned.Run(func() (reason, _ error) {
		reason, failure = s.clean()
		return reason, nil
	})
	return failure
}

// clean cleans the session. It returns the reason to discard the connection, or nil, and
// what of that Close tells.
//
// One that is discarded is rolled back first, and its settings are put back: servers may keep
// the transactions of dropped connections, and have settings for all sessions. Nothing is sent
// on a lost one. What fails where it is discarded anyway is no error, nor an expired credential.
func (s *SessionHandle) clean() (reason, failure error) {
	s.mu.Lock()
	discard, lost, tx, d := s.mu.discardReason, s.mu.lost, s.mu.tx, s.mu.sideEffects
	hasLost := tx.phase != txNone || len(s.mu.prepared) > 0 || d.any() // where the server has replaced the session
	s.mu.Unlock()
	switch {
	case lost != nil:
		return lostError(lost), nil
	case discard != nil:
		ctx, stop := s.policy.closeContext()
		defer stop()
		_, _ = s.closeTxAndStatements(ctx, tx, nil)
		s.restoreSettings(ctx, d, nil)
		return discard, nil
	}
	reason = s.cleanSession()
	replaced := errors.Is(s.conn.Lost(), backend.ErrSessionReplaced)
	if reason != errUsed && backend.FaultIn(reason) != backend.FaultAuth && (hasLost || !replaced) { //nolint:errorlint // as cleanSession returns it
		failure = reason
	}
	return reason, failure
}

// cleanAndReturnFor is cleanAndReturn for a caller who waits until gone is closed. Its
// error has gone into the reason to discard.
//
// INVARIANT: a caller never waits past the end of its context for the session to be
// made clean.
//
// If there is nothing to send, no goroutine is needed. gone may be code of the caller's,
// which may panic: it is called last. Where it is that of a call, the call's context is
// still watched: call.end takes the hook on it off only after this.
func (s *SessionHandle) cleanAndReturnFor(gone func() <-chan struct{}) {
	if !s.returnNeedsServer() {
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
	case <-gone():
	}
}

// closeTxAndStatements rolls back the open transaction, and then one of a statement's own, and closes the proof and the
// prepared statements. It does so under every reset mode. Without the statements it is
// for a connection that is closed next: they end with the session. answered: rollBackStrayTx.
func (s *SessionHandle) closeTxAndStatements(ctx context.Context, tx transaction, prepared map[*PreparedQuery]struct{}) (answered bool, err error) {
	if tx.openOnServer() {
		if err := s.rollBack(ctx, tx); err != nil {
			return false, fmt.Errorf("roll back: %w", err)
		}
		s.setTx(transaction{})
		if f := s.policy.Observe.RolledBack; f != nil {
			f()
		}
	}
	if answered, err = s.rollBackStrayTx(ctx); err != nil {
		return false, err
	}
	if err := s.closeProof(ctx); err != nil {
		return false, fmt.Errorf("close the session's proof: %w", err)
	}
	for q := range prepared {
		if err := q.stmt.Close(ctx); err != nil {
			return false, fmt.Errorf("close prepared statement: %w", err)
		}
	}
	return answered, nil
}

// returnNeedsServer reports whether anything has to be sent before the connection is
// returned, or for its return. The state is cleaning. Where nothing has to be sent, the
// caller's own goroutine gives the connection back at once.
func (s *SessionHandle) returnNeedsServer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.lost != nil:
		return false
	case s.mu.discardReason != nil:
		return s.mu.tx.openOnServer() || s.mu.strayTx != noStrayTx || s.mu.proof.stmt != nil || len(s.mu.sideEffects.leftSettings()) > 0
	default:
		return s.policy.ReturnWaits || s.needsCleaning()
	}
}

// wasUsed reports whether anything was done that a reset by mode undoes. Whoever holds
// a session may have done in it what no text shows, so it counts as used.
func (s *SessionHandle) wasUsed(d sideEffects) bool {
	return d.used || len(d.options) > 0 || !s.stateless
}

// needsCleaning reports whether the session was left in a state that the next borrower
// must not get, or may have been. The lock is held.
func (s *SessionHandle) needsCleaning() bool {
	return s.mu.tx.openOnServer() || s.mu.strayTx != noStrayTx || len(s.mu.prepared) > 0 || s.mu.needsProbe || s.mu.dropKept || s.mu.proof.stmt != nil || s.mustReset(s.mu.sideEffects)
}

// discardsUsed reports whether the connection is closed because it was used.
func (s *SessionHandle) discardsUsed(d sideEffects) bool {
	return s.policy.OnReturn.mode == resetDiscard && s.wasUsed(d)
}

// closesNext reports whether the connection is closed behind the handle's one call, which is no plain read.
func (s *SessionHandle) closesNext() bool {
	return s.stateless && s.policy.OnReturn.mode == resetDiscard
}

var errUsed = errors.New("discarded after use, as configured") // which is no failure

// cleanSession takes back all that the session left. An error means that the connection
// must be discarded. One CloseTimeout bounds all of it. The transaction ends first, also one that a failed
// statement has left, since an aborted one refuses every other statement; then what lived in the session;
// the probe comes last, since it vouches for the session as the next borrower will find it.
func (s *SessionHandle) cleanSession() error {
	s.mu.Lock()
	tx, d, needsProbe, needsCleaning := s.mu.tx, s.mu.sideEffects, s.mu.needsProbe, s.needsCleaning()
	dropKept := s.mu.dropKept || d.any()
	// From here on a prepared statement of the handle answers that it is closed.
	prepared := s.mu.prepared
	s.mu.prepared = nil
	s.mu.Unlock()
	discardUsed := s.discardsUsed(d)
	if !discardUsed && !needsCleaning {
		return nil
	}
	ctx, stop := s.policy.closeContext()
	defer stop()
	if discardUsed {
		_, _ = s.closeTxAndStatements(ctx, tx, nil)
		return errUsed
	}
	start, tried := time.Now(), make(map[string]bool)
	answered, err := s.closeTxAndStatements(ctx, tx, prepared)
	if err == nil && (dropKept || s.mustReset(d) && s.policy.Statements.firstReset(s.conn, s.policy.OnReturn.mode)) { // they may mean something else by what was changed, and changed back
		err = s.closeKept(ctx)
	}
	if err == nil && s.mustReset(d) {
		err = s.reset(ctx, d, tried)
	}
	if err == nil && needsProbe && (!answered || s.mustReset(d)) {
		err = s.runProbe(ctx)
	}
	if err != nil { // which keeps no setting from being put back that may be the whole server's
		s.restoreSettings(ctx, d, tried)
		err = fmt.Errorf("session could not be made clean: %w", err)
	}
	if f := s.policy.Observe.Reset; f != nil {
		f(time.Since(start), err)
	}
	return err
}

// mustReset reports whether there is something to take back beside the transaction and
// the prepared statements. The modes that leave cleaning to others still take back what
// no text of the caller's has done.
func (s *SessionHandle) mustReset(d sideEffects) bool {
	switch s.policy.OnReturn.mode {
	case resetAuto:
		return len(d.effects) > 0 || len(d.refusedSettings) > 0 || len(d.options) > 0 || d.mayHaveMoved || d.mustLearnNamespace || d.failedIngest ||
			d.changedObjects && s.tempsAtStart() != noTemps
	case resetSQL:
		return s.wasUsed(d)
	default:
		return len(d.options) > 0 || d.mayHaveMoved
	}
}

// reset takes back what was left. Options are restored under every mode, since a call
// of ours has set them, and the namespace after an INSERT with parameters, since no text
// of the caller's has changed it: both before the owner's statements. tried: undoEffects.
func (s *SessionHandle) reset(ctx context.Context, d sideEffects, tried map[string]bool) error {
	if len(d.options) > 0 {
		if err := s.restoreOptions(ctx, d.options); err != nil {
			return fmt.Errorf("put session options back: %w", err)
		}
		if err := s.restoreNamespaceAfterOptions(ctx, d); err != nil {
			return err
		}
	}
	if d.mayHaveMoved && s.policy.OnReturn.mode != resetAuto {
		if err := s.returnAtCleanup(ctx, d); err != nil {
			return err
		}
	}
	switch s.policy.OnReturn.mode {
	case resetAuto:
		return s.undoEffects(ctx, d, tried)
	case resetSQL:
		if err := s.kept.prove(ctx, accessChange, ""); err != nil {
			return err
		}
		for i, sql := range s.policy.OnReturn.Statements() {
			if err := s.execWhole(ctx, sql); err != nil {
				return fmt.Errorf("statement %d of ResetSQL: %w", i+1, err)
			}
		}
	case resetDiscard, resetNone:
	}
	return nil
}
